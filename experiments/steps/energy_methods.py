"""How the frontier is made: by which method, over which curves, and whether its plans are polished after."""

from __future__ import annotations

import logging
import math

import numpy as np

from experiments.config.options import OptionError, require, require_known
from experiments.config.records import EnergyOptions, FrontierCommandOptions
from placements import Placement, Profile
from schedsearch.energy import Frontier, OnProgress, compute_frontier
from schedsearch.energy.baselines import perseus_frontier
from schedsearch.energy.exact import MOST_INSTANCES
from schedsearch.energy.exponential import CURVES
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.polishing import Polished, polished
from schedsearch.schedule import Schedule, micro_batches_of

log = logging.getLogger(__name__)

METHODS = ("exact", "perseus")
"""Ways to the frontier: the exact relaxed one, rounded; or Perseus's own algorithm."""

POLISHES = ("exact",)
"""Ways to better plans once there is a frontier."""


def check_methods(options: EnergyOptions) -> None:
    """Reject wrong names, and a wrong time limit.

    Raises:
        OptionError: One is not known, or the limit is no time.
    """
    for name, known in (("method", METHODS), ("curve", CURVES)):
        require_known(f"energy.{name}", getattr(options, name), known)
    require(
        options.polish in (None, *POLISHES), "energy.polish", options.polish, "known", "use exact or null"
    )
    limit_s = options.polish_time_limit_s
    require(0 < limit_s < math.inf, "energy.polish_time_limit_s", limit_s, "a time above 0", "give seconds")


def check_polish_on(options: FrontierCommandOptions, placement: Placement) -> None:
    """Reject before the search a schedule that will be too large to polish, and what cannot be polished.

    Raises:
        OptionError: It will be, or the blocking power depends on the clock.
    """
    number = options.search.num_micro_batches
    runs = sum(len(micro_batches_of(placement, block.name, number)) for block in placement.blocks)
    if options.energy.polish is not None and runs > MOST_INSTANCES:
        raise OptionError(
            f"energy.polish: is for at most {MOST_INSTANCES} block instances, but {number} micro-batches of "
            f"{placement.name} are {runs}; lower search.num_micro_batches or use energy.polish=null"
        )
    if options.energy.polish is not None and isinstance(options.profile.blocking_power_w, dict):
        raise OptionError(
            "energy.polish: is for one blocking power, but profile.blocking_power_w depends on the clock; "
            "give one number or use energy.polish=null"
        )


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
            schedule, profile, options.num_plans, deadline_ms, on_progress=on_progress, curve=options.curve
        )
        for note in frontier.notes:
            log.info("%s", note)
        return frontier, deadline_ms
    frontier = perseus_frontier(schedule, profile, options.unit_ms, options.curve, on_progress)
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
    log.info("%s, the highest clocks %.6g ms; planned for the former", late, deadline_ms)
    return frontier, shortest_ms


def polish(
    options: EnergyOptions,
    schedule: Schedule,
    profile: Profile,
    frontier: Frontier,
    deadline_ms: float,
    on_progress: OnProgress,
) -> Polished | None:
    """Return the frontier with better plans; None where that was not asked for.

    Raises:
        EnergyError: See `schedsearch.energy.polishing.polished`.
    """
    if options.polish is None:
        return None
    first, last = frontier.plans[0].time_ms, frontier.plans[-1].time_ms
    deadlines = [*np.linspace(first, last, options.num_plans).tolist(), deadline_ms]
    return polished(schedule, profile, frontier, deadlines, options.polish_time_limit_s, on_progress)


def made_by(options: EnergyOptions, polishing: Polished | None) -> dict[str, object]:
    """Return how the frontier was made as plain data; ``unit_ms`` and ``polish`` where they apply."""
    made: dict[str, object] = {"method": options.method, "curve": options.curve}
    if options.method == "perseus":
        made["unit_ms"] = options.unit_ms
    if polishing is not None:
        made["polish"] = {"deadlines": polishing.num_deadlines, "proved": polishing.num_proved}
    return made


def describe_method(options: EnergyOptions, polishing: Polished | None) -> str:
    """Return how the frontier was made in words."""
    curve = "fitted exponentials" if options.curve == "exponential" else "convex hulls"
    text = f"relaxed over {curve}, then rounded"
    if options.method == "perseus":
        text = f"Perseus's algorithm over {curve}, in units of {options.unit_ms:g} ms"
    if polishing is not None:
        text += f"; {polishing.num_proved} of {polishing.num_deadlines} deadlines solved exactly"
    return text
