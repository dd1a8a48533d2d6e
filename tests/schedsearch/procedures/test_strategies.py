"""Strategies by name: which ones a search uses, and its record of each."""

from __future__ import annotations

import pytest

from placements.shapes import v_shape
from schedsearch.core.answer import SearchError, Status
from schedsearch.procedures.annealing import Annealing
from schedsearch.procedures.registry import NAMES, PROCEDURES, chosen
from schedsearch.searches.search import search

TIGHT = v_shape(4, 1, 3).with_memory(3)
"""Its least period takes three micro-batches per repetend."""


@pytest.mark.parametrize("name", NAMES)
def test_a_search_does_without_any_one_of_them(name: str) -> None:
    result = search(TIGHT, 8, work_limit=1.0, without=[name])
    assert result.schedule is not None
    assert name not in {strategy.name for strategy in result.strategies}


def test_only_those_that_are_named_work() -> None:
    result = search(TIGHT, 8, work_limit=2.0, strategies=["annealing"])
    assert [strategy.name for strategy in result.strategies] == ["annealing"]
    (annealing,) = result.strategies
    assert annealing.work > 0 and annealing.improvements >= 1 and 0 < annealing.gain < 1
    assert result.repetend is not None and result.queries == 0
    serial = sum(block.time for block in TIGHT.blocks)
    assert result.repetend.period_per_micro_batch == pytest.approx(serial * (1 - annealing.gain))


def test_without_all_there_is_one_block_after_another() -> None:
    result = search(TIGHT, 8, work_limit=1.0, objectives=["period"], without=NAMES)
    assert result.repetend is not None and result.status is Status.FEASIBLE
    assert result.repetend.period == sum(block.time for block in TIGHT.blocks)


def test_an_object_has_parameters_of_its_own() -> None:
    made, names = chosen([Annealing(share=0.2), "queries", "greedy"])
    assert [type(strategy) for strategy in made] == [Annealing, PROCEDURES["greedy"]]
    assert made[0].share == 0.2 and names == {"annealing", "queries", "greedy"}
    result = search(TIGHT, 8, work_limit=1.0, strategies=made)
    assert {strategy.name for strategy in result.strategies} <= {"annealing", "greedy"}


@pytest.mark.parametrize("option", ["strategies", "without"])
def test_a_name_that_is_none(option: str) -> None:
    with pytest.raises(SearchError, match=rf"^search\.{option}: 'anealing' is not a strategy; use some of "):
        search(v_shape(2), 2, **{option: ["anealing"]})  # type: ignore[arg-type]


def test_many_devices_in_tight_memory_are_placed_before_schedules_by_hand_take_all_work() -> None:
    answer = search(v_shape(256).with_memory(192), 16, work_limit=5, objectives=["period"])
    assert answer.repetend.period_per_micro_batch <= 8
