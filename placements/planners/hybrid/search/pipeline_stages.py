"""The stages of one pipeline, and the division of layers into them.

The module does not know which pipelines there are to try.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placements.cluster import DeviceGroup
from placements.models.layers import Layer
from placements.planners.division import divided, iteration_ms, min_largest, shortest_iteration, spans
from placements.planners.hybrid.plan import layers_of_stage
from placements.planners.hybrid.plan_options import STAGE_METHODS, NoPlan, Obstacle, PlanOptions
from placements.planners.hybrid.search.plan_bounds import (
    Contents,
    StageRoom,
    contents_of,
    stage_bounds_ms,
)
from placements.planners.hybrid.stage_tables import LayerCosts, StageTable
from placements.planners.stage_search.bmw import StageFigures, bi_objective_partition, memory_balanced
from placements.planners.stage_search.deadline import Check, no_limit
from placements.planners.stage_search.exact import min_memory
from placements.planners.stage_search.stage_problem import StageSolution, grouped

_PROVED = 1e-9
"""Relative part of a cost that the proof that it is the least may leave open for rounding."""

_ROUNDING = 1e-12
"""Relative difference of bounds that sums of floats may have."""

OnBetter = Callable[[tuple[int, ...]], None]
"""Is told how many layers each stage has in a division that is shorter than all before."""

_ROUNDED_PIECES = 6
"""Pieces of a stage for whose memory, rounded up to MiB as blocks, room is left."""


class Kinds:
    """The different layers of a model, and which one each is, alone or beside the embedding it is tied to.

    Attributes:
        layers: Each kind once.
        in_order: Kind of each layer, where the model is one stage.
        counts: How many layers are of each kind there.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        apart = (layers_of_stage(layers, i, i + 1)[0] for i in range(len(layers)))
        self.layers = tuple(dict.fromkeys((*layers, *apart)))
        self._all = layers
        self._place = {layer: i for i, layer in enumerate(self.layers)}
        self.num_layers = len(layers)
        self.in_order = self.of_stage(0, len(layers))
        self.counts = np.bincount(self.in_order, minlength=len(self.layers))
        self._contents: dict[int, Contents] = {}

    def of_stage(self, first: int, end: int) -> tuple[int, ...]:
        """Return the kinds of layers as one stage has them."""
        return tuple(self._place[layer] for layer in layers_of_stage(self._all, first, end))

    def contents(self, max_layers: int) -> Contents:
        """Return what stages can be, up to a number of layers."""
        if max_layers not in self._contents:
            self._contents[max_layers] = contents_of(self.in_order, max_layers)
        return self._contents[max_layers]


@dataclass(frozen=True)
class PipelineProblem:
    """Costs, layers and options that all pipelines of a search have in common.

    Attributes:
        costs: Costs of the model's layers.
        kinds: Kinds of these layers.
        global_batch_size: Samples of an iteration.
        options: What is allowed.
        check: Ends the search when its time is over.
        solved: Stages that were solved, by all that they depend on.
    """

    costs: LayerCosts
    kinds: Kinds
    global_batch_size: int
    options: PlanOptions
    check: Check = no_limit
    solved: dict[tuple[object, ...], StageSolution | None] = field(default_factory=dict)

    @property
    def proved_share(self) -> float:
        """The least share of its cost that is proved of any stage that was solved; 1 for all of it."""
        shares = (
            1.0 if each.min_cost >= each.cost * (1 - _PROVED) else each.min_cost / each.cost
            for each in self.solved.values()
            if each is not None
        )
        return min(shares, default=1.0)


class PipelineStages:
    """The stages of a pipeline, each solved for the layers that are asked for.

    Attributes:
        groups: The GPUs of each stage.
        tables: What layers cost on them.
        num_micro_batches: Micro-batches of an iteration, m.
    """

    def __init__(
        self,
        problem: PipelineProblem,
        groups: Sequence[DeviceGroup],
        tables: Sequence[StageTable],
        num_micro_batches: int,
    ) -> None:
        self._problem = problem
        self.groups, self.tables, self.num_micro_batches = groups, tables, num_micro_batches

    @cached_property
    def rooms(self) -> list[StageRoom]:
        """Costs, micro-batches and memory of each stage."""
        return [
            StageRoom(table, self.in_flight(i), self.capacity_mib(i)) for i, table in enumerate(self.tables)
        ]

    def in_flight(self, stage: int) -> int:
        """Return how many micro-batches a stage holds at its peak."""
        behind = (
            len(self.groups) - stage if self._problem.options.pipeline == "1f1b" else self.num_micro_batches
        )
        return min(behind, self.num_micro_batches)

    def capacity_mib(self, stage: int) -> float:
        """Return what each GPU of a stage has for states and activations, less what rounding up may add."""
        options, own_gib = self._problem.options, self.groups[stage].memory_gib
        given_gib = own_gib if options.memory_gib is None else options.memory_gib
        return (given_gib - options.reserve_gib) * 1024 - _ROUNDED_PIECES * (self.in_flight(stage) + 2)

    def solution(self, stage: int, first: int, end: int) -> StageSolution | None:
        """Return the strategies of layers as a stage; None where they do not fit."""
        kinds = self._problem.kinds.of_stage(first, end)
        in_flight, capacity = self.in_flight(stage), self.capacity_mib(stage)
        table, solved = self.tables[stage], self._problem.solved
        key = (table, in_flight, kinds)
        if key not in solved:
            problem = table.problem(kinds, in_flight, capacity)
            solved[key] = STAGE_METHODS[self._problem.options.stage_method](problem, self._problem.check)
        return solved[key]

    def grouped_solution(self, stage: int, first: int, end: int) -> StageSolution:
        """Return the strategies of layers as a stage that fits, equal ones together where that is as good."""
        solution, kinds = self.solution(stage, first, end), self._problem.kinds.of_stage(first, end)
        assert solution is not None, "stages that do not fit are not chosen"
        return grouped(
            self.tables[stage].problem(kinds, self.in_flight(stage), self.capacity_mib(stage)), solution
        )

    def why_memory_is_short(self) -> str:
        """Return a line if all GPUs together lack the memory for the model, whatever its strategies."""
        min_mib = np.min([table.min_mib for table in self.tables], axis=0)
        needed = float(min_mib @ self._problem.kinds.counts)
        given = sum(self.capacity_mib(stage) for stage in range(len(self.groups)))
        if needed <= given:
            return ""
        return f"out of memory: all layers need {needed / 1024:.1f} GiB of {given / 1024:.1f} in all stages"

    def transfer_ms(self, stage: int, end: int) -> float:
        """Return the time to send what is between two layers to the next stage, and the gradient back."""
        if stage == len(self.groups) - 1:
            return 0.0
        samples = self._problem.global_batch_size // self.num_micro_batches
        costs = self._problem.costs
        each_ms = costs.transfer_ms(costs.model.layers[end - 1], samples, *self.groups[stage : stage + 2])
        return 2 * each_ms

    def iteration_ms(self, stage_layers: Sequence[int]) -> float:
        """Return what an iteration of stages of so many layers, that all fit, is taken to be."""
        costs = [cost for stage in spans(stage_layers) if (cost := self._stage_cost(*stage))]
        times_ms, syncs_ms = zip(*costs, strict=True)
        return iteration_ms(times_ms, syncs_ms, self.num_micro_batches)

    def divided(self, limit_ms: float, on_better: OnBetter) -> tuple[int, ...] | None:
        """Return how many layers each stage of the shortest iteration has, by the method asked for.

        None where no division fits, or is shorter than the limit.
        """
        method = self._problem.options.method
        if method == "exact":
            return shortest_iteration(
                self._stage_cost,
                self.num_micro_batches,
                (self.bounds_ms, self._transfers_ms()),
                self._contents.which,
                limit_ms,
                on_better,
            )
        even = self._balanced_in_memory() if method == "memory" else self._balanced_in_time()
        found = [even] if all(self.solution(*stage) for stage in spans(even)) else []
        if method == "bmw":
            division = bi_objective_partition(
                self._figures, self._balanced_in_memory(), self._balanced_in_time(), self.num_micro_batches
            )
            found += [] if division is None else [division]
        return min(found, key=self.iteration_ms, default=None)

    @cached_property
    def bounds_ms(self) -> NDArray[np.float64]:
        """Least time of each stage with any layers; see `stage_bounds_ms`."""
        bounds_ms = stage_bounds_ms(self.rooms, self._problem.kinds.in_order, self._contents)
        return bounds_ms * (1 - _ROUNDING)

    @cached_property
    def _contents(self) -> Contents:
        """Possible stages, with a layer left for each other stage."""
        kinds = self._problem.kinds
        return kinds.contents(kinds.num_layers - len(self.groups) + 1)

    def _transfers_ms(self) -> NDArray[np.float64]:
        """Return what stages take to send their output, in the shape of their bounds."""
        found = np.zeros(self.bounds_ms.shape)
        _, ends, kinds = np.unique(self._problem.kinds.in_order, return_index=True, return_inverse=True)
        for stage in range(len(self.groups) - 1):
            by_kind = np.array([self.transfer_ms(stage, end + 1) for end in ends.tolist()])
            found[stage, 1:] = by_kind[kinds][:, None]
        return found

    @property
    def min_ms(self) -> float:
        """Time that an iteration takes at least, by the bounds of its stages."""
        slowest_ms = divided(self.bounds_ms, np.maximum)[1]
        sum_ms = divided(self.bounds_ms, np.add)[1]
        return sum_ms if math.isinf(sum_ms) else (self.num_micro_batches - 1) * slowest_ms + sum_ms

    def _stage_cost(self, stage: int, first: int, end: int) -> tuple[float, float] | None:
        """Return what layers cost as a stage; what its output takes to the next one is in the sum alone."""
        found = self.solution(stage, first, end)
        return None if found is None else (found.cost, self.transfer_ms(stage, end))

    def _figures(self, stage: int, first: int, end: int) -> StageFigures | None:
        found = self.solution(stage, first, end)
        return None if found is None else (found.cost, self.transfer_ms(stage, end), found.peak_mib)

    def _balanced_in_time(self) -> tuple[int, ...]:
        least = np.min([table.min_ms for table in self.tables], axis=0)
        return min_largest([float(least[kind]) for kind in self._problem.kinds.in_order], len(self.groups))

    def _balanced_in_memory(self) -> tuple[int, ...]:
        options = self.tables[0].options
        fastest = [int(np.argmin(cost)) for cost in self.tables[0].costs_ms]
        static = [float(options[kind].static_mib[fastest[kind]]) for kind in self._problem.kinds.in_order]
        kept = [float(options[kind].kept_mib[fastest[kind]]) for kind in self._problem.kinds.in_order]
        return memory_balanced(static, kept, [self.in_flight(i) for i in range(len(self.groups))])

    def _short_stage(self) -> str:
        """Return what the first stage that does not fit lacks, where layers are divided evenly in time."""
        for stage, first, end in spans(self._balanced_in_time()):
            if self.solution(stage, first, end) is None:
                kinds, given = self._problem.kinds.of_stage(first, end), self.capacity_mib(stage)
                needed = min_memory(self.tables[stage].problem(kinds, self.in_flight(stage), given))
                return f"; divided evenly, stage {stage} needs {needed / 1024:.1f} GiB of {given / 1024:.1f}"
        return ""

    def why_none(self, limit_ms: float) -> NoPlan:
        """Return why no division was found."""
        if math.isinf(limit_ms):
            reason = f"out of memory: no division of the layers fits every stage{self._short_stage()}"
            return NoPlan(reason, Obstacle.MEMORY)
        return NoPlan("no division of the layers that fits is shorter than the plans found so far")
