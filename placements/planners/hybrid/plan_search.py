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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.cluster import Cluster, DeviceGroup
from placements.planners.hybrid.pipeline_stages import Kinds, PipelineStages, Problem, stages_of
from placements.planners.hybrid.plan import Plan, StagePlan
from placements.planners.hybrid.plan_options import (
    PlanOptions,
    PlanSearchResult,
    RatedPlan,
    StageEstimate,
    Trial,
)
from placements.planners.hybrid.stage_tables import LayerCosts, StageTable, make_table
from placements.planners.parallel_plan import PlanError

_ROUNDING = 1e-9
"""Of a cost, relative: what sums of floats may differ by."""

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
        PlanError: Nothing can be tried at all, or the model has branches.
    """
    if type(global_batch_size) is not int or global_batch_size < 1:
        raise PlanError(f"batch: {global_batch_size!r} is not a whole number of samples above 0; give one")
    if costs.model.branches:
        raise PlanError(
            f"model: {costs.model.name} has branches that join, and these plans are of chains; give its "
            "`chained` form, or search_branches"
        )
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


class _Search:
    """One search: its costs in tables, and the stages that are solved."""

    def __init__(self, costs: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions) -> None:
        self.costs, self.cluster, self.batch, self.options = costs, cluster, batch, options
        self.kinds = Kinds(costs.model.layers)
        self.problem = Problem(costs, self.kinds, batch, options)
        self.tables: dict[tuple[object, int], StageTable | str] = {}

    def run(self, report: Report) -> PlanSearchResult:
        found: list[RatedPlan] = []
        trials: list[Trial] = []
        queue: list[_Numbers] = []
        interrupted = True
        try:
            queue += self._candidates(trials)
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
            interrupted = False
        except KeyboardInterrupt:
            pass
        bound_ms = found[0].time_ms if found and not interrupted and self._is_proved() else None
        if bound_ms is None:
            bounds_ms = [trial.bound_ms for trial in trials] + [numbers.bound_ms for numbers in queue]
            bound_ms = 0.0 if interrupted and not queue else min(bounds_ms, default=0.0)
        return PlanSearchResult(tuple(found), tuple(trials), bound_ms, len(self.problem.solved), interrupted)

    def _is_proved(self) -> bool:
        """Return whether the best plan is the best of all: strategies of stages, and their division."""
        if not self.options.method == self.options.stage_method == "exact":
            return False
        solved = [each for each in self.problem.solved.values() if each is not None]
        return all(each.least_cost >= each.cost * (1 - _ROUNDING) for each in solved)

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
        m, stages = numbers.num_micro_batches, self._stages(numbers)
        if isinstance(stages, str):
            return numbers._replace(is_tight=True)
        bottleneck_ms = stages.least_bottleneck_ms
        bound_ms = (m - 1) * bottleneck_ms + max(stages.least_sum_ms, bottleneck_ms)
        return numbers._replace(bound_ms=max(bound_ms, numbers.bound_ms), is_tight=True)

    def _group_sizes(self) -> list[int]:
        """Return how many GPUs a stage may have: a part of a node, or whole nodes."""
        node = math.gcd(*(nodes.gpus_per_node for nodes in self.cluster.nodes))
        most, allowed = self.cluster.num_gpus, self.options.gpus_per_stage
        parts = [n for n in range(1, node + 1) if node % n == 0]
        whole = range(2 * node, most + 1, node)
        return [n for n in (*parts, *whole) if allowed is None or n in allowed]

    def _is_wanted(self, num_stages: int, num_gpus: int) -> bool:
        options, all_gpus = self.options, num_stages * num_gpus == self.cluster.num_gpus
        if options.num_stages is not None and num_stages not in options.num_stages:
            return False
        if options.method != "exact":
            return all_gpus and (options.num_stages is not None or num_stages.bit_count() == 1)
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

    def _stages(self, numbers: _Numbers) -> PipelineStages | str:
        """Return the stages of a candidate; text where a layer cannot be shared on one of them."""
        groups = self._groups(numbers.num_stages, numbers.num_gpus)
        tables = []
        for group in groups:
            if isinstance(table := self._table(group, numbers.num_micro_batches), str):
                return table
            tables.append(table)
        return PipelineStages(self.problem, groups, tables, numbers.num_micro_batches)

    def _plan(self, numbers: _Numbers, limit_ms: float) -> tuple[RatedPlan | None, str]:
        """Return the best plan with these numbers, or why there is none that takes less than a limit."""
        stages = self._stages(numbers)
        if isinstance(stages, str):
            return None, stages
        if reason := stages.why_memory_is_short():
            return None, reason
        divided = stages.divided(limit_ms, lambda _: None)
        if divided is None:
            return None, stages.why_none(limit_ms)
        return self._rated(numbers, stages, divided), ""

    def _rated(self, numbers: _Numbers, stages: PipelineStages, divided: Sequence[int]) -> RatedPlan:
        """Return the plan whose stages end before these layers."""
        plans, estimates = [], []
        for i, first, end in stages_of(divided):
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
