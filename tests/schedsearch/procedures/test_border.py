"""Special forms are made plain at the border, in the order of the list, and answers come back through it."""

from __future__ import annotations

import pytest
from modes_and_streams import communicating, offloading, recomputing

from placements import Placement
from placements.shapes import v_shape
from schedsearch.core.answer import Status
from schedsearch.core.problem import Problem
from schedsearch.passes.border import lower
from schedsearch.procedures.orchestrator import Orchestrator
from schedsearch.searches.search import search
from schedsearch.validate import validate


def quietly(_: object) -> None:
    """Tell nobody."""


@pytest.mark.parametrize(
    ("placement", "is_plain"),
    [(v_shape(2), True), (communicating(), True), (recomputing(), False), (offloading(1.5), False)],
    ids=["plain", "streams", "modes", "modes and slow streams"],
)
def test_an_answer_comes_back_as_it_went(placement: Placement, is_plain: bool) -> None:
    """Modes alone are left to the procedures, which lower one choice of them after another."""
    problem = Problem(placement, 4, work_limit=0.25)
    passed = lower(problem, quietly)
    assert passed.problem.placement.is_plain == is_plain
    assert not passed.problem.placement.slowdown
    found = passed.lift(Orchestrator(passed.problem, passed.on_progress).run())
    assert found.schedule is not None and validate(found.schedule).placement == placement
    assert found.repetend is not None and found.repetend.placement == placement.per_micro_batch


def test_a_makespan_of_slow_streams_that_meets_its_bound_is_proved() -> None:
    found = search(offloading(1.5), 6, objectives=["makespan"], work_limit=0.25)
    assert found.schedule is not None and found.status is Status.OPTIMAL
    assert found.schedule.makespan == found.makespan_bound


def test_what_is_plain_passes_as_it_is() -> None:
    problem = Problem(v_shape(2), 4)
    assert lower(problem, quietly).problem is problem
