"""Plans ranked by the schedules that are found for them, and not by a formula.

The module does not know how they were planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf

from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.core.answer import SearchProgress, Status
from schedsearch.core.problem import Problem
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.planning.plans import RankedPlan
from schedsearch.proof.memory_need import CapacityError
from schedsearch.searches.methods import find
from schedsearch.validate import InvalidScheduleError, validate

RankingReport = Callable[[str, float, SearchProgress], None]
"""Told which plan is searched, the length of its tick in ms, and how far the search is."""


def rank(
    plans: Sequence[RankedPlan],
    time_limit_s: float = 20.0,
    *,
    seed: int = 0,
    on_progress: RankingReport | None = None,
    interrupted: bool = False,
) -> list[RankedPlan]:
    """Search a schedule for each plan; return them by throughput.

    A device without the memory for one micro-batch makes a plan INFEASIBLE, not the ranking fail. After
    Ctrl-C those not searched keep the time of their formula.

    Args:
        plans: What competes, each by its own name.
        time_limit_s: For all searches together.
        seed: Seed of the searches.
        on_progress: Told about each search.
        interrupted: Whether there was a Ctrl-C before.
    """
    found = []
    limits = SharedLimits(seconds=time_limit_s, searches=len(plans))
    for each in plans:
        if not interrupted:
            each, interrupted = _searched(each, limits.share()["time_limit_s"], seed, on_progress)
            limits.spend(0.0, each.search_seconds or 0.0)
        found.append(each)
    return sorted(found, key=lambda each: -(each.samples_per_s or -inf))


def _searched(
    plan: RankedPlan, time_limit_s: float | None, seed: int, on_progress: RankingReport | None
) -> tuple[RankedPlan, bool]:
    """Return a plan with its schedule, and whether the search was interrupted."""
    placement, number = plan.placement, plan.plan.num_micro_batches

    def tell(progress: SearchProgress) -> None:
        if on_progress is not None:
            on_progress(plan.name, placement.tick_ms, progress)

    try:
        result = find(Problem(placement, number, seed=seed, time_limit_s=time_limit_s), tell)
    except CapacityError as error:
        return replace(plan, status=Status.INFEASIBLE, note=str(error), search_seconds=0.0), False
    if (schedule := result.schedule) is None:
        plan = replace(plan, status=result.status, search_seconds=result.seconds, note=result.reason)
        return plan, result.interrupted
    hand_made_ms = None
    with suppress(UnsuitablePlacementError, InvalidScheduleError):
        hand_made_ms = placement.ms(validate(HAND_MADE["one_f_one_b"](placement, number)).makespan)
    is_best = validate(schedule).makespan <= result.makespan_bound
    found = replace(
        plan,
        status=Status.OPTIMAL if is_best else Status.FEASIBLE,
        schedule=schedule,
        iteration_bound_ms=placement.ms(result.makespan_bound),
        one_f_one_b_ms=hand_made_ms,
        search_seconds=result.seconds,
    )
    return found, result.interrupted
