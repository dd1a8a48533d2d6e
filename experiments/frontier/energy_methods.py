"""How the frontier is made: by which method, and with how much work."""

from __future__ import annotations

import logging

from experiments.config.options import OptionError
from experiments.frontier.options import EnergyOptions
from placements import Profile
from schedsearch.energy import Frontier, OnProgress, compute_frontier
from schedsearch.energy.baselines import perseus_frontier
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.schedule import Schedule

log = logging.getLogger(__name__)

PROVED_GAP = 1e-6
"""Share of the bound above which a plan is not proved to be the best; less is rounding."""


def make_frontier(
    options: EnergyOptions, schedule: Schedule, profile: Profile, deadline_ms: float, on_progress: OnProgress
) -> tuple[Frontier, float]:
    """Return the frontier by the method that the options name, and the deadline of its plan.

    Perseus's shortest plan may be later than the deadline, as its times are whole units. Where nobody asked
    for that deadline, the time of the shortest plan takes its place.

    Raises:
        OptionError: The deadline that was asked for is before the shortest plan.
        EnergyError: See `compute_frontier` and `perseus_frontier`.
    """
    if options.method == "exact":
        frontier = compute_frontier(
            schedule,
            profile,
            options.num_plans,
            deadline_ms,
            work_limit=options.work_limit,
            on_progress=on_progress,
        )
        return frontier, deadline_ms
    frontier = perseus_frontier(schedule, profile, options.unit_ms, on_progress)
    shortest_ms = frontier.shortest.time_ms
    if shortest_ms <= deadline_ms * (1 + TIME_TOLERANCE):
        return frontier, deadline_ms
    late = f"the shortest plan of energy.method=perseus takes {shortest_ms:.6g} ms"
    if options.deadline_ms is not None or options.slowdown is not None:
        name = "deadline_ms" if options.deadline_ms is not None else "slowdown"
        raise OptionError(
            f"energy.{name}: {deadline_ms:.6g} ms cannot be kept, {late}; give at least that, a shorter "
            f"energy.unit_ms than {options.unit_ms:g}, or energy.method=exact"
        )
    log.info("%s, all clocks at maximum %.6g ms; the plan is for the longer time", late, deadline_ms)
    return frontier, shortest_ms


def made_by(options: EnergyOptions) -> dict[str, object]:
    """Return how the frontier was made as plain data; ``unit_ms`` and ``work_limit`` where they apply."""
    made: dict[str, object] = {"method": options.method}
    if options.method == "perseus":
        return made | {"unit_ms": options.unit_ms}
    return made | {"work_limit": options.work_limit}


def describe_method(options: EnergyOptions, frontier: Frontier) -> str:
    """Return how the frontier was made in words."""
    if options.method == "perseus":
        return f"Perseus's algorithm over fitted exponentials, in units of {options.unit_ms:g} ms"
    text = "continuous optimum over convex hulls, rounded to real clocks"
    if options.work_limit > 0:
        proved = sum(plan.gap <= PROVED_GAP for plan in frontier.plans)
        text += f", improved with a work limit of {options.work_limit:g}; "
        text += f"{proved} of {len(frontier.plans)} plans are proved to be the best for their time"
    return text
