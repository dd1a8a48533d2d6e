"""A chain of layers divided into stages: exact, for any values of stages and one of several goals.

`divided` is the search; its goals: the least greatest stage, stages most alike, or the shortest iteration
with costs of stages that are computed on demand. The module does not know a layer,
or a cost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placements.planners.hybrid.plan import PlanError

Floats = NDArray[np.float64]

ROUNDING = 1e-9
"""Relative difference of times that sums of floats may have."""

StageCost = tuple[float, float, float]
"""Time of a micro-batch and time once an iteration, both in ms, and peak memory, in MiB."""

StageCosts = Callable[[int, int, int], StageCost | None]
"""Costs of a stage, its first layer and the layer after its last; None where it does not fit."""


def spans(stage_layers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the index of each stage, its first layer, and the layer after its last."""
    ends = itertools.pairwise(itertools.accumulate(stage_layers, initial=0))
    return [(stage, first, end) for stage, (first, end) in enumerate(ends)]


def stage_times(times_ms: Sequence[float], stage_layers: Sequence[int]) -> list[float]:
    """Return the time of each stage, as the difference of two sums from the first layer on."""
    until = [0.0, *itertools.accumulate(times_ms)]
    return [until[end] - until[first] for _, first, end in spans(stage_layers)]


def windows(values: NDArray[Any], max_layers: int | None = None) -> Floats:
    """Return values of runs of layers, by the layer after the last and the number of layers.

    Values are given by the first layer and the one after the last; or, for sums over layers, as the sums over
    all layers before each, and over all layers. Values of no layers, and of too many layers, are infinite.
    """
    end, number = np.ogrid[: len(values), : (len(values) if max_layers is None else max_layers + 1)]
    first = np.maximum(end - number, 0)
    whole = values[first, end] if values.ndim == 2 else values[end] - values[first]
    return np.where((number == 0) | (number > end), math.inf, whole)


def divided(
    stages: Sequence[Floats] | Floats, joined: np.ufunc, *, longest_last: bool = False
) -> tuple[tuple[int, ...], float]:
    """Return each stage's number of layers in the division of least whole value, and that value.

    Without a division, these are () and infinity.

    Args:
        stages: Value of each by the layer after its last and its number of layers, as `windows`.
        joined: Makes a whole of two values: `numpy.add`, or `numpy.maximum`.
        longest_last: Of equally good numbers of layers of a stage, from the last on, the most; or the least.
    """
    num_ends, num_numbers = stages[0].shape
    first = np.maximum(np.arange(num_ends)[:, None] - np.arange(num_numbers), 0)
    least = np.append(0.0, np.full(num_ends - 1, math.inf))
    numbers = []
    for stage in stages:
        whole = joined(least[first], stage)
        number = num_numbers - 1 - whole[:, ::-1].argmin(axis=1) if longest_last else whole.argmin(axis=1)
        numbers.append(number)
        least = whole.min(axis=1)
    if math.isinf(least[-1]):
        return (), math.inf
    end, sizes = num_ends - 1, []
    for number in reversed(numbers):
        sizes.append(int(number[end]))
        end -= sizes[-1]
    return tuple(reversed(sizes)), float(least[-1])


def min_largest(times_ms: Sequence[float], num_stages: int) -> tuple[int, ...]:
    """Return each stage's number of layers that minimises the longest stage's time.

    That is the least period of a pipeline with room for all its micro-batches. Of several such divisions it
    is one whose shortest stage is the longest. Each layer takes more than 0 ms.

    Raises:
        PlanError: There are fewer layers than stages.

    >>> min_largest([1, 1, 2, 4, 1], 3)
    (3, 1, 1)
    """
    every = _ever_longer(times_ms, num_stages)
    _, equal = next(itertools.groupby(every, key=lambda division: division[1]))
    return list(equal)[-1][0]


def min_imbalance(times_ms: Sequence[float], num_stages: int) -> tuple[int, ...]:
    """Return each stage's number of layers that minimises the ratio of the longest to the shortest stage.

    That is the minimum imbalance of Perseus (Sec. 2.2, App. B.1), which tries every division; for the rest
    see `min_largest`.

    >>> min_imbalance([1, 1, 2, 4, 1], 3)
    (2, 1, 2)
    """
    return min(_ever_longer(times_ms, num_stages), key=lambda division: division[1] / division[2])[0]


def _ever_longer(
    times_ms: Sequence[float], num_stages: int
) -> Iterator[tuple[tuple[int, ...], float, float]]:
    """Yield for ever longer shortest stages the division of the least largest, and the times of both.

    Divisions whose stages cannot be more alike than those before are left out.
    """
    if not 1 <= num_stages <= len(times_ms):
        fault = f"{num_stages} is not from 1 to the {len(times_ms)} layers"
        raise PlanError(f"num_stages: {fault}; give as many at most")
    sums = windows(np.array([0.0, *itertools.accumulate(times_ms)]), len(times_ms) - num_stages + 1)
    shortest_ms, ratio = 0.0, math.inf
    while True:
        long_enough = [np.where(sums < shortest_ms, math.inf, sums)] * num_stages
        division, largest_ms = divided(long_enough, np.maximum, longest_last=True)
        if math.isinf(largest_ms):
            return
        min_ms = min(stage_times(times_ms, division))
        yield division, largest_ms, min_ms
        ratio = min(ratio, largest_ms / min_ms)
        shortest_ms = max(math.nextafter(min_ms, math.inf), largest_ms / ratio * (1 - 1e-12))


def in_proportion(stage_layers: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """Return a number of layers divided in nearly the same proportions, at least one for each stage.

    Each stage gets one, and each other layer the stage that then lacks most of its exact share.

    Raises:
        PlanError: There are fewer layers than stages.

    >>> in_proportion([30, 20, 20, 10], 8)
    (3, 2, 2, 1)
    """
    if num_layers < len(stage_layers):
        fault = f"{num_layers} is fewer than the {len(stage_layers)} parts that share them"
        raise PlanError(f"num_layers: {fault}; give at least {len(stage_layers)}")
    exact, counts = np.array(stage_layers) * num_layers, np.ones(len(stage_layers), dtype=int)
    for _ in range(num_layers - len(counts)):
        counts[np.argmax(exact - counts * sum(stage_layers))] += 1
    return tuple(counts.tolist())


def iteration_ms(times_ms: Sequence[float], once_ms: Sequence[float], num_micro_batches: int) -> float:
    """Return the iteration's time in ms, with the stages' times once an iteration (Galvatron-BMW, Eq. 9)."""
    return (num_micro_batches - 1) * max(times_ms) + math.fsum(times_ms) + math.fsum(once_ms)


def shortest_iteration(
    costs: StageCosts,
    num_micro_batches: int,
    bounds_ms: tuple[Floats, Floats],
    contents: NDArray[np.int64],
    cutoff_ms: float = math.inf,
) -> Iterator[tuple[int, ...]]:
    """Yield ever better divisions, as layers per stage; the last has the shortest iteration.

    The slowest stage counts for every micro-batch, so divisions are compared among those whose stages all
    take at most a limit, for ever lower limits; first comes the one whose slowest stage is the fastest. A
    bound stands in for a stage that was not asked for yet; only stages of the best division at a time are.

    Args:
        costs: Costs of a stage; asked for once each at most.
        num_micro_batches: Those of an iteration.
        bounds_ms: Least time of stages, and least time once an iteration, by stage, the layer after its last
            and its number of layers; shape ``(num_stages, num_layers + 1, max_layers + 1)`` each. No stage
            has more layers. Infinite where a stage cannot be.
        contents: Equal numbers for layers that cost the same wherever a stage has them; of the shape of a
            stage's bounds.
        cutoff_ms: Only shorter iterations are searched for.
    """
    times_ms, once_ms = (np.array(bound) for bound in bounds_ms)
    is_known = np.zeros(times_ms.shape, dtype=np.bool_)
    joined: np.ufunc = np.maximum
    others = num_micro_batches - 1
    limit_ms = below_ms = math.inf
    while True:
        if others:  # whatever the division, its sum is at least this
            rest_ms = cutoff_ms - divided(times_ms + once_ms, np.add)[1]
            limit_ms = min(limit_ms, rest_ms / others * (1 + ROUNDING))
        new: list[tuple[int, ...]] | None = None
        while new is None or new:
            whole_ms = times_ms if joined is np.maximum else times_ms + once_ms
            division, max_ms = divided(np.where(times_ms <= limit_ms, whole_ms, math.inf), joined)
            if not max_ms < below_ms:
                return
            cells = [(stage, end, end - first) for stage, first, end in spans(division)]
            new = [cell for cell in cells if not is_known[cell]]
            for stage, end, number in new:
                cost = costs(stage, end - number, end) or (math.inf, math.inf, 0.0)
                alike = contents[:, number] == contents[end, number]
                alike &= np.isfinite(times_ms[stage, :, number])
                times_ms[stage, alike, number], once_ms[stage, alike, number] = cost[:2]
                is_known[stage, alike, number] = True
        stage_ms, stage_once_ms = ([float(values[cell]) for cell in cells] for values in (times_ms, once_ms))
        if joined is np.maximum:
            min_others_ms, joined = others * max(stage_ms), np.add
        else:
            limit_ms = math.nextafter(max(stage_ms), -math.inf)
        if (time_ms := iteration_ms(stage_ms, stage_once_ms, num_micro_batches)) < cutoff_ms:
            cutoff_ms = time_ms
            yield division
        below_ms = cutoff_ms - min_others_ms
