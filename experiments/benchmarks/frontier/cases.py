"""The cases of the frontier benchmark: measured and made-up profiles, and what must be reached on each.

The measured profiles are those of GPT-3 175B that Perseus's authors publish, 8 stages in 1F1B, at a tenth of
the real times. They are no part of this project; where they are not there, their rows are skipped. CPU limits
are of one core of about 2.6 GHz.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.frontier.measuring import (
    Task,
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
from experiments.benchmarks.results import Case, CaseResult
from placements import Kind, OperatingPoint, Placement, Profile
from placements.hardware import GPUS
from placements.shapes import SHAPES, nn_shape, v_shape
from schedsearch.baselines import one_f_one_b, one_f_one_b_plus

STAGE_PROFILES = Path(__file__).parents[4] / "shared" / "data" / "perseus" / "stage_profile"
"""Beside the project: the profiles of Perseus's artifact."""

BERT_EXAMPLE = STAGE_PROFILES.parent / "bert_pp4_lowtime_example.csv"
"""Beside the project: measured points of BERT, from the example of the early lowtime."""

PROFILES = {"A100": "gpt3-175b+a100_sxm_bf16", "A40": "gpt3-175b+a40_bf16"}
"""Profiles of the artifact, by GPU; it has the blocking power of `placements.hardware` too."""

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


def speeds() -> Iterator[Case]:
    """Yield the whole frontier with 400 plans within seconds."""
    for number in MICRO_BATCHES:
        yield Case(
            "speed",
            f"GPT-3 175B, A100, {number} micro-batches",
            f"400 plans in {CPU_S[number]:g} s",
            _on_measured("A100", number, partial(speed, cpu_s=CPU_S[number])),
            is_quick=number == 12,
        )


def savings() -> Iterator[Case]:
    """Yield the savings at the shortest time against all clocks at maximum."""
    for gpu, wanted in SAVINGS.items():
        for number, (at_least, published) in wanted.items():
            yield Case(
                "savings",
                f"GPT-3 175B, {gpu}, {number} micro-batches",
                f"at T_min at least {at_least:g} % less",
                _on_measured(gpu, number, partial(saving, at_least=at_least, published=published)),
                is_quick=number == 12,
            )


def all_gaps() -> Iterator[Case]:
    """Yield the distance of every plan from the bound."""
    for gpu in PROFILES:
        for number in MICRO_BATCHES:
            yield Case(
                "gaps",
                f"GPT-3 175B, {gpu}, {number} micro-batches",
                "gap 0.3 % on average, 1 % at most; no plan late when simulated",
                _on_measured(gpu, number, partial(gaps, mean=0.3, most=1.0)),
                is_quick=(gpu, number) == ("A100", 12),
            )


def lowtime() -> Iterator[Case]:
    """Yield comparisons with lowtime, with real clocks on the same graph."""
    for number, ratio in LOWTIME_RATIO.items():
        yield Case(
            "lowtime",
            f"GPT-3 175B, A100, {number} micro-batches, unit 1 ms",
            f"{ratio:g} times as fast; no plan of lowtime below ours at its deadline",
            _on_measured("A100", number, partial(against_lowtime, unit_ms=1.0, ratio=ratio)),
        )

    yield Case(
        "lowtime",
        "BERT of lowtime's example, 4 stages, 8 micro-batches, unit 1 ms",
        "no plan of lowtime below ours at its deadline",
        _on_bert_example,
    )


def _on_bert_example() -> CaseResult:
    """Compare on the points of lowtime's own example, which have noise and clocks of their own."""
    if not BERT_EXAMPLE.is_file():
        return CaseResult(0.0, skipped=f"{BERT_EXAMPLE.name} is not there")
    profile = Profile.from_csv(BERT_EXAMPLE, blocking_power_w=GPUS["a40"].blocking_power_w)
    schedule = one_f_one_b(profile.times_for(v_shape(4)), 8)
    return against_lowtime(Task(schedule, profile), unit_ms=1.0, ratio=1.0)


def noisy() -> Iterator[Case]:
    """Yield measured-like profiles: noise on each time and power, so that higher clocks may be slower."""
    for noise in (0.01, 0.03, 0.05):
        for seed in range(3):
            schedule = one_f_one_b(v_shape(8), 24)
            profile = synthetic_profile(schedule.placement, 55, seed=seed, noise=noise)
            yield Case(
                "noisy",
                f"8 stages, 24 micro-batches, {noise:.0%} noise, seed {seed}",
                "no bound above a plan, no plan late when simulated",
                partial(gaps, Task(schedule, profile), mean=math.inf, most=math.inf),
                is_quick=(noise, seed) == (0.03, 0),
            )


def perseus() -> Iterator[Case]:
    """Yield comparisons with our own implementation of Perseus, at its own times."""
    must = "no plan of Perseus below ours at its deadline"
    for gpu, number, unit_ms in (("A100", 12, 1.0), ("A100", 12, 10.0), ("A40", 12, 2.0), ("A100", 24, 2.0)):
        for curve in ("exponential", "hull"):
            yield Case(
                "perseus",
                f"GPT-3 175B, {gpu}, {number} micro-batches, unit {unit_ms:g} ms, {curve}",
                must,
                _on_measured(gpu, number, partial(against_perseus, unit_ms=unit_ms, curve=curve)),
                is_quick=unit_ms == 10.0,
            )
    for seed in range(3):
        placement = v_shape(4)
        task = Task(one_f_one_b(placement, 8), synthetic_profile(placement, 40, seed, noise=0.01))
        yield Case(
            "perseus",
            f"4 stages, 8 micro-batches, 1 % noise, seed {seed}, unit 1 ms, hull",
            must,
            partial(against_perseus, task, unit_ms=1.0, curve="hull"),
            is_quick=seed == 0,
        )


def small() -> Iterator[Case]:
    """Yield cases whose best choice of clocks can be proved."""
    must = "within its gap of the proved best; relaxed optimum within 1e-6 of HiGHS"
    for stages, number in ((2, 3), (2, 4), (3, 3), (3, 4)):
        for clocks in (3, 4, 5):
            placement = v_shape(stages)
            profile = synthetic_profile(placement, clocks, seed=10 * stages + clocks, noise=0.01)
            task = Task(one_f_one_b(placement, number), profile)
            yield Case(
                "exact",
                f"{stages} stages, {number} micro-batches, {clocks} clocks",
                must,
                partial(exact, task, num_deadlines=13, work_limit=60.0),
                is_quick=(stages, number, clocks) == (2, 3, 3),
            )


def large() -> Iterator[Case]:
    """Yield thousands of block instances."""
    v16, nn8 = v_shape(16), nn_shape(8)
    for name, schedule in (
        ("16 stages, 128 micro-batches", one_f_one_b(v16, 128)),
        ("NN-shape, 8 devices, 128 micro-batches", one_f_one_b_plus(nn8, 128)),
    ):
        profile = synthetic_profile(schedule.placement, 30, seed=16, noise=0.01)
        yield Case(
            "large",
            f"{name}, 1 % noise",
            "400 plans in 20 s",
            partial(speed, Task(schedule, profile), cpu_s=20.0),
        )


def few_changes() -> Iterator[Case]:
    """Yield plans whose clocks change seldom, as a change takes time."""
    for gpu in PROFILES:
        for number in MICRO_BATCHES:
            measure = partial(
                under_limits, dwell_ms=20.0, latency_ms=10.0, slowdown=1.05, most=2.0, cpu_s=15.0
            )
            yield Case(
                "switching",
                f"GPT-3 175B, {gpu}, {number} micro-batches, latency 10 ms, dwell 20 ms",
                "gap at most 2 % in 15 s, at 1.05 times the time of the highest clocks",
                _on_measured(gpu, number, measure),
                is_quick=(gpu, number) == ("A100", 12),
            )


def chosen_orders() -> Iterator[Case]:
    """Yield the choice of an order by its energy, on five shapes."""
    for shape in ("v_shape", "m_shape", "x_shape", "nn_shape", "k_shape"):
        for slowdown in (1.0, 1.05):
            yield Case(
                "orders",
                f"{shape}, 4 devices, 16 micro-batches, {slowdown:g} times the highest clocks' time",
                "never more energy than the search's own order, in 30 CPU s",
                partial(orders, SHAPES[shape](4), slowdown=slowdown, seeds=10, each_s=30.0),
            )


def next_to_stragglers() -> Iterator[Case]:
    """Yield the savings next to stragglers."""
    for gpu in PROFILES:
        for number in MICRO_BATCHES:
            yield Case(
                "stragglers",
                f"GPT-3 175B, {gpu}, {number} micro-batches",
                "look-up in 1 ms; saving rises up to T* and wanes then",
                _on_measured(gpu, number, partial(stragglers, factors=STRAGGLERS, look_up_s=1e-3)),
                is_quick=(gpu, number) == ("A100", 12),
            )


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
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
}
"""The groups by the name that the command line uses."""


def synthetic_profile(placement: Placement, num_clocks: int, seed: int, noise: float) -> Profile:
    """Return a profile as measured ones are: part of the time goes with 1/clock, and power rises steeply.

    Args:
        placement: Whose blocks are given costs; those that wait for a block of more ticks take longer.
        num_clocks: Evenly spaced from 600 to 1410 MHz.
        seed: Of the generator.
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


def _on_measured(gpu: str, number: int, measure: Callable[[Task], CaseResult]) -> Callable[[], CaseResult]:
    """Return what measures a case on a measured profile, or skips it where the profile is not there."""

    def run() -> CaseResult:
        task = measured_task(gpu, number)
        return CaseResult(0.0, skipped=task) if isinstance(task, str) else measure(task)

    return run


def measured_task(gpu: str, number: int) -> Task | str:
    """Return 1F1B on a measured profile; why not, where the profile is not there."""
    path = STAGE_PROFILES / f"{PROFILES[gpu]}.csv"
    if not path.exists():
        return f"{path.name} is not there"
    waiting_w = GPUS[gpu.lower()].blocking_power_w
    profile = Profile.from_csv(path, device=gpu, blocking_power_w=waiting_w)
    return Task(one_f_one_b(profile.times_for(v_shape(8)), number), profile)


BENCHMARK = Benchmark("frontier", "Measure what the energy frontier must reach.", GROUPS, load_solvers)
