"""Generated scripts in virtual time take the time and energy that their plan predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from energy.cases import noisy_profile
from fake_driver import FakeDriver, FakeGpu
from quarter_ms import MIXED, PROFILE, SCHEDULE

from placements import Placement, Profile
from placements.gpus import A100_SXM_80GB
from placements.hardware import modelled_profile
from placements.shapes import SHAPES, m_shape, v_shape
from runtime.clocks.clock import NvmlClock
from runtime.codegen.codegen import generate
from runtime.codegen.script import programs_of, read_scripts
from runtime.program.deadlock import UnsafeProgramsError
from runtime.program.instructions import Programs
from runtime.program.lower import lower
from runtime.virtual.virtual_gpu import VirtualGpu
from runtime.virtual.virtual_run import VirtualRun, run_virtually
from schedsearch.baselines import gpipe, one_f_one_b, one_f_one_b_plus
from schedsearch.energy import compute_frontier, simulate_switching
from schedsearch.schedule import Schedule

MODEL = {"name": "synthetic", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2}
LATENCY_MS = 10.0


def scripts_of(schedule: Schedule, clocks: Mapping[str, Sequence[int]], directory: Path) -> Programs:
    generate(lower(schedule), clocks, MODEL, directory)
    return programs_of(read_scripts(directory))


@contextmanager
def nvml_gpus(
    driver: FakeDriver, profile: Profile, num_gpus: int, latency_ms: float
) -> Iterator[list[FakeGpu]]:
    """GPUs whose clocks go to a controller process, pynvml and the driver, and whose energy comes back."""
    clocks = sorted({point.clock_mhz for points in profile.points.values() for point in points})
    driver.setup(num_gpus, range(clocks[0], clocks[-1] + 1, 15), latency_ms, 0.0, profile.blocking_power_w)
    with ExitStack() as stack:
        fakes = []
        for index in range(num_gpus):
            clock = NvmlClock(f"fake-{index}")
            stack.callback(clock.reset)
            fakes.append(FakeGpu(driver, index, clock))
        yield fakes


def simulated_gpus(profile: Profile, num_gpus: int, latency_ms: float = 0.0) -> list[VirtualGpu]:
    highest = max(points[-1].clock_mhz for points in profile.points.values())
    return [VirtualGpu(highest, profile.blocking_power_w, latency_ms) for _ in range(num_gpus)]


def planned(schedule: Schedule, profile: Profile, slowdown: float) -> Mapping[str, Sequence[int]]:
    """Return the clocks of a plan that has some time to spare."""
    frontier = compute_frontier(schedule, profile, 20)
    return frontier.at(frontier.shortest.time_ms * slowdown).clock_mhz


def a100(placement: Placement) -> tuple[Placement, Profile]:
    """Return a placement with blocks of 30 ms and more, none alike, and their costs on an A100."""
    blocks = tuple(replace(block, time=30 * block.time + 7 * i) for i, block in enumerate(placement.blocks))
    placement = replace(placement, tick_ms=1.0, blocks=blocks)
    return placement, modelled_profile(placement, A100_SXM_80GB)


@pytest.mark.parametrize(
    ("shape", "order", "slowdown"),
    [(v_shape, one_f_one_b, 1.0), (m_shape, one_f_one_b_plus, 1.1)],
    ids=["v_shape", "m_shape"],
)
def test_the_nvml_path_gives_what_the_frontier_predicted(
    shape: Callable[[int], Placement],
    order: Callable[[Placement, int], Schedule],
    slowdown: float,
    driver: FakeDriver,
    tmp_path: Path,
) -> None:
    placement, profile = a100(shape(3))
    schedule = order(placement, 4)
    frontier = compute_frontier(schedule, profile, 20)
    plan = frontier.at(frontier.shortest.time_ms * slowdown)
    scripts = scripts_of(schedule, plan.clock_mhz, tmp_path / "scripts")
    with nvml_gpus(driver, profile, 3, 0.0) as gpus:
        virtual = run_virtually(scripts, profile, gpus)
    assert virtual.time_ms == pytest.approx(plan.time_ms, rel=1e-6)
    assert virtual.energy_mj == pytest.approx(plan.energy_mj, rel=1e-4), "the counter shows whole millijoules"
    locks = [line for line in driver.lines() if "lock" in line]
    assert len(locks) > 3, "a plan with one clock for each device would show little"
    assert driver.lines()[-3:] == ["2 reset", "1 reset", "0 reset"]


@pytest.mark.parametrize(("shape", "latency_ms"), list(zip(SHAPES, [0.0, LATENCY_MS] * 4, strict=False)))
def test_every_shape_takes_what_is_predicted(shape: str, latency_ms: float, tmp_path: Path) -> None:
    placement = SHAPES[shape]()
    first, *_ = placement.blocks
    (after, *_) = placement.successors[first.name]
    placement = replace(placement, transfer=((first.name, after, 2),))
    schedule = gpipe(placement, 3)
    profile = noisy_profile(placement, 5, seed=1)
    clocks = planned(schedule, profile, 1.1)
    virtual = run_virtually(
        scripts_of(schedule, clocks, tmp_path),
        profile,
        simulated_gpus(profile, placement.num_devices, latency_ms),
        True,
    )
    predicted = simulate_switching(schedule, profile, clocks, latency_ms, back_to_back=False)
    assert virtual.time_ms == pytest.approx(predicted.time_ms, rel=1e-9)
    assert virtual.energy_mj == pytest.approx(predicted.energy_mj, rel=1e-9)
    assert virtual.start_ms == pytest.approx(dict(predicted.start_ms), abs=1e-6)


def test_scripts_that_wait_for_each_other_are_an_error(tmp_path: Path) -> None:
    placement = v_shape(2)
    profile = noisy_profile(placement, 2, seed=0)
    scripts = scripts_of(gpipe(placement, 2), {}, tmp_path)
    first, second = scripts.instructions
    late = replace(scripts, instructions=((*first[1:], first[0]), second))
    with pytest.raises(UnsafeProgramsError, match=r"device 0 .*\n0 \| .*\[F0\.0>1\]"):
        run_virtually(late, profile, simulated_gpus(profile, 2))


ONE_GPU_EACH = Schedule(replace(SCHEDULE.placement, num_gpus=()), 2, SCHEDULE.blocks)


@pytest.fixture
def run(tmp_path: Path) -> VirtualRun:
    generate(lower(ONE_GPU_EACH), MIXED, MODEL, tmp_path)
    gpus = [VirtualGpu(1100, 50.0) for _ in range(2)]
    return run_virtually(programs_of(read_scripts(tmp_path)), PROFILE, gpus)


def test_a_transfer_takes_its_ticks_in_ms(run: VirtualRun) -> None:
    """F0 takes 2 and 3 ms at its clocks, its message of 4 ticks 1 ms; B1 5 ms, its message of 6 ticks 1.5."""
    assert run.start_ms == {
        ("F0", 0): 0.0,
        ("F0", 1): 2.0,
        ("F1", 0): 3.0,
        ("F1", 1): 7.0,
        ("B1", 0): 10.0,
        ("B1", 1): 15.0,
        ("B0", 0): 16.5,
        ("B0", 1): 21.5,
    }
    assert run.time_ms == 21.5 + 6.0
