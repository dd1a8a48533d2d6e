"""The profiler against power models that it does not know, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from fake_driver import DirectClock, FakeDriver, FakeGpu
from small_runs import trained

from placements import Profile
from placements.profiles.operating_point import write_profile_rows
from placements.shapes import m_shape
from runtime.clocks.clock import ClockBackend, RecordingClock
from runtime.profiling.device_profiler import open_profiler
from runtime.profiling.profiler import DeviceProfile, MeasuredCost, Meter, Profiler, Sweep, merged
from runtime.program.lower import lower
from schedsearch.baselines import gpipe

CYCLES = {"F0": 39.6, "B0": 79.2}
"""Millions, of each block."""

CLOCKS = range(345, 1980 + 1, 15)


def time_ms(kind: str, clock_mhz: int) -> float:
    return 1000 * CYCLES[kind] / clock_mhz


def energy_mj(kind: str, clock_mhz: int) -> float:
    """Of the driver's model; least where 2 * 425 x^3 = 75, at 0.445 of 1980 MHz."""
    return time_ms(kind, clock_mhz) * (75 + 425 * (clock_mhz / 1980) ** 3)


def iterate(profiler: Profiler, gpu: FakeGpu, micro_batches: int = 2, wait_ms: float = 3.0) -> None:
    """Run an iteration as a device does: blocks, and waits between them."""
    profiler.begin_iteration()
    for _ in range(micro_batches):
        for kind, millions in CYCLES.items():
            gpu.wait(wait_ms)
            profiler.begin(kind)
            gpu.cycles(millions)
            profiler.end(kind)
    profiler.end_iteration()


def swept(gpu: FakeGpu, sweep: Sweep, clock: ClockBackend | None = None, most: int = 10_000) -> Profiler:
    clocks = gpu._nvml.clocks_mhz()
    profiler = Profiler(gpu, sweep, clock or gpu, clocks, settle=gpu.settle)  # type: ignore[arg-type]
    for _ in range(most):
        if profiler.is_done:
            return profiler
        iterate(profiler, gpu)
    raise AssertionError("the sweep does not end")


@pytest.fixture
def gpu(driver: FakeDriver) -> FakeGpu:
    """A GPU that hears of clocks without a controller, 10 ms late."""
    driver.setup(1, CLOCKS, latency_ms=10.0)
    return FakeGpu(driver, 0, DirectClock())


def by_clock(profiler: Profiler, kind: str) -> Mapping[int, MeasuredCost]:
    return {cost.clock_mhz: cost for cost in profiler.costs if cost.kind == kind and cost.clock_mhz}


def test_the_sweep_finds_the_power_model_and_ends_past_the_best_clock(gpu: FakeGpu) -> None:
    profiler = swept(gpu, Sweep(iterations=2, rises=5))
    for kind in CYCLES:
        costs = by_clock(profiler, kind)
        assert list(costs) == sorted(costs, reverse=True), "from the highest down"
        assert max(costs) == 1980
        for clock_mhz, cost in costs.items():
            assert cost.time_ms == pytest.approx(time_ms(kind, clock_mhz), rel=1e-9)
            assert cost.energy_mj == pytest.approx(energy_mj(kind, clock_mhz), abs=1.0)
        energies = [cost.energy_mj for cost in costs.values()]
        rises = [after > before for before, after in pairwise(energies)]  # type: ignore[operator]
        assert rises == [False] * (len(rises) - 5) + [True] * 5
    assert min(by_clock(profiler, "F0")) > 345 + 15, "it did not go to the end"


class Limited:
    """A GPU that takes every request, and runs a block no faster than a limit of the block's own."""

    def __init__(self, limits_mhz: Mapping[str, int], reads_more_mhz: int = 0) -> None:
        self.limits_mhz, self.reads_more_mhz = limits_mhz, reads_more_mhz
        self.asked_mhz = self.reads_mhz = 1980
        self.asked: list[int] = []
        self.time_ms = 0.0

    def set(self, clock_mhz: int) -> None:
        self.asked_mhz = clock_mhz
        self.asked.append(clock_mhz)

    def now_ms(self) -> float:
        return self.time_ms

    def energy_mj(self) -> float:
        return self.time_ms * 300

    def run(self, kind: str) -> None:
        clock_mhz = min(self.asked_mhz, self.limits_mhz[kind])
        self.reads_mhz = clock_mhz + self.reads_more_mhz
        self.time_ms += time_ms(kind, clock_mhz)

    def profiled(self, clocks_mhz: list[int]) -> Profiler:
        profiler = Profiler(self, Sweep(iterations=2), self, clocks_mhz, lambda: self.reads_mhz)  # type: ignore[arg-type]
        while not profiler.is_done:
            profiler.begin_iteration()
            for kind in CYCLES:
                profiler.begin(kind)
                self.run(kind)
                profiler.end(kind)
            profiler.end_iteration()
        return profiler


@pytest.mark.parametrize("reads_more_mhz", [0, -7])
def test_costs_are_of_the_clock_that_a_block_ran_at(reads_more_mhz: int) -> None:
    """A driver grants less than was asked for; blocks may be limited at different clocks."""
    gpu = Limited({"F0": 1500, "B0": 1410}, reads_more_mhz)
    profiler = gpu.profiled([1200, 1410, 1500, 1800, 1980])
    assert gpu.asked == [1980, 1410, 1200], "what would run as before is not asked for again"
    assert list(by_clock(profiler, "F0")) == [1500, 1410, 1200]
    assert list(by_clock(profiler, "B0")) == [1410, 1200], "measured twice at 1410, and one row"
    for cost in profiler.costs:
        assert cost.clock_mhz is not None
        assert cost.time_ms == pytest.approx(time_ms(cost.kind, cost.clock_mhz))
    assert profiler.limit == "ran at 1500 MHz where 1980 MHz were asked for"


class Scripted(Meter):
    """A meter whose energies are given: of each block, by clock; every block takes 10 ms."""

    def __init__(self, energies: Mapping[str, list[float]]) -> None:
        self.energies, self.total_mj, self.time_ms, self.step = energies, 0.0, 0.0, 0

    def now_ms(self) -> float:
        return self.time_ms

    def energy_mj(self) -> float:
        return self.total_mj

    def use(self, kind: str) -> None:
        self.time_ms += 10.0
        self.total_mj += self.energies[kind][self.step]


def test_the_sweep_goes_on_until_every_block_is_past_its_best_clock() -> None:
    """F0 is past it after two rises, at the third clock; W0 only at the seventh, after a break."""
    meter = Scripted({"F0": [5, 6, 7, 6, 6, 6, 6, 6], "W0": [9, 8, 9, 8, 7, 8, 9, 10]})
    clock = RecordingClock()
    profiler = Profiler(meter, Sweep(iterations=1, rises=2), clock, range(900, 901 + 7))
    while not profiler.is_done:
        profiler.begin_iteration()
        meter.step = 907 - clock.requests[-1]
        for kind in meter.energies:
            profiler.begin(kind)
            meter.use(kind)
            profiler.end(kind)
        profiler.end_iteration()
    assert clock.requests == [907, 906, 905, 904, 903, 902, 901]
    assert [cost.energy_mj for cost in profiler.costs if cost.kind == "W0"] == [9, 8, 9, 8, 7, 8, 9]


def test_a_coarse_energy_counter_is_waited_for(driver: FakeDriver) -> None:
    """It moves on every 10 ms, as real ones do; 20 ms blocks are off by a tenth without the wait."""
    driver.setup(1, range(900, 1980 + 1, 360), counter_period_ms=10.0)
    gpu = FakeGpu(driver, 0, RecordingClock())
    naive, profiler = Profiler(gpu, Sweep(20)), Profiler(gpu, Sweep(20), align=gpu.align)
    for sweep in (naive, profiler):
        while not sweep.is_done:
            iterate(sweep, gpu, wait_ms=3.7)
    for cost in profiler.costs:
        assert cost.time_ms == pytest.approx(time_ms(cost.kind, 1980), rel=1e-9)
        assert cost.energy_mj == pytest.approx(energy_mj(cost.kind, 1980), rel=0.003)
    assert any(cost.energy_mj != pytest.approx(energy_mj(cost.kind, 1980), rel=0.1) for cost in naive.costs)


def test_blocking_power_is_that_of_a_device_that_waits(gpu: FakeGpu) -> None:
    assert Profiler(gpu).power_w(lambda: gpu.wait(500.0)) == pytest.approx(60.0, rel=1e-3)
    gpu.energy_mj = lambda: None  # type: ignore[assignment, method-assign, return-value]
    assert Profiler(gpu).power_w(lambda: gpu.wait(500.0)) is None


def test_a_profile_comes_back_from_its_file(gpu: FakeGpu, tmp_path: Path) -> None:
    profiler = swept(gpu, Sweep(iterations=1))
    costs = merged([DeviceProfile(tuple(profiler.costs), ((1980, 60.0),), "")])
    rows = [
        (cost.kind, cost.clock_mhz, cost.time_ms, cost.energy_mj) for name in costs for cost in costs[name]
    ]
    write_profile_rows(tmp_path / "profile.csv", rows)
    profile = Profile.from_csv(tmp_path / "profile.csv", blocking_power_w=60.0)
    assert profile.fastest("B0").time_ms == pytest.approx(40.0)
    best = min(profile.points["B0"], key=lambda point: point.energy_mj)
    assert abs(best.clock_mhz - 0.445 * 1980) < 15, "the model's least energy"


def test_blocks_of_several_devices_are_merged() -> None:
    one = DeviceProfile((MeasuredCost("E", 1410, 2.0, 10.0), MeasuredCost("E", 1395, 3.0, 9.0)), (), "")
    other = DeviceProfile((MeasuredCost("E", 1410, 2.5, 12.0), MeasuredCost("F", 1410, 1.0, 5.0)), (), "")
    assert merged([one, other]) == {
        "E": (MeasuredCost("E", 1410, 2.5, 11.0),),
        "F": (MeasuredCost("F", 1410, 1.0, 5.0),),
    }
    free = [DeviceProfile((MeasuredCost("E", mhz, 2.0, None),), (), "") for mhz in (2600, 2595)]
    assert merged(free) == {"E": (MeasuredCost("E", 2600, 2.0, None),)}


def test_a_loop_of_ones_own_is_profiled(tmp_path: Path) -> None:
    """Begin and end (Perseus, Table 2) without our scripts; the costs are rows of a profile's CSV."""
    profiler, description = open_profiler(torch.device("cpu"), Sweep(iterations=2))
    num_iterations = 0
    while not profiler.is_done:
        num_iterations += 1
        profiler.begin_iteration()
        for kind in ("F0", "B0"):
            profiler.begin(kind)
            profiler.end(kind)
        profiler.end_iteration()
    assert num_iterations == 3
    assert description == "no GPU: times at the current clock of the processor, no energy"
    write_profile_rows(tmp_path / "profile.csv", profiler.costs)
    lines = (tmp_path / "profile.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["block", "F0", "B0"]


def test_a_run_profiles_its_blocks() -> None:
    placement = m_shape(2)
    model = {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2}
    sweep = Sweep(iterations=2)
    measurement = trained(lower(gpipe(placement, 2)), model, None, 100, "fork", sweep=sweep)
    assert measurement.iterations == 3, "one that is not counted, then two"
    assert measurement.comparison is None
    costs = merged(measurement.profiles)
    assert costs.keys() == placement.by_name.keys()
    assert all(cost.time_ms > 0 and cost.energy_mj is None for points in costs.values() for cost in points)
    assert {profile.description for profile in measurement.profiles} == {
        "no GPU: times at the current clock of the processor, no energy"
    }
