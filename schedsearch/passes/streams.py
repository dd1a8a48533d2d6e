"""Each stream becomes a device, where its memory is its own and nothing else is to be decided."""

from __future__ import annotations

from schedsearch.core.answer import SearchReport
from schedsearch.core.problem import Problem
from schedsearch.passes.lowered import Lowered
from schedsearch.passes.passed import Passed, on


def lower(problem: Problem, on_progress: SearchReport) -> Passed | None:
    """Return the problem on a placement without streams; None where it has none, or has decisions."""
    placement = problem.placement
    other = None if placement.is_plain or placement.decisions else Lowered.of(placement, ((),))
    return None if other is None else Passed(on(problem, other.plain, other.lower), on_progress, other.lift)
