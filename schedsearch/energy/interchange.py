"""Plans and frontiers of any schedule as CSV files."""

from __future__ import annotations

from placements import Profile
from placements.forms.texts import csv_text
from schedsearch.energy.frontier import FrequencyPlan, Frontier, LowerBound
from schedsearch.energy.limits.switching import changes_per_iteration, num_clock_changes
from schedsearch.energy.simulation import operating_points, simulate_at_clocks
from schedsearch.schedule import Schedule


def frequencies_csv(schedule: Schedule, profile: Profile, plan: FrequencyPlan) -> str:
    """Return a plan as CSV: one row for each block on each of its devices, in the device's order."""
    points = operating_points(schedule, profile, plan.clock_mhz)
    start_ms = simulate_at_clocks(schedule, profile, plan.clock_mhz).start_ms
    rows = [
        {
            "device": device,
            "position": position,
            "block": instance[0],
            "micro_batch": instance[1],
            "clock_mhz": points[instance].clock_mhz,
            "start_ms": start_ms[instance],
            "time_ms": points[instance].time_ms,
            "config": points[instance].config,
            "mode": schedule.mode(*instance),
        }
        for device in range(schedule.placement.num_devices)
        for position, instance in enumerate(schedule.order(device))
    ]
    columns = [name for name in rows[0] if name not in ("config", "mode") or any(row[name] for row in rows)]
    return csv_text(columns, ([row[name] for name in columns] for row in rows))


def frontier_csv(schedule: Schedule, frontier: Frontier) -> str:
    """Return a frontier as CSV: one row per plan by increasing time, plans only for stragglers included."""
    alone = {id(plan) for plan in frontier.without_straggler}
    rows = [
        {
            "time_ms": plan.time_ms,
            "energy_mj": plan.energy_mj,
            "lower_bound_mj": plan.lower_bound_mj,
            "gap": plan.gap if plan.lower_bound_mj > 0 else "",
            "saving": frontier.saving(plan),
            "clock_changes": sum(num_clock_changes(schedule, plan.clock_mhz)),
            "changes_per_iteration": sum(changes_per_iteration(schedule, plan.clock_mhz)),
            "saving_until_ms": max(plan.time_ms, frontier.all_maximum.time_ms),
            "only_next_to_straggler": "no" if id(plan) in alone else "yes",
            **frontier.training_figures(plan).known,
        }
        for plan in frontier.plans
    ]
    return csv_text(rows[0], (row.values() for row in rows))


def relaxed_csv(relaxed: LowerBound) -> str:
    """Return the breakpoints of the relaxed frontier, shortest iteration first."""
    return csv_text(("time_ms", "energy_mj"), ((time, relaxed.at(time)) for time in relaxed.time_ms.tolist()))
