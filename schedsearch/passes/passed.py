"""What a pass returns: a plainer problem, and the way back from its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from placements import Placement
from schedsearch.core.answer import SearchReport, SearchResult
from schedsearch.core.problem import BeginWith, Problem


class Passed(NamedTuple):
    """A plainer problem, who is told of its search, and what makes its answer one of the problem before."""

    problem: Problem
    on_progress: SearchReport
    lift: Callable[[SearchResult], SearchResult]


Pass = Callable[[Problem, SearchReport], Passed | None]
"""Returns a plainer problem; None where there is nothing to do."""


def on(problem: Problem, plain: Placement, lower: Callable[[BeginWith], BeginWith]) -> Problem:
    """Return a problem on another placement, with what it begins with lowered to it."""
    begin_with = problem.begin_with
    return replace(problem, placement=plain, begin_with=None if begin_with is None else lower(begin_with))
