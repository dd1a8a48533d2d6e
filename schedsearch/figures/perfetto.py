"""Schedules and traces beside each other in one file for ui.perfetto.dev, in Chrome's JSON trace format.

Every device is a process, in which each schedule or trace has a thread, and one more for each further stream:
device 0 of a searched schedule stands just above device 0 of 1F1B. Messages are arrows, memory is a counter.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from placements.block import COMPUTE
from placements.forms.texts import write_text
from schedsearch.metrics import needed_over_time
from schedsearch.schedule import Instance, Schedule, dependencies
from schedsearch.traces.table import BLOCK_KINDS, TraceTable


@dataclass(frozen=True, eq=False)
class Slice:
    """A time in which a stream of a device does something; each is equal to itself alone.

    Attributes:
        device: Number of the device, from 0.
        name: Text in the slice; slices whose names differ in digits alone have one colour.
        args: Facts that are shown when the slice is selected.
        stream: Stream of the device; slices of a stream that overlap are drawn in several threads.
    """

    device: int
    name: str
    begin_ms: float
    end_ms: float
    args: Mapping[str, object] = field(default_factory=dict)
    stream: str = COMPUTE


class TraceRow(NamedTuple):
    """A schedule or a trace as a row of each device.

    Attributes:
        slices: Slices of all devices, in any order.
        messages: Pairs of a slice that sends and a later one that receives, drawn as arrows.
        counters: Device, name with the unit, time (ms) and value of counters from that time on.
    """

    slices: Sequence[Slice]
    messages: Sequence[tuple[Slice, Slice]] = ()
    counters: Sequence[tuple[int, str, float, float]] = ()


def write_perfetto(
    path: str | Path,
    rows: Mapping[str, Schedule | TraceTable | TraceRow],
    keys: Mapping[str, object] | None = None,
) -> Path:
    """Write schedules and traces in one file; return its path.

    Args:
        path: File to write, as ``trace.json``.
        rows: Schedules, traces, or rows of your own, by the names of their threads from top to bottom.
        keys: Further keys of the file, as the source of costs.
    """
    drawn: dict[str, TraceRow] = {}
    for name, row in rows.items():
        row = trace_row(row) if isinstance(row, TraceTable) else row
        drawn[name] = schedule_row(row, name) if isinstance(row, Schedule) else row
    head = json.dumps({"displayTimeUnit": "ms", **(keys or {})}, allow_nan=False)[1:-1]
    lines = ",\n".join(json.dumps(event, allow_nan=False, separators=(",", ":")) for event in _events(drawn))
    return write_text(path, f'{{{head}, "traceEvents": [\n{lines}\n]}}\n')


def schedule_row(schedule: Schedule, name: str) -> TraceRow:
    """Return the row of a schedule, with inputs from other devices or streams, and memory under its name."""
    placement, tick_ms = schedule.placement, schedule.placement.tick_ms
    slices: dict[Instance, list[Slice]] = {}
    for start, n, block_name in schedule.blocks:
        block, mode = schedule.block(block_name, n), schedule.mode(block_name, n)
        args = {"block": block_name, "micro_batch": n, "kind": block.kind.value}
        args |= {"mode": mode} if mode else {}
        times = start * tick_ms, schedule.end_of[block_name, n] * tick_ms
        text = f"{block_name}.{n} {mode}".rstrip()
        slices[block_name, n] = [Slice(device, text, *times, args, block.stream) for device in block.devices]
    messages = []
    for earlier, later, _ in dependencies(placement, schedule.num_micro_batches, schedule.chosen):
        sources = slices[earlier]
        streams = {(source.device, source.stream) for source in sources}
        for i, target in enumerate(slices[later]):
            if (target.device, target.stream) not in streams:
                messages.append((sources[i % len(sources)], target))
    counters = []
    scale, unit = placement.memory_unit_mib or 1, "MiB" if placement.memory_unit_mib else "units"
    for device in range(placement.num_devices):
        for tick, units in zip(*needed_over_time(schedule, device), strict=True):
            counters.append((device, f"{name} memory ({unit})", int(tick) * tick_ms, int(units) * scale))
    return TraceRow(list(chain(*slices.values())), messages, counters)


def trace_row(table: TraceTable) -> TraceRow:
    """Return the row of a trace, from its first begin on; a rank is a device.

    Messages, collectives, data, the optimizer, and replicas but the first have threads of their own.
    """
    origin_ms = min((span.start_ms for span in table.spans), default=0.0)
    slices = []
    for span in table.spans:
        stage, number = ("" if number is None else number for number in (span.stage, span.micro_batch))
        text = f"{span.kind}{stage}.{number}".rstrip(".")
        times = span.start_ms - origin_ms, span.end_ms - origin_ms
        args = {name: value for name, value in span._asdict().items() if value is not None}
        stream = [] if span.kind in BLOCK_KINDS else [span.kind]
        stream += [f"replica {span.replica}"] if span.replica else []
        slices.append(Slice(span.rank, text, *times, args, " ".join(stream) or COMPUTE))
    return TraceRow(slices)


def _events(rows: Mapping[str, TraceRow]) -> Iterator[dict[str, Any]]:
    """Yield the events of the format, with times in microseconds."""
    streams: dict[tuple[int, int, bool, str], list[Slice]] = defaultdict(list)
    for number, row in enumerate(rows.values()):
        for piece in row.slices:
            streams[piece.device, number, piece.stream != COMPUTE, piece.stream].append(piece)
    counters = list(chain(*(row.counters for row in rows.values())))
    devices = {device for device, *_ in (*streams, *counters)}
    for device in sorted(devices):
        yield from _named("process", f"device {device}", device, {"pid": device + 1})
    place_of: dict[Slice, dict[str, int]] = {}
    tids = count(max(devices, default=0) + 2)  # no number of a process
    for (device, number, has_name, stream), slices in sorted(streams.items(), key=itemgetter(0)):
        for depth, thread in enumerate(_without_overlap(slices), 1):
            place = {"pid": device + 1, "tid": next(tids)}
            words = [list(rows)[number], stream * has_name, f"({depth})" * (depth > 1)]
            yield from _named("thread", " ".join(filter(None, words)), place["tid"], place)
            for piece in thread:
                place_of[piece] = place
                begin_us = _us(piece.begin_ms)
                times = {"ts": begin_us, "dur": round(_us(piece.end_ms) - begin_us, 3)}
                yield {"ph": "X", **place, "name": piece.name, **times, "args": piece.args}
    pairs = (pair for row in rows.values() for pair in row.messages)
    for number, (source, target) in enumerate(pairs, 1):
        shared = {"name": f"{source.name} -> {target.name}", "cat": "message", "id": number}
        inside_us = max(_us(source.begin_ms), round(_us(source.end_ms) - 0.001, 3))  # the end is outside
        yield {"ph": "s", **place_of[source], **shared, "ts": inside_us}
        yield {"ph": "f", **place_of[target], **shared, "ts": _us(target.begin_ms), "bp": "e"}
    for device, name, ms, value in counters:
        yield {"ph": "C", "pid": device + 1, "name": name, "ts": _us(ms), "args": {"value": value}}


def _named(kind: str, name: str, index: int, place: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the name of a process or thread, and its place among others."""
    for key, value in (("name", name), ("sort_index", index)):
        yield {"ph": "M", **place, "name": f"{kind}_{key}", "args": {key: value}}


def _without_overlap(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Share slices among threads that have one at a time, each in order of time."""
    threads: list[list[Slice]] = []
    for piece in sorted(slices, key=attrgetter("begin_ms", "end_ms")):
        free = (thread for thread in threads if _us(thread[-1].end_ms) <= _us(piece.begin_ms))
        if (thread := next(free, None)) is None:
            threads.append(thread := [])
        thread.append(piece)
    return threads


def _us(ms: float) -> float:
    return round(ms * 1000, 3)
