"""What a pass returns: a plainer problem, and the way back from its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from schedsearch.core.answer import Answer, SearchReport
from schedsearch.core.problem import Problem


class Passed(NamedTuple):
    """A plainer problem, who is told of its search, and what makes its answer one of the problem before."""

    problem: Problem
    on_progress: SearchReport
    lift: Callable[[Answer], Answer]


Pass = Callable[[Problem, SearchReport], Passed | None]
"""Returns a plainer problem; None where there is nothing to do."""
