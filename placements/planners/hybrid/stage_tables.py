"""Costs of the layers of a model on the GPUs of a stage, as tables for the search inside a stage.

A table is of one group of GPUs and one micro-batch: for each kind of layer every strategy that can share it.
The module does not know which layers a stage has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Protocol

import numpy as np

from placements.block import PlacementError
from placements.cluster import DeviceGroup
from placements.models.calibration import CalibrationError
from placements.models.chain import ModelShape
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.division import Floats
from placements.planners.hybrid.decision_trees import TreeOptions, layer_strategies
from placements.planners.hybrid.plan import PlanError, layout_of
from placements.planners.stage_search.exact import undominated
from placements.planners.stage_search.stage_problem import StageProblem, StrategyCosts

_MIB = 2**20


class LayerCosts(Protocol):
    """Who knows what a layer costs: from shapes, or as measured."""

    @property
    def model(self) -> ModelShape:
        """The layers."""

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return what a layer costs each GPU of a group.

        Args:
            layer: One of the model's.
            strategy: How the GPUs share it.
            samples: Samples of one micro-batch, of all data-parallel groups together.
            num_micro_batches: Micro-batches of an iteration.
            group: The GPUs of the stage.

        Raises:
            PlacementError: The layer cannot be shared so, or its cost is not known.
        """

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        """Return the time, forward and backward, to lay out a layer's output for the strategy of the next."""

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage, or the gradient back."""


Layouts = dict[object, LayerStrategy]
"""Layouts in the order of their numbers, each with a strategy that has it."""


@dataclass(frozen=True, eq=False)
class StageTable:
    """All kinds of layers on one group of GPUs, for one micro-batch.

    Attributes:
        strategies: Strategies of each kind of layer.
        options: Their costs.
        transition_ms: Between layouts, by their numbers.
    """

    strategies: tuple[tuple[LayerStrategy, ...], ...]
    options: tuple[StrategyCosts, ...]
    transition_ms: Floats

    @cached_property
    def min_ms(self) -> Floats:
        """The least cost of a layer of each kind, whatever memory it takes; shape ``(num_kinds,)``."""
        return np.array([each.cost_ms.min() for each in self.options])

    @cached_property
    def min_mib(self) -> Floats:
        """MiB that a layer of each kind needs at least, with one micro-batch; shape ``(num_kinds,)``."""
        return np.array([each.weight_mib(1).min() for each in self.options])

    def problem(self, kinds: Sequence[int], in_flight: int, capacity_mib: float) -> StageProblem:
        """Return the problem of a stage with layers of such kinds, in order."""
        layers = tuple(self.options[kind] for kind in kinds)
        return StageProblem(layers, self.transition_ms, in_flight, capacity_mib)


def make_table(
    costs: LayerCosts,
    kinds: Sequence[Layer],
    trees: TreeOptions,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
) -> StageTable:
    """Return the costs of all strategies of each kind of layer.

    Strategies that are in nothing better than another one of the same layout are left out, and recomputation
    is one thing to be without.

    Raises:
        PlanError: A kind of layer cannot be shared among the GPUs at all.
    """
    layouts: Layouts = {}
    strategies, options = [], []
    for layer in kinds:
        found = layer_costs(costs, layer, trees, samples, num_micro_batches, group)
        every, shared = strategy_costs(found, num_micro_batches, layouts), list(found)
        figures = [*every[1:-1], every.piece % 2]
        best = np.sort(undominated(figures, every.piece // 2))
        strategies.append(tuple(shared[i] for i in best.tolist()))
        options.append(StrategyCosts(*(each[best] for each in every)))
    between = transitions_ms(costs, kinds, layouts, samples, group)
    return StageTable(tuple(strategies), tuple(options), between)


def layer_costs(
    costs: LayerCosts,
    layer: Layer,
    trees: TreeOptions,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
) -> dict[LayerStrategy, Cost]:
    """Return what each strategy that can share a layer costs; see `LayerCosts.cost`.

    Raises:
        PlanError: No strategy can share it.
    """
    found: dict[LayerStrategy, Cost] = {}
    refused = []
    for strategy in layer_strategies(group.count, trees, getattr(layer, "num_experts", 1)):
        try:
            found[strategy] = costs.cost(layer, strategy, samples, num_micro_batches, group)
        except (PlacementError, CalibrationError) as error:
            refused.append(str(error))
    if not found:
        raise PlanError(refused[0])
    return found


def strategy_costs(
    found: Mapping[LayerStrategy, Cost], num_micro_batches: int, layouts: Layouts
) -> StrategyCosts:
    """Return costs for the search inside a stage; layouts are numbered as they are met."""
    for strategy in found:
        layouts.setdefault(layout_of(strategy), strategy)
    numbers = {layout: number for number, layout in enumerate(layouts)}
    rows = [
        (
            cost.forward.time_ms + cost.backward.time_ms + cost.update_ms / num_micro_batches,
            cost.forward.time_ms + cost.backward.time_ms,
            cost.update_ms,
            cost.static_bytes / _MIB,
            cost.kept_bytes / _MIB,
            max(cost.forward_bytes, cost.backward_bytes) / _MIB,
        )
        for cost in found.values()
    ]
    pieces = [2 * numbers[layout_of(each)] + (each.recompute != "none") for each in found]
    return StrategyCosts(*[*np.array(rows, dtype=np.float64).T, np.array(pieces)])


def transitions_ms(
    costs: LayerCosts, kinds: Iterable[Layer], layouts: Layouts, samples: int, group: DeviceGroup
) -> Floats:
    """Return what passes pay between a layer in a layout (row) and the next in another, by their numbers."""
    ways = list(layouts.values())
    found = np.zeros((len(ways), len(ways)))
    for (i, before), (j, after) in permutations(enumerate(ways), 2):
        found[i, j] = max(costs.transition_ms(layer, before, after, samples, group) for layer in kinds)
    return found
