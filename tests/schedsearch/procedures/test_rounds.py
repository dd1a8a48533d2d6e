"""Searches in rounds of counted work: with more work the same course, further."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.benchmarks.inputs.random_placements import random_placement
from placements import Placement
from placements.shapes import m_shape, v_shape
from schedsearch.core.answer import Answer, SearchProgress
from schedsearch.searches.search import search
from schedsearch.validate import validate

_CUT = 3
"""Events at the end of a search that may come from a round that its limit made shorter."""

PLACEMENTS = {
    "several micro-batches": m_shape().with_memory(4),
    "many blocks": random_placement("loops", 203),
}


def searched(
    placement: Placement, work_limit: float, **options: Any
) -> tuple[Answer, list[tuple[str, int | None, int, int, str]]]:
    """Return a search's answer, and its progress as rows."""
    course: list[tuple[str, int | None, int, int, str]] = []

    def note(progress: SearchProgress) -> None:
        course.append((progress.phase, progress.best, progress.bound, progress.queries, progress.found_by))

    return search(placement, 12, work_limit=work_limit, on_progress=note, **options), course


def quality(result: Answer) -> tuple[float, int]:
    """Return a result's period and makespan, in order of weight; less is better."""
    assert result.repetend is not None and result.schedule is not None
    validate(result.schedule)
    return float(result.repetend.period_per_micro_batch), result.schedule.makespan


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_search_with_more_work_goes_the_same_course_further(name: str) -> None:
    (short, its), (long, others) = (searched(PLACEMENTS[name], work) for work in (1.0, 2.0))
    same = max(len(its) - _CUT, 1)
    assert its[:same] == others[:same]
    assert quality(long) <= quality(short)


def test_without_time_there_is_an_answer_all_the_same() -> None:
    for placement in (v_shape(4).with_memory(2), v_shape(32, split_backward=True).with_memory(40)):
        result = search(placement, 12, time_limit_s=1e-6)
        assert quality(result)[0] <= sum(block.time for block in placement.blocks)


def test_what_comes_before_the_period_may_still_become_less_in_a_later_round() -> None:
    objectives = ["memory", "period", "makespan"]
    (short, _), (long, _) = (
        searched(random_placement("K", 200).with_memory(None), work, objectives=objectives)
        for work in (0.5, 2.0)
    )
    assert short.repetend is not None and long.repetend is not None
    shorter, longer = (
        (max(repetend.peak_memory), repetend.period_per_micro_batch)
        for repetend in (short.repetend, long.repetend)
    )
    assert longer <= shorter
