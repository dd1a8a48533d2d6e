"""The search for plans: stages, micro-batches, strategies of layers and the division of layers into stages.

Galvatron-BMW's search (Alg. 1 and 2) by exact means. For each number of GPUs in a stage, of stages and of
micro-batches it finds the least time of an iteration, taken to be a pipeline of m micro-batches::

    (m - 1) max c + sum (c + transfer)      c: time of a stage for a micro-batch, and 1 / m of its update

Numbers whose bound is no better than the plans at hand are not solved. Numbers that are likely to fit are
solved first, so that there is a plan early; when the time is over, the best so far is kept with its
lower bound. The module does not know costs of layers, nor the order of blocks.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from typing import NamedTuple

from placements.cluster import Cluster
from placements.planners.hybrid.decision_trees import divisors
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.plan_options import OUT_OF_MEMORY, PlanOptions, PlanSearchResult, RatedPlan
from placements.planners.hybrid.search.pipeline import Pipeline, PlanProblem
from placements.planners.hybrid.stage_tables import LayerCosts

PlannerReport = Callable[[int, int, float | None, float], None]
"""Callback told how many numbers are done, of how many, the least time so far and the bound in ms."""

_FITS_NOWHERE = f"{OUT_OF_MEMORY}no division of the layers fits every stage"


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
    """Return the best plans of a model on a cluster whose GPUs are shared by consecutive groups of one size.

    Only iterations shorter than `below_ms`, the time of a plan that is known otherwise, are of interest, and
    the bound is at most this. The clock is in seconds.

    Returns:
        The plans found until an interrupt or until the time was over, with their bound.
        With no plan where none fits the memory: each trial says why.

    Raises:
        PlanError: Nothing can be tried at all, or the model has branches.
    """
    if type(global_batch_size) is not int or global_batch_size < 1:
        raise PlanError(f"batch: {global_batch_size!r} is not a whole number of samples above 0; give one")
    if costs.model.branches:
        fault = f"{costs.model.name} has branches that join, and these plans are of chains"
        raise PlanError(f"model: {fault}; give its `chained` form")
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
        bound_ms: Lower bound of the iteration; 0 where none is known yet. Below 0 for numbers that are likely
            to fit, which come first until there is a plan.
        num_bounds: How many of its bounds are counted; each is tighter than the one before.
    """

    bound_ms: float
    num_stages: int
    num_gpus: int
    num_micro_batches: int
    num_bounds: int = 0


def _numbers_to_try(problem: PlanProblem) -> list[_Numbers]:
    """Return all numbers that the options allow.

    For the exact division those on all GPUs, in the smallest micro-batches, are likely to fit, and come in
    order of how near a stage is to a node.
    """
    options, total = problem.options, problem.cluster.num_gpus
    node = math.gcd(*(nodes.gpus_per_node for nodes in problem.cluster.nodes))
    sizes = [size for size in range(1, total + 1) if 0 in (size % node, node % size)]
    counts = [m for m in divisors(problem.batch) if m in (options.num_micro_batches or (m,))]
    numbers, is_exact = list[_Numbers](), options.method == "exact"
    for num_gpus in (size for size in sizes if size in (options.gpus_per_stage or (size,))):
        for num_stages in range(1, min(total // num_gpus, len(problem.in_order)) + 1):
            has_all = num_stages * num_gpus == total
            is_wanted = is_exact or options.num_stages is not None or num_stages.bit_count() == 1
            is_wanted &= has_all or (is_exact and options.idle_gpus)
            if is_wanted and num_stages in (options.num_stages or (num_stages,)):
                numbers += [_Numbers(0.0, num_stages, num_gpus, m) for m in counts]
                if is_exact and has_all and counts:
                    likely = -1 / (1 + abs(math.log2(num_gpus / node)))
                    numbers[-1] = numbers[-1]._replace(bound_ms=likely)
    if not numbers:
        fault = f"leave nothing to try for a batch of {problem.batch} on {total} GPUs"
        raise PlanError(f"num_stages, gpus_per_stage, num_micro_batches: {fault}; allow more numbers")
    return numbers


class _Search:
    """One search: the numbers left to try, and the best plan found of each."""

    def __init__(self, problem: PlanProblem, report: PlannerReport, below_ms: float) -> None:
        self.problem, self.options, self.report, self.below_ms = problem, problem.options, report, below_ms
        self.rated: dict[tuple[int, ...], RatedPlan] = {}
        self.trials: dict[tuple[int, ...], str] = {}
        self.min_done_ms = math.inf
        self.queue = _numbers_to_try(problem)

    @property
    def plans(self) -> list[RatedPlan]:
        """The best plans, at most `num_plans`."""
        return sorted(self.rated.values(), key=lambda plan: plan.time_ms)[: self.options.num_plans]

    @property
    def best_ms(self) -> float:
        """Time of the best plan that is known."""
        return min([self.below_ms, *(plan.time_ms for plan in self.rated.values())])

    def run(self) -> PlanSearchResult:
        """Search until no numbers are left, the time is over, or the keyboard interrupts the search."""
        interrupted = out_of_time = False
        heapq.heapify(self.queue)
        try:
            while self.queue:
                self.problem.check()
                self._step()
                done = len(self.trials)
                best_ms = self.best_ms if self.best_ms < math.inf else None
                self.report(done, done + len(self.queue), best_ms, self._bound_ms())
        except _OutOfTimeError:
            out_of_time = True
        except KeyboardInterrupt:
            interrupted = True
        figures = self._bound_ms(), len(self.problem.solved), interrupted, out_of_time, len(self.queue)
        return PlanSearchResult(tuple(self.plans), self.trials, *figures)

    def _step(self) -> None:
        """Take the numbers of the least bound: give them a tighter one, or solve them."""
        numbers, plans = self.queue[0], self.plans
        worst_ms = plans[-1].time_ms if len(plans) == self.options.num_plans else math.inf
        limit_ms = min(self.below_ms, worst_ms)
        if numbers.bound_ms >= limit_ms:
            for left in sorted(self.queue):
                better = "no better than the plans found so far, by its bound"
                reason = _FITS_NOWHERE if math.isinf(left.bound_ms) else better
                self.trials[left[1:4]] = reason
            self.queue.clear()
            return
        try:
            is_likely = numbers.bound_ms < 0 and not self.rated
            if numbers.num_bounds < 2 and not is_likely:
                is_loose, key = numbers.num_bounds == 0, numbers[1:4]
                bound_ms = self.problem.loose_ms(*key) if is_loose else Pipeline(self.problem, *key).min_ms
                tighter = _Numbers(max(bound_ms, numbers.bound_ms), *key, numbers.num_bounds + 1)
                heapq.heapreplace(self.queue, tighter)
                return
            reason = self._solve(numbers, limit_ms)
        except PlanError as error:
            reason = str(error)
        heapq.heappop(self.queue)
        self.trials[numbers[1:4]] = reason

    def _bound_ms(self) -> float:
        """Return a lower bound of every iteration in ms, over numbers left and numbers done.

        With both methods exact, numbers that are done have no shorter plan than the best one, but for the gap
        that searches in stages left open. Infinite where all are done and nothing fits.
        """
        left_ms = max(self.queue[0].bound_ms, 0.0) if self.queue else math.inf
        best_ms, done_ms = self.best_ms, self.min_done_ms
        if self.options.method == self.options.stage_method == "exact":
            done_ms = max(done_ms, self.problem.proved_share * best_ms)
        return min(left_ms, done_ms, best_ms)

    def _solve(self, numbers: _Numbers, limit_ms: float) -> str:
        """Find the best plan with these numbers; return "" or the reason why none helps."""
        pipeline, key = Pipeline(self.problem, *numbers[1:4]), numbers[1:4]
        bound_ms = numbers.bound_ms if numbers.num_bounds else pipeline.min_ms
        self.min_done_ms = min(self.min_done_ms, bound_ms)
        for division in pipeline.divisions(limit_ms):
            self.rated[key] = pipeline.rated(division)
        if key in self.rated:
            return ""
        if math.isinf(limit_ms):
            return _FITS_NOWHERE
        return "no division of the layers that fits is shorter than the plans found so far"
