"""The search's entry: from the arguments of a call, or a problem, through the passes to the orchestrator."""

from __future__ import annotations

from typing import Any

from placements import Placement
from schedsearch.core.answer import Answer, SearchReport
from schedsearch.core.problem import Problem
from schedsearch.passes import border
from schedsearch.procedures.orchestrator import Orchestrator
from schedsearch.proof.memory_need import require_capacity


def search(
    placement: Placement, num_micro_batches: int, *, on_progress: SearchReport | None = None, **options: Any
) -> Answer:
    """Search the repetend of least period under each device's memory, and unroll it.

    The period is searched from its bound up; every answer gets the least period of its order. One micro-batch
    per repetend comes first, all that Tessel searches; where that does not meet the bound, two and more are
    tried, and kept where they are better per micro-batch. What follows the period among the objectives is
    made least among repetends of that period, and so on. Then the whole schedule is shortened, in any of its
    parts; it begins with hand-made ones too, so that none is ever better. See `schedsearch.procedures`.

    Args:
        placement: As of `Problem`.
        num_micro_batches: Likewise.
        on_progress: Called with the first schedule found, and after each query.
        options: The other fields of `Problem`, but for the method.

    Raises:
        SearchError: An argument is out of its range, or `begin_with` is not for this placement.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    problem = Problem(placement, num_micro_batches, "modulo", **options)
    return solve(problem, on_progress or (lambda _: None))


def solve(problem: Problem, on_progress: SearchReport) -> Answer:
    """Answer a problem, whatever its method; see `search`."""
    problem.check()
    require_capacity(problem.placement)
    passed = border.lower(problem, on_progress)
    return passed.lift(Orchestrator(passed.problem, passed.on_progress).run())
