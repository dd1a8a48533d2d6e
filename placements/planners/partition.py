"""Layers divided into stages by their times: the largest stage least, or the stages most alike.

Both are exact, for any times. Or another number of layers, in the proportions of a division that there is.
The module does not know what a layer is, or whether a stage fits its memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placements.planners.hybrid.plan import PlanError

_ROUNDING = 1e-12
"""Rounding tolerance of a ratio of two times."""


def min_largest(times_ms: Sequence[float], num_stages: int) -> tuple[int, ...]:
    """Return how many layers each stage has where the largest stage takes the least time.

    That is the least period of a pipeline with room for all its micro-batches. Of several such divisions it
    is one whose shortest stage is the longest.

    Args:
        times_ms: Time of each layer, in order; above 0.
        num_stages: Number of stages, of at least one layer each.

    Raises:
        PlanError: There are fewer layers than stages.

    >>> min_largest([1, 1, 2, 4, 1], 3)
    (3, 1, 1)
    """
    if not 1 <= num_stages <= len(times_ms):
        raise PlanError(
            f"num_stages: {num_stages} is not from 1 to the {len(times_ms)} layers; give as many at most"
        )
    best = found = _divide(times_ms, num_stages, 0.0)
    assert best is not None, "one layer each is a division"
    largest_ms = max(stage_times(times_ms, best))
    while found is not None and max(stage_times(times_ms, found)) == largest_ms:
        best = found
        found = _divide(times_ms, num_stages, _longer(times_ms, found))
    return best


def min_imbalance(times_ms: Sequence[float], num_stages: int) -> tuple[int, ...]:
    """Return how many layers each stage has where the longest is the least multiple of the shortest.

    That is the minimum imbalance of Perseus (Sec. 2.2, App. B.1), which tries every division. Here the
    shortest stage is made longer and longer: for each of its times the least largest stage is found, until
    even the least largest of all would be too long for what is left.

    Args:
        times_ms: See `min_largest`.
        num_stages: Likewise.

    Raises:
        PlanError: There are fewer layers than stages.

    >>> min_imbalance([1, 1, 2, 4, 1], 3)
    (2, 1, 2)
    """
    best = min_largest(times_ms, num_stages)
    largest_ms = max(stage_times(times_ms, best))
    found: tuple[int, ...] | None = best
    while found is not None:
        best = min(best, found, key=lambda each: _ratio(times_ms, each))
        needed_ms = largest_ms / _ratio(times_ms, best) * (1 - _ROUNDING)
        found = _divide(times_ms, num_stages, max(_longer(times_ms, found), needed_ms))
    return best


def in_proportion(stage_layers: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """Return a number of layers divided in nearly the same proportions, at least one for each stage.

    Each stage gets one, and each other layer the stage that then lacks most of its exact share.

    Args:
        stage_layers: The division whose proportions are wanted; at least one layer each.
        num_layers: Layers to divide.

    Raises:
        PlanError: There are fewer layers than stages.

    >>> in_proportion([30, 20, 20, 10], 8)
    (3, 2, 2, 1)
    """
    if num_layers < len(stage_layers):
        raise PlanError(
            f"num_layers: {num_layers} is fewer than the {len(stage_layers)} parts that share them; give at "
            f"least {len(stage_layers)}"
        )
    whole, found = sum(stage_layers), [1] * len(stage_layers)
    for _ in range(num_layers - len(found)):
        lacks = [share * num_layers - each * whole for share, each in zip(stage_layers, found, strict=True)]
        found[lacks.index(max(lacks))] += 1
    return tuple(found)


def stage_times(times_ms: Sequence[float], stage_layers: Sequence[int]) -> list[float]:
    """Return the time of each stage, as the difference of two sums from the first layer on."""
    until = [0.0, *itertools.accumulate(times_ms)]
    ends = [0, *itertools.accumulate(stage_layers)]
    return [until[end] - until[first] for first, end in itertools.pairwise(ends)]


def _ratio(times_ms: Sequence[float], stage_layers: Sequence[int]) -> float:
    sums = stage_times(times_ms, stage_layers)
    return max(sums) / min(sums)


def _longer(times_ms: Sequence[float], stage_layers: Sequence[int]) -> float:
    """Return the least time that is longer than the shortest stage's."""
    return math.nextafter(min(stage_times(times_ms, stage_layers)), math.inf)


def _divide(times_ms: Sequence[float], num_stages: int, min_ms: float) -> tuple[int, ...] | None:
    """Return the division of least largest stage among those whose stages all take so long; None for none."""
    until = np.array([0.0, *itertools.accumulate(times_ms)])
    spans = until[None] - until[:, None]
    spans[spans < min_ms] = math.inf
    return least_largest([spans] * num_stages)[0]


def least_largest(stages: Iterable[NDArray[Any]]) -> tuple[tuple[int, ...] | None, float]:
    """Return how many layers each stage has where the largest value is the least, and that value.

    Args:
        stages: Value of each stage, by its first layer and the one after its last; infinite for none.

    Returns:
        None, and infinity, where there is no such division.
    """
    least, firsts = np.zeros(1), []
    for values in stages:
        before = np.full(len(values), math.inf)
        before[: len(least)] = least
        whole = np.maximum(before[:, None], np.where(np.tri(len(values), dtype=bool), math.inf, values))
        firsts.append(whole.argmin(0).tolist())
        least = whole.min(0)
    if least[-1] == math.inf:
        return None, math.inf
    ends = [len(least) - 1]
    for first in reversed(firsts):
        ends.append(first[ends[-1]])
    return tuple(later - earlier for earlier, later in itertools.pairwise(reversed(ends))), float(least[-1])
