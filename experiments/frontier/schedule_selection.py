"""The step between search and frontier: of several schedules, the one of least energy at the deadline."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from experiments.config.command import Interrupted
from experiments.config.options import OptionError
from experiments.frontier.options import EnergyOptions, FrontierCommandOptions
from experiments.search.problem import SearchProblem
from experiments.search.results import SearchStepResult, SelectionResult
from experiments.search.search_step import describe, save_schedule
from placements import Profile
from schedsearch.core.progress import StepBar
from schedsearch.energy import EnergyError, all_maximum_clocks, simulate_at_clocks
from schedsearch.energy.orders.ordering import best_order
from schedsearch.procedures.alternatives import (
    ScheduleCandidate,
    keeps_memory,
    may_reorder,
    reached,
    schedules_of_equal_period,
)
from schedsearch.schedule import Schedule

log = logging.getLogger(__name__)

NO_GAIN = 1e-6
"""Share of the energy that is a rounding error of the bound."""

SWAPS_PER_ORDER = 30
"""Swaps of neighbors that may be tried for each schedule that is judged."""

_SHARE_OF_CANDIDATES = 0.4
"""Share of the work that goes to finding schedules; the rest goes to judging and swapping."""


def select_schedule(
    options: FrontierCommandOptions, problem: SearchProblem, solution: SearchStepResult, directory: Path
) -> SearchStepResult:
    """Return the result with the schedule of least energy at the deadline; write it as ``schedule.json``.

    Where one schedule is asked for, it is for several scenarios or for micro-batches that differ, or it is
    made by hand, that is it and nothing is done.

    Raises:
        OptionError: No schedule keeps the deadline.
        Interrupted: The choice was interrupted from the keyboard; the best so far is written all the same.
    """
    energy, searched = options.energy, solution.result
    is_one = energy.orders == 1 or options.search.scenarios is not None or problem.batch is not None
    if is_one or searched is None:
        return solution
    profile = problem.whole_profile
    deadline_ms = asked_deadline_ms(energy, solution.schedule, profile)
    limit = reached(searched, options.search.objectives) if options.search.method == "modulo" else {}
    began = time.monotonic()
    candidates: list[ScheduleCandidate] = []

    def schedules() -> Iterator[Schedule]:
        for candidate in schedules_of_equal_period(
            solution.placement,
            options.search.num_micro_batches,
            searched,
            limit=limit,
            count=energy.orders,
            work_limit=energy.orders_work_limit * _SHARE_OF_CANDIDATES,
            seed=options.search.seed,
        ):
            candidates.append(candidate)
            yield candidate.schedule

    with StepBar("orders") as bar:
        try:
            chosen = best_order(
                schedules(),
                profile,
                deadline_ms,
                max_swaps=energy.orders * SWAPS_PER_ORDER if may_reorder(limit) else 0,
                work_limit=energy.orders_work_limit * (1 - _SHARE_OF_CANDIDATES),
                keeps=lambda schedule: keeps_memory(schedule, limit),
                on_progress=bar,
            )
        except EnergyError as error:
            raise OptionError(f"energy.{error}") from None
    origin = candidates[chosen.best.candidate]
    origins = tuple(candidate.origin for candidate in candidates)
    selection = SelectionResult(chosen, origins, time.monotonic() - began, searched)
    result = replace(searched, repetend=origin.repetend, schedule=chosen.schedule)
    solution = replace(solution, schedule=chosen.schedule, result=result, selection=selection)
    save_schedule(chosen.schedule, result, options, problem, directory)
    if chosen.best is not chosen.judged[0]:
        log.info("%s", describe(chosen.schedule, result))
    log.info("%s", describe_selection(selection))
    if chosen.interrupted:
        raise Interrupted(f"interrupted; the best schedule found so far is in {directory / 'schedule.json'}")
    return solution


def asked_deadline_ms(energy: EnergyOptions, schedule: Schedule, profile: Profile) -> float:
    """Return the deadline of the options: in ms, or over the time of a schedule at the highest clocks."""
    if energy.deadline_ms is not None:
        return energy.deadline_ms
    maximum = simulate_at_clocks(schedule, profile, all_maximum_clocks(schedule, profile))
    return maximum.time_ms * (energy.slowdown or 1.0)


def describe_selection(selection: SelectionResult) -> str:
    """Return the choice, its gain over the search's schedule, and the most that another order could save."""
    chosen, best = selection.chosen, selection.chosen.best
    where = f"{selection.origin_of(best)}{' with neighboring blocks swapped' if best.is_swapped else ''}"
    gain = "the searched order misses the deadline"
    if chosen.gain is not None:
        gain = f"{chosen.gain:.2%} less than the searched order"
    left = 1 - chosen.lower_bound_mj / best.energy_mj
    needs = "no order and no modes need" if chosen.schedule.chosen else "no order needs"
    needs += " less" if left < NO_GAIN else f" over {left:.2%} less than this"
    return (
        f"orders: {len(chosen.judged)} compared, chosen: {where}; "
        f"{best.energy_mj / 1e3:.6g} J until {chosen.deadline_ms:.6g} ms, {gain}; "
        f"{needs}; {selection.took_s:.1f} s"
    )


def selection_to_dict(selection: SelectionResult) -> dict[str, object]:
    """Return the judged orders and the choice as plain data; null stands for no plan and no bound."""
    chosen = selection.chosen
    judged = [
        {
            "origin": selection.origin_of(order),
            "swapped": order.is_swapped,
            "makespan": order.schedule.makespan,
            "lower_bound_mj": order.lower_bound_mj if math.isfinite(order.lower_bound_mj) else None,
            "energy_mj": order.energy_mj if math.isfinite(order.energy_mj) else None,
        }
        for order in chosen.judged
    ]
    return {
        "deadline_ms": chosen.deadline_ms,
        "chosen": chosen.judged.index(chosen.best),
        "gain": chosen.gain,
        "lower_bound_mj": chosen.lower_bound_mj,
        "judged": judged,
    }
