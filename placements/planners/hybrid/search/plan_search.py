"""The search for plans: stages, micro-batches, strategies of layers and the division of layers into stages.

Galvatron-BMW's search (Alg. 1 and 2) by exact means. For each number of GPUs in a stage, of stages and of
micro-batches it finds the least time of an iteration, taken to be a pipeline of m micro-batches::

    (m - 1) max c + sum (c + transfer)      c: time of a stage for a micro-batch, and 1 / m of its update

Numbers whose bound is no better than the plans at hand are not solved. Numbers
that are likely to fit are solved first, so that there is a plan early; when the time is over, the best so far
is kept with what is proved of it. The module does not know what a layer costs, and not in what order blocks
run.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from placements.cluster import Cluster, DeviceGroup
from placements.planners.hybrid.plan import Plan, StagePlan
from placements.planners.hybrid.plan_options import (
    NoPlan,
    Obstacle,
    PlanOptions,
    PlanSearchResult,
    RatedPlan,
    StageEstimate,
    Trial,
)
from placements.planners.hybrid.search.pipeline_stages import (
    Kinds,
    PipelineProblem,
    PipelineStages,
)
from placements.planners.hybrid.search.plan_numbers import (
    PlanNumbers,
    likely_to_fit,
    numbers_to_try,
    uniform_strategies,
)
from placements.planners.hybrid.stage_tables import LayerCosts, StageTable, make_table
from placements.planners.parallel_plan import PlanError
from placements.planners.stage_search.deadline import Check, StageTimeError, deadline
from placements.planners.stage_search.division import spans

PlannerReport = Callable[[int, int, float | None, float], None]
"""Callback told how many numbers are done, of how many, the least time so far and the bound in ms."""


def search_plans(
    costs: LayerCosts,
    cluster: Cluster,
    global_batch_size: int,
    options: PlanOptions | None = None,
    on_progress: PlannerReport | None = None,
    clock: Callable[[], float] = time.monotonic,
    below_ms: float = math.inf,
) -> PlanSearchResult:
    """Search the plans with the shortest iterations.

    With method exact the first plan is the best of all by the formula above, for every number of stages, of
    GPUs in each (a divisor or a multiple of a node's) and of micro-batches.

    Args:
        costs: Costs of the model's layers.
        cluster: The GPUs.
        global_batch_size: Samples of an iteration.
        options: What is allowed.
        on_progress: Called with each number that is looked at.
        clock: In seconds, for the time limit.
        below_ms: Time of a plan that is known otherwise: only shorter iterations are of interest, and the
            bound is at most this.

    Returns:
        The best plans until the time was over, and what is proved of them. With no plan where none fits the
        memory: each trial says why.

    Raises:
        PlanError: Nothing can be tried at all, or the model has branches.
    """
    if type(global_batch_size) is not int or global_batch_size < 1:
        raise PlanError(f"batch: {global_batch_size!r} is not a whole number of samples above 0; give one")
    if costs.model.branches:
        raise PlanError(
            f"model: {costs.model.name} has branches that join, and these plans are of chains; give its "
            "`chained` form"
        )
    options = options or PlanOptions()
    check = deadline(options.time_limit_s, clock)
    search = _Search(costs, cluster, global_batch_size, options, check, below_ms)
    return search.run(on_progress or (lambda *_: None))


class _Search:
    """One search: its costs in tables, the numbers left to try, and the best plan found of each."""

    def __init__(
        self,
        costs: LayerCosts,
        cluster: Cluster,
        batch: int,
        options: PlanOptions,
        check: Check,
        below_ms: float,
    ) -> None:
        self.costs, self.cluster, self.batch, self.options, self.check = costs, cluster, batch, options, check
        self.below_ms = below_ms
        self.kinds = Kinds(costs.model.layers)
        self.problem = PipelineProblem(costs, self.kinds, batch, options, check)
        self.tables: dict[tuple[object, int, int], StageTable | str] = {}
        self.least: dict[tuple[int, int, int], NDArray[np.float64] | str] = {}
        self.found: dict[tuple[int, ...], RatedPlan] = {}
        self.trials: list[Trial] = []
        self.min_done_ms, self.proved_share = math.inf, 1.0
        self.queue = numbers_to_try(cluster, self.kinds.num_layers, batch, options)
        if not self.queue:
            raise PlanError(
                "num_stages, gpus_per_stage, num_micro_batches: leave nothing to try for a batch of "
                f"{batch} on {cluster.num_gpus} GPUs; allow more numbers"
            )

    @property
    def plans(self) -> list[RatedPlan]:
        """The best, as many as are wanted."""
        return sorted(self.found.values(), key=lambda each: each.time_ms)[: self.options.num_plans]

    def run(self, report: PlannerReport) -> PlanSearchResult:
        """Search until nothing is left, the time is over, or there is an interrupt from the keyboard."""
        interrupted = out_of_time = False
        total = len(self.queue)
        try:
            if self.options.method == "exact" and math.isinf(self.below_ms):
                self._begin(report)
            heapq.heapify(self.queue)
            while self.queue:
                self.check()
                self._step()
                report(total - len(self.queue), total, self._min_found_ms(), self._bound_ms())
        except StageTimeError:
            out_of_time = True
        except KeyboardInterrupt:
            interrupted = True
        return PlanSearchResult(
            tuple(self.plans),
            tuple(self._trials_by_numbers()),
            self._bound_ms(),
            len(self.problem.solved),
            interrupted,
            out_of_time,
            len(self.queue),
        )

    def _begin(self, report: PlannerReport) -> None:
        """Solve numbers that are likely to fit until there is a first plan."""
        for numbers in likely_to_fit(self.queue, self.cluster):
            self.check()
            if isinstance(bound := self._bound(numbers), str):
                continue
            bounded = numbers._replace(bound_ms=max(bound, self._tight_ms(numbers)))
            why_none = self._solve(bounded)
            self.queue.remove(numbers)
            self._tried(bounded, why_none)
            if self.found:
                report(
                    len(self.trials),
                    len(self.trials) + len(self.queue),
                    self._min_found_ms(),
                    self._bound_ms(),
                )
                return

    def _step(self) -> None:
        """Take the numbers of the least bound: give them a tighter one, or solve them."""
        numbers = self.queue[0]
        if numbers.bound_ms >= self._limit_ms(self.plans):
            for each in sorted(self.queue):
                self._tried(
                    each, NoPlan("no better than the plans found so far, by its bound", Obstacle.BOUND)
                )
            self.queue.clear()
        elif numbers.num_bounds < 2:
            bound = self._bound(numbers) if numbers.num_bounds == 0 else self._tight_ms(numbers)
            if isinstance(bound, str):
                heapq.heappop(self.queue)
                self._tried(numbers._replace(bound_ms=math.inf), NoPlan(bound))
                return
            bound_ms = max(bound, numbers.bound_ms)
            heapq.heapreplace(
                self.queue, numbers._replace(bound_ms=bound_ms, num_bounds=numbers.num_bounds + 1)
            )
        else:
            why_none = self._solve(numbers)
            self.proved_share = self.problem.proved_share
            heapq.heappop(self.queue)
            self._tried(numbers, why_none)

    def _tried(self, numbers: PlanNumbers, why_none: NoPlan | None) -> None:
        """Note what came of numbers; the reason is for where they have no plan."""
        known = self.found.get(numbers.which)
        self.trials.append(numbers.trial(None if known is None else known.time_ms, why_none))
        self.min_done_ms = min(self.min_done_ms, numbers.bound_ms)

    def _trials_by_numbers(self) -> Iterator[Trial]:
        """Yield what came of each numbers, of several strategies for all layers in one."""
        by_numbers: dict[tuple[int, ...], Trial] = {}
        for trial in self.trials:
            known = by_numbers.setdefault(trial[:3], trial)
            if trial.bound_ms < known.bound_ms:
                by_numbers[trial[:3]] = trial
        for numbers, trial in by_numbers.items():
            found = self.found.get(numbers)
            yield trial if found is None else trial._replace(time_ms=found.time_ms, why_none=None)

    def _limit_ms(self, best: Sequence[RatedPlan]) -> float:
        """Return the time that a plan must be shorter than, beside the best so far."""
        is_full = len(best) == self.options.num_plans
        return min(self.below_ms, best[-1].time_ms if is_full else math.inf)

    def _min_found_ms(self) -> float | None:
        known_ms = min(self.below_ms, min((each.time_ms for each in self.found.values()), default=math.inf))
        return None if math.isinf(known_ms) else known_ms

    def _bound_ms(self) -> float:
        """Return what no iteration is shorter than: of the numbers left, and of those that are done.

        With both methods exact, those that are done have nothing shorter than the best plan, but by what the
        searches in stages have not proved. Infinite where all are done and nothing fits.
        """
        left_ms = self.queue[0].bound_ms if self.queue else math.inf
        done_ms, found_ms = self.min_done_ms, self._min_found_ms()
        if self.options.method == self.options.stage_method == "exact":
            proved_ms = math.inf if found_ms is None else self.proved_share * found_ms
            done_ms = max(done_ms, proved_ms)
        return min(left_ms, done_ms, math.inf if found_ms is None else found_ms)

    def _bound(self, numbers: PlanNumbers) -> float | str:
        """Return a time that no iteration is below, memory aside, or why there is none: see the module."""
        _, num_stages, num_gpus, m, _, strategy = numbers
        key = num_gpus, m, strategy
        if key not in self.least:
            most = min(self.cluster.num_gpus // num_gpus, self.kinds.num_layers)
            self.least[key] = self._min_ms(most, *key)
        least = self.least[key]
        if isinstance(least, str):
            return least
        total = float(self.kinds.counts @ least)
        return (m - 1) * max(total / num_stages, float(least[self.kinds.counts > 0].max())) + total

    def _tight_ms(self, numbers: PlanNumbers) -> float:
        """Return a bound that counts memory."""
        stages = self._stages(numbers)
        return 0.0 if isinstance(stages, str) else stages.min_ms

    def _min_ms(self, num_stages: int, num_gpus: int, m: int, strategy: int) -> NDArray[np.float64] | str:
        """Return the least time of each kind of layer on any group, or why there is none."""
        groups = {group.pattern: group for group in self._groups(num_stages, num_gpus)}
        tables = [self._table(group, m, strategy) for group in groups.values()]
        known = [table.min_ms for table in tables if not isinstance(table, str)]
        return np.min(known, axis=0) if known else str(tables[0])

    def _groups(self, num_stages: int, num_gpus: int) -> list[DeviceGroup]:
        return [self.cluster.group(stage * num_gpus, num_gpus) for stage in range(num_stages)]

    def _table(self, group: DeviceGroup, m: int, strategy: int) -> StageTable | str:
        """Return the costs of all layers on a group; text where a layer cannot be shared among its GPUs."""
        key = (group.pattern, m, strategy)
        if key not in self.tables:
            trees = self.options.trees
            of_all = None if strategy < 0 else uniform_strategies(group.count, trees)[strategy]
            try:
                self.tables[key] = make_table(
                    self.costs, self.kinds.layers, trees, self.batch // m, m, group, of_all
                )
            except PlanError as error:
                self.tables[key] = str(error)
        return self.tables[key]

    def _stages(self, numbers: PlanNumbers) -> PipelineStages | str:
        """Return the stages of a candidate; text where a layer cannot be shared on one of them."""
        groups = self._groups(numbers.num_stages, numbers.num_gpus)
        tables = []
        for group in groups:
            if isinstance(table := self._table(group, numbers.num_micro_batches, numbers.strategy), str):
                return table
            tables.append(table)
        return PipelineStages(self.problem, groups, tables, numbers.num_micro_batches)

    def _solve(self, numbers: PlanNumbers) -> NoPlan | None:
        """Find the best plan with these numbers, or return why there is none that helps."""
        stages = self._stages(numbers)
        if isinstance(stages, str):
            return NoPlan(stages)
        if reason := stages.why_memory_is_short():
            return NoPlan(reason, Obstacle.MEMORY)
        others = [each for which, each in self.found.items() if which != numbers.which]
        own = self.found.get(numbers.which)
        limit_ms = min(
            math.inf if own is None else own.time_ms,
            self._limit_ms(sorted(others, key=lambda each: each.time_ms)[: self.options.num_plans]),
        )

        def keep(divided: tuple[int, ...]) -> None:
            rated, known = self._rated(numbers, stages, divided), self.found.get(numbers.which)
            if known is None or rated.time_ms <= known.time_ms:
                self.found[numbers.which] = rated

        divided = stages.divided(limit_ms, keep)
        if divided is None:
            return stages.why_none(limit_ms)
        keep(divided)
        return None

    def _rated(self, numbers: PlanNumbers, stages: PipelineStages, divided: Sequence[int]) -> RatedPlan:
        """Return the plan whose stages have so many layers."""
        plans, estimates = [], []
        for i, first, end in spans(divided):
            solution, table = stages.grouped_solution(i, first, end), stages.tables[i]
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
