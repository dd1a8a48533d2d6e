"""The search for plans: stages, micro-batches, strategies of layers and the division of layers into stages.

Galvatron-BMW's search (Alg. 1 and 2) by exact means. For each number of GPUs in a stage, of stages and of
micro-batches it finds the least time of an iteration, taken to be a pipeline of m micro-batches::

    (m - 1) max c + sum (c + transfer)      c: time of a stage for a micro-batch, and 1 / m of its update

Numbers whose bound is no better than the plans at hand are not solved. The module does not know what a layer
costs, and not in what order blocks run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.cluster import Cluster, DeviceGroup
from placements.models.layers import Layer
from placements.models.rates import RESERVE_GIB
from placements.planners.hybrid.decision_trees import TreeOptions
from placements.planners.hybrid.plan import Plan, StagePlan, layers_of_stage
from placements.planners.hybrid.plan_bounds import StageRoom, least_bottleneck_ms, stage_bounds_ms
from placements.planners.hybrid.stage_tables import LayerCosts, StageTable, make_table
from placements.planners.parallel_plan import PlanError
from placements.planners.partition import least_largest
from placements.planners.stage_search.division import Division, StageCost, memory_balanced
from placements.planners.stage_search.exact import solve
from placements.planners.stage_search.exact_division import exact_partition
from placements.planners.stage_search.paper import solve_as_paper
from placements.planners.stage_search.paper_division import bi_objective_partition
from placements.planners.stage_search.stage_problem import StageSolution

ROUNDED_PIECES = 6
"""Pieces of a stage whose memory is rounded up to MiB; a stage with more is checked again as a placement."""

_ROUNDING = 1e-12
"""Of a bound, relative: what sums of floats may differ by."""

METHODS = ("exact", "bmw", "base")
"""How layers are divided into stages: with the least time; by Galvatron-BMW's Alg. 2, or evenly where that is
better; evenly in time, whatever memory each stage has (its Alg. 1)."""

STAGE_METHODS = {"exact": solve, "paper": solve_as_paper}
"""What finds the strategies of a stage, by name."""

PIPELINES = ("1f1b", "gpipe")
"""Which micro-batches a stage holds at once: as many as there are stages from it on, or all."""


@dataclass(frozen=True)
class PlanOptions:
    """What a search for plans may do.

    Attributes:
        trees: How GPUs may share a layer.
        num_stages: Numbers of stages to try; None for all.
        gpus_per_stage: Likewise.
        num_micro_batches: Likewise; those that do not divide the batch are left out.
        method: One of `METHODS`.
        stage_method: A key of `STAGE_METHODS`.
        pipeline: One of `PIPELINES`.
        idle_gpus: GPUs may stay idle.
        memory_gib: Of each GPU; None for its own.
        reserve_gib: Memory that neither states nor activations may use.
        num_plans: How many plans are wanted; they differ in their numbers of stages, GPUs or micro-batches.

    Raises:
        PlanError: An option is out of its range.
    """

    trees: TreeOptions = field(default_factory=TreeOptions)
    num_stages: tuple[int, ...] | None = None
    gpus_per_stage: tuple[int, ...] | None = None
    num_micro_batches: tuple[int, ...] | None = None
    method: str = "exact"
    stage_method: str = "exact"
    pipeline: str = "1f1b"
    idle_gpus: bool = True
    memory_gib: float | None = None
    reserve_gib: float = RESERVE_GIB
    num_plans: int = 5

    def __post_init__(self) -> None:
        """Check names and numbers."""
        for name, known in (("method", METHODS), ("stage_method", STAGE_METHODS), ("pipeline", PIPELINES)):
            if getattr(self, name) not in known:
                raise PlanError(f"{name}: {getattr(self, name)!r} is not known; use {' or '.join(known)}")
        for name in ("num_stages", "gpus_per_stage", "num_micro_batches"):
            for value in getattr(self, name) or ():
                if type(value) is not int or value < 1:
                    raise PlanError(f"{name}: {value!r} is not a whole number of at least 1; give one")
        if self.num_plans < 1:
            raise PlanError(f"num_plans: {self.num_plans} is not at least 1; give 1 or more")
        if self.memory_gib is not None and not self.memory_gib > self.reserve_gib:
            raise PlanError(
                f"memory_gib: {self.memory_gib:g} is not above reserve_gib {self.reserve_gib:g}; give more, "
                "or a smaller reserve"
            )


class Trial(NamedTuple):
    """Numbers that were looked at, and what came of them.

    Attributes:
        num_stages: Of the pipeline.
        gpus_per_stage: Of each.
        num_micro_batches: Of an iteration.
        bound_ms: No iteration with these numbers is shorter.
        time_ms: Of the best iteration; None where there is no plan.
        reason: Why there is none; empty where there is one.
    """

    num_stages: int
    gpus_per_stage: int
    num_micro_batches: int
    bound_ms: float
    time_ms: float | None
    reason: str = ""


class StageEstimate(NamedTuple):
    """What a stage is taken to cost.

    Attributes:
        time_ms: Forward and backward of one micro-batch.
        update_ms: Gradients exchanged and weights updated, once in an iteration.
        peak_mib: Most memory of one of its GPUs.
        in_flight: Micro-batches whose activations it then holds.
    """

    time_ms: float
    update_ms: float
    peak_mib: float
    in_flight: int


class RatedPlan(NamedTuple):
    """A plan, and what its iteration is taken to be.

    Attributes:
        plan: What runs where.
        time_ms: Of an iteration, by the formula of the search.
        stages: Of each stage.
    """

    plan: Plan
    time_ms: float
    stages: tuple[StageEstimate, ...]

    @property
    def samples_per_s(self) -> float:
        """Throughput."""
        return self.plan.global_batch_size / self.time_ms * 1e3


@dataclass(frozen=True)
class PlanSearchResult:
    """The best plans, and what was tried.

    Attributes:
        plans: By increasing time; empty where none fits.
        trials: All numbers that were looked at, in that order.
        bound_ms: No plan of the search has a shorter iteration; with method exact that of the best.
        num_solved: Stage problems that were solved.
        interrupted: From the keyboard, before the end; the plans are the best until then.
    """

    plans: tuple[RatedPlan, ...]
    trials: tuple[Trial, ...]
    bound_ms: float
    num_solved: int
    interrupted: bool = False


Report = Callable[[int, int, float | None], None]
"""What is told how many numbers are done, of how many, and the least time so far."""


def search_plans(
    costs: LayerCosts,
    cluster: Cluster,
    global_batch_size: int,
    options: PlanOptions | None = None,
    on_progress: Report | None = None,
) -> PlanSearchResult:
    """Search the plans with the shortest iterations.

    With method exact the first plan is the best of all by the formula above, for every number of stages, of
    GPUs in each (a divisor or a multiple of a node's) and of micro-batches.

    Args:
        costs: Of the model's layers.
        cluster: The GPUs.
        global_batch_size: Samples of an iteration.
        options: What is allowed.
        on_progress: Called with each number that is looked at.

    Returns:
        With no plan where none fits the memory: each trial says why.

    Raises:
        PlanError: Nothing can be tried at all.
    """
    if type(global_batch_size) is not int or global_batch_size < 1:
        raise PlanError(f"batch: {global_batch_size!r} is not a whole number of samples above 0; give one")
    search = _Search(costs, cluster, global_batch_size, options or PlanOptions())
    return search.run(on_progress or (lambda *_: None))


class _Numbers(NamedTuple):
    """A candidate; the first field orders them. A tight bound counts memory."""

    bound_ms: float
    num_stages: int
    num_gpus: int
    num_micro_batches: int
    is_tight: bool = False

    def trial(self, time_ms: float | None = None, reason: str = "") -> Trial:
        """Return what came of it."""
        return Trial(self.num_stages, self.num_gpus, self.num_micro_batches, self.bound_ms, time_ms, reason)


class _Kinds:
    """The different layers of a model, and which one each is, alone or beside the embedding it is tied to.

    Attributes:
        layers: Each kind once.
        counts: How many layers are of each kind, where the model is one stage.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        apart = layers_of_stage(layers, len(layers) - 1, len(layers))
        self.layers = tuple(dict.fromkeys((*layers, *apart)))
        self._all = layers
        self._place = {layer: i for i, layer in enumerate(self.layers)}
        self.num_layers = len(layers)
        self.counts = np.bincount(self.of_stage(0, len(layers)), minlength=len(self.layers))

    def of_stage(self, first: int, end: int) -> tuple[int, ...]:
        """Return the kinds of layers as one stage has them."""
        return tuple(self._place[layer] for layer in layers_of_stage(self._all, first, end))


class _Search:
    """One search: its costs in tables, and the stages that are solved."""

    def __init__(self, costs: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions) -> None:
        self.costs, self.cluster, self.batch, self.options = costs, cluster, batch, options
        self.kinds = _Kinds(costs.model.layers)
        self.tables: dict[tuple[object, int], StageTable | str] = {}
        self.solved: dict[tuple[object, ...], StageSolution | None] = {}

    def run(self, report: Report) -> PlanSearchResult:
        found: list[RatedPlan] = []
        trials: list[Trial] = []
        interrupted = False
        try:
            queue = self._candidates(trials)
            heapq.heapify(queue)
            total = len(queue)
            while queue:
                numbers = heapq.heappop(queue)
                limit_ms = found[-1].time_ms if len(found) == self.options.num_plans else math.inf
                if numbers.bound_ms >= limit_ms:
                    reason = "its bound is no better than the plans at hand"
                    trials += [each.trial(reason=reason) for each in sorted([numbers, *queue])]
                    break
                if not numbers.is_tight:
                    heapq.heappush(queue, self._tight(numbers))
                    continue
                rated, reason = self._plan(numbers, limit_ms)
                trials.append(numbers.trial(rated.time_ms if rated else None, reason))
                if rated is not None:
                    found = sorted([*found, rated], key=lambda each: each.time_ms)[: self.options.num_plans]
                report(total - len(queue), total, found[0].time_ms if found else None)
        except KeyboardInterrupt:
            interrupted = True
        if self.options.method == "exact" and found and not interrupted:
            bound_ms = found[0].time_ms
        else:
            bound_ms = min((trial.bound_ms for trial in trials), default=0.0)
        return PlanSearchResult(tuple(found), tuple(trials), bound_ms, len(self.solved), interrupted)

    def _candidates(self, trials: list[Trial]) -> list[_Numbers]:
        """Return the numbers to try, each with its bound; those that cannot be tried become trials.

        Raises:
            PlanError: There are none.
        """
        found = []
        for num_gpus in self._group_sizes():
            most = min(self.cluster.num_gpus // num_gpus, self.kinds.num_layers)
            stages = [n for n in range(1, most + 1) if self._is_wanted(n, num_gpus)]
            for m in self._micro_batch_counts() if stages else ():
                least = self._least_ms(num_gpus, stages[-1], m)
                if isinstance(least, str):
                    trials += [Trial(n, num_gpus, m, math.inf, None, least) for n in stages]
                    continue
                found += [_Numbers(self._bound_ms(least, n, m), n, num_gpus, m) for n in stages]
        if not found and not trials:
            raise PlanError(
                "num_stages, gpus_per_stage, num_micro_batches: leave nothing to try for a batch of "
                f"{self.batch} on {self.cluster.num_gpus} GPUs; allow more numbers"
            )
        return found

    def _bound_ms(self, least: NDArray[np.float64], num_stages: int, m: int) -> float:
        """Return a time that no iteration is below, memory aside: see the module."""
        total = float(self.kinds.counts @ least)
        return (m - 1) * max(total / num_stages, float(least[self.kinds.counts > 0].max())) + total

    def _tight(self, numbers: _Numbers) -> _Numbers:
        """Return a candidate with a bound that counts memory; see `plan_bounds`."""
        m, counts = numbers.num_micro_batches, self.kinds.counts
        groups = self._groups(numbers.num_stages, numbers.num_gpus)
        tables = [self._table(group, m) for group in groups]
        stages = _Stages(self, groups, m)
        known = [table for table in tables if not isinstance(table, str)]
        if len(known) < len(tables):
            return numbers._replace(is_tight=True)
        total = float(counts @ np.min([table.least_ms for table in known], axis=0))
        bottleneck = least_bottleneck_ms(stages.rooms, counts)
        bound_ms = (m - 1) * bottleneck + max(total, bottleneck)
        return numbers._replace(bound_ms=max(bound_ms, numbers.bound_ms), is_tight=True)

    def _group_sizes(self) -> list[int]:
        """Return how many GPUs a stage may have: a part of a node, or 1, 2, 4 ... or all nodes."""
        node = math.gcd(*(nodes.gpus_per_node for nodes in self.cluster.nodes))
        most, allowed = self.cluster.num_gpus, self.options.gpus_per_stage
        parts = [n for n in range(1, node + 1) if node % n == 0]
        whole = [node * 2**i for i in range(1, most.bit_length()) if node * 2**i <= most]
        return [n for n in sorted({*parts, *whole, most}) if allowed is None or n in allowed]

    def _is_wanted(self, num_stages: int, num_gpus: int) -> bool:
        options, all_gpus = self.options, num_stages * num_gpus == self.cluster.num_gpus
        if options.num_stages is not None and num_stages not in options.num_stages:
            return False
        if options.method != "exact":
            return all_gpus and num_stages.bit_count() == 1
        return all_gpus or options.idle_gpus

    def _micro_batch_counts(self) -> list[int]:
        allowed = self.options.num_micro_batches
        counts = (m for m in range(1, self.batch + 1) if self.batch % m == 0)
        return [m for m in counts if allowed is None or m in allowed]

    def _least_ms(self, num_gpus: int, num_stages: int, m: int) -> NDArray[np.float64] | str:
        """Return the least time of each kind of layer on any group, or why there is none."""
        groups = {group.pattern: group for group in self._groups(num_stages, num_gpus)}
        tables = [self._table(group, m) for group in groups.values()]
        known = [table.least_ms for table in tables if not isinstance(table, str)]
        return np.min(known, axis=0) if known else str(tables[0])

    def _groups(self, num_stages: int, num_gpus: int) -> list[DeviceGroup]:
        return [self.cluster.group(stage * num_gpus, num_gpus) for stage in range(num_stages)]

    def _table(self, group: DeviceGroup, m: int) -> StageTable | str:
        """Return the costs of all layers on a group; text where a layer cannot be shared among its GPUs."""
        key = (group.pattern, m)
        if key not in self.tables:
            try:
                self.tables[key] = make_table(
                    self.costs, self.kinds.layers, self.options.trees, self.batch // m, m, group
                )
            except PlanError as error:
                self.tables[key] = str(error)
        return self.tables[key]

    def _plan(self, numbers: _Numbers, limit_ms: float) -> tuple[RatedPlan | None, str]:
        """Return the best plan with these numbers, or why there is none that takes less than a limit."""
        groups, m = self._groups(numbers.num_stages, numbers.num_gpus), numbers.num_micro_batches
        for group in groups:
            if isinstance(table := self._table(group, m), str):
                return None, table
        stages = _Stages(self, groups, m)
        if reason := stages.why_memory_is_short():
            return None, reason
        divided = stages.divided(limit_ms)
        if divided is None:
            return None, stages.why_none(limit_ms)
        return self._rated(numbers, stages, divided), ""

    def _rated(self, numbers: _Numbers, stages: _Stages, divided: Sequence[int]) -> RatedPlan:
        """Return the plan whose stages end before these layers."""
        plans, estimates = [], []
        for i, first, end in _stages(divided):
            solution, table = stages.solution(i, first, end), stages.tables[i]
            assert solution is not None, "stages that do not fit are not chosen"
            kinds = self.kinds.of_stage(first, end)
            strategies = tuple(
                table.kinds[kind].strategies[chosen]
                for kind, chosen in zip(kinds, solution.choice, strict=True)
            )
            group = stages.groups[i]
            plans.append(
                StagePlan(range(group.first, group.first + group.count), range(first, end), strategies)
            )
            estimates.append(
                StageEstimate(solution.time_ms, solution.sync_ms, solution.peak_mib, stages.in_flight(i))
            )
        plan = Plan(self.costs.model, self.cluster, tuple(plans), self.batch, numbers.num_micro_batches)
        return RatedPlan(plan, stages.iteration_ms(divided), tuple(estimates))


class _Stages:
    """The stages of a pipeline of given numbers, each solved for the layers that are asked for."""

    def __init__(self, search: _Search, groups: list[DeviceGroup], m: int) -> None:
        self.search, self.groups, self.m = search, groups, m
        self.tables: list[StageTable] = []
        for group in groups:
            table = search._table(group, m)
            if not isinstance(table, str):
                self.tables.append(table)

    @property
    def _kinds(self) -> tuple[int, ...]:
        """Of all layers, in order."""
        return self.search.kinds.of_stage(0, self.search.kinds.num_layers)

    @cached_property
    def rooms(self) -> list[StageRoom]:
        """What each stage has."""
        return [
            StageRoom(table, self.in_flight(i), self.capacity_mib(i)) for i, table in enumerate(self.tables)
        ]

    def in_flight(self, stage: int) -> int:
        """Return how many micro-batches a stage holds at its peak."""
        behind = len(self.groups) - stage if self.search.options.pipeline == "1f1b" else self.m
        return min(behind, self.m)

    def capacity_mib(self, stage: int) -> float:
        """Return what each GPU of a stage has for states and activations, less what rounding up may add."""
        options, own_gib = self.search.options, self.groups[stage].memory_gib
        given_gib = own_gib if options.memory_gib is None else options.memory_gib
        return (given_gib - options.reserve_gib) * 1024 - ROUNDED_PIECES * (self.in_flight(stage) + 2)

    def solution(self, stage: int, first: int, end: int) -> StageSolution | None:
        """Return the strategies of layers as a stage; None where they do not fit."""
        kinds = self.search.kinds.of_stage(first, end)
        in_flight, capacity = self.in_flight(stage), self.capacity_mib(stage)
        key = (self.groups[stage].pattern, self.m, in_flight, kinds)
        solved = self.search.solved
        if key not in solved:
            problem = self.tables[stage].problem(kinds, in_flight, capacity)
            solved[key] = STAGE_METHODS[self.search.options.stage_method](problem)
        return solved[key]

    def why_memory_is_short(self) -> str:
        """Return a line if all GPUs together lack the memory for the model, whatever its strategies."""
        needed = min(float(table.least_mib @ self.search.kinds.counts) for table in self.tables)
        given = sum(self.capacity_mib(stage) for stage in range(len(self.groups)))
        if needed <= given:
            return ""
        return f"out of memory: all layers need {needed / 1024:.1f} GiB of {given / 1024:.1f} in all stages"

    def transfer_ms(self, stage: int, end: int) -> float:
        """Return the time to send what is between two layers to the next stage, and the gradient back."""
        if stage == len(self.groups) - 1:
            return 0.0
        search = self.search
        each_ms = search.costs.transfer_ms(
            search.costs.model.layers[end - 1], search.batch // self.m, *self.groups[stage : stage + 2]
        )
        return 2 * each_ms

    def iteration_ms(self, ends: Sequence[int]) -> float:
        """Return what an iteration of stages that end before these layers is taken to be."""
        solutions = [self.solution(*stage) for stage in _stages(ends)]
        costs = [solution.cost for solution in solutions if solution is not None]
        transfers = sum(self.transfer_ms(i, end) for i, end in enumerate(ends))
        return (self.m - 1) * max(costs) + sum(costs) + transfers

    def divided(self, limit_ms: float) -> tuple[int, ...] | None:
        """Return the layers before which the stages of the shortest iteration end.

        None where no division fits, or is shorter than the limit as far as one stage shows.
        """
        method = self.search.options.method
        if method == "exact":
            division = self._exact(limit_ms)
            return None if division is None else _ends(division.stage_layers)
        even = _ends(self._balanced_in_time())
        found = [even] if all(self.solution(*stage) for stage in _stages(even)) else []
        if method == "bmw":
            division = bi_objective_partition(
                self._stage_cost, self._balanced_in_memory(), self._balanced_in_time(), self.m
            )
            found += [] if division is None else [_ends(division.stage_layers)]
        return min(found, key=self.iteration_ms, default=None)

    def _exact(self, limit_ms: float) -> Division | None:
        bounds_ms = stage_bounds_ms(self.rooms, self._kinds)
        return exact_partition(
            self._stage_cost,
            len(self._kinds),
            len(self.groups),
            self.m,
            bounds_ms=(bounds_ms * (1 - _ROUNDING), np.zeros_like(bounds_ms)),
            cutoff_ms=limit_ms,
        )

    def _stage_cost(self, stage: int, first: int, end: int) -> StageCost | None:
        """Return what layers cost as a stage; what its output takes to the next one is in the sum alone."""
        found = self.solution(stage, first, end)
        return None if found is None else StageCost(found.cost, self.transfer_ms(stage, end), found.peak_mib)

    def _balanced_in_time(self) -> tuple[int, ...]:
        least = np.min([table.least_ms for table in self.tables], axis=0)
        return least_largest([float(least[kind]) for kind in self._kinds], len(self.groups))

    def _balanced_in_memory(self) -> tuple[int, ...]:
        options = self.tables[0].options
        fastest = [int(np.argmin(cost)) for cost in self.tables[0].costs_ms]
        static = [float(options[kind].static_mib[fastest[kind]]) for kind in self._kinds]
        kept = [float(options[kind].kept_mib[fastest[kind]]) for kind in self._kinds]
        return memory_balanced(static, kept, [self.in_flight(i) for i in range(len(self.groups))])

    def why_none(self, limit_ms: float) -> str:
        """Return why no division was found."""
        if math.isinf(limit_ms):
            return "out of memory: no division of the layers fits every stage"
        return "no division fits, or is shorter than the plans at hand"


def _ends(stage_layers: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(stage_layers))


def _stages(ends: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return of each stage its index, its first layer and the layer after its last."""
    return [(stage, first, end) for stage, (first, end) in enumerate(pairwise([0, *ends]))]
