"""Plans ranked by the schedules that are found for them, and not by a formula.

The module does not know how they were planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placements import Profile
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.core.answer import SearchProgress, SearchResult, Status
from schedsearch.core.problem import Problem
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.energy import EnergyError, compute_frontier
from schedsearch.metrics import peak_memory
from schedsearch.planning.plans import ProposedPlan, RankedPlan
from schedsearch.proof.memory_need import CapacityError
from schedsearch.searches.methods import find
from schedsearch.validate import InvalidScheduleError, validate

RankingReport = Callable[[str, float, SearchProgress], None]
"""Told which candidate is searched, the length of its tick in ms, and how far the search is."""


def rank(
    candidates: Sequence[ProposedPlan],
    time_limit_s: float = 20.0,
    *,
    profiles: Sequence[Profile] | None = None,
    deadline_ms: float | None = None,
    seed: int = 0,
    on_progress: RankingReport | None = None,
    interrupted: bool = False,
) -> list[ProposedPlan]:
    """Search a schedule for each candidate; return them by throughput, or by energy at a deadline.

    A device without the memory for one micro-batch makes a candidate INFEASIBLE, not the ranking fail. After
    Ctrl-C those not searched have 1F1B, or are UNKNOWN where that does not fit.

    Args:
        candidates: What competes, each by its own name.
        time_limit_s: For all searches together.
        profiles: Profile of each candidate, for the energy.
        deadline_ms: Longest time of an iteration. Candidates are ranked by the energy of their schedules that
            keep it; those that cannot come last.
        seed: Seed of the searches.
        on_progress: Told about each search.
        interrupted: Whether there was a Ctrl-C before.
    """
    found = []
    limits = SharedLimits(seconds=time_limit_s, searches=len(candidates))
    for i, candidate in enumerate(candidates):
        if interrupted:
            ranked = _by_hand(candidate)
        else:
            ranked, interrupted = _searched(candidate, limits.share(), seed, on_progress)
            limits.spend(0.0, ranked.search_seconds)
        if (
            not interrupted
            and deadline_ms is not None
            and profiles is not None
            and ranked.schedule is not None
        ):
            ranked = _with_energy(ranked, profiles[i], deadline_ms)
        found.append(replace(candidate, ranked=ranked))
    return sorted(found, key=lambda each: _order(each, deadline_ms is not None))


def _order(each: ProposedPlan, by_energy: bool) -> tuple[float, float]:
    rate, energy = each.samples_per_s, each.ranked.energy_j if each.ranked else None
    return (
        float("inf") if by_energy and energy is None else energy or 0.0,
        -rate if rate is not None else float("inf"),
    )


def _searched(
    candidate: ProposedPlan,
    limits: Mapping[str, Any],
    seed: int,
    on_progress: RankingReport | None,
) -> tuple[RankedPlan, bool]:
    """Return the schedule of a candidate, and whether its search was interrupted."""
    number = candidate.plan.num_micro_batches
    request = Problem(candidate.placement, number, seed=seed, time_limit_s=limits["time_limit_s"])
    try:
        tick_ms = candidate.placement.tick_ms
        result = find(
            request, lambda progress: on_progress(candidate.name, tick_ms, progress) if on_progress else None
        )
    except CapacityError as error:
        return RankedPlan(Status.INFEASIBLE, note=str(error)), False
    return _of_result(candidate, result), result.interrupted


def _of_result(candidate: ProposedPlan, result: SearchResult) -> RankedPlan:
    placement, schedule = candidate.placement, result.schedule
    if schedule is None:
        return RankedPlan(result.status, search_seconds=result.seconds, note=result.reason)
    validate(schedule)
    return RankedPlan(
        Status.OPTIMAL if schedule.makespan <= result.makespan_bound else Status.FEASIBLE,
        placement.ms(schedule.makespan),
        placement.ms(result.makespan_bound),
        _by_hand(candidate).iteration_ms,
        tuple(placement.mib(peak) or 0.0 for peak in peak_memory(schedule).tolist()),
        search_seconds=result.seconds,
        schedule=schedule,
    )


def _by_hand(candidate: ProposedPlan) -> RankedPlan:
    """Return a candidate with 1F1B, where that fits."""
    placement = candidate.placement
    try:
        schedule = HAND_MADE["one_f_one_b"](placement, candidate.plan.num_micro_batches)
        validate(schedule)
    except (UnsuitablePlacementError, InvalidScheduleError):
        return RankedPlan(Status.UNKNOWN, note="interrupted before its search")
    time_ms = placement.ms(schedule.makespan)
    peaks = tuple(placement.mib(peak) or 0.0 for peak in peak_memory(schedule).tolist())
    load = max(map(placement.per_micro_batch.load, range(placement.num_devices)))
    bound_ms = placement.ms(load * schedule.num_micro_batches)
    return RankedPlan(Status.FEASIBLE, time_ms, bound_ms, time_ms, peaks, schedule=schedule)


def _with_energy(ranked: RankedPlan, profile: Profile, deadline_ms: float) -> RankedPlan:
    """Return a schedule with its energy at the deadline, or with a note why it cannot keep that."""
    assert ranked.schedule is not None, "its caller has one"
    try:
        frontier = compute_frontier(ranked.schedule, profile, num_plans=20, deadline_ms=deadline_ms)
        return replace(ranked, energy_j=frontier.at(deadline_ms).energy_mj / 1e3)
    except EnergyError as error:
        return replace(ranked, note=str(error))
