"""Modes, order and clocks chosen together at several deadlines, and what choosing them in turn loses."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from experiments.config.options import OptionError
from experiments.frontier.options import FrontierCommandOptions
from experiments.frontier.results import EnergyResult
from experiments.frontier.schedule_selection import SWAPS_PER_ORDER
from experiments.search.results import SearchStepResult
from placements.files import csv_text, write_text
from schedsearch.energy import EnergyError, all_maximum_clocks, simulate_at_clocks
from schedsearch.energy.orders.joint_frontier import joint_frontier
from schedsearch.energy.orders.ordering import OrderChoice
from schedsearch.modulo.alternatives import keeps_memory, may_reorder, reached
from schedsearch.modulo.progress import StepBar

log = logging.getLogger(__name__)

COLUMNS = ("deadline_ms", "in_turn_mj", "together_mj", "lower_bound_mj", "lost_at_most", "gap")


def save_joint_plans(
    options: FrontierCommandOptions, found: SearchStepResult, tuned: EnergyResult, directory: Path
) -> None:
    """Write ``joint.csv`` where it is asked for, and log what is lost.

    Deadlines are evenly from the time of the searched schedule at the highest clocks to the longest plan.

    Raises:
        OptionError: No schedule keeps a deadline.
    """
    energy, number = options.energy, options.energy.joint_deadlines
    if not number:
        return
    selection, result = found.selection, found.searched
    judged = [each.schedule for each in selection.chosen.judged] if selection else [found.schedule]
    is_limited = result is not None and options.search.method == "modulo"
    limit = reached(result, options.search.objectives) if result is not None and is_limited else {}
    highest = all_maximum_clocks(judged[0], tuned.profile)
    shortest_ms = simulate_at_clocks(judged[0], tuned.profile, highest).time_ms
    longest_ms = tuned.frontier.plans[-1].time_ms
    with StepBar("joint") as bar:
        try:
            choices = joint_frontier(
                judged,
                tuned.profile,
                np.linspace(shortest_ms, max(longest_ms, shortest_ms), number).tolist(),
                max_swaps=SWAPS_PER_ORDER * energy.orders if may_reorder(limit) else 0,
                work_limit=energy.orders_work_limit,
                keeps=lambda schedule: keeps_memory(schedule, limit),
                on_deadline=lambda done: bar("deadlines", done, number),
            )
        except EnergyError as error:
            raise OptionError(f"energy.{error}") from None
    write_text(directory / "joint.csv", csv_text(COLUMNS, map(_row, choices)))
    log.info("%s", describe_joint(choices))


def _row(choice: OrderChoice) -> tuple[float, ...]:
    in_turn_mj = choice.judged[0].energy_mj
    return (
        choice.deadline_ms,
        in_turn_mj,
        choice.best.energy_mj,
        choice.lower_bound_mj,
        choice.loss,
        choice.gap,
    )


def describe_joint(choices: tuple[OrderChoice, ...]) -> str:
    """Return what choosing clocks after the schedule loses, in a line."""
    worst = max(choices, key=lambda each: each.loss)
    saved = [1 - each.best.energy_mj / each.judged[0].energy_mj for each in choices]
    gap = max(each.gap for each in choices)
    return (
        f"joint: {len(choices)} deadlines; clocks after the searched schedule need at most {worst.loss:.2%} "
        f"more than any modes, order and clocks, at {worst.deadline_ms:.6g} ms; chosen together they need "
        f"{min(saved):.2%} to {max(saved):.2%} less, within {gap:.2%} of the best"
    )
