"""A training loop of one's own at the clocks of a plan (Perseus, Table 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from fake_driver import FakeDriver, FakeGpu
from fake_event import FakeEvent

from placements import Profile
from placements.forms.texts import write_json
from placements.gpus import A100_SXM_80GB
from placements.hardware import modelled_profile
from placements.shapes import m_shape, v_shape
from runtime.clocks.clock import NvmlClock, RecordingClock
from runtime.clocks.speed import SpeedController, read_clocks
from runtime.clocks.stream_clock import StreamClock
from runtime.program.calls import BlockCall, ScriptError
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import compute_frontier
from schedsearch.schedule import Schedule

SCHEDULE = one_f_one_b(v_shape(2), 3)
CLOCKS = {name: [100 * (i + 1) + n for n in range(3)] for i, name in enumerate(("F0", "F1", "B1", "B0"))}


def order(schedule: Schedule, device: int) -> list[str]:
    return [block for block, _ in schedule.order(device)]


def test_each_call_gets_the_clock_of_its_place_in_the_schedule() -> None:
    controller = SpeedController(SCHEDULE, CLOCKS, 0)
    assert order(SCHEDULE, 0) == ["F0", "F0", "B0", "F0", "B0", "B0"]
    for _ in range(2):
        assert [controller.set_speed(block) for block in order(SCHEDULE, 0)] == [100, 101, 400, 102, 401, 402]
    assert controller.requests == [100, 101, 400, 102, 401, 402] * 2
    assert controller.description == "clocks are recorded only: the script runs on the CPU"


def test_perseus_types_stand_for_blocks() -> None:
    controller = SpeedController(SCHEDULE, CLOCKS, 1)
    types = ["forward", "backward"] * 3
    assert [controller.set_speed(each) for each in types] == [200, 300, 201, 301, 202, 302]


def test_another_order_is_told_of() -> None:
    controller = SpeedController(SCHEDULE, CLOCKS, 0)
    controller.set_speed("F0")
    with pytest.raises(
        ScriptError,
        match=r"device 0: set_speed\('backward'\) comes where the schedule has F0 of micro-batch 1, 2 of 6",
    ):
        controller.set_speed("backward")
    with pytest.raises(ScriptError, match=r"set_speed\('F1'\) comes where"):
        controller.set_speed("F1")
    controller.begin_iteration()
    assert controller.set_speed("F0") == 100, "an iteration that ended early begins anew"


@pytest.mark.parametrize(
    ("clocks", "message"),
    [
        ({"F0": [1, 2, 3]}, r"clock_mhz: B0 has \[\] for 3 micro-batches; give a plan of this schedule"),
        (CLOCKS | {"B0": [1, 2]}, r"clock_mhz: B0 has \[1, 2\] for 3 micro-batches"),
        (CLOCKS | {"B0": [1, 2, "3"]}, r"clock_mhz: B0 has \[1, 2, '3'\]"),
    ],
)
def test_a_plan_of_another_schedule_is_refused(clocks: Mapping[str, Sequence[int]], message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        SpeedController(SCHEDULE, clocks, 0)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScriptError, match="device: 2 is not in .*; its devices are 0 to 1"):
        SpeedController(SCHEDULE, CLOCKS, 2)


def test_files_of_plans_are_read(tmp_path: Path) -> None:
    write_json(tmp_path / "plan.json", {"clock_mhz": CLOCKS})
    write_json(tmp_path / "switched.json", {"plan": {"clock_mhz": CLOCKS}})
    for name in ("plan.json", "switched.json"):
        assert read_clocks(SCHEDULE, tmp_path / name) == CLOCKS
    for data, message in (
        ({}, "clock_mhz: is not a mapping"),
        (
            {"clock_mhz": CLOCKS | {"F2": [1, 2, 3]}},
            "clock_mhz: has clocks of F2, which v_shape has not; give a",
        ),
    ):
        write_json(tmp_path / "wrong.json", data)
        with pytest.raises(ScriptError, match=f"wrong.json: {message}"):
            read_clocks(SCHEDULE, tmp_path / "wrong.json")


def test_the_loop_runs_at_the_clocks_of_the_plan(driver: FakeDriver) -> None:
    """Through the controller and NVML: the energy of what a device computes is that of the plan."""
    placement = m_shape(2)
    profile = modelled_profile(placement, A100_SXM_80GB)
    schedule = gpipe(placement, 3)
    frontier = compute_frontier(schedule, profile, 20)
    plan = frontier.at(frontier.shortest.time_ms * 1.1)
    clocks = sorted({point.clock_mhz for points in profile.points.values() for point in points})
    driver.setup(1, range(clocks[0], clocks[-1] + 1, 15))
    clock = NvmlClock("0")
    gpu = FakeGpu(driver, 0, clock)
    with SpeedController(schedule, plan.clock_mhz, 0, clock=clock) as controller:
        gpu_mhz = []
        for block, _ in schedule.order(0):
            gpu.wait_for_lock(controller.set_speed(block))
            gpu_mhz.append(gpu._nvml.clock_mhz())
            gpu.work(profile.points[block])
    wanted = [(block, plan.clock_mhz[block][n]) for block, n in schedule.order(0)]
    assert gpu_mhz == [mhz for _, mhz in wanted]
    assert len(set(gpu_mhz)) > 1, "a plan with one clock would show little"
    assert gpu.energy_mj() == pytest.approx(sum(_energy_mj(profile, *each) for each in wanted), rel=1e-4)
    assert driver.lines()[-1] == "0 reset"


def _energy_mj(profile: Profile, block: str, clock_mhz: int) -> float:
    return next(point.energy_mj for point in profile.points[block] if point.clock_mhz == clock_mhz)


def test_on_a_gpu_clocks_follow_the_stream() -> None:
    """A loop that runs ahead of its GPU asks for nothing that is not due, nor does it wait."""
    passed = RecordingClock()
    now_s = [0.0]
    events: list[FakeEvent] = []

    def record() -> FakeEvent:
        events.append(FakeEvent())
        return events[-1]

    runs = [BlockCall("F1", n, CLOCKS["F1"][n]) for n in range(3)]
    runs = [run for n in range(3) for run in (runs[n], BlockCall("B1", n, CLOCKS["B1"][n]))]
    stream = StreamClock(passed, runs, now_s=lambda: now_s[0])
    controller = SpeedController(SCHEDULE, CLOCKS, 1, clock=stream, record=record)
    for _ in range(2):
        for block in order(SCHEDULE, 1):
            controller.set_speed(block)
    assert passed.requests == []
    wanted = [run.clock_mhz for run in runs] * 2
    for number, event in enumerate(events):
        now_s[0] = event.at_s = float(number + 1)
        stream.step()
        assert passed.requests == wanted[: number + 1]
    assert controller.requests == wanted
