"""A run drawn against its plan: one file for ui.perfetto.dev with a process for each device.

Each device has the threads ``planned`` (in the times of the profile), ``free transfers`` (the measured block
times again with zero communication, see `runtime.profiling.zero_comm`), ``measured`` and ``waiting`` (for
what a block takes), arrows for messages, and counters of clocks, memory and power. Recorded iterations follow
each other as they did; the plan is drawn from the begin of the last one. Records of virtual time are drawn in
the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from placements import Kind, Placement
from runtime.plans.planned import PlannedIteration
from runtime.profiling.perfetto import Slice, TraceFile
from runtime.profiling.records import BlockRecord, Record, aligned
from runtime.profiling.zero_comm import zero_comm_spans
from schedsearch.metrics import memory_over_time
from schedsearch.schedule import Instance

THREAD_NAMES = dict(enumerate(("planned", "free transfers", "measured", "waiting"), 1))
"""The threads of a device, by their numbers."""

PLANNED, ZERO_COMM, MEASURED, WAITING = THREAD_NAMES

KIND_COLOR = {
    Kind.F: "thread_state_running",
    Kind.B: "thread_state_iowait",
    Kind.I: "thread_state_uninterruptible",
    Kind.W: "rail_load",
    Kind.R: "thread_state_runnable",
    Kind.O: "grey",
}
"""Names of Chrome's colours; Perfetto takes a colour from the name of the block instead."""

_WAITING_COLOR = "terrible"

_Slices = dict[tuple[int, Instance], Slice]
"""By device and (block, micro-batch)."""


def write_trace(
    path: str | Path,
    placement: Placement,
    records: Sequence[Sequence[Record]],
    planned: PlannedIteration | None = None,
    costs: Mapping[str, object] | None = None,
) -> Path:
    """Draw what the devices did, and what was planned if that is known; return the file.

    Args:
        path: The file.
        placement: What ran where.
        records: Records of each device, those of the same iterations.
        planned: What the last iteration is compared with.
        costs: Where the plan's costs come from, as further keys of the file.
    """
    file = TraceFile()
    for device in range(placement.num_devices):
        file.name_process(device, f"device {device}")
        for thread, name in THREAD_NAMES.items():
            if thread != PLANNED or planned is not None:
                file.name_thread(device, thread, name)
    iterations = list(zip(*records, strict=True))
    first = iterations[0]
    origin_s = min(record.begin_s for record in first if record.machine == first[0].machine)
    for iteration in iterations:
        drawing = _Drawing(file, placement, iteration, aligned(iteration, origin_s), planned)
        drawing.draw_measured()
    if not placement.has_streams:  # it knows one block of a device at a time
        drawing.draw_row(ZERO_COMM, zero_comm_spans(placement, iterations[-1]))
    if planned is not None:
        drawing.draw_planned(planned)
    return file.write(path, costs or {})


@dataclass(frozen=True)
class _Drawing:
    """One iteration that is being drawn; the offsets put each device's times on the file's axis."""

    file: TraceFile
    placement: Placement
    records: Sequence[Record]
    offset_ms: Mapping[int, float]
    planned: PlannedIteration | None

    @property
    def begin_ms(self) -> float:
        """Return when the first device began."""
        return min(self.offset_ms.values())

    def draw_measured(self) -> None:
        """Draw blocks, waiting, messages, requests and memory as they were."""
        slices: _Slices = {}
        for record in self.records:
            for row in record.blocks:
                slices[record.device, row.instance] = self._draw_block(record, row)
            self._draw_waiting(record)
            self._draw_messages(record)
            self._draw_counters(record)
        self._draw_arrows(slices)

    def draw_planned(self, planned: PlannedIteration) -> None:
        """Draw the plan from the begin of the iteration on."""
        self.draw_row(PLANNED, {instance: planned.span_ms(instance) for instance in planned.points})
        for device in range(self.placement.num_devices):
            for name, ms, value in _planned_counters(planned, device):
                self.file.count(device, name, self.begin_ms + ms, value)

    def _draw_block(self, record: Record, row: BlockRecord) -> Slice:
        offset_ms = self.offset_ms[record.device]
        at = Slice(record.device, MEASURED, offset_ms + row.begin_ms, offset_ms + row.end_ms)
        measured = {"measured_ms": row.end_ms - row.begin_ms, "waiting_ms": row.ready_ms - row.reached_ms}
        args = {"iteration": record.iteration, **self._facts(row.instance), **measured}
        self.file.slice(_name(row.instance), at, self._color(row.block), args)
        return at

    def draw_row(self, thread: int, spans: Mapping[Instance, tuple[float, float]]) -> None:
        """Draw blocks that begin and end so many milliseconds after the iteration."""
        measured_ms = {
            (record.device, row.instance): row.end_ms - row.begin_ms
            for record in self.records
            for row in record.blocks
        }
        slices: _Slices = {}
        for instance, (begin_ms, end_ms) in spans.items():
            for device in self.placement.by_name[instance[0]].devices:
                at = Slice(device, thread, self.begin_ms + begin_ms, self.begin_ms + end_ms)
                args = {**self._facts(instance), "measured_ms": measured_ms[device, instance]}
                self.file.slice(_name(instance), at, self._color(instance[0]), args)
                slices[device, instance] = at
        self._draw_arrows(slices)

    def _draw_waiting(self, record: Record) -> None:
        """Draw the wait of every block that takes a message, however short."""
        offset_ms = self.offset_ms[record.device]
        taken = {(row.consumer, row.micro_batch) for row in record.receives}
        for row in record.blocks:
            if row.instance in taken:
                at = Slice(record.device, WAITING, offset_ms + row.reached_ms, offset_ms + row.ready_ms)
                args = {"block": row.block, "micro_batch": row.micro_batch}
                self.file.slice(f"waits for {_name(row.instance)}", at, _WAITING_COLOR, args)

    def _draw_messages(self, record: Record) -> None:
        """Draw both ends of each message from when they were posted; they may overlap."""
        for name, rows in (("receive", record.receives), ("send", record.sends)):
            for row in rows:
                offset_ms = self.offset_ms[record.device]
                end_ms = record.end_ms if row.ended_ms is None else row.ended_ms
                at = Slice(record.device, MEASURED, offset_ms + row.posted_ms, offset_ms + end_ms)
                args = {"message": str(row.transfer), "source": row.source, "target": row.target}
                self.file.span(name, at, {**args, "end_is_known": row.ended_ms is not None})

    def _draw_counters(self, record: Record) -> None:
        for name, samples in (
            ("requested clock (MHz)", record.clock_mhz),
            ("held memory (bytes)", record.held_bytes),
            ("allocated memory (bytes)", record.allocated_bytes),
        ):
            for sample in samples:
                self.file.count(record.device, name, self.offset_ms[record.device] + sample.ms, sample.value)

    def _draw_arrows(self, slices: _Slices) -> None:
        """Draw each message from the block that makes it to the block that takes it."""
        for row in (row for record in self.records for row in record.receives):
            source = slices[row.source, (row.producer, row.micro_batch)]
            target = slices[row.target, (row.consumer, row.micro_batch)]
            self.file.arrow(f"{row.producer} -> {row.consumer}", source, target)

    def _facts(self, instance: Instance) -> dict[str, object]:
        facts: dict[str, object] = {"block": instance[0], "micro_batch": instance[1]}
        if self.planned is not None:
            point = self.planned.points[instance]
            facts |= {"planned_mhz": point.clock_mhz, "planned_ms": point.time_ms}
            facts |= {"planned_mj": point.energy_mj}
        return facts

    def _color(self, block: str) -> str:
        return KIND_COLOR[self.placement.by_name[block].kind]


def _name(instance: Instance) -> str:
    return f"{instance[0]}.{instance[1]}"


def _planned_counters(planned: PlannedIteration, device: int) -> Iterator[tuple[str, float, float]]:
    """Yield name, time and value of what is planned: clock, power of a GPU, memory."""
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
