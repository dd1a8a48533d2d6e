"""The list of passes, and the way through them to a plainer problem and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from schedsearch.core.answer import SearchReport, SearchResult
from schedsearch.core.problem import Problem
from schedsearch.passes.lowered import Lowered
from schedsearch.passes.slow_streams import AtWorst


class Passed(NamedTuple):
    """A plainer problem, who is told of its search, and what makes its answer one of the problem before."""

    problem: Problem
    on_progress: SearchReport
    lift: Callable[[SearchResult], SearchResult]


Pass = Callable[[Problem, SearchReport], Passed | None]
"""Returns a plainer problem; None where there is nothing to do."""


def slow_streams(problem: Problem, on_progress: SearchReport) -> Passed | None:
    """Let each block take as long as it can become beside those of other streams."""
    if not problem.placement.slowdown:
        return None
    other = AtWorst(problem.placement)
    told = other.told(on_progress, problem.num_micro_batches)
    return Passed(_on(problem, other), told, other.lift)


def streams(problem: Problem, on_progress: SearchReport) -> Passed | None:
    """Make each stream a device, where its memory is its own and nothing else is to be decided."""
    placement = problem.placement
    other = None if placement.is_plain or placement.decisions else Lowered.of(placement, ((),))
    return None if other is None else Passed(_on(problem, other), on_progress, other.lift)


PASSES: tuple[Pass, ...] = (slow_streams, streams)
"""In the order in which a problem goes through them; its answer comes back in the contrary one.

Modes are chosen while the search goes on, see `schedsearch.procedures.modes` and
`schedsearch.procedures.whole`; optimizer blocks are put behind each schedule as it is made.
"""


def lower(problem: Problem, on_progress: SearchReport) -> Passed:
    """Return the problem behind all passes."""
    passed = Passed(problem, on_progress, lambda found: found)
    for each in PASSES:
        further = each(passed.problem, passed.on_progress)
        if further is not None:
            passed = Passed(further.problem, further.on_progress, _both(further.lift, passed.lift))
    return passed


def _both(
    first: Callable[[SearchResult], SearchResult], then: Callable[[SearchResult], SearchResult]
) -> Callable[[SearchResult], SearchResult]:
    return lambda found: then(first(found))


def _on(problem: Problem, other: Lowered | AtWorst) -> Problem:
    begin_with = problem.begin_with
    return replace(
        problem,
        placement=other.plain,
        begin_with=None if begin_with is None else other.lower(begin_with),
    )
