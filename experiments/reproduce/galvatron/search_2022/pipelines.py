"""The stages of a model together: what one batch takes with a number of stages. It compares no batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from experiments.reproduce.galvatron.search_2022.constants import Constants
from experiments.reproduce.galvatron.search_2022.layer_costs import (
    layer_memory_mib,
    layer_time_s,
    other_memory_mib,
)
from experiments.reproduce.galvatron.search_2022.stage_division import divide
from experiments.reproduce.galvatron.search_2022.stage_search import (
    StageCosts,
    best_strategies,
    fits,
    min_time_s,
)
from experiments.reproduce.galvatron.search_2022.strategies import GalvatronStrategy
from experiments.reproduce.galvatron.search_2022.transitions import transitions_s


@dataclass(frozen=True)
class StagedModel:
    """The stages of a model with a number of stages, for a batch and a memory.

    Attributes:
        strategies: What each layer may have.
        stage_layers: Number of layers of each stage.
        stages: What they cost; of equal stages only one.
    """

    strategies: tuple[GalvatronStrategy, ...]
    stage_layers: tuple[int, ...]
    stages: tuple[StageCosts, ...]

    @property
    def fits(self) -> bool:
        """Whether there are strategies with which all layers fit."""
        return all(fits(stage) for stage in self.stages)

    @property
    def min_time_s(self) -> float:
        """What no strategies are below, in s."""
        return self._repeats * sum(min_time_s(stage) for stage in self.stages)

    def solve(self) -> tuple[float, tuple[GalvatronStrategy, ...]]:
        """Return the least time of an iteration in s, and the strategy of each layer.

        As in the original the stages' times are added, whichever is the slowest.
        """
        found = [best_strategies(stage) for stage in self.stages]
        solved = [each for each in found if each is not None]
        assert len(solved) == len(found), "only what fits is solved"
        chosen = [self.strategies[index] for _, indices in solved for index in indices]
        return self._repeats * sum(time_s for time_s, _ in solved), tuple(chosen * self._repeats)

    @property
    def _repeats(self) -> int:
        return len(self.stage_layers) // len(self.stages)


def make_pipeline(
    constants: Constants,
    layer_counts: tuple[int, ...],
    strategies: tuple[GalvatronStrategy, ...],
    division: tuple[GalvatronStrategy, ...],
    batch: int,
    memory_mib: int,
) -> StagedModel | None:
    """Return the stages; None where samples, layers or memory are too few for them.

    Args:
        constants: Constants of the model.
        layer_counts: Layers of each type.
        strategies: What each layer may have; all with the same number of stages.
        division: The strategies by which layers of several types are divided into stages.
        batch: Samples of an iteration.
        memory_mib: Memory of a GPU.
    """
    num_stages = strategies[0].num_stages
    if batch % (constants.num_gpus // num_stages):
        return None
    stage_layers = _stage_layers(constants, layer_counts, division, batch)
    other = other_memory_mib(constants, strategies[0], batch)
    if constants.has_equal_layers:  # one stage is solved, with the least memory of all
        other = (max(other),)
    capacities = [memory_mib - math.ceil(each) for each in other]
    if stage_layers is None or min(capacities) <= 0:
        return None
    types = np.repeat(np.arange(len(layer_counts)), layer_counts)
    num_layers = len(types)
    layers = constants.layer_types
    time_s = [[layer_time_s(constants, layer, s, batch, num_layers) for s in strategies] for layer in layers]
    memory = [[layer_memory_mib(constants, layer, s, batch) for s in strategies] for layer in layers]
    costs = np.array(time_s), np.ceil(memory).astype(np.int64), transitions_s(constants, strategies, batch)
    ends = np.cumsum(stage_layers)
    stages = tuple(
        StageCosts(types[end - count : end], *costs, capacity)
        for end, count, capacity in zip(ends, stage_layers, capacities, strict=False)
    )
    return StagedModel(strategies, stage_layers, stages)


def _stage_layers(
    constants: Constants, layer_counts: tuple[int, ...], division: tuple[GalvatronStrategy, ...], batch: int
) -> tuple[int, ...] | None:
    """Return the number of layers of each stage; None where a stage would have none."""
    if not constants.has_equal_layers:
        return divide(constants, layer_counts, division, batch)
    num_stages = division[0].num_stages
    each = layer_counts[0] // num_stages  # defect: what is left over is dropped
    return (each,) * num_stages if each else None
