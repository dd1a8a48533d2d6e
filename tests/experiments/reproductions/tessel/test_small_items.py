"""Every item of Tessel in its small version: as claimed, its trends computed, its figure drawn from rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from experiments.config.options import OptionError
from experiments.reproductions.item import Claim, Item, Row
from experiments.reproductions.tessel.items import ITEMS
from schedsearch.figures.canvas import image

OURS = {item.name: item for item in ITEMS if item.name.startswith("tessel")}

SECONDS = [name for name in OURS if name not in ("tessel_figure11", "tessel_figure12")]

MEASURED = ("tessel_figure3", "tessel_figure9", "tessel_figure10")
"""Seconds of this machine, which no test asks for."""


@cache
def rows_of(name: str) -> Sequence[Row]:
    item = OURS[name]
    return [row for case in item.cases(item.small) for row in item.make(item.small, case)]


def check(item: Item) -> None:
    rows = rows_of(item.name)
    assert {row.case for row in rows} == set(item.cases(item.small))
    assert all(row.note for row in rows if row.ours is None)
    wrong = [row for row in rows if not item.is_as_claimed(row)]
    assert all(row.note for row in wrong)
    if item.claim is Claim.EXACT:
        assert not wrong
        assert any(row.published is not None for row in rows)
    trends = item.trends(rows)
    assert all(trend.shown_by for trend in trends)
    if item.name not in MEASURED:
        assert [trend.says for trend in trends if not trend.holds] == []
    if item.draw is not None:
        figure = item.draw(rows)
        assert image(figure, "svg") == image(item.draw(rows), "svg")


@pytest.mark.parametrize("name", SECONDS)
def test_an_item_is_as_claimed(name: str) -> None:
    check(OURS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OURS) - set(SECONDS)))
def test_a_sweep_is_as_claimed(name: str) -> None:
    check(OURS[name])


def test_all_tables_and_figures_are_there() -> None:
    figures = (2, 3, 8, 9, 10, 11, 12, 15, 16, 17)
    assert set(OURS) == {"tessel_table2", "tessel_table3", *(f"tessel_figure{number}" for number in figures)}


@pytest.mark.parametrize("name", list(OURS))
def test_the_whole_item_has_the_cases_of_the_small_one(name: str) -> None:
    item = OURS[name]
    assert set(item.cases(item.small)) <= set(item.cases(item.options()))


@pytest.mark.parametrize(
    ("name", "option", "value", "says"),
    [
        ("tessel_table2", "models", ("bert",), "models: 'bert' is not known"),
        ("tessel_table2", "models", (), "models: [] is not a list of at least one"),
        ("tessel_table2", "work_limit", 0.0, "work_limit: 0 is not a positive number of units of work"),
        ("tessel_figure3", "micro_batches", (2, 0), "micro_batches: 0 is not at least 1"),
        ("tessel_figure3", "micro_batches", (True,), "micro_batches: True is not a whole number"),
        ("tessel_figure9", "shapes", ("m_shape", "m_shape"), "shapes: 'm_shape' is named twice"),
        ("tessel_figure12", "tessel_time_limit_s", -1.0, "tessel_time_limit_s: -1 is not a positive"),
        ("tessel_figure15", "micro_batch_sizes", (), "micro_batch_sizes: [] is not a list"),
        ("tessel_figure16", "models", ("gpt_12b",), "models: 'gpt_12b' is not known; did you mean"),
    ],
)
def test_wrong_options_are_refused_before_any_search(
    name: str, option: str, value: object, says: str
) -> None:
    item = OURS[name]
    with pytest.raises(OptionError) as error:
        item.cases(replace(item.small, **{option: value}))
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)
