"""The pictures of a schedule, as searched and at its planned clocks.

Each is written as PNG, and as PDF and SVG at the width of a paper's column.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.frontier.energy_baselines import TITLES
from experiments.frontier.results import EnergyResult
from experiments.search.results import SearchStepResult
from placements.block import COMPUTE
from schedsearch.energy import ClockedIteration, FrequencyPlan, simulate_at_clocks
from schedsearch.energy.simulation import operating_points
from schedsearch.figures import frontier as plot_frontier
from schedsearch.figures import memory, timeline
from schedsearch.figures.canvas import Drawing, save_drawing


def draw_pictures(found: SearchStepResult, tuned: EnergyResult, directory: Path) -> None:
    """Draw the timeline by clock and by power, the latter at the highest clocks too, memory and frontier."""
    maximum = tuned.frontier.all_maximum
    highest = simulate_at_clocks(found.schedule, tuned.profile, maximum.clock_mhz)
    name = found.placement.name
    drawings: Mapping[str, Drawing] = {
        "timeline": _timeline(found, tuned),
        "power": _power(found, tuned, tuned.simulation, tuned.plan, f"{name}: power at the planned clocks"),
        "power_all_maximum": _power(found, tuned, highest, maximum, f"{name}: power at the highest clocks"),
        "memory": _memory(found, tuned),
        "frontier": _frontier(tuned),
    }
    for each, draw in drawings.items():
        save_drawing(draw, directory / each)


def _timeline(found: SearchStepResult, tuned: EnergyResult) -> Drawing:
    points = operating_points(found.schedule, tuned.profile, tuned.plan.clock_mhz)
    return lambda axes: timeline.timeline(
        found.placement,
        tuned.simulation.start_ms,
        {instance: point.time_ms for instance, point in points.items()},
        axes,
        mode={instance: found.schedule.mode(*instance) for instance in points},
        # scripts set no clocks for blocks of other streams
        clock_mhz={
            instance: float(point.clock_mhz)
            for instance, point in points.items()
            if found.placement.by_name[instance[0]].stream == COMPUTE
        },
        title=f"{found.placement.name}: {tuned.plan.time_ms:.6g} ms at the planned clocks",
    )


def _power(
    found: SearchStepResult,
    tuned: EnergyResult,
    simulation: ClockedIteration,
    plan: FrequencyPlan,
    title: str,
) -> Drawing:
    """Draw the timeline coloured by power, from waiting to the most of any block at any clock."""
    points = operating_points(found.schedule, tuned.profile, plan.clock_mhz)
    max_w = max(each.energy_mj / each.time_ms for some in tuned.profile.points.values() for each in some)
    lowest_w = min(tuned.frontier.blocking_power_w, max_w)  # waiting is drawn as at its least
    return lambda axes: timeline.timeline(
        found.placement,
        simulation.start_ms,
        {instance: point.time_ms for instance, point in points.items()},
        axes,
        mode={instance: found.schedule.mode(*instance) for instance in points},
        power_w={instance: point.energy_mj / point.time_ms for instance, point in points.items()},
        power_range_w=(lowest_w, max_w),
        title=f"{title}, {plan.time_ms:.6g} ms, {plan.energy_mj / 1e3:.6g} J",
    )


def _memory(found: SearchStepResult, tuned: EnergyResult) -> Drawing:
    return lambda axes: memory.memory(
        found.schedule,
        axes,
        start_ms=tuned.simulation.start_ms,
        end_ms=tuned.simulation.time_ms,
        unit=found.memory_unit,
        title="Memory held",
    )


def _frontier(tuned: EnergyResult) -> Drawing:
    frontier, plan = tuned.frontier, tuned.plan
    alone = [(each.time_ms, each.energy_mj) for each in frontier.without_straggler]
    until_ms = tuned.compared_until_ms(plan)
    return lambda axes: plot_frontier.draw_frontier(
        alone,
        (frontier.all_maximum.time_ms, frontier.all_maximum.energy_mj),
        axes,
        chosen=(plan.time_ms, plan.energy_mj),
        deadline_ms=tuned.deadline_ms,
        lower_bound=[(each.time_ms, each.lower_bound_mj) for each in frontier.plans],
        until=(
            (until_ms, frontier.energy_next_to(plan, until_ms)),
            (until_ms, frontier.energy_next_to(frontier.all_maximum, until_ms)),
        ),
        stragglers=[
            point for each in frontier.plans if (point := (each.time_ms, each.energy_mj)) not in alone
        ],
        others={
            TITLES[name]: [(each.time_ms, each.energy_mj) for each in plans]
            for name, plans in tuned.baselines.items()
            if name != "all_maximum"
        },
        title="Time-energy frontier of one iteration"
        + (", of placeholder costs" if tuned.costs.placeholder else ""),
    )
