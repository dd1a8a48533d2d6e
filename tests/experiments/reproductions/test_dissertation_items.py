"""Items of the dissertation: all values as claimed, and the formulas against schedules and models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.reproductions.dissertation.bubbles import bubble_over_ideal
from experiments.reproductions.dissertation.items import ITEMS
from experiments.reproductions.dissertation.parameters_and_days import parameters
from experiments.reproductions.dissertation.throughput import Configuration, Gpt, tflops_per_gpu
from experiments.reproductions.item import Claim, Item, Row
from placements.hardware import A100_SXM_80GB
from placements.shapes import v_shape
from schedsearch.baselines import gpipe, one_f_one_b

NOT_SO = {"dissertation_figure3_7": ["GPipe needs the most, activations recomputed"]}
"""Trends of the dissertation that our figures do not show; the items say why."""


def rows_of(item: Item) -> list[Row]:
    options = item.options()
    return [row for case in item.cases(options) for row in item.make(options, case)]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_values_are_as_claimed_and_trends_hold(item: Item) -> None:
    rows = rows_of(item)
    assert rows and not [row for row in rows if not item.is_as_claimed(row)]
    assert [trend.says for trend in item.trends(rows) if not trend.holds] == NOT_SO.get(item.name, [])
    if item.draw is not None:
        assert item.draw(rows).axes
    small = [row for case in item.cases(item.small) for row in item.make(item.small, case)]
    assert small and all(row in rows for row in small)
    with pytest.raises(ValueError, match=r"^only: 'none' is not a case; the cases are "):
        item.cases(item.options(only=("none",)))


def test_published_values_are_compared() -> None:
    exact = {item.name: item for item in ITEMS if item.claim is Claim.EXACT}
    for name, metric, count in (("table4_1", "parameters_b", 20), ("table2_2", "workers", 5)):
        rows = [row for row in rows_of(exact[f"dissertation_{name}"]) if row.metric == metric]
        assert len(rows) == count and all(row.published is not None for row in rows)


@given(st.integers(1, 6), st.integers(1, 12), st.sampled_from([gpipe, one_f_one_b]))
def test_the_bubble_is_the_formula(p: int, m: int, make: object) -> None:
    assert callable(make)
    assert bubble_over_ideal(make(v_shape(p), m)) == pytest.approx((p - 1) / m)


def test_gpt_3_has_its_parameters() -> None:
    assert parameters(96, 12_288) / 1e9 == pytest.approx(174.6, abs=0.05)


def test_no_configuration_is_above_the_peak() -> None:
    model = Gpt(32, 3840, 32)
    one = tflops_per_gpu(model, Configuration(1, 1, 8), 512)
    assert tflops_per_gpu(model, Configuration(1, 8, 1), 512) < one < A100_SXM_80GB.peak_tflops
