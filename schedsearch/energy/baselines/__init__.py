"""Baselines: the clocks that published methods choose for any schedule, to compare with the frontier.

All are simulated and counted as our own plans are, with the same lower bound.

- `envpipe`: EnvPipe lowers the clocks of blocks that are not on the critical path.
- `zeus`: one clock for all, or one for each stage.
- `perseus`: Perseus's own steps along the frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from placements import Profile
from schedsearch.energy.baselines.envpipe import envpipe
from schedsearch.energy.baselines.perseus import UNIT_MS, perseus_frontier
from schedsearch.energy.baselines.zeus import zeus_global, zeus_per_stage
from schedsearch.energy.frontier import FrequencyPlan, LowerBound, OnProgress
from schedsearch.energy.graph import EnergyError
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.energy.simulation import all_maximum_clocks
from schedsearch.schedule import Schedule

__all__ = ["BASELINES", "UNIT_MS", "compute_baselines", "perseus_frontier"]

_CLOCKS: Mapping[str, Callable[[ClockProblem], Iterable[Clocks]]] = {
    "all_maximum": lambda problem: [all_maximum_clocks(problem.schedule, problem.profile)],
    "envpipe": lambda problem: [envpipe(problem)],
    "zeus_global": zeus_global,
    "zeus_per_stage": zeus_per_stage,
}

BASELINES = (*_CLOCKS, "perseus")
"""Names of the baselines."""


def compute_baselines(
    names: Sequence[str],
    schedule: Schedule,
    profile: Profile,
    unit_ms: float = UNIT_MS,
    on_progress: OnProgress | None = None,
    bound: LowerBound | None = None,
) -> dict[str, tuple[FrequencyPlan, ...]]:
    """Return the plans of some baselines, each baseline's by increasing time and decreasing effective energy.

    Args:
        names: Names of some of `BASELINES`.
        schedule: Any valid schedule; only its orders are used.
        profile: Cost of each of its blocks at each clock. Baselines choose clocks alone: where a clock has
            several configurations, they are given the fastest.
        unit_ms: Unit of time of ``perseus``; the others have none.
        on_progress: Called with the progress of ``perseus``.
        bound: Lower bound of every plan, as in `Frontier.relaxed`; None to compute it.

    Raises:
        EnergyError: A name or the unit is wrong, or the schedule is not valid.
    """
    for name in names:
        if name not in BASELINES:
            raise EnergyError(f"baselines: {name!r} is not known; the names are {', '.join(BASELINES)}")
    problem = ClockProblem(schedule, profile.in_fastest_configs(), bound)
    return {
        name: problem.pareto_plans(_CLOCKS[name](problem))
        if name in _CLOCKS
        else perseus_frontier(schedule, profile, unit_ms, on_progress, bound).plans
        for name in names
    }
