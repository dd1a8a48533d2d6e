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

from placements.planners.stage_search.stage_problem import StageError


class StageCost(NamedTuple):
    """What some layers cost as a stage.

    Attributes:
        time_ms: Of one micro-batch, without the exchange of gradients.
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
        stages: What each costs.
        time_ms: Of an iteration; see `iteration_ms`.
        num_solved: Stages that had to be solved to find it, each counted once.
    """

    stage_layers: tuple[int, ...]
    stages: tuple[StageCost, ...]
    time_ms: float
    num_solved: int


def iteration_ms(stages: Sequence[StageCost], num_micro_batches: int, sync_at_once: bool = False) -> float:
    """Return how long an iteration takes (Galvatron-BMW, App. C, Eq. 9).

    One micro-batch goes through all stages, and each other one takes as long as the slowest stage.

    Args:
        stages: In order.
        num_micro_batches: Of an iteration.
        sync_at_once: Stages exchange their gradients at the same time, so that the longest exchange counts,
            not their sum as in Eq. 9.
    """
    times = [stage.time_ms for stage in stages]
    syncs = [stage.sync_ms for stage in stages]
    sync_ms = max(syncs) if sync_at_once else math.fsum(syncs)
    return (num_micro_batches - 1) * max(times) + math.fsum(times) + sync_ms


class Solved:
    """The stages that were solved, each once."""

    def __init__(self, costs: StageCosts) -> None:
        """Begin with none."""
        self._costs = costs
        self._known: dict[tuple[int, int, int], StageCost | None] = {}

    def __len__(self) -> int:
        """Return how many were."""
        return len(self._known)

    def __contains__(self, stage: tuple[int, int, int]) -> bool:
        """Return whether a stage was."""
        return stage in self._known

    def cost(self, stage: tuple[int, int, int]) -> StageCost | None:
        """Return what a stage costs: its index, first layer and the layer after its last."""
        if stage not in self._known:
            self._known[stage] = self._costs(*stage)
        return self._known[stage]

    def of(self, stage_layers: Sequence[int]) -> list[StageCost | None]:
        """Return what each stage of a division costs."""
        return [self.cost(stage) for stage in spans(stage_layers)]


def spans(stage_layers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return of each stage its index, its first layer and the layer after its last."""
    ends = itertools.pairwise(itertools.accumulate(stage_layers, initial=0))
    return [(stage, first, end) for stage, (first, end) in enumerate(ends)]


def memory_balanced(
    static_mib: Sequence[float], kept_mib: Sequence[float], in_flight: Sequence[int]
) -> tuple[int, ...]:
    """Return the division whose stage with the most memory has the least (Galvatron-BMW, Sec. IV-B).

    Its counterpart for times is `placements.planners.partition.least_largest`.

    Args:
        static_mib: Of each layer, in order.
        kept_mib: Of each layer, by one micro-batch.
        in_flight: Of each stage: the micro-batches whose kept memory it holds.

    Raises:
        StageError: There are fewer layers than stages, or the layers' numbers are not as many.
    """
    num_layers = len(static_mib)
    check_counts(num_layers, len(in_flight))
    if len(kept_mib) != num_layers:
        raise StageError(f"kept_mib: {len(kept_mib)} numbers for {num_layers} layers; give one each")
    static = np.concatenate([[0.0], np.cumsum(static_mib)])
    kept = np.concatenate([[0.0], np.cumsum(kept_mib)])
    least = np.full(num_layers + 1, math.inf)
    least[0] = 0.0
    firsts = []
    for count in in_flight:
        until = static + count * kept
        whole = np.maximum(least[:, None], until - until[:, None])
        whole[np.tril_indices(num_layers + 1)] = math.inf
        firsts.append(whole.argmin(axis=0))
        least = whole.min(axis=0)
    return traced(firsts, num_layers)


def traced(firsts: Sequence[Sequence[int]], num_layers: int) -> tuple[int, ...]:
    """Return the layers of each stage.

    Args:
        firsts: Of each stage, its best first layer by the layer after its last.
        num_layers: Of all stages.
    """
    ends = [num_layers]
    for first in reversed(firsts):
        ends.append(int(first[ends[-1]]))
    return tuple(later - earlier for earlier, later in itertools.pairwise(reversed(ends)))


def check_counts(num_layers: int, num_stages: int) -> None:
    """Check that every stage can have a layer.

    Raises:
        StageError: There are fewer layers than stages, or no stages.
    """
    if not 1 <= num_stages <= num_layers:
        raise StageError(
            f"num_stages: {num_stages} is not from 1 to the {num_layers} layers; give each stage a layer"
        )
