"""The way from a schedule and a profile to a frontier: relax, round, simulate, keep the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placements import Profile
from schedsearch.energy.bound import LowerBound, lower_bound
from schedsearch.energy.candidates import Candidates
from schedsearch.energy.cost import cost_curves
from schedsearch.energy.diving import Dive
from schedsearch.energy.exponential import planning_curves
from schedsearch.energy.frontier import TIME_TOLERANCE, Frontier
from schedsearch.energy.graph import EnergyError, Floats, InstanceGraph, Ints, device_orders, instance_graph
from schedsearch.energy.relaxation import Breakpoint, breakpoints
from schedsearch.energy.rounding import OptionTable, option_table, rounded
from schedsearch.energy.simulation import all_maximum_clocks, simulate, simulated_plan
from schedsearch.energy.splicing import spliced
from schedsearch.energy.waiting import Waiting, waiting_w
from schedsearch.schedule import Schedule

OnProgress = Callable[[str, int, int], None]
"""Called with what is done (such as "rounding"), how much of it is done, and how much there is."""

MOST_DIVED = 2000
"""Instances above which no plan is made device by device: its programs would take too long."""

MOST_ASKED = 8
"""Deadlines that were asked for, above which their plans are not made device by device."""

_DEADLINES_AT_ONCE = 512
"""Deadlines rounded in one go; bounds the memory and the time between two calls of `OnProgress`."""


def compute_frontier(
    schedule: Schedule,
    profile: Profile,
    num_plans: int = 200,
    deadline_ms: float | Sequence[float] | None = None,
    *,
    on_progress: OnProgress | None = None,
    curve: str = "hull",
) -> Frontier:
    """Return the time-energy frontier of a schedule (Perseus, Sec. 4).

    Deadlines are spaced evenly from T_min, the shortest iteration, to T*, where every block runs at its
    least effective energy. For each, the exact relaxed plan is rounded in several ways, and the best plans so
    far around it are joined; the shortest is also planned device by device. Every result is simulated, and
    the best one that keeps the deadline stays. One more deadline is the time of all clocks at maximum. What
    is left out for the number of instances or of deadlines is said in `Frontier.notes`.

    With Perseus's exponential for a curve (Perseus, Sec. 4.1) the relaxed plans are made for the fitted
    energies; what is rounded, simulated and bounded are the options themselves, as with the hull. Where the
    fit misses the options, time has another price than planned, and the wrong blocks are slowed down: that
    costs energy, which `FrequencyPlan.gap` shows, but no deadline and no bound.

    Args:
        schedule: Any schedule that passes `schedsearch.validate.validate`; only its orders are used.
        profile: Cost of each of its blocks at each clock.
        num_plans: Number of evenly spaced deadlines; some may end in the same plan.
        deadline_ms: One more deadline or several, to get a plan of their own each, with some more effort.
        on_progress: Told about the progress.
        curve: What stands for the options of a block between them: their lower convex ``hull``, or the fitted
            ``exponential``.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: A deadline is too short, `num_plans` is below 1, the curve is not known, or the schedule
            is not valid.
    """
    for what, given, wanted, remedy in (
        ("schedule", schedule, Schedule, "give the schedule of a search result, or one made by hand"),
        ("profile", profile, Profile, "give that of Profile.from_csv, or of modelled_profile"),
    ):
        if not isinstance(given, wanted):
            raise EnergyError(f"{what}: a {type(given).__name__} is not a {what}; {remedy}")
    profile.require(schedule.placement)
    if num_plans < 1:
        raise EnergyError(f"num_plans: {num_plans} is not at least 1")
    graph, curves = instance_graph(schedule), cost_curves(schedule.placement, profile)
    planning = planning_curves(curves, curve)
    table = option_table(graph, curves)
    clocks = all_maximum_clocks(schedule, profile)
    maximum = simulate(schedule, profile, clocks)
    shortest_ms, longest_ms = _span(graph, table)
    asked = () if deadline_ms is None else np.atleast_1d(deadline_ms).tolist()
    deadlines = _deadlines(shortest_ms, longest_ms, num_plans, [maximum.time_ms, *asked])
    all_waiting_w = waiting_w(schedule.placement, profile)
    relaxed = relaxed_plans(breakpoints(graph, planning), deadlines, all_waiting_w, on_progress)
    if curve != "hull":
        relaxed = replace(relaxed, bound=lower_bound(graph, curves, all_waiting_w))
    candidates = Candidates(graph, table, Waiting.of(schedule, profile, graph))
    candidates.add(_no_slower(graph, table, {name: profile.fastest(name).time_ms for name in curves}))
    _round_all(candidates, relaxed, deadlines, on_progress)
    orders = device_orders(schedule, graph)
    if graph.size <= MOST_DIVED:
        dive = Dive(graph, table, planning, orders, float(deadlines[0]))
        candidates.add_all(dive.planned(relaxed.planned_ms[:, 0], relaxed.price_w[:, 0], most_held=1))
    _join_all(candidates, deadlines, on_progress)
    if len(asked) <= MOST_ASKED and graph.size <= MOST_DIVED:
        for deadline in asked:
            i = int(np.searchsorted(deadlines, deadline))
            dive = Dive(graph, table, planning, orders, deadline)
            candidates.add_all(
                dive.planned(relaxed.planned_ms[:, i], relaxed.price_w[:, i], graph.num_devices)
            )
            candidates.add_all(dive.refined(candidates.best_choice(deadline)))
    plans = candidates.best(deadlines, relaxed.bound)
    all_maximum = simulated_plan(clocks, maximum, relaxed.bound.at(maximum.time_ms))
    notes = tuple(_left_out(graph.size, len(asked)))
    return Frontier.of(plans, all_maximum, schedule.placement, profile, relaxed.bound, notes)


def _left_out(num_instances: int, num_asked: int) -> Iterator[str]:
    """Yield a line for each limit above which no plans are made device by device."""
    weaker = "are not planned device by device, so their energy may be further above the bound"
    if num_instances > MOST_DIVED:
        yield f"{num_instances} block instances, more than {MOST_DIVED}: deadlines {weaker}"
    elif num_asked > MOST_ASKED:
        yield f"{num_asked} deadlines that were asked for, more than {MOST_ASKED}: they {weaker}"


@dataclass(frozen=True, eq=False)
class RelaxedPlans:
    """The relaxed frontier, and its plans for some deadlines.

    Attributes:
        bound: What the relaxed frontier says of every plan.
        planned_ms: Best time of each instance for each deadline, or more where it has slack beyond its
            slowest option; shape ``(instances, deadlines)``.
        price_w: What a millisecond of each instance is worth, in millijoules; in the same shape.
    """

    bound: LowerBound
    planned_ms: Floats
    price_w: Floats


def relaxed_plans(
    points: Iterable[Breakpoint],
    deadline_ms: Floats,
    waiting_w: float,
    on_progress: OnProgress | None = None,
) -> RelaxedPlans:
    """Return the relaxed frontier and its plans for the deadlines.

    Args:
        points: The breakpoints, longest iteration first; only two are held at a time.
        deadline_ms: Ascending, none below the shortest iteration; shape ``(deadlines,)``.
        waiting_w: Power of all devices while they wait.
        on_progress: Told how many of the deadlines are planned.
    """
    times, energies, planned, prices = [], [], [], []
    left = len(deadline_ms)
    before: Breakpoint | None = None
    for point in points:
        times.append(point.time_ms)
        energies.append(point.energy_mj)
        while left > 0 and deadline_ms[left - 1] >= point.time_ms:
            left -= 1
            planned.append(_planned(before or point, point, float(deadline_ms[left])))
            prices.append(point.price_w)
            if on_progress is not None:
                on_progress("relaxing", len(planned), len(deadline_ms))
        before = point
    assert before is not None, "a frontier has at least one breakpoint"
    planned += [_planned(before, before, before.time_ms)] * left
    prices += [before.price_w] * left
    bound = LowerBound(np.array(times[::-1]), np.array(energies[::-1]), waiting_w)
    return RelaxedPlans(bound, np.column_stack(planned[::-1]), np.column_stack(prices[::-1]))


def _planned(longer: Breakpoint, shorter: Breakpoint, deadline_ms: float) -> Floats:
    """Return best times of the instances for a deadline between two breakpoints.

    From one breakpoint to the next every event moves by at most the difference of the two lengths. Moving
    each event by its full way, but by no more than the deadline asks, is as good as moving all in
    proportion, and leaves most instances at the times of one of the two breakpoints. Those are mostly
    times of real clocks, so that there is less to round.
    """
    moved = longer.event_ms - shorter.event_ms
    event = longer.event_ms - np.minimum(moved, max(longer.time_ms - deadline_ms, 0.0))
    planned: Floats = event[:, 1] - event[:, 0]
    return planned


def _span(graph: InstanceGraph, table: OptionTable) -> tuple[float, float]:
    """Return T_min and T*: the makespans of all options at their fastest, and at their least energy."""
    last = np.isfinite(table.time_ms).sum(axis=1) - 1
    fastest = np.zeros(graph.size, dtype=np.int64)
    ends = np.column_stack([fastest, last[table.row]])
    shortest, longest = graph.makespan(table.times(ends))
    return float(shortest), float(longest)


def _deadlines(shortest_ms: float, longest_ms: float, num_plans: int, extra_ms: list[float]) -> Floats:
    """Return the deadlines, ascending.

    Raises:
        EnergyError: One of the extra deadlines cannot be kept.
    """
    for deadline in extra_ms:
        if not shortest_ms * (1 - TIME_TOLERANCE) <= deadline < math.inf:
            raise EnergyError(
                f"deadline_ms: {deadline:.12g} cannot be kept, the shortest iteration takes "
                f"{shortest_ms:.6g} ms; give at least that"
            )
    evenly = np.linspace(shortest_ms, longest_ms, num_plans)
    return np.unique(np.maximum(np.concatenate([evenly, extra_ms]), shortest_ms))


def _no_slower(graph: InstanceGraph, table: OptionTable, time_ms: Mapping[str, float]) -> Ints:
    """Return the slowest option of each instance that takes no longer than its block's time; one plan."""
    allowed = np.array([[time_ms[name]] for name, _ in graph.instances])
    return table.slowest_within(np.arange(graph.size), allowed)


def _round_all(
    candidates: Candidates, relaxed: RelaxedPlans, deadlines: Floats, on_progress: OnProgress | None
) -> None:
    """Add all ways to round the relaxed plans to the candidates."""
    graph, table, parts = candidates.graph, candidates.table, _parts(deadlines)
    for i, part in enumerate(parts):
        candidates.add_all(rounded(graph, table, relaxed.planned_ms[:, part], deadlines[part]))
        if on_progress is not None:
            on_progress("rounding", i + 1, 2 * len(parts))


def _join_all(candidates: Candidates, deadlines: Floats, on_progress: OnProgress | None) -> None:
    """Add the best plans so far, joined."""
    parts, envelope = _parts(deadlines), candidates.envelope()
    for i, part in enumerate(parts):
        candidates.add_all(spliced(candidates.graph, candidates.table, envelope, deadlines[part]))
        if on_progress is not None:
            on_progress("rounding", len(parts) + i + 1, 2 * len(parts))


def _parts(deadlines: Floats) -> list[slice]:
    """Return the deadlines in parts that are rounded in one go."""
    firsts = range(0, len(deadlines), _DEADLINES_AT_ONCE)
    return [slice(first, first + _DEADLINES_AT_ONCE) for first in firsts]
