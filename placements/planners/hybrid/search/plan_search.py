"""The search for plans: stages, micro-batches, strategies of layers and the division of layers into stages.

Galvatron-BMW's search (Alg. 1 and 2) by exact means. For each number of GPUs in a stage, of stages and of
micro-batches it finds the least time of an iteration, taken to be a pipeline of m micro-batches::

    (m - 1) max c + sum (c + transfer)      c: time of a stage for a micro-batch, and 1 / m of its update

Numbers whose bound is no better than the plans at hand are not solved. Numbers that are likely to fit are
solved first, so that there is a plan early; when the time is over, the best so far is kept with what is
proved of it. The module does not know what a layer costs, and not in what order blocks run.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from placements.cluster import Cluster
from placements.planners.division import Floats
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.plan_options import (
    OUT_OF_MEMORY,
    PlanOptions,
    PlanSearchResult,
    RatedPlan,
    Trial,
)
from placements.planners.hybrid.search.pipeline import PlanProblem
from placements.planners.hybrid.stage_tables import LayerCosts

PlannerReport = Callable[[int, int, float | None, float], None]
"""Callback told how many numbers are done, of how many, the least time so far and the bound in ms."""


class _OutOfTimeError(Exception):
    """The time that a search may take is over."""


def search_plans(
    costs: LayerCosts,
    cluster: Cluster,
    global_batch_size: int,
    options: PlanOptions | None = None,
    on_progress: PlannerReport | None = None,
    clock: Callable[[], float] = time.monotonic,
    below_ms: float = math.inf,
) -> PlanSearchResult:
    """Return the best plans of a model on a cluster.

    Args:
        costs: Costs of the model's layers.
        cluster: Its GPUs, shared by consecutive groups of one size.
        global_batch_size: Samples of an iteration.
        options: What is allowed.
        on_progress: See `PlannerReport`.
        clock: In seconds, for the time limit.
        below_ms: Time of a plan that is known otherwise: only shorter iterations are of interest, and the
            bound is at most this.

    Returns:
        The plans, of an interrupted search those that were found until then, and of one that took too long
        those until the time was over, and what is proved of them. With no plan where none fits the
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
    end_s = clock() + options.time_limit_s

    def check() -> None:
        if clock() >= end_s:
            raise _OutOfTimeError

    problem = PlanProblem(costs, cluster, global_batch_size, options, check)
    return _Search(problem, on_progress or (lambda *_: None), below_ms).run()


class _Numbers(NamedTuple):
    """Numbers to try; the first field orders them.

    Attributes:
        bound_ms: No iteration is shorter; 0 where nothing is known yet.
        num_stages: Stages of the pipeline.
        num_gpus: GPUs of each stage.
        num_micro_batches: Micro-batches of an iteration.
        num_bounds: How many of its bounds are counted; each is tighter than the one before.
    """

    bound_ms: float
    num_stages: int
    num_gpus: int
    num_micro_batches: int
    num_bounds: int = 0


def _numbers_to_try(problem: PlanProblem) -> list[_Numbers]:
    """Return all numbers that the options allow."""
    options, total = problem.options, problem.cluster.num_gpus
    node = math.gcd(*(nodes.gpus_per_node for nodes in problem.cluster.nodes))
    sizes = [*(n for n in range(1, node + 1) if node % n == 0), *range(2 * node, total + 1, node)]
    counts = [m for m in range(1, problem.batch + 1) if problem.batch % m == 0]
    counts = [m for m in counts if m in (options.num_micro_batches or (m,))]
    found = []
    for num_gpus in (size for size in sizes if size in (options.gpus_per_stage or (size,))):
        for num_stages in range(1, min(total // num_gpus, len(problem.in_order)) + 1):
            if num_stages not in (options.num_stages or (num_stages,)):
                continue
            is_wanted = num_stages * num_gpus == total
            if options.method == "exact":
                is_wanted |= options.idle_gpus
            else:
                is_wanted &= options.num_stages is not None or num_stages.bit_count() == 1
            found += [_Numbers(0.0, num_stages, num_gpus, m) for m in counts if is_wanted]
    if not found:
        raise PlanError(
            "num_stages, gpus_per_stage, num_micro_batches: leave nothing to try for a batch of "
            f"{problem.batch} on {total} GPUs; allow more numbers"
        )
    return found


class _Search:
    """One search: the numbers left to try, and the best plan found of each."""

    def __init__(self, problem: PlanProblem, report: PlannerReport, below_ms: float) -> None:
        self.problem, self.options, self.report, self.below_ms = problem, problem.options, report, below_ms
        self.least: dict[tuple[int, int], Floats | str] = {}
        self.found: dict[tuple[int, ...], RatedPlan] = {}
        self.trials: list[Trial] = []
        self.min_done_ms = math.inf
        self.queue = _numbers_to_try(problem)

    @property
    def plans(self) -> list[RatedPlan]:
        """The best, as many as are wanted."""
        return sorted(self.found.values(), key=lambda each: each.time_ms)[: self.options.num_plans]

    @property
    def limit_ms(self) -> float:
        """Time below which a plan is of interest."""
        plans = self.plans
        return min(self.below_ms, plans[-1].time_ms if len(plans) == self.options.num_plans else math.inf)

    @property
    def found_ms(self) -> float:
        """Time of the best plan that is known."""
        return min([self.below_ms, *(each.time_ms for each in self.found.values())])

    def run(self) -> PlanSearchResult:
        """Search until nothing is left, the time is over, or there is an interrupt from the keyboard."""
        interrupted = out_of_time = False
        try:
            if self.options.method == "exact":
                self._begin()
            heapq.heapify(self.queue)
            while self.queue:
                self.problem.check()
                self._step()
                self._report()
        except _OutOfTimeError:
            out_of_time = True
        except KeyboardInterrupt:
            interrupted = True
        bound_ms, num_solved = self._bound_ms(), len(self.problem.solved)
        ending = interrupted, out_of_time, len(self.queue)
        return PlanSearchResult(tuple(self.plans), tuple(self.trials), bound_ms, num_solved, *ending)

    def _report(self) -> None:
        done, found_ms = len(self.trials), self.found_ms
        self.report(done, done + len(self.queue), found_ms if found_ms < math.inf else None, self._bound_ms())

    def _begin(self) -> None:
        """Solve numbers that are likely to fit until there is a first plan.

        Those are on all GPUs, in the smallest micro-batches, in stages that are nearest to a node.
        """
        total, nodes = self.problem.cluster.num_gpus, self.problem.cluster.nodes
        node = math.gcd(*(each.gpus_per_node for each in nodes))
        most = max(each.num_micro_batches for each in self.queue)
        likely = [n for n in self.queue if n.num_micro_batches == most and n.num_stages * n.num_gpus == total]
        for numbers in sorted(likely, key=lambda each: abs(math.log2(each.num_gpus / node))):
            self.problem.check()
            if isinstance(bound := self._bound(numbers), str):
                continue
            bounded = numbers._replace(bound_ms=max(bound, self._tight_ms(numbers)))
            reason = self._solve(bounded)
            self.queue.remove(numbers)
            self._tried(bounded, reason)
            if self.found:
                self._report()
                return

    def _step(self) -> None:
        """Take the numbers of the least bound: give them a tighter one, or solve them."""
        numbers = self.queue[0]
        if numbers.bound_ms >= self.limit_ms:
            for each in sorted(self.queue):
                self._tried(each, "no better than the plans found so far, by its bound")
            self.queue.clear()
        elif numbers.num_bounds < 2:
            bound = self._bound(numbers) if numbers.num_bounds == 0 else self._tight_ms(numbers)
            if isinstance(bound, str):
                heapq.heappop(self.queue)
                self._tried(numbers._replace(bound_ms=math.inf), bound)
                return
            bound_ms, num_bounds = max(bound, numbers.bound_ms), numbers.num_bounds + 1
            heapq.heapreplace(self.queue, numbers._replace(bound_ms=bound_ms, num_bounds=num_bounds))
        else:
            reason = self._solve(numbers)
            heapq.heappop(self.queue)
            self._tried(numbers, reason)

    def _tried(self, numbers: _Numbers, reason: str) -> None:
        """Note what came of numbers; the reason is for where they have no plan."""
        known = self.found.get(numbers[1:4])
        self.trials.append(Trial(*numbers[1:4], numbers.bound_ms, known and known.time_ms, reason))
        self.min_done_ms = min(self.min_done_ms, numbers.bound_ms)

    def _bound_ms(self) -> float:
        """Return what no iteration is shorter than: of the numbers left, and of those that are done.

        With both methods exact, those that are done have nothing shorter than the best plan, but by what the
        searches in stages have not proved. Infinite where all are done and nothing fits.
        """
        left_ms = self.queue[0].bound_ms if self.queue else math.inf
        found_ms, done_ms = self.found_ms, self.min_done_ms
        if self.options.method == self.options.stage_method == "exact":
            done_ms = max(done_ms, self.problem.proved_share * found_ms)
        return min(left_ms, done_ms, found_ms)

    def _bound(self, numbers: _Numbers) -> float | str:
        """Return a time that no iteration is below, memory aside, or why there is none."""
        _, num_stages, num_gpus, m, _ = numbers
        counts = self.problem.counts
        if (num_gpus, m) not in self.least:
            most = min(self.problem.cluster.num_gpus // num_gpus, len(self.problem.in_order))
            groups = {group.pattern: group for group in self.problem.groups(most, num_gpus)}
            tables = [self.problem.table(group, m) for group in groups.values()]
            known = [table.min_ms for table in tables if not isinstance(table, str)]
            self.least[num_gpus, m] = np.min(known, axis=0) if known else str(tables[0])
        least = self.least[num_gpus, m]
        if isinstance(least, str):
            return least
        total = float(counts @ least)
        return (m - 1) * max(total / num_stages, float(least[counts > 0].max())) + total

    def _tight_ms(self, numbers: _Numbers) -> float:
        """Return a bound that counts memory."""
        pipeline = self.problem.pipeline(*numbers[1:4])
        return 0.0 if isinstance(pipeline, str) else pipeline.min_ms

    def _solve(self, numbers: _Numbers) -> str:
        """Find the best plan with these numbers, or return why there is none that helps."""
        pipeline = self.problem.pipeline(*numbers[1:4])
        if isinstance(pipeline, str):
            return pipeline
        if reason := pipeline.why_memory_is_short():
            return reason
        limit_ms = self.limit_ms

        def keep(divided: tuple[int, ...]) -> None:
            self.found[numbers[1:4]] = pipeline.rated(divided)

        divided = pipeline.divided(limit_ms, keep)
        if divided is not None:
            keep(divided)
        elif math.isinf(limit_ms):
            return f"{OUT_OF_MEMORY}no division of the layers fits every stage"
        else:
            return "no division of the layers that fits is shorter than the plans found so far"
        return ""
