"""The pictures of a schedule, as searched and at its planned clocks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any

from experiments.frontier.options import BASELINE_TITLES
from experiments.frontier.results import EnergyResult, time_and_energy
from experiments.search.results import SearchStepResult
from placements.block import COMPUTE
from schedsearch.energy import ClockedIteration, FrequencyPlan, simulate_at_clocks
from schedsearch.energy.simulation import operating_points
from schedsearch.figures import frontier as plot_frontier
from schedsearch.figures import memory, timeline
from schedsearch.figures.canvas import Drawing


def drawings(solution: SearchStepResult, tuned: EnergyResult) -> dict[str, Drawing]:
    """Return the timeline by clock and by power, also at the highest clocks, memory and frontier."""
    maximum, planned = tuned.frontier.all_maximum, tuned.simulation
    highest = simulate_at_clocks(solution.schedule, tuned.profile, maximum.clock_mhz)
    held = partial(memory.memory, solution.schedule, title="Memory held")
    return {
        "timeline": _timeline(solution, tuned, planned, tuned.plan),
        "power": _timeline(solution, tuned, planned, tuned.plan, "power at the planned clocks"),
        "power_all_maximum": _timeline(solution, tuned, highest, maximum, "power at the highest clocks"),
        "memory": partial(held, start_ms=planned.start_ms, end_ms=planned.time_ms),
        "frontier": _frontier(tuned),
    }


def _timeline(
    solution: SearchStepResult,
    tuned: EnergyResult,
    simulation: ClockedIteration,
    plan: FrequencyPlan,
    power: str = "",
) -> Drawing:
    """Draw the timeline by clock, or by power from waiting to the most of any block at any clock."""
    points = operating_points(solution.schedule, tuned.profile, plan.clock_mhz)
    name, by_name = solution.placement.name, solution.placement.by_name
    if power:
        every = chain.from_iterable(tuned.profile.points.values())
        max_w = max(point.energy_mj / point.time_ms for point in every)
        colours: dict[str, Any] = {
            "power_w": {instance: point.energy_mj / point.time_ms for instance, point in points.items()},
            "power_range_w": (min(tuned.frontier.blocking_power_w, max_w), max_w),  # waiting at its least
            "title": f"{name}: {power}, {time_and_energy(plan)}",
        }
    else:  # scripts set no clocks for blocks of other streams
        computing = [instance for instance in points if by_name[instance[0]].stream == COMPUTE]
        colours = {
            "clock_mhz": {instance: float(points[instance].clock_mhz) for instance in computing},
            "title": f"{name}: {plan.time_ms:.6g} ms at the planned clocks",
        }
    return lambda axes: timeline.timeline(
        solution.placement,
        simulation.start_ms,
        {instance: point.time_ms for instance, point in points.items()},
        axes,
        mode={instance: solution.schedule.mode(*instance) for instance in points},
        **colours,
    )


def _frontier(tuned: EnergyResult) -> Drawing:
    frontier, plan, maximum = tuned.frontier, tuned.plan, tuned.frontier.all_maximum
    until_ms = tuned.compared_until_ms(plan)
    points, alone, [chosen], [highest] = map(
        _points, (frontier.plans, frontier.without_straggler, [plan], [maximum])
    )
    return lambda axes: plot_frontier.draw_frontier(
        alone,
        highest,
        axes,
        chosen=chosen,
        deadline_ms=tuned.deadline_ms,
        lower_bound=[(plan.time_ms, plan.lower_bound_mj) for plan in frontier.plans],
        until=(
            (until_ms, frontier.energy_next_to(plan, until_ms)),
            (until_ms, frontier.energy_next_to(maximum, until_ms)),
        ),
        stragglers=[point for point in points if point not in alone],
        others={
            BASELINE_TITLES[name]: _points(plans)
            for name, plans in tuned.baselines.items()
            if name != "all_maximum"
        },
        title="Time and energy of one iteration" + " (placeholder costs)" * tuned.costs.placeholder,
    )


def _points(plans: Iterable[FrequencyPlan]) -> list[plot_frontier.TimeEnergy]:
    return [(plan.time_ms, plan.energy_mj) for plan in plans]
