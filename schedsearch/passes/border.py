"""The list of passes, and the way through them to a plainer problem and back."""

from __future__ import annotations

from dataclasses import replace

from schedsearch.baselines import HAND_MADE
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.core.answer import Answer, SearchReport
from schedsearch.core.problem import Problem
from schedsearch.passes import slow_streams
from schedsearch.passes.lowered import Lowered
from schedsearch.passes.passed import Pass, Passed
from schedsearch.schedule import Schedule

_MAX_BLOCKS = 10_000
"""Most blocks of all micro-batches of a schedule made by hand as a start; more take over a second each."""


def streams(problem: Problem, on_progress: SearchReport) -> Passed | None:
    """Return the problem with each stream as a device, where its memory is its own and nothing is decided."""
    placement = problem.placement
    other = None if placement.is_plain or placement.decisions else Lowered.of(placement, ((),))
    if other is None:
        return None
    begin_with = problem.begin_with or _best_by_hand(problem)
    begin_with = None if begin_with is None else other.lower(begin_with)
    plain = replace(problem, placement=other.plain, begin_with=begin_with)
    return Passed(plain, on_progress, other.lift)


def _best_by_hand(problem: Problem) -> Schedule | None:
    """Return the shortest hand-made schedule that fits; rules do not know streams that became devices."""
    placement, number = problem.placement.per_micro_batch, problem.num_micro_batches
    is_asked = problem.strategies is None and "hand_made" not in problem.without
    if not is_asked or len(placement.blocks) * number > _MAX_BLOCKS:
        return None
    made = with_chosen_modes(placement, number, HAND_MADE)
    return min((schedule for _, schedule in made), key=lambda schedule: schedule.makespan, default=None)


PASSES: tuple[Pass, ...] = (slow_streams.lower, streams)
"""Passes in the order in which a problem goes through; its answer comes back in reverse order.

Modes are chosen while the search goes on, see `schedsearch.procedures.modes` and
`schedsearch.procedures.whole`; optimizer blocks are put behind each schedule as it is made.
"""


def lower(problem: Problem, on_progress: SearchReport) -> Passed:
    """Return the problem behind all passes."""
    lifts = []
    for one_pass in PASSES:
        if (passed := one_pass(problem, on_progress)) is not None:
            problem, on_progress, lift = passed
            lifts.append(lift)

    def lifted(answer: Answer) -> Answer:
        for lift in reversed(lifts):
            answer = lift(answer)
        return answer

    return Passed(problem, on_progress, lifted)
