"""The kept results: the page is made from them, and each item's small version gives them again.

One run of the small version serves all that is asserted of it; those of Tessel are as claimed, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from places import SHARED_DATA

from experiments.reproduce.catalogue import ITEMS
from experiments.reproduce.item import Claim, Item, Row
from experiments.reproduce.recorded import FOLDER, changes, read_recorded, recorded_items
from experiments.reproduce.results_page import FIGURES, PAGE, draw_figures, results_page
from schedsearch.figures.canvas import image

MEASURED = ("tessel_figure3", "tessel_figure9", "tessel_figure10")
"""Seconds of this machine, which no test asks for."""

SWEEPS = ("tessel_figure11", "tessel_figure12")
"""The slow ones of Tessel."""


def test_the_page_is_that_of_the_kept_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == results_page(ITEMS.values()), "make it with record=true"


def test_figures_of_the_page_are_drawn_from_the_kept_rows(tmp_path: Path) -> None:
    page, items = PAGE.read_text(encoding="utf-8"), [ITEMS["tessel_figure11"], ITEMS["tessel_table2"]]
    draw_figures(items, tmp_path / FIGURES)
    drawn = [path.name for path in (tmp_path / FIGURES).iterdir()]
    assert drawn == ["tessel_figure11.png"]
    assert f"({FIGURES}/tessel_figure11.png)" in page and "tessel_table2.png" not in page


def test_every_kept_result_is_that_of_an_item() -> None:
    assert recorded_items("full") <= recorded_items("small") == set(ITEMS)
    assert {path.stem for path in FOLDER.glob("*.csv")} == set(ITEMS)


def _inputs(item: Item) -> list[tuple[str, str]]:
    return [*item.inputs.items(), *item.optional_inputs.items()]


def _small_versions() -> Iterator[object]:
    for name in ITEMS:
        quick = name.startswith("tessel") and name not in SWEEPS
        yield pytest.param(name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("name", _small_versions())
def test_the_small_version_is_as_it_was(name: str) -> None:
    item, recorded = ITEMS[name], read_recorded(name, "small")
    paths = {option: SHARED_DATA / place for option, place in _inputs(item)}
    if not all(path.exists() for path in paths.values()):
        pytest.skip("the shared data are not here")
    options = replace(item.small, **{option: str(path) for option, path in paths.items()})
    rows = item.rows(options)
    assert recorded is not None
    assert changes(item, rows, recorded.rows) == []
    item.files(rows)
    if name.startswith("tessel"):
        assert {row.case for row in rows} == set(item.cases(options))
        _check_claims(item, rows)
    else:
        item.trends(rows)


def _check_claims(item: Item, rows: Sequence[Row]) -> None:
    """Check that rows are as claimed or say why, that trends hold, and that figures come from rows alone."""
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
