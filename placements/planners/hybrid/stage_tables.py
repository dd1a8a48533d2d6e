"""Costs of the layers of a model on the GPUs of a stage, as tables for the search inside a stage.

A table is of one group of GPUs and one micro-batch: for each kind of layer every strategy that can share it.
The module does not know which layers a stage has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from placements.block import PlacementError
from placements.cluster import DeviceGroup
from placements.models.chain import ModelShape
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.division import Floats
from placements.planners.hybrid.decision_trees import TreeOptions, layer_strategies
from placements.planners.hybrid.plan import PlanError, layout_of
from placements.planners.stage_solver import StrategyCosts, undominated

_MIB = 2**20


class LayerCosts(Protocol):
    """A source of costs of layers: from shapes, or as measured."""

    @property
    def model(self) -> ModelShape:
        """The layers."""

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return the cost of a layer on each GPU of a stage.

        The samples are of one micro-batch, of all data-parallel groups together.

        Raises:
            PlacementError: The layer cannot be shared so, or its cost is not known.
        """

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        """Return the time, forward and backward, to lay out a layer's output for the strategy of the next."""

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage, or the gradient back."""


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

    @property
    def min_ms(self) -> Floats:
        """The least cost of a layer of each kind, whatever its memory; shape ``(num_kinds,)``."""
        return np.array([costs.cost_ms.min() for costs in self.options])


def stage_table(
    costs: LayerCosts, kinds: Sequence[Layer], trees: TreeOptions, samples: int, m: int, group: DeviceGroup
) -> StageTable:
    """Return the table of some kinds of layers, with m micro-batches of `samples` samples.

    Strategies are left out where another one of the same layout costs, holds and recomputes no more.

    Raises:
        PlanError: No strategy can share a layer.
    """
    layouts: dict[object, LayerStrategy] = {}
    strategies, options = [], []
    for layer in kinds:
        by_strategy, refused = dict[LayerStrategy, Cost](), list[str]()
        for strategy in layer_strategies(group.count, trees, getattr(layer, "num_experts", 1)):
            try:
                by_strategy[strategy] = costs.cost(layer, strategy, samples, m, group)
            except PlacementError as error:
                refused.append(str(error))
        if not by_strategy:
            raise PlanError(refused[0])
        every, ways = strategy_costs(by_strategy, m, layouts), list(by_strategy)
        held = every.static_mib, every.kept_mib, every.transient_mib
        best = np.sort(undominated([every.cost_ms, *held, every.piece % 2], every.piece // 2))
        strategies.append(tuple(ways[i] for i in best.tolist()))
        options.append(StrategyCosts(*(column[best] for column in every)))
    between = transitions_ms(costs, kinds, layouts.values(), samples, group)
    return StageTable(tuple(strategies), tuple(options), between)


def strategy_costs(
    costs: Mapping[LayerStrategy, Cost], num_micro_batches: int, layouts: dict[object, LayerStrategy]
) -> StrategyCosts:
    """Return costs for the search inside a stage.

    Layouts are numbered as they are met, and each is kept with a strategy that has it.
    """
    for strategy in costs:
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
        for cost in costs.values()
    ]
    pieces = [2 * numbers[layout_of(strategy)] + (strategy.recompute != "none") for strategy in costs]
    return StrategyCosts(*[*np.array(rows, dtype=np.float64).T, np.array(pieces)])


def transitions_ms(
    costs: LayerCosts, kinds: Iterable[Layer], ways: Iterable[LayerStrategy], samples: int, group: DeviceGroup
) -> Floats:
    """Return the cost of a transition between a layer's layout (row) and the next layer's (column), in ms.

    Layouts are given by a strategy that has each, in the order of their numbers.
    """
    known = list(ways)
    pairs = product(known, known)
    max_ms = [max(costs.transition_ms(layer, a, b, samples, group) for layer in kinds) for a, b in pairs]
    return np.array(max_ms).reshape(len(known), -1)
