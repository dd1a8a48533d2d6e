"""Schedules of one model compared, each on its own placement, with the same samples and memory."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

from placements.pieces import PIPELINES
from placements.stages.stage_chain import DevicePower, PlacedStages, StageChain
from schedsearch.baselines import HAND_MADE
from schedsearch.comparison.course import (
    SEARCHED,
    VARIANTS,
    ComparisonCourse,
    ComparisonReport,
    Method,
)
from schedsearch.comparison.rows import DOES_NOT_FIT, ComparedRow, Comparison, judged, missing_memory, row_of
from schedsearch.comparison.unequal import UnequalCourse, UnequalModel
from schedsearch.core.answer import SearchError
from schedsearch.metrics import computing_ticks, peak_memory
from schedsearch.proof.makespan import makespan_bound
from schedsearch.schedule import Schedule
from schedsearch.searches.search import find
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.validate import validate


def compare(
    stages: StageChain,
    schedules: Sequence[str] = (SEARCHED, "one_f_one_b", "interleaved_one_f_one_b"),
    num_micro_batches: int = 16,
    *,
    num_chunks: int = 2,
    given: Mapping[str, tuple[PlacedStages, Schedule]] | None = None,
    micro_batches: UnequalModel | None = None,
    on_progress: ComparisonReport | None = None,
    answer: Method = find,
    **options: Any,
) -> Comparison:
    """Put schedules of one model side by side: the same samples, devices and memory, weights included.

    Each hand-made schedule is put on the shape that it needs (see `schedsearch.baselines.NEEDS`): the V, a
    loop or wave of `num_chunks` pieces on each device, or the X, on which each device holds the weights of
    two stages and every pair of micro-batches runs in both directions. ``searched`` is the best that is found
    on the shapes of all others; ``searched@v_shape`` and the like search one shape. A search may split
    backwards, whatever others do, and begins with the best schedule that is made by hand for its shape and
    fits: none is shorter than what it finds.

    Args:
        stages: The model.
        schedules: Names: ``searched``, ``searched@SHAPE``, or keys of `schedsearch.baselines.HAND_MADE`.
        num_micro_batches: Micro-batches of every schedule.
        num_chunks: Pieces of the model on each device of a loop or wave.
        given: Schedules of one's own by name, each with the model on its devices. Their rows come first.
        micro_batches: The model as each micro-batch takes it, where they differ; see
            `schedsearch.comparison.unequal`. A hand-made schedule then has a row with them as they come, one
            with the short ones first, and one with the long ones first; on replicas one for each assignment.
        on_progress: Called with the progress of the searches.
        answer: Function that answers the searches.
        options: Options of the searches: the fields of `Problem`. ``time_limit_s`` and ``work_limit``
            are of all of them together; with several ``workers``, which search shapes side by side, each
            worker has them.

    Raises:
        SearchError: A name is not known or there twice, or a number is out of its range.
    """
    _check(stages, schedules, num_micro_batches, num_chunks, options.get("workers", 1))
    usual = (stages, num_micro_batches, num_chunks, answer, options, on_progress or (lambda *_: None))
    running = ComparisonCourse(*usual)
    if micro_batches is not None:
        running = UnequalCourse(*usual, model=micro_batches)
    with INTERRUPTS.answered():  # ends the searches alone: what is made by hand is there in any case
        rows = {name: running.rows_of(name) for name in schedules if name in HAND_MADE}
        shapes = list(dict.fromkeys(VARIANTS[name][0] for name in rows if name in VARIANTS)) or ["v_shape"]
        searched = [name for name in schedules if name not in rows]
        on = {name: [shape] if (shape := name.partition("@")[2]) else shapes for name in searched}
        running.limits.searches = sum(map(len, on.values()))
        rows |= {name: [running.searched(name, tried)] for name, tried in on.items()}
    given_rows = [_given(name, *pair) for name, pair in (given or {}).items()]
    split = {name: running.bound_ms.get((VARIANTS.get(name, ("",))[0], True), 0.0) for name in schedules}
    rated = (*given_rows, *(judged(row, split[name]) for name in schedules for row in rows[name]))
    powered = (replace(row, energy_j=_energy_j(row.solution, stages.power_w)) for row in rated)
    return Comparison(num_micro_batches, tuple(powered), running.interrupted)


def _check(
    stages: StageChain, schedules: Sequence[str], num_micro_batches: int, num_chunks: int, workers: int
) -> None:
    if not isinstance(stages, StageChain):
        raise SearchError(
            f"stages: a {type(stages).__name__} is not a chain of stages; give one of stages_of or "
            "read_stages"
        )
    if isinstance(schedules, str):
        raise SearchError(f"schedules: {schedules!r} is not a list; write [{schedules!r}]")
    known = [SEARCHED, *(f"{SEARCHED}@{shape}" for shape in PIPELINES), *HAND_MADE]
    for name in schedules:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"use some of {', '.join(known)}"
            raise SearchError(f"schedules: {name!r} is not a schedule; {remedy}")
        if list(schedules).count(name) > 1:
            raise SearchError(f"schedules: {name!r} is named twice; name each once")
    if not schedules:
        raise SearchError(f"schedules: is empty; use some of {', '.join(known)}")
    numbers = {"search.num_micro_batches": num_micro_batches, "num_chunks": num_chunks}
    for what, number in {**numbers, "search.workers": workers}.items():
        if not isinstance(number, SupportsIndex):
            raise SearchError(f"{what}: {number!r} is not a whole number")
        if number < 1:
            raise SearchError(f"{what}: {number} is not at least 1")


def _given(name: str, placed: PlacedStages, schedule: Schedule) -> ComparedRow:
    """Return the row of the user's own schedule; its makespan bound is for the placement of that schedule."""
    if missing := missing_memory(placed, peak_memory(schedule).tolist()):
        return ComparedRow(
            name, placed.placement.name, DOES_NOT_FIT, note="; ".join([missing, *placed.notes])
        )
    row = row_of(name, placed, validate(schedule.under(placed.placement)), "; ".join(placed.notes))
    bound = makespan_bound(placed.placement, schedule.num_micro_batches)
    return judged(replace(row, makespan_bound_ms=placed.placement.ms(bound)), 0.0)


def _energy_j(schedule: Schedule | None, power_w: DevicePower | None) -> float | None:
    """Return the energy (J) of all devices, computing and waiting; None without power figures."""
    if schedule is None or power_w is None:
        return None
    placement = schedule.placement
    busy = int(computing_ticks(schedule).sum())
    waiting = placement.num_devices * schedule.makespan - busy
    return (placement.ms(busy) * power_w.running + placement.ms(waiting) * power_w.blocking) / 1e3
