"""Plans ranked by the schedules that are found for them, and not by a formula.

The module knows placements and what a planner thought of them; it does not know how they were planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from placements import Placement, Profile
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.bounds.memory_need import CapacityError
from schedsearch.energy import EnergyError, compute_frontier
from schedsearch.metrics import peak_memory
from schedsearch.modulo.result import SearchProgress, SearchResult, Status
from schedsearch.modulo.search import SearchRequest
from schedsearch.schedule import Schedule
from schedsearch.searches.methods import find
from schedsearch.validate import InvalidScheduleError, validate

RankingReport = Callable[[str, float, SearchProgress], None]
"""Told which candidate is searched, the length of its tick in ms, and how far the search is."""


@dataclass(frozen=True)
class PlanCandidate:
    """A placement that competes.

    Attributes:
        name: Unique among those that compete.
        shape: Such as ``v_shape``.
        placement: Its blocks, with the memory of each device.
        num_micro_batches: Micro-batches of an iteration.
        global_batch_size: Samples of an iteration.
        formula_ms: What its planner took the iteration to be; None where it has no formula.
    """

    name: str
    shape: str
    placement: Placement
    num_micro_batches: int
    global_batch_size: int
    formula_ms: float | None = None


@dataclass(frozen=True)
class RankedPlan:
    """A candidate and its searched schedule.

    Attributes:
        candidate: What competed.
        status: OPTIMAL where no schedule of the placement is shorter, FEASIBLE where one may be; INFEASIBLE
            or UNKNOWN where there is none.
        iteration_ms: Makespan of the schedule, updates included; None where there is none.
        iteration_bound_ms: No schedule of this placement is shorter; None likewise.
        one_f_one_b_ms: The same of 1F1B on this placement; None where it is not defined or does not fit.
        peaks_mib: The most that a GPU of each device holds with the schedule; None likewise.
        energy_j: Energy at the deadline that was asked for; None where none was, or it cannot be kept.
        search_seconds: Wall-clock time.
        note: Why there is no schedule, or what was cut.
        schedule: The schedule itself.
    """

    candidate: PlanCandidate
    status: Status
    iteration_ms: float | None = None
    iteration_bound_ms: float | None = None
    one_f_one_b_ms: float | None = None
    peaks_mib: tuple[float, ...] | None = None
    energy_j: float | None = None
    search_seconds: float = 0.0
    note: str = ""
    schedule: Schedule | None = field(default=None, compare=False, repr=False)

    @property
    def proved(self) -> str:
        """The proof of the schedule, or why there is none, in words."""
        words = {Status.OPTIMAL: "makespan", Status.FEASIBLE: "no"}
        return words.get(self.status, str(self.status).lower())

    @property
    def samples_per_s(self) -> float | None:
        """Throughput."""
        if self.iteration_ms is None:
            return None
        return self.candidate.global_batch_size / self.iteration_ms * 1e3


def rank(
    candidates: Sequence[PlanCandidate],
    time_limit_s: float = 20.0,
    *,
    profiles: Sequence[Profile] | None = None,
    deadline_ms: float | None = None,
    seed: int = 0,
    on_progress: RankingReport | None = None,
) -> tuple[RankedPlan, ...]:
    """Search a schedule for each candidate; return them by throughput, or by energy at a deadline.

    A device without the memory for one micro-batch makes a candidate INFEASIBLE, not the ranking fail. After
    Ctrl-C those not searched are UNKNOWN.

    Args:
        candidates: What competes.
        time_limit_s: For the search of each.
        profiles: Profile of each candidate, for the energy.
        deadline_ms: Longest time of an iteration. Candidates are ranked by the energy of their schedules that
            keep it; those that cannot come last.
        seed: Seed of the searches.
        on_progress: Told about each search.
    """
    found: list[RankedPlan] = []
    interrupted = False
    for i, candidate in enumerate(candidates):
        if interrupted:
            found.append(RankedPlan(candidate, Status.UNKNOWN, note="interrupted before its search"))
            continue
        ranked, interrupted = _searched(candidate, time_limit_s, seed, on_progress)
        if deadline_ms is not None and profiles is not None and ranked.schedule is not None:
            ranked = _with_energy(ranked, profiles[i], deadline_ms)
        found.append(ranked)
    return tuple(sorted(found, key=lambda each: _order(each, deadline_ms is not None)))


def _order(ranked: RankedPlan, by_energy: bool) -> tuple[float, float]:
    rate = ranked.samples_per_s
    energy = ranked.energy_j if ranked.energy_j is not None else float("inf")
    return (energy if by_energy else 0.0, -rate if rate is not None else float("inf"))


def _searched(
    candidate: PlanCandidate, time_limit_s: float, seed: int, on_progress: RankingReport | None
) -> tuple[RankedPlan, bool]:
    """Return a candidate with its schedule, and whether its search was interrupted."""
    request = SearchRequest(
        candidate.placement, candidate.num_micro_batches, time_limit_s=time_limit_s, seed=seed
    )
    try:
        tick_ms = candidate.placement.tick_ms
        result = find(
            request, lambda progress: on_progress(candidate.name, tick_ms, progress) if on_progress else None
        )
    except CapacityError as error:
        return RankedPlan(candidate, Status.INFEASIBLE, note=str(error)), False
    return _of_result(candidate, result), result.interrupted


def _of_result(candidate: PlanCandidate, result: SearchResult) -> RankedPlan:
    placement, schedule = candidate.placement, result.schedule
    if schedule is None:
        return RankedPlan(candidate, result.status, search_seconds=result.seconds, note=result.reason)
    validate(schedule)
    return RankedPlan(
        candidate,
        Status.OPTIMAL if schedule.makespan <= result.makespan_bound else Status.FEASIBLE,
        placement.ms(schedule.makespan),
        placement.ms(result.makespan_bound),
        _one_f_one_b_ms(candidate),
        tuple(placement.mib(peak) or 0.0 for peak in peak_memory(schedule).tolist()),
        search_seconds=result.seconds,
        schedule=schedule,
    )


def _one_f_one_b_ms(candidate: PlanCandidate) -> float | None:
    try:
        schedule = HAND_MADE["one_f_one_b"](candidate.placement, candidate.num_micro_batches)
        validate(schedule)
    except (UnsuitablePlacementError, InvalidScheduleError):
        return None
    return candidate.placement.ms(schedule.makespan)


def _with_energy(ranked: RankedPlan, profile: Profile, deadline_ms: float) -> RankedPlan:
    """Return a candidate with its energy at the deadline, or with a note why it cannot keep that."""
    assert ranked.schedule is not None, "its caller has one"
    try:
        frontier = compute_frontier(ranked.schedule, profile, num_plans=20, deadline_ms=deadline_ms)
        return replace(ranked, energy_j=frontier.at(deadline_ms).energy_mj / 1e3)
    except EnergyError as error:
        return replace(ranked, note=str(error))
