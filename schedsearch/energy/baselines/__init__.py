"""What others do: plans for any schedule of any placement, to compare with the frontier.

All are simulated and counted as our own plans are, with the same lower bound.

- `envpipe`: EnvPipe lowers the clocks of blocks that are not on the critical path.
- `zeus`: one clock for all, or one for each stage.
- `perseus`: Perseus's own steps along the frontier.
- `max_flow`: the minimum cuts that these steps need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from placements import Profile
from schedsearch.energy.baselines.envpipe import envpipe
from schedsearch.energy.baselines.perseus import UNIT_MS, perseus_frontier, perseus_plans
from schedsearch.energy.baselines.zeus import zeus_global, zeus_per_stage
from schedsearch.energy.cost import ExponentialCurve, exponential_curve
from schedsearch.energy.frontier import FrequencyPlan, LowerBound, OnProgress
from schedsearch.energy.graph import EnergyError
from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.energy.simulation import all_maximum_clocks
from schedsearch.schedule import Schedule

__all__ = [
    "BASELINES",
    "UNIT_MS",
    "ExponentialCurve",
    "compute_baselines",
    "exponential_curve",
    "perseus_frontier",
]


def _all_maximum(problem: ClockProblem) -> Iterable[Clocks]:
    yield all_maximum_clocks(problem.schedule, problem.profile)


def _envpipe(problem: ClockProblem) -> Iterable[Clocks]:
    yield envpipe(problem)


_CLOCKS: Mapping[str, Callable[[ClockProblem], Iterable[Clocks]]] = {
    "all_maximum": _all_maximum,
    "envpipe": _envpipe,
    "zeus_global": zeus_global,
    "zeus_per_stage": zeus_per_stage,
}


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
        on_progress: Told about the progress of ``perseus``.
        bound: What no plan can beat, where it is at hand, as in `Frontier.relaxed`; computed without.

    Raises:
        ProfileError: The profile lacks a block of the schedule.
        EnergyError: A name or the unit is wrong, or the schedule is not valid.
    """
    for name in names:
        if name not in BASELINES:
            raise EnergyError(f"baselines: {name!r} is not known; the names are {', '.join(BASELINES)}")
    problem = ClockProblem(schedule, profile.in_fastest_configs(), bound)
    return {
        name: problem.pareto_plans(_CLOCKS[name](problem))
        if name in _CLOCKS
        else perseus_plans(problem, unit_ms, on_progress=on_progress).plans
        for name in names
    }


def _alone(name: str) -> Callable[[Schedule, Profile], tuple[FrequencyPlan, ...]]:
    return lambda schedule, profile: compute_baselines([name], schedule, profile)[name]


BASELINES: Mapping[str, Callable[[Schedule, Profile], tuple[FrequencyPlan, ...]]] = {
    name: _alone(name) for name in (*_CLOCKS, "perseus")
}
"""The plans of each baseline for a schedule; ``perseus`` with a unit of `UNIT_MS`."""
