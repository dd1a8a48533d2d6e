"""The result of a pass: a plainer problem, and the way back from its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from schedsearch.core.answer import Answer, SearchReport
from schedsearch.core.problem import Problem


class Passed(NamedTuple):
    """A plainer problem, the listener of its search, and the function that lifts its answer back."""

    problem: Problem
    on_progress: SearchReport
    lift: Callable[[Answer], Answer]


Pass = Callable[[Problem, SearchReport], Passed | None]
"""Returns a plainer problem, or None if the pass does not apply."""
