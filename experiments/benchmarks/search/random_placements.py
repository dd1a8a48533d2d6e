"""Two hundred placements from seeds: 4 to 16 devices, blocks of hundreds of ticks, tight to ample memory.

What version 2449524, which is frozen in the instance library, found on them in as much time is in
`random_placements.csv`: periods and bounds in ticks per micro-batch.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import fmean

from experiments.benchmarks.instances.random_dag import random_dag
from experiments.benchmarks.results import BenchmarkCase, CaseResult, true_of
from experiments.benchmarks.search.measuring import search_timed
from placements import Placement
from placements.shapes import k_shape, loop_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from schedsearch.bounds.memory_need import minimum_memory

_FROZEN = Path(__file__).parent / "random_placements.csv"

_TIME_LIMIT_S = 5.0
"""Wall-clock seconds of each search; the frozen version had one core."""

FAMILIES: dict[str, Callable[[int, int], Placement]] = {
    "chains": lambda devices, seed: random_dag(devices, devices * (1 + seed % 4), seed, max_inputs=1),
    "graphs": lambda devices, seed: random_dag(devices, devices * (1 + seed % 2), seed, shared_percent=10),
    "V": lambda devices, seed: v_shape(devices, split_backward=seed % 2 == 1),
    "X": lambda devices, seed: x_shape(devices - devices % 2, split_backward=seed % 2 == 1),
    "M and NN": lambda devices, seed: (m_shape if seed % 2 else nn_shape)(devices - devices % 2),
    "K": lambda devices, seed: k_shape(devices - devices % 2),
    "waves": lambda devices, seed: wave_shape(devices, split_backward=seed % 2 == 1),
    "loops": lambda devices, seed: loop_shape(devices, 2 + seed % 2, split_backward=seed % 4 == 0),
}
"""By name what makes a placement from a number of devices and a seed."""


def random_placement(family: str, number: int) -> Placement:
    """Return a placement of a family: its devices, times and memory are drawn; the number is the seed.

    Each block of a shape takes 60 to 140 ticks for each tick of it. The memory is between what one
    micro-batch needs and what one for each device does, each factor between them as likely.
    """
    draws = random.Random(f"{family} {number}")
    placement = FAMILIES[family](4 + int(draws.random() * 13), number)
    if family not in ("chains", "graphs"):
        placement = replace(
            placement,
            blocks=tuple(
                replace(block, time=block.time * (60 + int(draws.random() * 81)))
                for block in placement.blocks
            ),
        )
    least = max(minimum_memory(placement, device) for device in range(placement.num_devices))
    return placement.with_memory(round(least * placement.num_devices ** draws.random()))


@dataclass(frozen=True)
class _Compared:
    """One placement, searched by both versions.

    Attributes:
        longer: The share by which our period is longer than the frozen version's.
        ours: The share by which our period is above our bound.
        theirs: The share by which the frozen version's period is above its bound.
        theirs_by_better: The share by which it is above the better bound.
        cpu_s: CPU seconds of our search.
    """

    name: str
    longer: float
    ours: float
    theirs: float
    theirs_by_better: float
    cpu_s: float


def random_placements() -> Iterator[BenchmarkCase]:
    """Yield a case for each family, and one for the mean of those that ran before it."""
    done: list[_Compared] = []
    for family in FAMILIES:
        must = "no period above that of version 2449524"
        yield BenchmarkCase(family, must, partial(_beside_frozen, family, done))
    must = "mean gap at most half of that of version 2449524"
    yield BenchmarkCase("all of these", must, partial(_mean, done))


def _beside_frozen(family: str, done: list[_Compared]) -> CaseResult:
    found = [_search(row) for row in _frozen() if row["family"] == family]
    done += found
    wrong = {f"{each.name} is {each.longer:.2%} longer": each.longer > 0 for each in found}
    return CaseResult(sum(each.cpu_s for each in found), true_of(wrong), note=_gaps(found))


def _mean(done: list[_Compared]) -> CaseResult:
    if not done:
        return CaseResult(0.0, skipped="no family ran before it")
    wrong = {"more than half": 2 * fmean(each.ours for each in done) > fmean(each.theirs for each in done)}
    return CaseResult(sum(each.cpu_s for each in done), true_of(wrong), note=_gaps(done))


def _gaps(found: list[_Compared]) -> str:
    ours, theirs = fmean(each.ours for each in found), fmean(each.theirs for each in found)
    better = fmean(each.theirs_by_better for each in found)
    worst = sorted(found, key=lambda each: -each.ours)[:10]
    return (
        f"mean gap {ours:.2%}; that of 2449524 {theirs:.2%}, by the better bound {better:.2%}; "
        f"{sum(each.longer < 0 for each in found)} of {len(found)} are shorter, "
        f"{sum(each.ours <= 0 for each in found)} proved; worst: "
        + ", ".join(f"{each.name} {each.ours:.1%}" for each in worst)
    )


def _frozen() -> list[dict[str, str]]:
    with _FROZEN.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _search(row: dict[str, str]) -> _Compared:
    """Search a placement as long as the frozen version did."""
    placement = random_placement(row["family"], int(row["number"]))
    number = 2 * placement.num_devices
    result, cpu_s = search_timed(placement, number, objectives=("period",), time_limit_s=_TIME_LIMIT_S)
    assert result.repetend is not None
    ours = Fraction(result.repetend.period, result.repetend.micro_batches)
    theirs, their_bound = Fraction(row["period"]), float(row["bound"])
    return _Compared(
        f"{row['family']} {row['number']}",
        float(ours / theirs) - 1,
        max(0.0, result.gap),
        float(theirs) / their_bound - 1,
        float(theirs) / max(result.period_bound, their_bound) - 1,
        cpu_s,
    )
