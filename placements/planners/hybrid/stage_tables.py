"""Costs of the layers of a model on the GPUs of a stage, as tables for the search inside a stage.

A table is of one group of GPUs and one micro-batch: for each kind of layer every strategy that can share it.
The module does not know which layers a stage has.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from placements.block import PlacementError
from placements.cluster import DeviceGroup
from placements.models.calibration import CalibrationError
from placements.models.chain import ModelShape
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.decision_trees import TreeOptions, layer_strategies
from placements.planners.hybrid.plan import PlanError, alike, layout_of
from placements.planners.stage_search.stage_problem import LayerRun, StageProblem, StrategyCosts

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


@dataclass(frozen=True)
class LayerTable:
    """The strategies of one kind of layer and what each costs.

    Attributes:
        strategies: Those that can share it.
        costs: Cost of each strategy.
        refused: Why others cannot, a line each.
    """

    strategies: tuple[LayerStrategy, ...]
    costs: tuple[Cost, ...]
    refused: tuple[str, ...]

    def options(self, layouts: dict[object, int]) -> StrategyCosts:
        """Return the table for the search inside a stage; layouts are numbered as they are met."""
        costs = self.costs
        return StrategyCosts(
            time_ms=np.array([cost.forward.time_ms + cost.backward.time_ms for cost in costs]),
            sync_ms=np.array([cost.update_ms for cost in costs]),
            static_mib=np.array([cost.static_bytes for cost in costs]) / _MIB,
            kept_mib=np.array([cost.kept_bytes for cost in costs]) / _MIB,
            forward_mib=np.array([cost.forward_bytes for cost in costs]) / _MIB,
            backward_mib=np.array([cost.backward_bytes for cost in costs]) / _MIB,
            recomputed=np.array([each.recompute != "none" for each in self.strategies]),
            layout=np.array([layouts.setdefault(layout_of(each), len(layouts)) for each in self.strategies]),
        )


@dataclass(frozen=True, eq=False)
class StageTable:
    """All kinds of layers on one group of GPUs, for one micro-batch.

    Attributes:
        kinds: The table of each kind of layer.
        options: The same for the search inside a stage.
        transition_ms: Between layouts, by their numbers.
        num_micro_batches: Micro-batches of an iteration.
    """

    kinds: tuple[LayerTable, ...]
    options: tuple[StrategyCosts, ...]
    transition_ms: dict[tuple[int, int], float]
    num_micro_batches: int

    @cached_property
    def min_ms(self) -> NDArray[np.float64]:
        """The least cost of a layer of each kind, whatever memory it takes; shape ``(num_kinds,)``."""
        return np.array([float(cost.min()) for cost in self.costs_ms])

    @cached_property
    def costs_ms(self) -> tuple[NDArray[np.float64], ...]:
        """Time of a micro-batch with its share of the update, of each kind and option."""
        return tuple(each.time_ms + each.sync_ms / self.num_micro_batches for each in self.options)

    def problem(self, kinds: Sequence[int], in_flight: int, capacity_mib: float) -> StageProblem:
        """Return the problem of a stage with layers of such kinds, in order."""
        runs = tuple(
            LayerRun(len(list(equal)), self.options[kind]) for kind, equal in itertools.groupby(kinds)
        )
        return StageProblem(runs, self.transition_ms, in_flight, capacity_mib, self.num_micro_batches)

    @cached_property
    def min_mib(self) -> NDArray[np.float64]:
        """MiB that a layer of each kind needs at least, with one micro-batch; shape ``(num_kinds,)``."""
        return np.array([float(np.min(each.static_mib + each.kept_mib)) for each in self.options])


def make_table(
    costs: LayerCosts,
    kinds: Sequence[Layer],
    trees: TreeOptions,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    strategy: LayerStrategy | None = None,
) -> StageTable:
    """Return the costs of all strategies of each kind of layer, or of one that all layers have.

    Strategies that are in nothing better than another one of the same layout are left out.

    Raises:
        PlanError: A kind of layer cannot be shared among the GPUs at all.
    """
    if strategy is None:
        tables = [layer_table(costs, layer, trees, samples, num_micro_batches, group) for layer in kinds]
    else:
        shared = [(layer, alike(strategy, layer)) for layer in kinds]
        try:
            tables = [
                LayerTable((how,), (costs.cost(layer, how, samples, num_micro_batches, group),), ())
                for layer, how in shared
            ]
        except (PlacementError, CalibrationError) as error:
            raise PlanError(str(error)) from None
    layouts: dict[object, int] = {}
    options = tuple(table.options(layouts) for table in tables)
    by_layout = {layouts[layout_of(strategy)]: strategy for table in tables for strategy in table.strategies}
    transitions = {
        (a, b): max(costs.transition_ms(layer, before, after, samples, group) for layer in kinds)
        for (a, before), (b, after) in itertools.permutations(by_layout.items(), 2)
    }
    return StageTable(tuple(tables), options, transitions, num_micro_batches)


def layer_table(
    costs: LayerCosts,
    layer: Layer,
    trees: TreeOptions,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
) -> LayerTable:
    """Return the strategies of one kind of layer that are not in everything worse than another.

    Args:
        costs: What it costs.
        layer: The kind.
        trees: Which strategies are allowed.
        samples: Samples of a micro-batch.
        num_micro_batches: Micro-batches of an iteration.
        group: The GPUs of the stage.

    Raises:
        PlanError: No strategy can share it.
    """
    found: dict[LayerStrategy, Cost] = {}
    refused = []
    experts = layer.num_experts if isinstance(layer, TransformerLayer) else 1
    for strategy in layer_strategies(group.count, trees, experts):
        try:
            found[strategy] = costs.cost(layer, strategy, samples, num_micro_batches, group)
        except (PlacementError, CalibrationError) as error:
            refused.append(str(error))
    if not found:
        raise PlanError(refused[0])
    kept = _not_worse(found)
    return LayerTable(tuple(kept), tuple(found[each] for each in kept), tuple(refused))


def _not_worse(found: dict[LayerStrategy, Cost]) -> list[LayerStrategy]:
    """Return the strategies but those that are in nothing better than another one and in something worse."""
    layouts: dict[object, int] = {}
    layout = np.array([layouts.setdefault(layout_of(each), len(layouts)) for each in found])
    figures = np.array([_figures(*each) for each in found.items()])
    no_better = (figures[:, None] >= figures[None]).all(axis=2)
    is_worse = no_better & ~no_better.T & (layout[:, None] == layout)
    return [each for each, worse in zip(found, is_worse.any(axis=1).tolist(), strict=True) if not worse]


def _figures(strategy: LayerStrategy, cost: Cost) -> tuple[float, ...]:
    return (
        cost.forward.time_ms + cost.backward.time_ms,
        cost.update_ms,
        cost.static_bytes,
        cost.kept_bytes,
        cost.forward_bytes,
        cost.backward_bytes,
        float(strategy.recompute != "none"),
    )
