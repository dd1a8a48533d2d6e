"""Bubble rates of steady states, and wrong options of their items."""

from __future__ import annotations

from dataclasses import replace

import pytest
from one_line_errors import raises_line

from experiments.config.options import OptionError
from experiments.reproduce.catalogue import ITEMS
from experiments.reproduce.tessel.bubbles import MODELS, added_bubble_rate
from placements.shapes import SHAPES, v_shape, x_shape
from schedsearch.baselines import HAND_MADE


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


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("tessel_table2", "only", ("bert",), "only: 'bert' is not known"),
        ("tessel_table2", "work_limit", 0.0, "work_limit: 0.0 is not a number above 0"),
        ("tessel_figure9", "only", ("m_shape", "m_shape"), "only: 'm_shape' is named twice"),
        ("tessel_figure9", "micro_batches", (), "micro_batches: [] is not a list of at least one"),
    ],
)
def test_wrong_options_are_one_line(name: str, option: str, value: object, message: str) -> None:
    with raises_line(OptionError, message):
        ITEMS[name].cases(replace(ITEMS[name].small, **{option: value}))
