"""The cases of the frontier benchmark: measured and made-up profiles, and what must be reached on each.

The measured profiles are those of GPT-3 175B that Perseus's authors publish, 8 stages in 1F1B, at a tenth of
the real times. They are no part of this project; where they are not there, their rows are skipped. CPU limits
are of one core of about 2.6 GHz.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.comparison import missing_file
from experiments.benchmarks.frontier.lowtime_plans import reason_to_skip
from experiments.benchmarks.frontier.measuring import (
    ClockTask,
    against_lowtime,
    against_perseus,
    exact,
    gaps,
    load_solvers,
    orders,
    saving,
    speed,
    stragglers,
    under_limits,
)
from experiments.benchmarks.results import BenchmarkCase, CaseResult
from placements import Kind, OperatingPoint, Placement, Profile
from placements.gpus import GPUS
from placements.shapes import SHAPES, nn_shape, v_shape
from schedsearch.baselines import one_f_one_b, one_f_one_b_plus

STAGE_PROFILES = Path(__file__).parents[4] / "shared" / "data" / "perseus" / "stage_profile"
"""Beside the project: the profiles of Perseus's artifact."""

BERT_EXAMPLE = STAGE_PROFILES.parent / "bert_pp4_lowtime_example.csv"
"""Beside the project: measured points of BERT, from the example of the early lowtime."""

PROFILES = {"A100": "gpt3-175b+a100_sxm_bf16", "A40": "gpt3-175b+a40_bf16"}
"""Profiles of the artifact, by GPU; it has the blocking power of `placements.gpus` too."""

MICRO_BATCHES = (12, 24, 48, 96)

CPU_S = {12: 1.0, 24: 1.5, 48: 2.0, 96: 3.0}
"""CPU seconds for the whole frontier, by micro-batches."""

SAVINGS = {
    "A100": {12: (15.9, 15.20), 24: (14.7, 14.19), 48: (14.0, 13.62), 96: (13.7, 13.32)},
    "A40": {12: (12.0, 11.81), 24: (10.8, 10.22), 48: (10.0, 9.34), 96: (9.5, 8.88)},
}
"""Percent that must be saved at T_min, and that Perseus published (Perseus, Table 6), by micro-batches."""

LOWTIME_RATIO = {12: 30.0, 24: 100.0, 48: 500.0}
"""How many times as long lowtime must take with a unit of 1 ms, by micro-batches."""

STRAGGLERS = (1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4, 1.45, 1.5)
"""T' over T, as in Perseus, Fig. 8."""


def speeds() -> Iterator[BenchmarkCase]:
    """Yield the whole frontier with 400 plans within seconds."""
    for number in MICRO_BATCHES:
        cpu_s = CPU_S[number]
        yield _on_measured(
            "A100", number, f"400 plans in {cpu_s:g} s", partial(speed, cpu_s=cpu_s), number == 12
        )


def savings() -> Iterator[BenchmarkCase]:
    """Yield the savings at the shortest time against all clocks at maximum."""
    for gpu, wanted in SAVINGS.items():
        for number, (at_least, published) in wanted.items():
            measure = partial(saving, at_least=at_least, published=published)
            is_quick = (gpu, number) == ("A40", 12)
            yield _on_measured(gpu, number, f"at T_min at least {at_least:g} % less", measure, is_quick)


def all_gaps() -> Iterator[BenchmarkCase]:
    """Yield the distance of every plan from the bound."""
    must = "gap 0.3 % on average, 1 % at most; no plan late when simulated"
    yield from _on_all_measured(must, partial(gaps, mean=0.3, most=1.0))


def lowtime() -> Iterator[BenchmarkCase]:
    """Yield comparisons with lowtime, with real clocks on the same graph."""
    must = "no plan of lowtime below ours at its deadline"
    for number, ratio in LOWTIME_RATIO.items():
        measure = partial(against_lowtime, unit_ms=1.0, ratio=ratio)
        case = _on_measured("A100", number, f"{ratio:g} times as fast; {must}", measure, what=", unit 1 ms")
        yield replace(case, lacks=partial(no_lowtime_on, measured_profile("A100")))
    yield BenchmarkCase(
        "BERT of lowtime's example, 4 stages, 8 micro-batches, unit 1 ms",
        must,
        lambda: against_lowtime(_bert_example(), unit_ms=1.0, ratio=1.0),
        lacks=partial(no_lowtime_on, BERT_EXAMPLE),
    )


def no_lowtime_on(path: Path) -> str:
    """Return why lowtime cannot be compared with on a file of measurements; empty where it can."""
    return reason_to_skip() or missing_file(path)


def _bert_example() -> ClockTask:
    """Return the points of lowtime's own example, which have noise and clocks of their own."""
    profile = Profile.from_csv(BERT_EXAMPLE, blocking_power_w=GPUS["a40"].blocking_power_w)
    return ClockTask(one_f_one_b(profile.times_for(v_shape(4)), 8), profile)


def noisy() -> Iterator[BenchmarkCase]:
    """Yield measured-like profiles: noise on each time and power, so that higher clocks may be slower."""
    for noise in (0.01, 0.03, 0.05):
        for seed in range(3):
            yield BenchmarkCase(
                f"8 stages, 24 micro-batches, {noise:.0%} noise, seed {seed}",
                "no bound above a plan, no plan late when simulated",
                partial(gaps, made_up(v_shape(8), 24, 55, seed, noise), mean=math.inf, most=math.inf),
                is_quick=(noise, seed) == (0.03, 0),
            )


def perseus() -> Iterator[BenchmarkCase]:
    """Yield comparisons with our own implementation of Perseus, at its own times."""
    must = "no plan of Perseus below ours at its deadline"
    for gpu, number, unit_ms in (("A100", 12, 1.0), ("A100", 12, 10.0), ("A40", 12, 2.0), ("A100", 24, 2.0)):
        for curve in ("exponential", "hull"):
            measure = partial(against_perseus, unit_ms=unit_ms, curve=curve)
            yield _on_measured(gpu, number, must, measure, what=f", unit {unit_ms:g} ms, {curve}")
    for seed in range(3):
        yield BenchmarkCase(
            f"4 stages, 8 micro-batches, 1 % noise, seed {seed}, unit 1 ms, hull",
            must,
            partial(against_perseus, made_up(v_shape(4), 8, 40, seed, 0.01), unit_ms=1.0, curve="hull"),
            is_quick=seed == 0,
        )


def small() -> Iterator[BenchmarkCase]:
    """Yield cases whose best choice of clocks can be proved."""
    must = "within its gap of the proved best; relaxed optimum within 1e-6 of HiGHS"
    for stages, number in ((2, 3), (2, 4), (3, 3), (3, 4)):
        for clocks in (3, 4, 5):
            task = made_up(v_shape(stages), number, clocks, 10 * stages + clocks, 0.01)
            name = f"{stages} stages, {number} micro-batches, {clocks} clocks"
            measure = partial(exact, task, num_deadlines=13, work_limit=60.0)
            yield BenchmarkCase(name, must, measure, is_quick=(stages, number, clocks) == (2, 3, 3))


def large() -> Iterator[BenchmarkCase]:
    """Yield thousands of block instances."""
    for name, placement in (("16 stages", v_shape(16)), ("NN-shape, 8 devices", nn_shape(8))):
        task = made_up(placement, 128, 30, 16, 0.01)
        measure = partial(speed, task, cpu_s=20.0)
        yield BenchmarkCase(f"{name}, 128 micro-batches, 1 % noise", "400 plans in 20 s", measure)


def few_changes() -> Iterator[BenchmarkCase]:
    """Yield plans whose clocks change seldom, as a change takes time."""
    must = "gap at most 2 % in 15 s, at 1.05 times the time of the highest clocks"
    measure = partial(under_limits, dwell_ms=20.0, latency_ms=10.0, slowdown=1.05, most=2.0, cpu_s=15.0)
    yield from _on_all_measured(must, measure, what=", latency 10 ms, dwell 20 ms")


def chosen_orders() -> Iterator[BenchmarkCase]:
    """Yield the choice of an order by its energy, on five shapes."""
    must = "never more energy than the search's own order, in 30 CPU s"
    for shape in ("v_shape", "m_shape", "x_shape", "nn_shape", "k_shape"):
        for slowdown in (1.0, 1.05):
            name = f"{shape}, 4 devices, 16 micro-batches, {slowdown:g} times the highest clocks' time"
            yield BenchmarkCase(
                name, must, partial(orders, SHAPES[shape](4), slowdown=slowdown, seeds=10, each_s=30.0)
            )


def next_to_stragglers() -> Iterator[BenchmarkCase]:
    """Yield the savings next to stragglers."""
    must = "look-up in 1 ms; saving rises up to T* and wanes then"
    yield from _on_all_measured(must, partial(stragglers, factors=STRAGGLERS, look_up_s=1e-3))


def synthetic_profile(placement: Placement, num_clocks: int, seed: int, noise: float) -> Profile:
    """Return a profile as measured ones are: part of the time goes with 1/clock, and power rises steeply.

    Args:
        placement: Whose blocks are given costs; those that wait for a block of more ticks take longer.
        num_clocks: Evenly spaced from 600 to 1410 MHz.
        seed: Seed of the generator.
        noise: Standard deviation of each time and power, as a share of it.
    """
    random = np.random.default_rng(seed)
    clock_mhz = np.linspace(600, 1410, num_clocks).astype(np.int64)
    relative = clock_mhz / clock_mhz[-1]
    points = {}
    for block in placement.blocks:
        at_maximum_ms = random.uniform(48, 54) * (1.9 if block.kind is Kind.B else 1.0)
        time_ms = at_maximum_ms * (0.35 + 0.65 / relative) * random.normal(1, noise, num_clocks)
        power_w = (90 + 210 * relative**2.6) * random.normal(1, noise, num_clocks)
        costs = zip(clock_mhz.tolist(), time_ms.tolist(), (time_ms * power_w).tolist(), strict=True)
        points[block.name] = tuple(OperatingPoint(*cost) for cost in costs)
    return Profile(f"synthetic {seed}", points, 60.0)


def made_up(placement: Placement, number: int, num_clocks: int, seed: int, noise: float) -> ClockTask:
    """Return 1F1B, or 1F1B+ where devices share blocks, on a made-up profile."""
    is_shared = any(len(block.devices) > 1 for block in placement.blocks)
    schedule = (one_f_one_b_plus if is_shared else one_f_one_b)(placement, number)
    return ClockTask(schedule, synthetic_profile(placement, num_clocks, seed, noise))


def measured_profile(gpu: str) -> Path:
    """Return where a measured profile is."""
    return STAGE_PROFILES / f"{PROFILES[gpu]}.csv"


def measured_task(gpu: str, number: int) -> ClockTask:
    """Return 1F1B on a measured profile, which must be there."""
    waiting_w = GPUS[gpu.lower()].blocking_power_w
    profile = Profile.from_csv(measured_profile(gpu), device=gpu, blocking_power_w=waiting_w)
    return ClockTask(one_f_one_b(profile.times_for(v_shape(8)), number), profile)


def _on_measured(
    gpu: str,
    number: int,
    must: str,
    measure: Callable[[ClockTask], CaseResult],
    is_quick: bool = False,
    what: str = "",
) -> BenchmarkCase:
    """Return a case on a measured profile of GPT-3; its name ends with what else there is to say."""
    return BenchmarkCase(
        f"GPT-3 175B, {gpu}, {number} micro-batches{what}",
        must,
        lambda: measure(measured_task(gpu, number)),
        is_quick,
        partial(missing_file, measured_profile(gpu)),
    )


def _on_all_measured(
    must: str, measure: Callable[[ClockTask], CaseResult], what: str = ""
) -> Iterator[BenchmarkCase]:
    """Yield a case on each measured profile, for each number of micro-batches."""
    for gpu in PROFILES:
        for number in MICRO_BATCHES:
            yield _on_measured(gpu, number, must, measure, (gpu, number) == ("A100", 12), what)


BENCHMARK = Benchmark(
    "frontier",
    "Measure what the energy frontier must reach.",
    {
        "speed": speeds,
        "savings": savings,
        "gaps": all_gaps,
        "lowtime": lowtime,
        "perseus": perseus,
        "exact": small,
        "large": large,
        "switching": few_changes,
        "orders": chosen_orders,
        "noisy": noisy,
        "stragglers": next_to_stragglers,
    },
    load_solvers,
)
