"""Plans for other programs: CSV files of any schedule's plans, and the form that Zeus's server reads.

Zeus runs a plan from a Python file that holds a list for each stage, with an (instruction, MHz) pair for each
forward and backward in the order in which the stage runs them, and comments below. That form has no names for
other kinds of blocks, nor for a block on several devices.
"""

from __future__ import annotations

from collections.abc import Iterator

from placements import Kind, Placement, Profile
from placements.forms.texts import csv_text
from schedsearch.energy.frontier import FrequencyPlan, Frontier, LowerBound
from schedsearch.energy.graph import EnergyError
from schedsearch.energy.limits.switching import changes_per_iteration, num_clock_changes
from schedsearch.energy.simulation import operating_points, simulate_at_clocks
from schedsearch.schedule import Schedule

_INSTRUCTION = {Kind.F: "forward", Kind.B: "backward"}


def frequencies_csv(schedule: Schedule, profile: Profile, plan: FrequencyPlan) -> str:
    """Return a plan as CSV: one row for each block on each of its devices, in the device's order."""
    points = operating_points(schedule, profile, plan.clock_mhz)
    start_ms = simulate_at_clocks(schedule, profile, plan.clock_mhz).start_ms
    rows = [
        {
            "device": device,
            "position": position,
            "block": each[0],
            "micro_batch": each[1],
            "clock_mhz": points[each].clock_mhz,
            "start_ms": start_ms[each],
            "time_ms": points[each].time_ms,
            "config": points[each].config,
            "mode": schedule.mode(*each),
        }
        for device in range(schedule.placement.num_devices)
        for position, each in enumerate(schedule.order(device))
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


def zeus_stages(placement: Placement) -> tuple[int, ...]:
    """Return the device of each stage, first stage first, of a placement that Zeus can run.

    Raises:
        EnergyError: A block is no forward or backward, or a device does not run exactly one of each.

    >>> from placements.shapes import v_shape
    >>> zeus_stages(v_shape(3))
    (0, 1, 2)
    """
    for device in range(placement.num_devices):
        blocks = placement.on(device)
        if sorted(block.kind.value for block in blocks) != ["B", "F"] or any(
            len(b.devices) > 1 for b in blocks
        ):
            names = ", ".join(block.name for block in blocks) or "nothing"
            raise EnergyError(
                f"export: zeus knows one forward and one backward on each device, but device {device} of "
                f"{placement.name} runs {names}; use energy.export=null and the CSV files"
            )
    return tuple(block.devices[0] for block in placement.topological_order if block.kind is Kind.F)


def zeus_files(schedule: Schedule, frontier: Frontier) -> Iterator[tuple[str, str]]:
    """Yield file name and text for each plan in the format of Zeus's server, slowest plan first.

    The slowest is number 0, as from Perseus, which begins there (Perseus, Sec. 4.2, Alg. 1). The comments
    give time in seconds and energy in joules, without and with waiting ("P2P").

    Raises:
        EnergyError: The placement has no such form; see `zeus_stages`.
    """
    stages, by_name = zeus_stages(schedule.placement), schedule.placement.by_name
    before_j: float | None = None
    for number, plan in enumerate(reversed(frontier.plans)):
        effective_j = (plan.energy_mj - frontier.waiting_w * plan.time_ms) / 1e3
        comments = {
            "cost change": 0.0 if before_j is None else effective_j - before_j,
            "total cost": effective_j,
            "total cost with P2P": plan.energy_mj / 1e3,
            "total time": plan.time_ms / 1e3,
        }
        before_j = effective_j
        rows = (
            [
                (_INSTRUCTION[by_name[name].kind], plan.clock_mhz[name][n])
                for name, n in schedule.order(device)
            ]
            for device in stages
        )
        lists = "".join(f"{row!r},\n" for row in rows)
        lines = "".join(f"# Iteration {number} {name}: {value!r}\n" for name, value in comments.items())
        yield f"freqs_pipeline_{number:05d}.py", f"[\n{lists}]\n{lines}"
