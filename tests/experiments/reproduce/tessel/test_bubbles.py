"""Bubble rates of steady states, and schedules that are drawn from rows."""

from __future__ import annotations

import pytest

from experiments.reproduce.tessel.bubble_rates import added_bubble_rate
from experiments.reproduce.tessel.bubble_sweeps import in_flight_as_memory
from experiments.reproduce.tessel.drawn_schedules import FIGURE_8, drawn_repetend, placement_of
from experiments.reproduce.tessel.published import MODELS
from placements.shapes import SHAPES, v_shape, x_shape
from schedsearch.baselines import HAND_MADE
from schedsearch.searches.search import search
from schedsearch.tessel import tessel
from schedsearch.validate import validate


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_hand_made_schedules_have_the_bubble_of_table_2(model) -> None:
    assert added_bubble_rate(HAND_MADE["one_f_one_b"], v_shape(4)) == pytest.approx(model.one_f_one_b)
    assert added_bubble_rate(HAND_MADE["chimera"], x_shape(4)) == pytest.approx(model.chimera)
    if model.one_f_one_b_plus is not None:
        placement = SHAPES[model.shape](4)
        assert added_bubble_rate(HAND_MADE["one_f_one_b_plus"], placement) == pytest.approx(
            model.one_f_one_b_plus
        )


@pytest.mark.parametrize("depth", [2, 4, 6, 8])
def test_the_bubble_of_chimera_is_its_formula(depth: int) -> None:
    """Of D devices, with backwards of three forwards: 1 - D (1 + 3) / (2 + (2 D - 2) 3)."""
    expected = 1 - 4 * depth / (2 + 3 * (2 * depth - 2))
    rate = added_bubble_rate(HAND_MADE["chimera"], x_shape(depth), num_micro_batches=12 * depth)
    assert rate == pytest.approx(expected)


def test_a_repetend_is_told_whole_by_its_rows() -> None:
    for case in ("flava training", "flava inference"):
        rows = FIGURE_8.rows(FIGURE_8.small, case)
        repetend = drawn_repetend(rows)
        told = {row.metric: row.ours for row in rows}
        assert repetend.bubble_rate == told["bubble_rate"] == 0
        assert repetend.in_flight == told["in_flight"]
        assert {row.label for row in rows if row.metric == "start_ticks"} == set(placement_of(case).by_name)
        validate(repetend.at_initiation_interval(7))


@pytest.mark.parametrize("shape", ["v_shape", "m_shape"])
def test_micro_batches_in_flight_are_units_of_memory(shape: str) -> None:
    """On three devices, where Tessel's search tries every assignment in a moment."""
    placement = SHAPES[shape](num_devices=3)
    for theirs in tessel(placement, 3, max_in_flight=3, time_limit_s=60).by_in_flight:
        limited = in_flight_as_memory(placement, theirs.in_flight)
        assert limited is not None
        ours = search(limited, 1, micro_batches_per_repetend=1, objectives=["period"]).repetend
        assert ours is not None and theirs.repetend is not None
        assert ours.period == theirs.repetend.period == theirs.bound
    assert in_flight_as_memory(SHAPES[shape](inference=True), 2) is None
