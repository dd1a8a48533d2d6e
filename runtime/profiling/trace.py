"""A run drawn against its plan: one file for ui.perfetto.dev with a process for each device.

Each device has the threads ``planned`` (in the times of the profile), ``free transfers`` (the measured block
times again with zero communication, see `runtime.profiling.utilisation`), ``measured`` and ``waiting`` (for
what a block takes), arrows for messages, and counters of clocks, memory and power. Recorded iterations follow
each other as they did; the plan is drawn from the begin of the last one. Records of virtual time are drawn in
the same way. The events of Chrome's JSON trace format are written here: `torch.profiler` writes only what it
has traced itself, and has neither plans nor arrows between processes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from placements import Placement
from placements.forms.texts import write_text
from runtime.plans.planned import PlannedIteration
from runtime.profiling.records import BlockRecord, Record, aligned
from runtime.profiling.utilisation import zero_comm_spans
from schedsearch.metrics import memory_over_time
from schedsearch.schedule import Instance

THREAD_NAMES = dict(enumerate(("planned", "free transfers", "measured", "waiting"), 1))
"""The threads of a device, by their numbers."""

PLANNED, ZERO_COMM, MEASURED, WAITING = THREAD_NAMES


class _Slice(NamedTuple):
    """A time in which a thread of a device does something; its ends in milliseconds."""

    device: int
    thread: int
    begin_ms: float
    end_ms: float

    @property
    def place(self) -> dict[str, int]:
        """Return the ids of the thread: above 0, which stands for the kernel, and of no other process."""
        return {"pid": self.device + 1, "tid": (self.device + 1) * 100 + self.thread}


_Slices = dict[tuple[int, Instance], _Slice]
"""By device and (block, micro-batch)."""


def write_trace(
    path: str | Path,
    placement: Placement,
    records: Sequence[Sequence[Record]],
    planned: PlannedIteration | None = None,
    costs: Mapping[str, object] | None = None,
) -> Path:
    """Draw the records of each device, of the same iterations, and the plan of the last; return the file.

    `costs` says where the plan's costs come from, as further keys of the file.
    """
    drawing = _Drawing(placement, planned)
    iterations = list(zip(*records, strict=True))
    first = iterations[0]
    origin_s = min(record.begin_s for record in first if record.machine == first[0].machine)
    for iteration in iterations:
        offset_ms = aligned(iteration, origin_s)
        drawing.draw_measured(iteration, offset_ms)
    begin_ms = min(offset_ms.values())
    if not placement.has_streams:  # it knows one block of a device at a time
        drawing.draw_row(ZERO_COMM, zero_comm_spans(placement, iterations[-1]), iterations[-1], begin_ms)
    if planned is not None:
        spans = {instance: planned.span_ms(instance) for instance in planned.points}
        drawing.draw_row(PLANNED, spans, iterations[-1], begin_ms)
        for device in range(placement.num_devices):
            for name, ms, value in _planned_counters(planned, device):
                drawing.count(device, name, begin_ms + ms, value)
    head = json.dumps({"displayTimeUnit": "ms", **(costs or {})}, allow_nan=False)[1:-1]
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in drawing.events)
    return write_text(path, f'{{{head}, "traceEvents": [\n{lines}\n]}}\n')


class _Drawing:
    """Events of a trace, an object of the format each; their times are microseconds with three decimals."""

    def __init__(self, placement: Placement, planned: PlannedIteration | None) -> None:
        self.events: list[dict[str, Any]] = []
        self._placement, self._planned = placement, planned
        self._ids = itertools.count(1)
        for device in range(placement.num_devices):
            names = {0: f"device {device}"} | THREAD_NAMES
            for thread, name in names.items():
                if thread != PLANNED or planned is not None:
                    kind = "thread" if thread else "process"
                    place = _Slice(device, thread, 0.0, 0.0).place if thread else {"pid": device + 1}
                    for what, value in (("name", name), ("sort_index", thread or device)):
                        self._add("M", f"{kind}_{what}", place, args={what: value})

    def draw_measured(self, records: Sequence[Record], offset_ms: Mapping[int, float]) -> None:
        """Draw blocks, waiting, messages, requests and memory of an iteration; each device has an offset."""
        slices: _Slices = {}
        for record in records:
            begin_ms = offset_ms[record.device]
            for row in record.blocks:
                at = _Slice(record.device, MEASURED, begin_ms + row.begin_ms, begin_ms + row.end_ms)
                slices[record.device, row.instance] = at
                measured = {"measured_ms": row.end_ms - row.begin_ms}
                measured["waiting_ms"] = row.ready_ms - row.reached_ms
                self._block(row.instance, at, {"iteration": record.iteration}, measured)
            self._draw_waiting(record, begin_ms)
            self._draw_messages(record, begin_ms)
            for name, samples in (
                ("requested clock (MHz)", record.clock_mhz),
                ("held memory (bytes)", record.held_bytes),
                ("allocated memory (bytes)", record.allocated_bytes),
            ):
                for sample in samples:
                    self.count(record.device, name, begin_ms + sample.ms, sample.value)
        self._draw_arrows(records, slices)

    def draw_row(
        self,
        thread: int,
        spans: Mapping[Instance, tuple[float, float]],
        records: Sequence[Record],
        offset_ms: float,
    ) -> None:
        """Draw blocks that begin and end so many milliseconds after the iteration that was measured."""
        rows = {(record.device, row.instance): row for record in records for row in record.blocks}
        slices: _Slices = {}
        for instance, (begin_ms, end_ms) in spans.items():
            for device in self._placement.by_name[instance[0]].devices:
                row: BlockRecord = rows[device, instance]
                at = _Slice(device, thread, offset_ms + begin_ms, offset_ms + end_ms)
                self._block(instance, at, {}, {"measured_ms": row.end_ms - row.begin_ms})
                slices[device, instance] = at
        self._draw_arrows(records, slices)

    def count(self, device: int, name: str, ms: float, value: float) -> None:
        """Set a counter of a device from a time on."""
        self._add("C", name, {"pid": device + 1}, ts=_us(ms), args={"value": value})

    def _block(
        self, instance: Instance, at: _Slice, first: Mapping[str, object], last: Mapping[str, object]
    ) -> None:
        """Draw a block with its facts, between others."""
        facts: dict[str, object] = {"block": instance[0], "micro_batch": instance[1]}
        if self._planned is not None:
            point = self._planned.points[instance]
            facts |= {"planned_mhz": point.clock_mhz, "planned_ms": point.time_ms}
            facts |= {"planned_mj": point.energy_mj}
        self._slice(_name(instance), at, {**first, **facts, **last})

    def _slice(self, name: str, at: _Slice, args: Mapping[str, object]) -> None:
        begin_us = _us(at.begin_ms)
        times = {"ts": begin_us, "dur": round(_us(at.end_ms) - begin_us, 3)}
        self._add("X", name, at.place, **times, args=args)

    def _draw_waiting(self, record: Record, offset_ms: float) -> None:
        """Draw the wait of every block that takes a message, however short."""
        taken = {(row.consumer, row.micro_batch) for row in record.receives}
        for row in record.blocks:
            if row.instance in taken:
                at = _Slice(record.device, WAITING, offset_ms + row.reached_ms, offset_ms + row.ready_ms)
                args = {"block": row.block, "micro_batch": row.micro_batch}
                self._slice(f"waits for {_name(row.instance)}", at, args)

    def _draw_messages(self, record: Record, offset_ms: float) -> None:
        """Draw both ends of each message from when they were posted; they may overlap."""
        place = _Slice(record.device, MEASURED, 0.0, 0.0).place
        for name, rows in (("receive", record.receives), ("send", record.sends)):
            for row in rows:
                end_ms = record.end_ms if row.ended_ms is None else row.ended_ms
                args = {"message": str(row.transfer), "source": row.source, "target": row.target}
                args["end_is_known"] = row.ended_ms is not None
                shared = {"cat": "message", "id2": {"local": str(next(self._ids))}}
                self._add("b", name, place, ts=_us(offset_ms + row.posted_ms), **shared, args=args)
                self._add("e", name, place, ts=_us(offset_ms + end_ms), **shared)

    def _draw_arrows(self, records: Sequence[Record], slices: _Slices) -> None:
        """Draw each message from the block that makes it to the block that takes it."""
        for row in (row for record in records for row in record.receives):
            source = slices[row.source, (row.producer, row.micro_batch)]
            target = slices[row.target, (row.consumer, row.micro_batch)]
            begin_us, end_us = _us(source.begin_ms), _us(source.end_ms)
            inside_us = max(begin_us, round(end_us - 0.001, 3))  # the end itself is outside
            name, shared = f"{row.producer} -> {row.consumer}", {"cat": "message", "id": next(self._ids)}
            self._add("s", name, source.place, ts=inside_us, **shared)
            self._add("f", name, target.place, ts=_us(target.begin_ms), **shared, bp="e")

    def _add(self, kind: str, name: str, place: Mapping[str, int], **rest: object) -> None:
        self.events.append({"ph": kind, **place, "name": name, **rest})


def _us(ms: float) -> float:
    return round(ms * 1000, 3)


def _name(instance: Instance) -> str:
    return f"{instance[0]}.{instance[1]}"


def _planned_counters(planned: PlannedIteration, device: int) -> Iterator[tuple[str, float, float]]:
    """Yield name, time and value of the plan's clock, power of a GPU, and memory."""
    order = planned.schedule.order(device)
    in_memory = memory_over_time(planned.schedule, device)[1].tolist()
    memory = f"planned memory ({planned.memory_unit or 'units of the placement'})"
    for instance, units in zip(order, in_memory, strict=True):
        point = planned.points[instance]
        begin_ms, end_ms = planned.span_ms(instance)
        yield "planned clock (MHz)", begin_ms, point.clock_mhz
        yield memory, begin_ms, units
        yield "planned power (W)", begin_ms, point.energy_mj / point.time_ms
        yield "planned power (W)", end_ms, planned.profile.blocking_w(point.clock_mhz)
