"""Schedules of one batch of unequal micro-batches, as a command asks for them."""

from __future__ import annotations

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, require_known, require_path
from experiments.search.options import SearchCommandOptions
from schedsearch.baselines import HAND_MADE
from schedsearch.core.answer import Answer, SearchProgress
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.core.progress import SearchBar
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import read_found
from schedsearch.searches.search import search
from schedsearch.unequal.starts import executed, hand_made_orders


def find_unequal_schedule(
    options: SearchCommandOptions, batch: Problem
) -> tuple[Schedule, Answer | None, tuple[SearchProgress, ...]]:
    """Search the schedule of a batch, or make the hand-made one that the options name.

    Returns:
        As `experiments.search.schedule_finding.find_schedule`.

    Raises:
        OptionError: An option is wrong, or the hand-made schedule does not fit.
        Interrupted: The search was interrupted before it found one.
    """
    chosen = options.search
    if options.schedule != "searched":
        return _hand_made(options.schedule, batch), None, ()
    if chosen.method != "modulo":
        raise OptionError(
            f"search.method: {chosen.method} knows no micro-batches that differ; use modulo, or leave "
            "search.micro_batches out"
        )
    begin_with = None
    if chosen.begin_with is not None:
        found = read_found(require_path("search.begin_with", chosen.begin_with))
        begin_with = found.schedule if isinstance(found, Answer) else found
    with SearchBar(batch.placement.tick_ms) as bar:
        last = str(chosen.objectives[-1]) if chosen.objectives else ""
        result = search(
            batch,
            objectives=[Objective.DEVICE_SPAN if last == Objective.DEVICE_SPAN else Objective.MAKESPAN],
            time_limit_s=chosen.time_limit_s,
            work_limit=chosen.work_limit,
            seed=chosen.seed,
            begin_with=begin_with,
            on_progress=bar,
        )
    if result.schedule is None:
        if result.interrupted:
            raise Interrupted("interrupted before a schedule was found")
        raise OptionError(f"search.memory: {result.reason}")
    return result.schedule, result, tuple(bar.told)


def _hand_made(name: str, batch: Problem) -> Schedule:
    """Return a schedule made by hand, run with each micro-batch's own times."""
    require_known("schedule", name, ["searched", *HAND_MADE])
    orders = dict(hand_made_orders(batch)).get(name)
    schedule = None if orders is None else executed(batch, orders, range(batch.num_micro_batches))
    if schedule is None:
        raise OptionError(
            f"schedule: {name} does not fit these micro-batches or their memory; use schedule=searched"
        )
    return schedule
