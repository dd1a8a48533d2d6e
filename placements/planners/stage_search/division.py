"""A chain of layers divided into stages: what each stage costs, asked for when it is needed, and all of them.

The module knows how stages add up to an iteration. It does not know what a layer is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placements.planners.stage_search.stage_problem import Floats, Ints, StageError


class StageCost(NamedTuple):
    """Cost of some layers as a stage.

    Attributes:
        time_ms: Time of one micro-batch, without the exchange of gradients.
        sync_ms: Once an iteration.
        peak_mib: The most that it holds.
    """

    time_ms: float
    sync_ms: float
    peak_mib: float


StageCosts = Callable[[int, int, int], StageCost | None]
"""Gives for a stage, its first layer and the layer after its last what it costs; None if it does not fit."""


@dataclass(frozen=True)
class Division:
    """Layers divided into stages, and what an iteration takes.

    Attributes:
        stage_layers: Number of layers of each stage.
        time_ms: Time of an iteration; see `iteration_ms`.
    """

    stage_layers: tuple[int, ...]
    time_ms: float


def iteration_ms(times_ms: Sequence[float], syncs_ms: Sequence[float], num_micro_batches: int) -> float:
    """Return how long an iteration takes (Galvatron-BMW, App. C, Eq. 9).

    One micro-batch goes through all stages, and each other one takes as long as the slowest stage.

    Args:
        times_ms: Time of one micro-batch on each stage.
        syncs_ms: Time of each stage once an iteration, such as its synchronisation of gradients.
        num_micro_batches: Micro-batches of an iteration.
    """
    return (num_micro_batches - 1) * max(times_ms) + math.fsum(times_ms) + math.fsum(syncs_ms)


def spans(stage_layers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return of each stage its index, its first layer and the layer after its last."""
    ends = itertools.pairwise(itertools.accumulate(stage_layers, initial=0))
    return [(stage, first, end) for stage, (first, end) in enumerate(ends)]


def memory_balanced(
    static_mib: Sequence[float], kept_mib: Sequence[float], in_flight: Sequence[int]
) -> tuple[int, ...]:
    """Return the division whose stage with the most memory has the least (Galvatron-BMW, Sec. IV-B).

    Where several divisions are equally good, it is one with the least sum of squares, so that the other
    stages are even too.
    Its counterpart for times is `placements.planners.partition.min_largest`.

    Args:
        static_mib: Static memory of each layer, in order.
        kept_mib: Memory that one micro-batch keeps of each layer.
        in_flight: Micro-batches whose kept memory each stage holds.

    Raises:
        StageError: There are fewer layers than stages.
    """
    num_layers = len(static_mib)
    check_counts(num_layers, len(in_flight))
    static = np.concatenate([[0.0], np.cumsum(static_mib)])
    kept = np.concatenate([[0.0], np.cumsum(kept_mib)])
    stages = [windows(static + count * kept, num_layers) for count in in_flight]
    _, max_mib = min_divided(stages, np.maximum)
    squares = [np.where(stage <= max_mib, stage**2, math.inf) for stage in stages]
    return min_divided(squares, np.add)[0]


def windows(until: Floats, max_layers: int) -> Floats:
    """Return the sums over consecutive layers, by the layer after the last and by how many they are.

    Args:
        until: Sums over all layers before each, and over all layers.
        max_layers: Most layers that are summed.

    Returns:
        Shape ``(num_layers + 1, max_layers + 1)``; infinite of no layers, and of more than there are.
    """
    end, number = np.ogrid[: len(until), : max_layers + 1]
    first = end - number
    return np.where((number == 0) | (first < 0), math.inf, until[:, None] - until[np.maximum(first, 0)])


def min_divided(stages: Sequence[Floats], joined: np.ufunc) -> tuple[tuple[int, ...], float]:
    """Return the division of the least whole, and that whole, which is infinite where there is no division.

    Args:
        stages: For each, its value by the layer after its last and its number of layers, as `windows`;
            infinite for none.
        joined: Makes a whole of two values: their sum, or the greater.
    """
    num_ends, num_numbers = stages[0].shape
    first = np.maximum(np.arange(num_ends)[:, None] - np.arange(num_numbers), 0)
    least = np.concatenate([[0.0], np.full(num_ends - 1, math.inf)])
    numbers: list[Ints] = []
    for stage in stages:
        whole = joined(least[first], stage)
        numbers.append(whole.argmin(axis=1))
        least = whole.min(axis=1)
    return _traced(numbers), float(least[-1])


def _traced(numbers: Sequence[Ints]) -> tuple[int, ...]:
    end, found = len(numbers[0]) - 1, []
    for number in reversed(numbers):
        found.append(int(number[end]))
        end -= found[-1]
    return tuple(reversed(found))


def check_counts(num_layers: int, num_stages: int) -> None:
    """Check that every stage can have a layer.

    Raises:
        StageError: There are fewer layers than stages, or no stages.
    """
    if not 1 <= num_stages <= num_layers:
        raise StageError(
            f"num_stages: {num_stages} is not from 1 to the {num_layers} layers; give each stage a layer"
        )
