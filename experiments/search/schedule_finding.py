"""Schedules of a command: searched, or one of those made by hand."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

from experiments.config.command import Failed, Interrupted
from experiments.config.options import OptionError, require_known, require_least, require_path
from experiments.search.options import SearchCommandOptions, SearchOptions
from experiments.search.unequal_finding import find_unequal_schedule
from placements import Placement
from placements.copies.replicas import copies_in
from schedsearch.baselines import HAND_MADE, pipedream
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.core.answer import Answer, SearchProgress, Status
from schedsearch.core.problem import Problem
from schedsearch.core.progress import SearchBar
from schedsearch.schedule import Schedule, require_plain
from schedsearch.schedule_file import read_found
from schedsearch.searches.search import find
from schedsearch.validate import InvalidScheduleError, validate

log = logging.getLogger(__name__)


def find_schedule(
    options: SearchCommandOptions, placement: Placement, batch: Problem | None = None
) -> tuple[Schedule, Answer | None, tuple[SearchProgress, ...]]:
    """Search a schedule, or make the hand-made one that the options name; both validated.

    Args:
        options: Options of the command.
        placement: What runs where.
        batch: Its micro-batches, where these differ.

    Returns:
        The schedule; the search's result, or None for a hand-made one; what the search told on its way.

    Raises:
        OptionError: An option is wrong, or the hand-made schedule does not fit.
        PlacementError: The placement has streams, and the schedule is to be hand-made.
    """
    number = options.search.num_micro_batches
    if batch is not None:
        return find_unequal_schedule(options, batch)
    if options.schedule == "searched":
        request = search_request(options, placement)
        with SearchBar(placement.tick_ms) as bar:
            result = find(request, bar)
        return _require_schedule(result), result, tuple(bar.told)
    require_known("schedule", options.schedule, ["searched", *HAND_MADE])
    require_least("search.num_micro_batches", number, 1)
    has_copies = bool(copies_in(placement))
    if has_copies and options.schedule != pipedream.__name__:
        raise OptionError(
            f"schedule: {options.schedule} knows no copies of stages, which {placement.name} has; use "
            "schedule=pipedream or schedule=searched"
        )
    if placement.decisions and not has_copies:
        return _with_chosen_modes(options.schedule, placement, number), None, ()
    if not has_copies:
        require_plain(placement, f"schedule={options.schedule}", "use schedule=searched")
    schedule = HAND_MADE[options.schedule](placement, number)
    try:
        return validate(schedule), None, ()
    except InvalidScheduleError as error:
        raise OptionError(
            f"schedule: {options.schedule} does not fit ({error.reason}); use schedule=searched, which keeps "
            "within the memory, or one that holds less; or raise search.memory"
        ) from None


def _with_chosen_modes(name: str, placement: Placement, number: int) -> Schedule:
    """Return a hand-made schedule with the best of the ways in which people choose modes.

    Raises:
        OptionError: None fits, or it is not defined for the placement.
    """
    made = with_chosen_modes(placement, number, {name: HAND_MADE[name]})
    best = min(made, key=lambda each: each[1].makespan, default=None)
    if best is None:
        raise OptionError(
            f"schedule: {name} does not fit with any modes chosen by hand, or needs another shape; use "
            "schedule=searched"
        )
    log.info("schedule: %s", best[0])
    return best[1]


def search_request(options: SearchCommandOptions, placement: Placement) -> Problem:
    """Return the arguments of a search by the options.

    Raises:
        OptionError: What it is to begin with is not a path.
        ScheduleFileError: It is not a schedule file, or its schedule breaks a rule.
    """
    path = options.search.begin_with
    begin_with = None if path is None else read_found(require_path("search.begin_with", path))
    limits = search_limits(options.search)
    return Problem(placement, options.search.num_micro_batches, begin_with=begin_with, **limits)


def search_limits(chosen: SearchOptions) -> dict[str, Any]:
    """Return the options of any search, whatever the placement and the number of micro-batches."""
    of_one = {"placement", "num_micro_batches", "chosen", "tokens", "begin_with"}
    return {name: getattr(chosen, name) for name in {each.name for each in fields(Problem)} - of_one}


def _require_schedule(result: Answer) -> Schedule:
    """Return the schedule that a search found.

    Raises:
        ValueError: There is none.
        Failed: None was found in time.
        Interrupted: None was found before the interruption.
    """
    if result.schedule is not None:
        return result.schedule
    if result.interrupted:
        raise Interrupted("interrupted before a schedule was found")
    if result.status is Status.UNKNOWN:
        raise Failed(result.reason)
    raise ValueError(f"{result.proved}: {result.reason}")
