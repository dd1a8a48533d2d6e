"""The best layouts of a training framework for a model on a cluster, each timed by its schedule.

All layouts are rated by a formula, and the best of them by a schedule whose rules are checked. The module
does not know what a layer costs.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, islice

from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import RatedPlan, StageEstimate
from placements.planners.hybrid.search.layout_search import LayoutEstimate, LayoutSearch
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.trainers.as_run import Planned, rate
from placements.trainers.job import plan_uniform
from schedsearch.planning.divided_run import can_divide, with_best_division
from schedsearch.planning.plans import LayoutPlans, RankedPlan
from schedsearch.planning.uniform_run import UniformRun, division_bound_ms, layout_in_words
from schedsearch.solver.interrupts import INTERRUPTS


def plan_layouts(
    search: LayoutSearch,
    num_plans: int = 5,
    on_progress: Callable[[int, int], None] | None = None,
    time_limit_s: float = math.inf,
) -> LayoutPlans:
    """Return the best layouts; see `placements.planners.hybrid.search.layout_search`.

    After a Ctrl-C, or when the time is over, the best of the layouts that are rated until then are timed as
    far as they are, at least one.

    Args:
        search: The layouts that are tried.
        num_plans: Number of layouts to time by a schedule.
        on_progress: Called now and then with the number of layouts rated, and of all.
        time_limit_s: Seconds after which the search ends.

    Raises:
        PlanError: A schedule would have too many blocks.
    """
    layouts, end_s = list(search.layouts()), time.monotonic() + time_limit_s
    rated: list[LayoutEstimate | None] = []
    timed: list[tuple[LayoutEstimate, UniformRun]] = []

    def is_over() -> bool:
        return INTERRUPTS.seen or time.monotonic() >= end_s

    with INTERRUPTS.answered() as ending:
        for estimate in search.rated(layouts):
            if on_progress is not None and len(rated) % 256 == 0:
                on_progress(len(rated), len(layouts))
            rated.append(estimate)
            if is_over():
                break
        estimates = search.ranked(filter(None, rated))
        fitting = [each for each in estimates if each.gib <= search.limit_gib]
        likely = sorted(fitting, key=_divided_ms) if can_divide(search.model) else fitting
        tried = dict.fromkeys(chain(*zip(fitting, likely, strict=True)))
        most = num_plans if likely is fitting else 2 * num_plans
        for estimate in islice(tried, 4 * most):  # the formula's memory is not exact
            # As in the formula, exchanges run beside the pipeline, also in one node.
            run = UniformRun(search.model, search.cluster, estimate.layout, search.costs, overlap=True)
            if max(run.gib_by_stage) <= search.limit_gib:
                best_ms = min((known.iteration_ms for _, known in timed), default=math.inf)
                is_worth = _divided_ms(estimate) < best_ms
                timed.append((estimate, with_best_division(run, search.limit_gib) if is_worth else run))
            if len(timed) == most or (timed and is_over()):
                break
    timed = sorted(timed, key=lambda each: each[1].iteration_ms)[:num_plans]
    return LayoutPlans(
        search.limit_gib,
        tuple(_ranked(estimate, run, search.limit_gib) for estimate, run in timed),
        tuple(estimates),
        min((division_bound_ms(each.layout, each.mean_load_ms) for each in fitting), default=math.inf),
        len(layouts),
        len(layouts) - len(rated),
        ending.interrupted,
    )


def _divided_ms(estimate: LayoutEstimate) -> float:
    """Return the time by the formula if all stages of a layout computed equally long."""
    return estimate.time_ms - estimate.load_ms + estimate.mean_load_ms


def _ranked(estimate: LayoutEstimate, run: UniformRun, limit_gib: float) -> RankedPlan:
    """Return a layout as a ranked plan: stage costs by the planner's formula, peak memory by its schedule."""
    found = rate(run.plan, FrameworkCosts(run.model, replace(run.options, exchanges_apart=False)))
    held = zip(found.stages, run.gib_by_stage, strict=True)
    stages = tuple(each._replace(peak_mib=1024 * gib) for each, gib in held)
    is_chain = run.layout.degrees.chunks == 1
    time_ms = _divided_ms(estimate) if run.layout.chunk_layers else estimate.time_ms
    time_ms = found.time_ms if is_chain else time_ms  # that formula has no chunks
    schedule = run.within((math.floor(1024 * limit_gib),) * run.plan.num_stages)
    shape, rated = "v_shape" if is_chain else "loop_shape", RatedPlan(run.plan, time_ms, stages)
    plan = RankedPlan(shape, rated, schedule.placement, run, schedule=schedule)
    return plan.with_bound(max(map(operator.add, run.loads_ms, run.shortest_updates_ms)))


def why_no_layout(search: LayoutSearch, found: LayoutPlans) -> str:
    """Return in one line why no layout fits."""
    num_gpus = search.cluster.num_gpus
    if not found.estimates:
        return (
            f"cluster, batch: no layout of {search.model.name} divides both {num_gpus} GPUs and the batch; "
            "give another of the two, or other micro_batch_sizes"
        )
    smallest = min(found.estimates, key=lambda each: each.gib)
    return (
        f"cluster: no layout fits {found.limit_gib:.1f} GiB of each of the {num_gpus} GPUs; "
        f"the smallest, {layout_in_words(smallest.layout)}, needs {smallest.gib:.1f} GiB; use more GPUs or "
        "larger ones"
    )


def planned_layout(run: UniformRun, limit_gib: float = math.inf) -> Planned:
    """Return a layout as a plan for trainers, with `limit_gib` GiB per GPU for states and activations.

    Trainers have the order made by hand.
    """
    run = replace(run, order=None)

    def rated_as(plan: Plan) -> RatedPlan:
        layout = replace(plan_uniform(plan, run.chunks), chunk_layers=run.layout.chunk_layers)
        return _rated(plan, replace(run, layout=layout))

    costs = run.costs.options
    told = {
        "overlap_exchanges": run.overlaps_exchanges and run.layout.zero < 3,
        "overlap_tensor_parallel": costs.overlap_tensor_parallel and run.layout.degrees.tensor > 1,
        "sends_tokens_once": costs.sends_tokens_once and run.layout.degrees.expert > 1,
    }
    limits = [limit_gib] * run.plan.num_stages
    return Planned(_rated(run.plan, run), limits, rated_as, run.chunks, told=told)


def _rated(plan: Plan, run: UniformRun) -> RatedPlan:
    stages = tuple(StageEstimate(0.0, 0.0, 1024 * gib, 0) for gib in run.gib_by_stage)
    return RatedPlan(plan, run.iteration_ms, stages)
