"""A run drawn against its plan: one file for ui.perfetto.dev with a process for each device.

Each device has the rows ``planned`` (in the times of the profile), ``free transfers`` (the measured block
times again with zero communication, see `runtime.profiling.utilisation`) and ``measured``, with messages and
waits for them in threads of their own. Recorded iterations follow each other as they did; the plan is drawn
from the begin of the last one. Records of virtual time are drawn in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from placements import Placement
from runtime.plans.planned import PlannedIteration
from runtime.profiling.records import Record, aligned
from runtime.profiling.utilisation import zero_comm_spans
from schedsearch.figures.perfetto import Slice, TraceRow, write_perfetto
from schedsearch.metrics import memory_over_time
from schedsearch.schedule import Instance


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
    iterations = list(zip(*records, strict=True))
    first, last = iterations[0], iterations[-1]
    origin_s = min(record.begin_s for record in first if record.machine == first[0].machine)
    measured: list[TraceRow] = []
    for iteration in iterations:
        offset_ms = aligned(iteration, origin_s)
        measured.append(_blocks(placement, planned, iteration, offset_ms))
        measured += (_communication(record, offset_ms[record.device]) for record in iteration)
    begin_ms = min(offset_ms.values())
    together_ms = dict.fromkeys(offset_ms, begin_ms)
    rows: dict[str, TraceRow] = {}
    if planned is not None:
        spans = {instance: planned.span_ms(instance) for instance in planned.points}
        row = _blocks(placement, planned, last, together_ms, spans)
        rows["planned"] = row._replace(counters=list(_planned_counters(planned, begin_ms)))
    if not placement.has_streams:  # it knows one block of a device at a time
        free = zero_comm_spans(placement, last)
        rows["free transfers"] = _blocks(placement, planned, last, together_ms, free)
    rows["measured"] = TraceRow(*(list(chain(*parts)) for parts in zip(*measured, strict=True)))
    return write_perfetto(path, rows, costs)


def _blocks(
    placement: Placement,
    planned: PlannedIteration | None,
    records: Sequence[Record],
    offset_ms: Mapping[int, float],
    spans: Mapping[Instance, tuple[float, float]] | None = None,
) -> TraceRow:
    """Return an iteration's blocks and messages, at other times than measured where `spans` has these."""
    slices: dict[tuple[int, Instance], Slice] = {}
    for record in records:
        for row in record.blocks:
            args: dict[str, object] = {"iteration": record.iteration}
            args |= {"block": row.block, "micro_batch": row.micro_batch}
            if planned is not None:
                point = planned.points[row.instance]
                args |= {"planned_mhz": point.clock_mhz, "planned_ms": point.time_ms}
                args["planned_mj"] = point.energy_mj
            args["measured_ms"] = row.end_ms - row.begin_ms
            if spans is None:
                args["waiting_ms"] = row.ready_ms - row.reached_ms
            begin_ms, end_ms = (row.begin_ms, row.end_ms) if spans is None else spans[row.instance]
            times = offset_ms[record.device] + begin_ms, offset_ms[record.device] + end_ms
            text, stream = f"{row.block}.{row.micro_batch}", placement.by_name[row.block].stream
            slices[record.device, row.instance] = Slice(record.device, text, *times, args, stream)
    messages = [
        (slices[row.source, (row.producer, n)], slices[row.target, (row.consumer, n)])
        for record in records
        for row in record.receives
        for n in [row.micro_batch]
    ]
    return TraceRow(list(slices.values()), messages)


def _communication(record: Record, offset_ms: float) -> TraceRow:
    """Return a device's waits, however short, its messages from their posts on, and its counters."""
    slices, taken = [], {(row.consumer, row.micro_batch) for row in record.receives}
    for block in (block for block in record.blocks if block.instance in taken):
        times = offset_ms + block.reached_ms, offset_ms + block.ready_ms
        args: dict[str, object] = {"block": block.block, "micro_batch": block.micro_batch}
        text = f"waits for {block.block}.{block.micro_batch}"
        slices.append(Slice(record.device, text, *times, args, "waiting"))
    for name, rows in (("receive", record.receives), ("send", record.sends)):
        for row in rows:
            end_ms = record.end_ms if row.ended_ms is None else row.ended_ms
            args = {"message": str(row.transfer), "source": row.source, "target": row.target}
            args["end_is_known"] = row.ended_ms is not None
            times = offset_ms + row.posted_ms, offset_ms + end_ms
            slices.append(Slice(record.device, str(row.transfer), *times, args, name))
    samples = {
        "requested clock (MHz)": record.clock_mhz,
        "held memory (bytes)": record.held_bytes,
        "allocated memory (bytes)": record.allocated_bytes,
    }
    device = record.device
    counters = [(device, name, offset_ms + ms, value) for name in samples for ms, value in samples[name]]
    return TraceRow(slices, (), counters)


def _planned_counters(planned: PlannedIteration, offset_ms: float) -> Iterator[tuple[int, str, float, float]]:
    """Yield the plan's clock, power of a GPU, and memory."""
    memory = f"planned memory ({planned.memory_unit or 'units of the placement'})"
    for device in range(planned.schedule.placement.num_devices):
        in_memory = memory_over_time(planned.schedule, device)[1].tolist()
        for instance, units in zip(planned.schedule.order(device), in_memory, strict=True):
            point = planned.points[instance]
            begin_ms, end_ms = (offset_ms + ms for ms in planned.span_ms(instance))
            waiting_w = planned.profile.blocking_w(point.clock_mhz)
            yield device, "planned clock (MHz)", begin_ms, point.clock_mhz
            yield device, memory, begin_ms, units
            yield device, "planned power (W)", begin_ms, point.energy_mj / point.time_ms
            yield device, "planned power (W)", end_ms, waiting_w
