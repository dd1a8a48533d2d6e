"""Plans timed by schedules and not by a formula: a hand-made schedule for each, or a searched one.

The module does not know how they were planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from placements import Kind, Placement
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.baselines.structure import in_orders
from schedsearch.core.answer import SearchProgress, SearchReport, Status
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.planning.plans import RankedPlan
from schedsearch.planning.uniform_run import NEAR_TIE
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.memory_need import CapacityError
from schedsearch.schedule import Schedule, with_optimizer
from schedsearch.searches.search import find
from schedsearch.solver.side_by_side import reported
from schedsearch.validate import InvalidScheduleError, validate

RankingReport = Callable[[str, float, SearchProgress], None]
"""Called with the searched plan's name, its tick in ms, and the progress of its search."""

_NUM_LAYOUTS = 2
"""Number of layouts whose order is searched, the best ones."""

_MIN_GAIN = 2 * NEAR_TIE
"""Gain over the best plan that a bound must leave for a search, which seldom comes as near as the bound."""

_WORK = 2.0
"""Units of work, of about a second each, to search the order of a layout."""


def simulated(plan: RankedPlan) -> RankedPlan:
    """Return a chain of stages with its 1F1B schedule; other shapes and layouts stay as they are."""
    placement, number = plan.placement, plan.plan.num_micro_batches
    if plan.shape != "v_shape" or plan.run is not None:
        return plan
    try:
        schedule = validate(_one_f_one_b(placement, number))
    except InvalidScheduleError:  # it needs more memory than there is
        return plan
    return replace(plan, schedule=schedule).with_bound(placement.ms(makespan_bound(placement, number)))


def _one_f_one_b(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B of stages that may have several pieces each, which run one after the other."""
    stages, orders = v_shape(placement.num_devices), {}
    whole = one_f_one_b(stages, num_micro_batches)
    for device in range(placement.num_devices):
        pieces = [block.name for block in placement.on(device) if block.kind is Kind.F]
        names = {Kind.F: pieces, Kind.B: [f"B{name[1:]}" for name in reversed(pieces)]}
        orders[device] = [
            (name, n) for block, n in whole.order(device) for name in names[stages.by_name[block].kind]
        ]
    plain = placement.per_micro_batch
    return with_optimizer(placement, in_orders(plain, num_micro_batches, orders))


def rank(
    plans: Sequence[RankedPlan],
    time_limit_s: float = 20.0,
    *,
    on_progress: RankingReport | None = None,
    interrupted: bool = False,
    workers: int = 1,
) -> list[RankedPlan]:
    """Search a schedule for each plan that may be faster than all by more than `_MIN_GAIN`; keep the order.

    Of such layouts the first `_NUM_LAYOUTS` are searched; see `_reordered`. A device without the memory for
    one micro-batch makes a plan INFEASIBLE, not the ranking fail. After Ctrl-C those not searched stay as
    they are.

    Args:
        plans: The competing plans, each with a name of its own.
        time_limit_s: Seconds for all searches together.
        on_progress: Called with each search's progress.
        interrupted: Whether Ctrl-C came before.
        workers: Plans searched side by side, each for as many times its share of the seconds.
    """
    best = max((plan.samples_per_s or 0.0 for plan in plans if plan.schedule), default=0.0)
    promising = [plan for plan in plans if plan.most_samples_per_s > (1 + _MIN_GAIN) * best]
    layouts = [plan.name for plan in promising if plan.run is not None]
    searched = [plan for plan in promising if plan.run is None or plan.name in layouts[:_NUM_LAYOUTS]]
    by_name, limits = dict[str, RankedPlan](), SharedLimits(seconds=time_limit_s, searches=len(searched))
    tell = on_progress or (lambda name, tick_ms, event: None)
    while searched and not interrupted:
        some, searched = searched[:workers], searched[workers:]
        share_s = limits.share(len(some))["time_limit_s"]
        calls = [partial(_searched if plan.run is None else _reordered, plan, share_s) for plan in some]
        reports = [partial(tell, plan.name, plan.placement.tick_ms) for plan in some]
        results = zip(some, reported(calls, reports), strict=True)
        ended = {plan.name: result for plan, result in results if result is not None}
        by_name |= {name: plan for name, (plan, _, _) in ended.items()}
        limits.spend(0.0, max((seconds for _, seconds, _ in ended.values()), default=0.0), len(some))
        interrupted = len(ended) < len(some) or any(is_cut for _, _, is_cut in ended.values())
    return [by_name.get(plan.name, plan) for plan in plans]


def _reordered(
    plan: RankedPlan, time_limit_s: float | None, report: SearchReport
) -> tuple[RankedPlan, float, bool]:
    """Return a layout in the order that a search finds, or as it is if that gains no more than `NEAR_TIE`.

    The search counts only the exchanges that no order hides; the order found is timed with all.
    """
    run, memory = plan.run, plan.placement.memory
    assert run is not None and memory is not None, "a layout"
    placement = run.to_order(memory)
    problem = Problem(
        placement,
        run.layout.num_micro_batches,
        objectives=(Objective.MAKESPAN,),
        time_limit_s=time_limit_s,
        work_limit=_WORK,
        begin_with=replace(run.schedule, placement=placement),
    )
    result = find(problem, report)
    other = run if result.schedule is None else replace(run, order=result.schedule)
    run = other if other.iteration_ms * (1 + NEAR_TIE) < run.iteration_ms else run
    schedule = run.within(memory)
    bound_ms = max(plan.bound_ms or 0.0, placement.ms(result.makespan_bound))
    plan = replace(plan, run=run, placement=schedule.placement, schedule=schedule).with_bound(bound_ms)
    return plan, result.seconds, result.interrupted


def _searched(
    plan: RankedPlan, time_limit_s: float | None, report: SearchReport
) -> tuple[RankedPlan, float, bool]:
    """Return a plan with the schedule found, the seconds of the search, and whether Ctrl-C ended it."""
    placement, number = plan.placement, plan.plan.num_micro_batches
    try:
        result = find(Problem(placement, number, time_limit_s=time_limit_s), report)
    except CapacityError as error:
        return replace(plan, status=Status.INFEASIBLE, note=str(error)), 0.0, False
    if result.schedule is not None:
        if plan.schedule is None or result.schedule.makespan < plan.schedule.makespan:
            plan = replace(plan, schedule=validate(result.schedule))
        plan = plan.with_bound(placement.ms(result.makespan_bound))
    elif plan.schedule is None:
        plan = replace(plan, status=result.status, note=result.reason)
    return plan, result.seconds, result.interrupted
