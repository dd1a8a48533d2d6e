"""What a case of the frontier benchmark measures: speed, savings, gaps, and ours beside what others find.

CPU seconds are those of this process with its threads and children. Energies of two plans are compared at
equal deadline: both are effective energies, above the blocking power, of plans that keep it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.benchmarks.comparison import ALMOST
from experiments.benchmarks.frontier.lowtime_plans import lowtime_clocks
from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import CpuClock, timed
from placements import OperatingPoint, Placement, Profile
from placements.gpus import GPUS
from placements.hardware import modelled_profile
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import (
    Frontier,
    SwitchingLimits,
    all_maximum_clocks,
    best_order,
    compute_frontier,
    instance_graph,
    simulate_at_clocks,
    simulate_switching,
    switched_plan,
)
from schedsearch.energy.baselines import perseus_frontier
from schedsearch.energy.generators.candidates import PlanPool
from schedsearch.energy.generators.improving import ExactStatus, exact_plan
from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.orders.ordering import relaxed
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.waiting import waiting_w
from schedsearch.modulo.alternatives import schedules_of_equal_period
from schedsearch.modulo.search import search
from schedsearch.schedule import Schedule

NUM_PLANS = 400
"""Deadlines of a frontier, evenly spaced."""

_REPEATS = 3
"""Times that our frontier is computed where its CPU seconds count; they are the median."""

_LOOK_UPS = 1000

_ORDERED_MICRO_BATCHES, _SEARCH_WORK, _ORDER_WORK = 16, 5.0, 5.0
"""Micro-batches of the schedules whose order is chosen, and the work for the search and for the choice."""


@dataclass(frozen=True)
class ClockTask:
    """A valid schedule whose clocks are to be chosen, and the profile of its blocks."""

    schedule: Schedule
    profile: Profile

    @property
    def waiting_w(self) -> float:
        """Power of all devices while they wait."""
        return waiting_w(self.schedule.placement, self.profile)

    def frontier(self, deadlines_ms: Sequence[float] = (), num_plans: int = NUM_PLANS) -> Frontier:
        """Return our frontier, with plans for some deadlines besides."""
        return compute_frontier(self.schedule, self.profile, num_plans, deadlines_ms)


def load_solvers() -> None:
    """Load the solvers and put a question to each, so that no case pays for it."""
    points = (OperatingPoint(1, 2.0, 1.0), OperatingPoint(2, 1.0, 2.0))
    schedule = one_f_one_b(v_shape(1), 1)
    profile = Profile("two clocks", {"F0": points, "B0": points}, 0.0)
    compute_frontier(schedule, profile, num_plans=3)
    exact_plan(schedule, profile, 3.0)
    relaxed(schedule, profile, 3.0)


def speed(task: ClockTask, *, cpu_s: float) -> CaseResult:
    """Compute the whole frontier and its plans within a limit of CPU seconds."""
    frontier, took_s = _frontier_timed(task)
    return CaseResult(took_s, true_of({f"more than {cpu_s:g} CPU s": took_s > cpu_s}), note=_gaps(frontier))


def saving(task: ClockTask, *, at_least: float, published: float) -> CaseResult:
    """Hold the saving of the shortest plan against all-maximum clocks against what is wanted; in percent."""
    frontier, took_s = timed(task.frontier)
    plan = frontier.shortest
    saved = 100 * frontier.saving(plan)
    limit = 100 * (1 - plan.lower_bound_mj / frontier.all_maximum.energy_mj)
    wrong = {
        f"saves {saved:.3f} %": saved < at_least,
        "slower than all-maximum clocks": plan.time_ms > frontier.all_maximum.time_ms * (1 + ALMOST),
    }
    note = f"saves {saved:.2f} %, at most {limit:.2f} % possible; Perseus published {published:.2f} %"
    return CaseResult(took_s, true_of(wrong), note=note)


def gaps(task: ClockTask, *, mean: float, most: float) -> CaseResult:
    """Simulate every plan again, and hold its distance from the bound against what is wanted; in percent."""
    frontier, took_s = timed(task.frontier)
    gap = 100 * np.array([plan.gap for plan in frontier.plans])
    graph = instance_graph(task.schedule)
    done = [simulate_at_clocks(task.schedule, task.profile, plan.clock_mhz, graph) for plan in frontier.plans]
    pairs = list(zip(frontier.plans, done, strict=True))
    deadlines = np.linspace(frontier.shortest.time_ms, frontier.plans[-1].time_ms, NUM_PLANS)
    simulated = {plan.time_ms: each.time_ms for plan, each in pairs}
    late = [t for t in deadlines.tolist() if simulated[frontier.at(t).time_ms] > t * (1 + ALMOST)]
    wrong = {
        f"mean gap {gap.mean():.3f} %": float(gap.mean()) > mean,
        f"gap {gap.max():.3f} %": float(gap.max()) > most,
        f"{len(late)} plans are late": bool(late),
        "a plan's own time or energy is not the simulated one": any(
            abs(plan.time_ms - each.time_ms) > ALMOST * each.time_ms
            or abs(plan.energy_mj - each.energy_mj) > ALMOST * each.energy_mj
            for plan, each in pairs
        ),
    }
    return CaseResult(took_s, true_of(wrong), note=_gaps(frontier))


def against_lowtime(task: ClockTask, *, unit_ms: float, ratio: float) -> CaseResult:
    """Compare with lowtime: its CPU seconds over ours, and no plan of its below ours at its own time."""
    _, took_s = _frontier_timed(task)
    clocks, theirs_s = lowtime_timed(task, unit_ms)
    below, note = _compared(shares_above(task, simulated_plans(task, clocks)))
    found = theirs_s / took_s
    note = f"lowtime {theirs_s:.1f} CPU s for {clocks.shape[1]} plans, ratio {found:.0f}; {note}"
    return CaseResult(took_s, true_of({f"ratio {found:.0f}": found < ratio, **below}), note=note)


def lowtime_timed(task: ClockTask, unit_ms: float) -> tuple[Ints, float]:
    """Return the clocks of lowtime's plans, MHz of shape ``(instances, plans)``, and its CPU seconds."""
    problem = ClockProblem(task.schedule, task.profile)
    return timed(lambda: lowtime_clocks(problem.graph, problem.curves, unit_ms))


def simulated_plans(task: ClockTask, clocks: Ints) -> Floats:
    """Return time in ms and energy in mJ of the plans on the frontier; shape ``(plans, 2)``.

    Clocks are in MHz; shape ``(instances, plans)``.
    """
    problem = ClockProblem(task.schedule, task.profile)
    mode = (problem.table.clock_mhz[problem.table.row][:, :, None] == clocks[:, None, :]).argmax(axis=1)
    found = PlanPool(problem)
    found.add("lowtime", mode)
    return np.array([[plan.time_ms, plan.energy_mj] for plan in found.best(None, problem.bound)])


def against_perseus(task: ClockTask, *, unit_ms: float, curve: str = "exponential") -> CaseResult:
    """Compare with our own implementation of Perseus: no plan of its below ours at its own time."""
    theirs, theirs_s = timed(lambda: perseus_frontier(task.schedule, task.profile, unit_ms, curve).plans)
    plans = np.array([[plan.time_ms, plan.energy_mj] for plan in theirs])
    share, took_s = timed(lambda: shares_above(task, plans))
    below, note = _compared(share)
    note = f"Perseus {theirs_s:.1f} CPU s for {len(theirs)} plans; {note}"
    return CaseResult(took_s, true_of(below), note=note)


def shares_above(task: ClockTask, theirs: Floats) -> Floats:
    """Return how much more energy another's plans use than ours at their times, as percent of theirs.

    Their plans are rows of time and energy; shape ``(plans, 2)``. Our frontier has a plan for each of the
    times.
    """
    time, energy = theirs.T
    ours = task.frontier(time.tolist())
    plans = [ours.at(deadline) for deadline in time.tolist()]
    effective = energy - task.waiting_w * time
    best = np.array([plan.energy_mj - task.waiting_w * plan.time_ms for plan in plans])
    share: Floats = 100 * (effective - best) / energy
    return share


def _compared(share: Floats) -> tuple[dict[str, bool], str]:
    """Say whether a plan of another's is below ours, and how far above they are; see `shares_above`."""
    below = int((share < -100 * ALMOST).sum())
    wrong = {f"{below} plans below ours, by up to {-share.min():.4f} %": below > 0}
    least, most = share.min(), share.max()
    note = f"at equal deadline it uses {least:.3f} to {most:.2f} % more, {share.mean():.2f} % on average"
    return wrong, note


def exact(task: ClockTask, *, num_deadlines: int, work_limit: float) -> CaseResult:
    """Compare with the proved best choice of clocks, and the relaxed optimum with a linear program's."""
    spread = task.frontier(num_plans=2)
    deadlines = np.linspace(spread.shortest.time_ms, spread.plans[-1].time_ms, num_deadlines)
    ours, took_s = timed(lambda: task.frontier(deadlines.tolist()))
    bound = ClockProblem(task.schedule, task.profile).bound
    above, difference, wrong = [], [], {"not proved": False, "below the best": False, "beyond its gap": False}
    for deadline in deadlines.tolist():
        best = exact_plan(task.schedule, task.profile, deadline, work_limit)
        energy_mj = ours.energy_next_to(ours.at(deadline), deadline)
        min_mj = ours.energy_next_to(best.plan, deadline)
        above.append(100 * (energy_mj / min_mj - 1))
        wrong["not proved"] |= best.status is not ExactStatus.OPTIMAL
        wrong["below the best"] |= energy_mj < min_mj * (1 - 1e-7)
        wrong["beyond its gap"] |= energy_mj / min_mj > energy_mj / bound.at(deadline) + ALMOST
        optimum = relaxed(task.schedule, task.profile, deadline)
        assert optimum is not None, "the exact plan keeps the deadline"
        effective_mj = optimum.energy_mj - task.waiting_w * deadline
        difference.append(abs(bound.at(deadline) - optimum.energy_mj) / abs(effective_mj))
    wrong[f"relaxed optimum off by {max(difference):.1e}"] = max(difference) > 1e-6
    note = (
        f"above the best choice of clocks {np.mean(above):.3f} % on average, {max(above):.2f} % at most; "
        f"relaxed optimum within {max(difference):.0e} of HiGHS"
    )
    return CaseResult(took_s, true_of(wrong), note=note)


def under_limits(
    task: ClockTask, *, dwell_ms: float, latency_ms: float, slowdown: float, most: float, cpu_s: float
) -> CaseResult:
    """Plan under limits on changes of clock, and hold the gap to the bound and the time against the wanted.

    The deadline is a multiple of the time with all clocks at maximum; the gap is in percent.
    """
    frontier = task.frontier(num_plans=100)
    deadline_ms = slowdown * frontier.all_maximum.time_ms
    limits = SwitchingLimits(dwell_ms, latency_ms)
    found, took_s = timed(lambda: switched_plan(task.schedule, task.profile, frontier, limits, deadline_ms))
    again = simulate_switching(task.schedule, task.profile, found.plan.clock_mhz, latency_ms)
    free_mj = frontier.energy_next_to(frontier.at(deadline_ms), deadline_ms)
    wrong = {
        f"gap {100 * found.gap:.2f} %": 100 * found.gap > most,
        f"more than {cpu_s:g} CPU s": took_s > cpu_s,
        "late when simulated again": again.time_ms > deadline_ms * (1 + ALMOST),
    }
    above = 100 * (frontier.energy_next_to(found.plan, deadline_ms) / free_mj - 1)
    note = f"gap {100 * found.gap:.2f} %; {above:.2f} % above the plan without limits; "
    note += f"{sum(found.changes_per_iteration)} changes per iteration"
    return CaseResult(took_s, true_of(wrong), note=note)


def orders(placement: Placement, *, slowdown: float, seeds: int, each_s: float) -> CaseResult:
    """Search with several seeds, choose the order of least energy, and record the gain and what is left.

    The deadline is a multiple of the searched schedule's time at the highest clocks. Search and choice have
    the default work of the command.
    """
    profile = modelled_profile(placement, GPUS["a100"])
    gains, lefts, seconds = [], [], []
    late = False
    for seed in range(seeds):
        found = search(placement, _ORDERED_MICRO_BATCHES, seed=seed, work_limit=_SEARCH_WORK)
        assert found.schedule is not None, "memory is not limited"
        maximum = simulate_at_clocks(found.schedule, profile, all_maximum_clocks(found.schedule, profile))
        deadline_ms = slowdown * maximum.time_ms
        clock = CpuClock()
        candidates = schedules_of_equal_period(
            placement, _ORDERED_MICRO_BATCHES, found, work_limit=0.4 * _ORDER_WORK, seed=seed
        )
        chosen = best_order(
            (each.schedule for each in candidates),
            profile,
            deadline_ms,
            max_swaps=480,
            work_limit=0.6 * _ORDER_WORK,
        )
        seconds.append(clock.seconds)
        assert chosen.gain is not None, "the search's own schedule keeps the deadline"
        gains.append(100 * chosen.gain)
        lefts.append(100 * (1 - chosen.lower_bound_mj / chosen.best.energy_mj))
        again = simulate_at_clocks(chosen.schedule, profile, chosen.plan.clock_mhz)
        late |= again.time_ms > deadline_ms * (1 + ALMOST)
    wrong = {
        f"more than {each_s:g} CPU s": max(seconds) > each_s,
        "more energy than the search's own": min(gains) < 0,
        "late when simulated again": late,
    }
    note = (
        f"{seeds} seeds: {min(gains):.2f} to {max(gains):.2f} %, mean {np.mean(gains):.2f} % less energy "
        f"than the search's own order; no order saves more than {np.mean(lefts):.2f} % beyond that (mean); "
        f"{max(seconds):.1f} CPU s at most"
    )
    return CaseResult(float(np.mean(seconds)), true_of(wrong), note=note)


def stragglers(task: ClockTask, *, factors: Sequence[float], look_up_s: float) -> CaseResult:
    """Record the saving next to stragglers, which rises with T' and wanes, and time the look-up.

    Savings are taken over the straggler's time, against all-maximum clocks (Perseus, Table 4 and Fig. 8).
    """
    frontier = task.frontier()
    times = [factor * frontier.shortest.time_ms for factor in factors]
    clock = CpuClock()
    for _ in range(_LOOK_UPS):
        for each in times:
            frontier.at(each)
    each_s = clock.seconds / (_LOOK_UPS * len(times))
    saved = [100 * frontier.saving(frontier.at(each), each) for each in times]
    peak = int(np.argmax(saved))
    longest = frontier.plans[-1].time_ms / frontier.shortest.time_ms
    wrong = {
        f"look-up in {each_s:.1e} s": each_s > look_up_s,
        "does not rise, then wane": bool((np.diff(saved[: peak + 1]) < 0).any())
        or bool((np.diff(saved[peak:]) > 0).any())
        or peak in (0, len(saved) - 1),
        "wanes before the least total energy, or rises after T*": not (
            frontier.min_energy.time_ms * (1 - ALMOST) <= times[min(peak + 1, len(times) - 1)]
            and times[max(peak - 1, 0)] <= frontier.plans[-1].time_ms * (1 + ALMOST)
        ),
    }
    row = ", ".join(f"{factor:.2f}: {value:.2f}" for factor, value in zip(factors, saved, strict=True))
    return CaseResult(
        each_s,
        true_of(wrong),
        note=f"saving in % by T'/T: {row}; T*/T {longest:.2f}; look-up {1e6 * each_s:.1f} us",
    )


def _frontier_timed(task: ClockTask) -> tuple[Frontier, float]:
    """Return our frontier and the median of its CPU seconds."""
    runs = [timed(task.frontier) for _ in range(_REPEATS)]
    return runs[-1][0], statistics.median(took_s for _, took_s in runs)


def _gaps(frontier: Frontier) -> str:
    gap = 100 * np.array([plan.gap for plan in frontier.plans])
    mean, most = gap.mean(), gap.max()
    return f"{len(frontier.plans)} plans; gap to the bound {mean:.3f} % on average, {most:.2f} % at most"
