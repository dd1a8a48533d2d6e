"""A run drawn beside its plan: whole, in order, and the same as the plan where time is virtual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from perfetto_rules import Event, counter_of, problems, read_events, thread_of
from quarter_ms import PLACEMENT, PROFILE
from small_runs import SMALL_GPT, comparison_of, launched

from placements import Block, Kind, Placement
from placements.gpus import A100_SXM_80GB
from placements.hardware import modelled_profile
from placements.shapes import m_shape, v_shape, wave_shape
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Measurement
from runtime.plans.planned import PlannedIteration
from runtime.profiling.records import BlockRecord, CounterSample, MessageRecord, Record, aligned
from runtime.profiling.trace import write_trace
from runtime.profiling.utilisation import DeviceShares, UtilisationTable, utilisation_table, zero_comm_spans
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import compute_frontier
from schedsearch.schedule import Schedule, as_soon_as_possible

SYNTHETIC = {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2}


def planned(schedule: Schedule, latency: int = 0) -> PlannedIteration:
    """Return a plan in the order of a schedule, with several clocks, of blocks none of which are alike."""
    placement = schedule.placement
    blocks = tuple(replace(block, time=30 * block.time + 7 * i) for i, block in enumerate(placement.blocks))
    transfer = tuple((name, block.name, latency) for block in blocks for name in block.after if latency)
    placement = replace(placement, tick_ms=1.0, blocks=blocks, transfer=transfer)
    profile = modelled_profile(placement, A100_SXM_80GB)
    orders = [schedule.order(device) for device in range(placement.num_devices)]
    schedule = as_soon_as_possible(placement, schedule.num_micro_batches, orders)
    frontier = compute_frontier(schedule, profile, 20)
    return PlannedIteration.of(
        schedule, profile, frontier.at(frontier.shortest.time_ms * 1.1).clock_mhz, "GiB"
    )


def scripts_of(plan: PlannedIteration, directory: Path, model: dict[str, object] | None = None) -> Path:
    number = plan.schedule.num_micro_batches
    clocks = {
        block.name: [plan.points[block.name, n].clock_mhz for n in range(number)]
        for block in plan.schedule.placement.blocks
    }
    generate(lower(plan.schedule), clocks, dict(model or SYNTHETIC), directory)
    return directory


def recorded(scripts: Path, num_devices: int, launcher: str, iterations: int = 3) -> Measurement:
    return launched(scripts, num_devices, iterations, launcher=launcher, trace=True)


def instances(slices: list[Event]) -> list[tuple[str, int]]:
    return [(event["args"]["block"], event["args"]["micro_batch"]) for event in slices]


@pytest.mark.parametrize(
    ("shape", "order", "launcher"),
    [
        (v_shape(2), one_f_one_b, "fork"),
        (m_shape(2), gpipe, "in_process"),
        (wave_shape(2, split_backward=True), gpipe, "in_process"),
    ],
    ids=["v_shape", "several_devices", "split_backward"],
)
def test_every_block_is_drawn_once_in_the_order_of_the_schedule(
    shape: Placement, order: Callable[[Placement, int], Schedule], launcher: str, tmp_path: Path
) -> None:
    plan = planned(order(shape, 3))
    schedule = plan.schedule
    traced = recorded(scripts_of(plan, tmp_path / "scripts"), shape.num_devices, launcher)
    path = write_trace(tmp_path / "trace.json", schedule.placement, traced.records, plan)
    events = read_events(path)
    assert problems(events) == []
    for device in range(shape.num_devices):
        expected = list(schedule.order(device))
        assert instances(thread_of(events, device, "planned")) == expected
        assert instances(thread_of(events, device, "free transfers")) == expected
        measured = thread_of(events, device, "measured")
        assert instances(measured) == expected * 3
        assert [event["args"]["iteration"] for event in measured] == [
            iteration for iteration in range(3) for _ in expected
        ]
        asked = [plan.points[instance].clock_mhz for instance in expected]
        assert [value for _, value in counter_of(events, device, "requested clock")] == asked * 3
        assert [value for _, value in counter_of(events, device, "planned clock")] == asked
        assert len(counter_of(events, device, "held memory")) == 2 * len(measured)


def test_a_plan_is_drawn_as_it_is(tmp_path: Path) -> None:
    plan = planned(gpipe(v_shape(2).with_memory(3), 3), latency=4)
    traced = recorded(scripts_of(plan, tmp_path / "scripts"), 2, "in_process")
    events = read_events(write_trace(tmp_path / "trace.json", plan.schedule.placement, traced.records, plan))
    begin_us = min(event["ts"] for device in (0, 1) for event in thread_of(events, device, "planned"))
    assert begin_us > 0, "it is drawn at the last iteration"
    slices = thread_of(events, 1, "planned")
    for event, instance in zip(slices, plan.schedule.order(1), strict=True):
        point, args = plan.points[instance], event["args"]
        assert event["ts"] - begin_us == pytest.approx(plan.start_ms[instance] * 1000, abs=0.01)
        assert event["dur"] == pytest.approx(point.time_ms * 1000, abs=0.01)
        assert (args["planned_mhz"], args["planned_mj"]) == (point.clock_mhz, point.energy_mj)
        assert args["planned_ms"] == point.time_ms
        assert args["measured_ms"] > 0
    units = [value for _, value in counter_of(events, 0, "planned memory (GiB)")]
    assert units == [1, 2, 3, 2, 1, 0]
    power_w = [value for _, value in counter_of(events, 0, "planned power")]
    assert power_w[1::2] == [plan.profile.min_blocking_power_w] * 6
    assert min(power_w[0::2]) > plan.profile.min_blocking_power_w


def test_recording_changes_nothing_and_keeps_the_last_eight_iterations(tmp_path: Path) -> None:
    plan = planned(one_f_one_b(v_shape(2), 4))
    scripts = scripts_of(plan, tmp_path / "scripts", SMALL_GPT)
    with_records = recorded(scripts, 2, "in_process", 10)
    assert [[record.iteration for record in of] for of in with_records.records] == [
        [2, 3, 4, 5, 6, 7, 8, 9]
    ] * 2
    without = launched(scripts, 2, 10, launcher="in_process")
    assert without.records == ()
    assert comparison_of(with_records).bitwise_equal
    assert with_records.losses == without.losses
    assert with_records.clock_requests == without.clock_requests


def record(device: int, *blocks: tuple[str, int, float, float], begin_s: float = 0.0) -> Record:
    rows = tuple(BlockRecord(name, n, begin, begin, begin, end) for name, n, begin, end in blocks)
    return Record(device, 0, "here", begin_s, rows[-1].end_ms, rows)


def test_zero_communication_by_hand() -> None:
    records = [
        record(0, ("F0", 0, 0, 2), ("F0", 1, 3, 6), ("B0", 0, 20, 24), ("B0", 1, 30, 34)),
        record(1, ("F1", 0, 5, 9), ("B1", 0, 10, 16), ("F1", 1, 17, 21), ("B1", 1, 22, 28)),
    ]
    assert zero_comm_spans(v_shape(2), records) == {
        ("F0", 0): (0, 2),
        ("F0", 1): (2, 5),
        ("F1", 0): (2, 6),
        ("B1", 0): (6, 12),
        ("B0", 0): (12, 16),
        ("F1", 1): (12, 16),
        ("B1", 1): (16, 22),
        ("B0", 1): (22, 26),
    }


def test_a_block_of_several_devices_takes_as_long_as_on_the_quickest() -> None:
    blocks = (Block("A", Kind.F, (0,), 1), Block("E", Kind.F, (0, 1), 1, after=("A",)))
    records = [record(0, ("A", 0, 0, 4), ("E", 0, 4, 6)), record(1, ("E", 0, 0, 6))]
    spans = zero_comm_spans(Placement("team", 2, blocks), records)
    assert spans == {("A", 0): (0, 4), ("E", 0): (4, 6)}


@pytest.mark.parametrize("waited_ms", [(0.0, 4.0), (5.0, 9.0)], ids=["blocking", "before_the_block"])
def test_a_device_waits_wherever_it_stands_for_a_tensor(waited_ms: tuple[float, float]) -> None:
    """A blocking run waits as it receives, so its blocks find all there; others wait before the block."""
    begin_ms, end_ms = waited_ms
    reached_ms = 5.0
    ready_ms = max(reached_ms, end_ms)
    first = Record(0, 0, "here", 0.0, 10.0, (BlockRecord("F0", 0, 0.0, 0.0, 0.0, 4.0),))
    second = Record(
        *(1, 0, "here", 0.0, 10.0, (BlockRecord("F1", 0, reached_ms, ready_ms, ready_ms, 10.0),)),
        receives=(MessageRecord("F0", "F1", 0, 0, 1, 0.0, begin_ms, end_ms),),
    )
    table = utilisation_table(v_shape(2, inference=True), [first, second])
    assert [shares.waiting for shares in table.devices] == pytest.approx([0.0, 0.4])


def test_devices_of_one_machine_share_its_clock() -> None:
    rows = [
        record(0, ("F0", 0, 0, 1), begin_s=10.002),
        record(1, ("F1", 0, 0, 1), begin_s=10.0),
        replace(record(2, ("F2", 0, 0, 1), begin_s=7000.5), machine="there"),
        replace(record(3, ("F3", 0, 0, 1), begin_s=7000.501), machine="there"),
    ]
    assert aligned(rows) == pytest.approx({0: 2, 1: 0, 2: 0, 3: 1})
    assert aligned(rows, origin_s=9.0) == pytest.approx({0: 1002, 1: 1000, 2: 1000, 3: 1001})


RECORDS = (
    Record(
        *(0, 0, "here", 100.0, 15.0),
        blocks=(BlockRecord("F0", 0, 0.0, 0.0, 0.0, 2.0), BlockRecord("B0", 0, 2.0, 10.0, 10.0, 14.0)),
        held_bytes=(CounterSample(0.0, 5), CounterSample(2.0, 9), CounterSample(14.0, 3)),
    ),
    Record(
        *(1, 0, "here", 100.0, 9.0),
        blocks=(BlockRecord("F1", 0, 0.0, 3.0, 3.0, 5.0), BlockRecord("B1", 0, 5.0, 5.0, 5.0, 8.0)),
    ),
)
"""One micro-batch: with free transfers 2 + 2 + 3 + 4 ms, and as it was 14."""


def test_shares_are_of_the_lengths_that_they_belong_to() -> None:
    """Planned at the highest clocks: 2 ms, 1 of transfer, 3, 5, 1.5 of transfer, 4."""
    one = as_soon_as_possible(PLACEMENT, 1, [[("F0", 0), ("B0", 0)], [("F1", 0), ("B1", 0)]])
    planned = PlannedIteration.of(one, PROFILE, dict.fromkeys(PROFILE.points, (1100,)))
    table = utilisation_table(PLACEMENT, RECORDS, planned)
    assert (table.planned_ms, table.zero_comm_ms, table.measured_ms) == (16.5, 11.0, 14.0)
    assert table.ratio == pytest.approx(14 / 11)
    first, second = table.devices
    assert first.planned == pytest.approx(6 / 16.5) and second.planned == pytest.approx(8 / 16.5)
    assert first.zero_comm == pytest.approx(6 / 11) and second.zero_comm == pytest.approx(5 / 11)
    assert first.measured == pytest.approx(6 / 14) and second.measured == pytest.approx(5 / 14)
    assert first.waiting == pytest.approx(8 / 14) and second.waiting == pytest.approx(3 / 14)
    assert (first.peak_held_bytes, second.peak_held_bytes) == (9, None)
    bare = utilisation_table(PLACEMENT, RECORDS)
    assert bare.planned_ms is None and bare.devices[0].planned is None


TABLE = UtilisationTable(
    24.5,
    25.0,
    30.5,
    (DeviceShares(0.4, 0.5, 0.25, 0.125, 4096), DeviceShares(0.6, 0.625, 0.75, 0.0625, None)),
)


def test_the_file_has_each_share_in_its_column_and_the_line_means_over_devices(tmp_path: Path) -> None:
    assert TABLE.write_csv(tmp_path / "trace.csv").read_text().splitlines() == [
        "device,planned_ms,free_transfers_ms,measured_ms,"
        "planned_busy,free_transfers_busy,measured_busy,waiting,peak_held_bytes",
        "0,24.5,25,30.5,0.4,0.5,0.25,0.125,4096",
        "1,24.5,25,30.5,0.6,0.625,0.75,0.0625,",
    ]
    text = TABLE.describe()
    assert "30.5 ms, 1.220 times the 25 ms" in text
    assert "computes for 50.0% of it (planned: 50.0%) and waits for 9.4%" in text
