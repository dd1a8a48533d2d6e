"""Schedules and traces in one file for Perfetto: each in its threads, whole, in order and in ms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from modes_and_streams import communicated, offloaded, recomputed
from perfetto_rules import Event, counter_of, problems, read_events, thread_of

from placements.shapes import m_shape, v_shape, wave_shape
from schedsearch.baselines import gpipe
from schedsearch.figures.perfetto import Slice, TraceRow, write_perfetto
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule, dependencies
from schedsearch.traces.table import Span, TraceTable


def threads(events: list[Event], process: int) -> list[str]:
    """Return the names of a process's threads, from top to bottom."""
    named = [event for event in events if event["name"] == "thread_name" and event["pid"] == process + 1]
    return [event["args"]["name"] for event in sorted(named, key=lambda event: int(event["tid"]))]


PLAIN = [gpipe(placement, 4) for placement in (v_shape(3), m_shape(3), wave_shape(2, split_backward=True))]


@pytest.mark.parametrize("schedule", [*PLAIN, recomputed(), offloaded(1.5), communicated()])
def test_schedules_stand_beside_each_other_in_each_device(schedule: Schedule, tmp_path: Path) -> None:
    """With a thread for each stream, the names of modes, and an arrow for each input from elsewhere."""
    placement = replace(schedule.placement, tick_ms=0.25, memory_unit_mib=2.0)
    rows = {"other": gpipe(v_shape(1), 1), "found": schedule.under(placement)}
    events = read_events(write_perfetto(tmp_path / "trace.json", rows))
    assert problems(events) == []
    streams = sorted({stream for _, stream in placement.lanes} - {"compute"})
    assert threads(events, 0) == ["other", "found", *(f"found {stream}" for stream in streams)]
    for (device, stream), order in zip(placement.lanes, schedule.lane_orders, strict=True):
        drawn = thread_of(events, device, f"found {stream}".removesuffix(" compute"))
        names = [f"{name}.{n} {schedule.mode(name, n)}".rstrip() for name, n in order]
        assert [span["name"] for span in drawn] == names
        assert [span["ts"] for span in drawn] == [250 * schedule.start_of[key] for key in order]
        assert [span["ts"] + span["dur"] for span in drawn] == [250 * schedule.end_of[key] for key in order]
    for device, peak in enumerate(peak_memory(schedule)):
        assert max(mib for _, mib in counter_of(events, device, "found memory (MiB)")) == 2 * peak
    inputs = list[tuple[str, str]]()
    for (earlier, n), (later, _), _ in dependencies(placement, schedule.num_micro_batches, schedule.chosen):
        source, target = placement.by_name[earlier], placement.by_name[later]
        here = source.devices if source.stream == target.stream else ()
        inputs += [(f"{earlier}.{n}", later)] * len({*target.devices} - {*here})
    arrows = [event["name"].split(" -> ") for event in events if event["ph"] == "s"]
    arrows = [(source.split()[0], target.split(".")[0]) for source, target in arrows]
    assert sorted(arrows) == sorted(inputs)


def test_a_trace_and_a_row_of_ones_own(tmp_path: Path) -> None:
    """Replicas, and spans that are no blocks, are apart; overlapping spans have threads of their own."""
    spans = [
        *(Span(0, 0, "F", 0, 1000.0, 1002.0, 7), Span(0, 0, "B", 0, 1002.0, 1006.5, 7)),
        *(Span(0, None, "collective", None, 1006.0, end_ms) for end_ms in (1007.0, 1008.0)),
        *(Span(0, 0, "F", 0, 1000.5, 1003.0, 7, 1), Span(1, 1, "F", None, 1002.0, 1004.0)),
    ]
    source, target = Slice(0, "send", 0.0, 1.0, {"bytes": 8}), Slice(1, "take", 1.5, 2.0)
    mine = TraceRow([target, source], [(source, target)], [(1, "queue (requests)", 1.5, 3)])
    rows = {"measured": TraceTable("job", spans), "mine": mine}
    events = read_events(write_perfetto(tmp_path / "trace.json", rows))
    assert problems(events) == []
    names = ["measured", "measured collective", "measured collective (2)", "measured replica 1", "mine"]
    assert [threads(events, device) for device in (0, 1)] == [names, ["measured", "mine"]]
    blocks = thread_of(events, 0, "measured")
    drawn = [(span["name"], span["ts"], span["dur"]) for span in blocks]
    assert drawn == [("F0.0", 0, 2000), ("B0.0", 2000, 4500)]
    assert blocks[0]["args"]["iteration"] == 7
    assert [event["name"] for event in thread_of(events, 1, "measured")] == ["F1"]
    assert counter_of(events, 1, "queue") == [(1500, 3)]
