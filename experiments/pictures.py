"""The pictures of a schedule at its planned clocks."""

from __future__ import annotations

from experiments.energy_baselines import TITLES
from experiments.outcomes import EnergyOutcome, SearchOutcome
from schedsearch import plot
from schedsearch.schedule import Instance, micro_batches_of


def draw_pictures(found: SearchOutcome, tuned: EnergyOutcome) -> dict[str, bytes]:
    """Return timeline, memory and frontier as PNG, by name."""
    return {
        "timeline": _timeline(found, tuned),
        "memory": _memory(found, tuned),
        "frontier": _frontier(tuned),
    }


def _timeline(found: SearchOutcome, tuned: EnergyOutcome) -> bytes:
    return plot.png(
        plot.timeline(
            found.placement,
            tuned.simulation.start_ms,
            _durations_ms(found, tuned),
            clock_mhz={instance: float(clock) for instance, clock in _clocks(found, tuned).items()},
            title=f"{found.placement.name}: {tuned.plan.time_ms:.6g} ms at the planned clocks",
        )
    )


def _clocks(found: SearchOutcome, tuned: EnergyOutcome) -> dict[Instance, int]:
    """Return the planned clock of every instance in MHz."""
    number = found.schedule.num_micro_batches
    return {
        (name, n): clock
        for name, clocks in tuned.plan.clock_mhz.items()
        for n, clock in zip(micro_batches_of(found.placement, name, number), clocks, strict=True)
    }


def _durations_ms(found: SearchOutcome, tuned: EnergyOutcome) -> dict[Instance, float]:
    time_ms = {
        (name, point.clock_mhz): point.time_ms
        for name, points in tuned.profile.points.items()
        for point in points
    }
    return {instance: time_ms[instance[0], clock] for instance, clock in _clocks(found, tuned).items()}


def _memory(found: SearchOutcome, tuned: EnergyOutcome) -> bytes:
    return plot.png(
        plot.memory(
            found.schedule,
            start_ms=tuned.simulation.start_ms,
            end_ms=tuned.simulation.time_ms,
            unit=found.memory_unit,
            title="Memory held",
        )
    )


def _frontier(tuned: EnergyOutcome) -> bytes:
    frontier, plan = tuned.frontier, tuned.plan
    return plot.png(
        plot.frontier(
            [(each.time_ms, each.energy_mj) for each in frontier.plans],
            (frontier.all_maximum.time_ms, frontier.all_maximum.energy_mj),
            chosen=(plan.time_ms, plan.energy_mj),
            deadline_ms=tuned.deadline_ms,
            lower_bound=[(each.time_ms, each.lower_bound_mj) for each in frontier.plans],
            saving=frontier.saving(plan, tuned.deadline_ms),
            others={
                TITLES[name]: [(each.time_ms, each.energy_mj) for each in plans]
                for name, plans in tuned.baselines.items()
                if name != "all_maximum"
            },
            title="Time-energy frontier of one iteration",
        )
    )
