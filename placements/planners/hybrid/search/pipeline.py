"""The stages of one pipeline, bounds on their costs, and the division of layers into stages.

The module does not know the pipelines to try.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache, cached_property

import numpy as np

from placements.cluster import Cluster, DeviceGroup
from placements.planners.bmw import bi_objective_partition, memory_balanced, solve_as_paper
from placements.planners.division import (
    ROUNDING,
    Floats,
    StageCost,
    divided,
    iteration_ms,
    min_largest,
    shortest_iteration,
    spans,
)
from placements.planners.hybrid.plan import Plan, StagePlan, layers_of_stage
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan, StageEstimate
from placements.planners.hybrid.stage_tables import LayerCosts, StageTable, stage_table
from placements.planners.stage_solver import (
    Check,
    Ints,
    StageProblem,
    StageSolution,
    grouped,
    memory_prices,
    solve,
)

_BOUND_ROUNDING = 1e-12
"""Relative difference of bounds that sums of floats may have."""

_ROUNDED_PIECES = 6
"""Pieces of a stage for whose memory, rounded up to MiB as blocks, room is left."""

_SOLVERS = {"exact": solve, "paper": solve_as_paper}


class PlanProblem:
    """The common data of all pipelines of a search: arguments of `search_plans`, and stages already solved.

    Attributes:
        kinds: The different layers, alone and beside the embedding that they are tied to.
        in_order: Kind of each layer, where the model is one stage.
        counts: Number of layers of each kind there.
        solved: Stages that were solved, by all that they depend on.
        proved_share: The least share of its cost that is proved of any of them; 1 for all of it.
    """

    def __init__(
        self,
        costs: LayerCosts,
        cluster: Cluster,
        batch: int,
        options: PlanOptions,
        check: Check = lambda: None,
    ) -> None:
        self.costs, self.cluster, self.batch, self.options, self.check = costs, cluster, batch, options, check
        layers = costs.model.layers
        apart = (layers_of_stage(layers, i, i + 1)[0] for i in range(len(layers)))
        self.kinds = tuple(dict.fromkeys((*layers, *apart)))
        self._place = {layer: i for i, layer in enumerate(self.kinds)}
        self.in_order = self.of_stage(0, len(layers))
        self.counts = np.bincount(self.in_order, minlength=len(self.kinds))
        self.solved: dict[tuple[object, ...], StageSolution | None] = {}
        self.proved_share = 1.0
        self._tables: dict[tuple[object, int], StageTable] = {}
        self._min_ms = cache(self._least_ms)

    @cached_property
    def contents(self) -> Ints:
        """A number for each run of consecutive layers, by the layer after the last and the run's length.

        Runs of the same kinds in order have the same number, shorter runs lower numbers; -1 where no run
        exists.
        """
        kinds, size, known = self.in_order, len(self.in_order) + 1, dict[tuple[int, ...], int]()
        which = np.full((size, size), -1)
        for number in range(1, size):
            for end in range(number, size):
                which[end, number] = known.setdefault(kinds[end - number : end], len(known))
        return which

    def of_stage(self, first: int, end: int) -> tuple[int, ...]:
        """Return the kinds of layers as one stage has them."""
        return tuple(self._place[layer] for layer in layers_of_stage(self.costs.model.layers, first, end))

    def table(self, group: DeviceGroup, m: int) -> StageTable:
        """Return the costs of all layers on a group; see `stage_table`."""
        key = group.pattern, m
        if key not in self._tables:
            trees, samples = self.options.trees, self.batch // m
            self._tables[key] = stage_table(self.costs, self.kinds, trees, samples, m, group)
        return self._tables[key]

    def groups(self, num_stages: int, num_gpus: int) -> list[DeviceGroup]:
        """Return the GPUs of each stage."""
        return [self.cluster.group(stage * num_gpus, num_gpus) for stage in range(num_stages)]

    def loose_ms(self, num_stages: int, num_gpus: int, m: int) -> float:
        """Return a time that no iteration is below, memory aside."""
        least, counts = self._min_ms(num_gpus, m), self.counts
        total = float(counts @ least)
        return (m - 1) * max(total / num_stages, float(least[counts > 0].max())) + total

    def _least_ms(self, num_gpus: int, m: int) -> Floats:
        """Return the least cost of a layer of each kind on any stage of `num_gpus` GPUs."""
        most = min(self.cluster.num_gpus // num_gpus, len(self.in_order))
        groups = {group.pattern: group for group in self.groups(most, num_gpus)}
        min_ms: Floats = np.min([self.table(group, m).min_ms for group in groups.values()], axis=0)
        return min_ms


class Pipeline:
    """The stages of a pipeline, each solved on demand for its layers; raises the errors of its tables.

    Attributes:
        groups: The GPUs of each stage.
        tables: Costs of layers on these GPUs.
        num_micro_batches: Micro-batches of an iteration, m.
        in_flight: Micro-batches that each stage holds at its peak.
        capacities_mib: Memory of each GPU of a stage for states and activations, less room for rounding up.
    """

    def __init__(self, problem: PlanProblem, count: int, num_gpus: int, m: int) -> None:
        self._problem, self.groups, self.num_micro_batches = problem, problem.groups(count, num_gpus), m
        self.tables = [problem.table(group, m) for group in self.groups]
        options = problem.options
        self.in_flight = [min(count - i, m) if options.pipeline == "1f1b" else m for i in range(count)]
        self.capacities_mib = [
            1024 * ((options.memory_gib or group.memory_gib) - options.reserve_gib)
            - _ROUNDED_PIECES * (held + 2)
            for group, held in zip(self.groups, self.in_flight, strict=True)
        ]
        # With a layer left for each other stage.
        self._contents = problem.contents[:, : len(problem.in_order) - count + 2]

    def solution(self, stage: int, first: int, end: int) -> StageSolution | None:
        """Return the strategies of layers as a stage; None if the layers do not fit."""
        search, kinds = self._problem, self._problem.of_stage(first, end)
        key = self.tables[stage], self.in_flight[stage], kinds
        if key not in search.solved:
            solved = _SOLVERS[search.options.stage_method](self._stage(stage, kinds), search.check)
            search.solved[key] = solved
            if solved is not None and solved.min_cost < solved.cost * (1 - ROUNDING):
                search.proved_share = min(search.proved_share, solved.min_cost / solved.cost)
        return search.solved[key]

    def _stage(self, stage: int, kinds: Sequence[int]) -> StageProblem:
        table, held, capacity_mib = self.tables[stage], self.in_flight[stage], self.capacities_mib[stage]
        layers = tuple(table.options[kind] for kind in kinds)
        return StageProblem(layers, table.transition_ms, held, capacity_mib)

    def divisions(self, limit_ms: float) -> Iterator[tuple[int, ...]]:
        """Yield ever better divisions into stages that fit, as numbers of layers, by the chosen method.

        By the exact one all are shorter than the limit, and the last is the shortest iteration.
        """
        if self._problem.options.method != "exact":
            yield from sorted(self._divided_as_paper(), key=self._iteration_ms)[:1]
            return
        once_ms, ends = np.zeros_like(self.bounds_ms), range(1, len(self._problem.in_order) + 1)
        for stage in range(len(self.groups) - 1):
            once_ms[stage, 1:] = [[self._transfer_ms(stage, end)] for end in ends]
        bounds, m = (self.bounds_ms, once_ms), self.num_micro_batches
        yield from shortest_iteration(self._cost, m, bounds, self._contents, limit_ms)

    def _divided_as_paper(self) -> Iterator[tuple[int, ...]]:
        """Yield divisions by Galvatron-BMW's methods that fit."""
        method, count = self._problem.options.method, len(self.groups)
        least = np.min([table.min_ms for table in self.tables], axis=0)
        in_time = min_largest([float(least[kind]) for kind in self._problem.in_order], count)
        options = [self.tables[0].options[kind] for kind in self._problem.in_order]
        fastest = [(kind.static_mib, kind.kept_mib, kind.cost_ms.argmin()) for kind in options]
        static, kept = zip(*((float(static[i]), float(kept[i])) for static, kept, i in fastest), strict=True)
        in_memory = memory_balanced(static, kept, self.in_flight)
        even = in_memory if method == "memory" else in_time
        if all(self.solution(*stage) for stage in spans(even)):
            yield even
        if method == "bmw":
            moved = bi_objective_partition(self._cost, in_memory, in_time, self.num_micro_batches)
            yield from [] if moved is None else [moved]

    def rated(self, stage_layers: Sequence[int]) -> RatedPlan:
        """Return the plan whose stages have these numbers of layers; all stages must fit."""
        search, plans, estimates = self._problem, [], []
        for i, first, end in spans(stage_layers):
            kinds, solution = search.of_stage(first, end), self.solution(i, first, end)
            assert solution is not None, "stages that do not fit are not chosen"
            best = grouped(self._stage(i, kinds), solution)
            chosen = zip(kinds, best.choice, strict=True)
            gpus = range(self.groups[i].first, self.groups[i].first + self.groups[i].count)
            strategies = tuple(self.tables[i].strategies[kind][option] for kind, option in chosen)
            plans.append(StagePlan(gpus, range(first, end), strategies))
            estimates.append(StageEstimate(best.time_ms, best.sync_ms, best.peak_mib, self.in_flight[i]))
        plan = Plan(search.costs.model, search.cluster, tuple(plans), search.batch, self.num_micro_batches)
        return RatedPlan(plan, self._iteration_ms(stage_layers), tuple(estimates))

    @property
    def min_ms(self) -> float:
        """Lower bound of the iteration in ms, from the bounds of its stages; infinite if no division fits."""
        slowest_ms, sum_ms = (divided(self.bounds_ms, joined)[1] for joined in (np.maximum, np.add))
        return sum_ms if math.isinf(sum_ms) else (self.num_micro_batches - 1) * slowest_ms + sum_ms

    @cached_property
    def bounds_ms(self) -> Floats:
        """Lower bounds of stage costs: by stage, the layer after the last and the number of layers.

        With memory at a price, the least cost of each layer and its memory, less the price of the capacity:
        the Lagrangian relaxation of the stage's capacity, at the best of some prices. Infinite where the
        layers do not fit with the least memory of each.
        """
        kinds, place = np.unique(self._problem.in_order, return_inverse=True)
        _, unequal = np.unique(self._contents, return_index=True)
        end, number = np.unravel_index(unequal[1:], self._contents.shape)  # without those that are none
        prices = memory_prices([self.tables[0].options[kind] for kind in kinds], self.in_flight[0])

        @cache
        def bounds(table: StageTable, held: int, capacity: float) -> Floats:
            values = []  # of each kind: the least cost with memory at each price, at last the least memory
            for kind in kinds.tolist():
                weight = table.options[kind].weight_mib(held)
                priced = (table.options[kind].cost_ms + prices[:, None] * weight).min(axis=1)
                values.append(np.append(np.maximum(priced, 1e-12), weight.min()))
            until = np.pad(np.cumsum(np.array(values)[place], axis=0), ((1, 0), (0, 0)))
            sums = (until[end] - until[end - number]).T
            whole = (sums[:-1] - (prices * capacity)[:, None]).max(axis=0)
            fits = sums[-1] <= capacity * (1 + ROUNDING)
            min_ms = np.append(np.where(fits, whole, np.inf), np.inf) * (1 - _BOUND_ROUNDING)
            by_cell: Floats = min_ms[self._contents]
            return by_cell

        return np.array([*map(bounds, self.tables, self.in_flight, self.capacities_mib)])

    def _transfer_ms(self, stage: int, end: int) -> float:
        """Return the time to send a boundary tensor to the next stage, and its gradient back."""
        if stage == len(self.groups) - 1:
            return 0.0
        costs, samples = self._problem.costs, self._problem.batch // self.num_micro_batches
        return 2 * costs.transfer_ms(costs.model.layers[end - 1], samples, *self.groups[stage : stage + 2])

    def _cost(self, stage: int, first: int, end: int) -> StageCost | None:
        """Return the cost of layers as a stage, with the transfer to the next; None if they do not fit."""
        solution = self.solution(stage, first, end)
        return None if solution is None else (solution.cost, self._transfer_ms(stage, end), solution.peak_mib)

    def _iteration_ms(self, stage_layers: Sequence[int]) -> float:
        """Return the formula's time of an iteration, for stages of these numbers of layers that all fit."""
        costs = [cost for stage in spans(stage_layers) if (cost := self._cost(*stage))]
        times_ms, once_ms, _ = zip(*costs, strict=True)
        return iteration_ms(times_ms, once_ms, self.num_micro_batches)
