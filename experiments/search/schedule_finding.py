"""Schedules of a command: searched, or one of those made by hand."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

from experiments.config.command import Failed, Interrupted
from experiments.config.options import OptionError, require_known, require_path
from experiments.search.options import SearchCommandOptions, SearchOptions
from placements import Placement
from placements.copies.replicas import copies_in
from schedsearch.baselines import HAND_MADE, pipedream
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.core.answer import Answer, SearchProgress, Status
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.core.progress import SearchBar
from schedsearch.schedule import Schedule, require_plain
from schedsearch.schedule_file import read_found
from schedsearch.searches.search import search
from schedsearch.unequal.starts import executed, hand_made_orders
from schedsearch.validate import InvalidScheduleError, validate

log = logging.getLogger(__name__)


def find_schedule(
    options: SearchCommandOptions, placement: Placement, batch: Problem | None = None
) -> tuple[Schedule, Answer | None, tuple[SearchProgress, ...]]:
    """Search a schedule, or make the hand-made one that the options name; both validated.

    Args:
        options: Options of the command.
        placement: Blocks on their devices.
        batch: Micro-batches, where these differ.

    Returns:
        The schedule; the search's result, or None for a hand-made one; the reports of the search.

    Raises:
        OptionError: An option is wrong, or the hand-made schedule does not fit.
        PlacementError: The placement has streams, and the schedule is to be hand-made.
        Failed: No schedule was found in time.
        Interrupted: None was found before the interruption.
    """
    if options.schedule != "searched":
        require_known("schedule", options.schedule, ["searched", *HAND_MADE])
        number = options.search.num_micro_batches
        made = _by_hand(options.schedule, placement, number) if batch is None else _of_batch(options, batch)
        return made, None, ()
    with SearchBar(placement.tick_ms) as bar:
        result = _searched(options.search, placement, batch, bar)
    if result.schedule is not None:
        return result.schedule, result, tuple(bar.reports)
    if result.interrupted:
        raise Interrupted("interrupted before a schedule was found")
    if result.status is Status.UNKNOWN:
        raise Failed(result.reason)
    raise ValueError(f"{result.proved}: {result.reason}")


def _searched(chosen: SearchOptions, placement: Placement, batch: Problem | None, bar: SearchBar) -> Answer:
    """Return the result of a search.

    Raises:
        SearchError: The method knows no micro-batches that differ.
        ScheduleFileError: The schedule to begin with is not a schedule file, or breaks a rule.
    """
    path, asked = chosen.begin_with, batch or Problem(placement, chosen.num_micro_batches)
    begin_with = None if path is None else read_found(require_path("search.begin_with", path))
    limits = search_limits(chosen)
    if batch is not None:
        limits["objectives"] = [finite_objective(chosen)]
    return search(asked, begin_with=begin_with, on_progress=bar, **limits)


def search_limits(chosen: SearchOptions) -> dict[str, Any]:
    """Return the options of any search, whatever the placement and the number of micro-batches."""
    of_one = {"placement", "num_micro_batches", "chosen", "tokens", "begin_with"}
    return {name: getattr(chosen, name) for name in {field.name for field in fields(Problem)} - of_one}


def finite_objective(chosen: SearchOptions) -> Objective:
    """Return the objective of a search for one batch: the makespan, or the device span if that is last."""
    is_span = chosen.objectives[-1:] == (Objective.DEVICE_SPAN,)
    return Objective.DEVICE_SPAN if is_span else Objective.MAKESPAN


def _by_hand(name: str, placement: Placement, number: int) -> Schedule:
    """Return a schedule made by hand; blocks with modes have the best modes that people choose.

    Raises:
        OptionError: None fits, or it is not defined for the placement.
    """
    if copies_in(placement):
        if name != pipedream.__name__:
            raise OptionError(
                f"schedule: {name} knows no copies of stages, which {placement.name} has; use "
                "schedule=pipedream or schedule=searched"
            )
    elif placement.decisions:
        made = with_chosen_modes(placement, number, {name: HAND_MADE[name]})
        best = min(made, key=lambda named: named[1].makespan, default=None)
        if best is None:
            raise OptionError(
                f"schedule: {name} does not fit with any modes chosen by hand, or needs another shape; use "
                "schedule=searched"
            )
        log.info("schedule: %s", best[0])
        return best[1]
    else:
        require_plain(placement, f"schedule={name}", "use schedule=searched")
    try:
        return validate(HAND_MADE[name](placement, number))
    except InvalidScheduleError as error:
        raise OptionError(
            f"schedule: {name} does not fit ({error.reason}); use schedule=searched, which keeps within the "
            "memory, or one that holds less; or raise search.memory"
        ) from None


def _of_batch(options: SearchCommandOptions, batch: Problem) -> Schedule:
    """Return a schedule made by hand, run with each micro-batch's own times."""
    orders = dict(hand_made_orders(batch)).get(options.schedule)
    schedule = None if orders is None else executed(batch, orders, range(batch.num_micro_batches))
    if schedule is None:
        raise OptionError(
            f"schedule: {options.schedule} does not fit these micro-batches or their memory; use "
            "schedule=searched"
        )
    return schedule
