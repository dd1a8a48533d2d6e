"""The kept results: the page is made from them, and each item's small version gives them again.

One run of the small version serves all that is asserted of it; those of Tessel are as claimed, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from places import SHARED_DATA

from experiments.reproduce.catalogue import ITEMS
from experiments.reproduce.item import Claim, Item, Row
from experiments.reproduce.recorded import FOLDER, SIZES, read_recorded
from experiments.reproduce.results_page import FIGURES, PAGE, draw_figures, results_page
from schedsearch.figures.canvas import image

MEASURED = ("tessel_figure9",)
"""Seconds of this machine, which no test asks for."""

VARYING = {*("search_s", "over_tessels_search_s", "peak_activations", "found_bubble_rate")}
"""Metrics that are not the same twice: measured on the machine, or of one of several equal schedules."""


def test_the_page_is_that_of_the_kept_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == results_page(ITEMS.values()), "make it with record=true"


def test_figures_of_the_page_are_drawn_from_the_kept_rows(tmp_path: Path) -> None:
    page, items = PAGE.read_text(encoding="utf-8"), [ITEMS["tessel_figure11"], ITEMS["tessel_table2"]]
    draw_figures(items, tmp_path / FIGURES)
    drawn = [path.name for path in (tmp_path / FIGURES).iterdir()]
    assert drawn == ["tessel_figure11.png"]
    assert f"({FIGURES}/tessel_figure11.png)" in page and "tessel_table2.png" not in page


def test_every_kept_result_is_that_of_an_item() -> None:
    full, small = (set(json.loads((FOLDER / f"{size}.json").read_text())) for size in ("full", "small"))
    assert full <= small == set(ITEMS)
    assert {path.stem for path in FOLDER.glob("*.csv")} == set(ITEMS)


def test_what_differs_is_on_the_page_with_its_reason() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for item in ITEMS.values():
        kept = read_recorded(item.name, "full")
        wrong = [row for row in item.compared(kept.rows) if not item.is_as_claimed(row)]
        missed = [trend for trend in kept.manifest["trends"] if not trend["holds"]]
        assert item.because or not (wrong or missed), item.name
        assert all(f"| {item.part} | {row.case} | {row.label} `{row.metric}` | " in page for row in wrong)
        assert all(f"| {trend['conclusion']} | **no** | {trend['shown_by']} |" in page for trend in missed)


def test_the_page_of_results_is_at_most_5000_words() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 5000


def test_kept_counts_and_conclusions_are_those_of_the_kept_rows() -> None:
    for item in ITEMS.values():
        for size in SIZES:
            kept = read_recorded(item.name, size)
            assert kept.manifest["trends"] == [asdict(trend) for trend in item.trends(kept.rows)], item.name
            counts = (kept.manifest["rows_as_claimed"], kept.manifest["rows_compared"])
            assert counts == item.as_claimed(kept.rows), item.name


def test_data_that_are_not_here_have_an_origin() -> None:
    assert sum(bool(item.data) and item.needs_data for item in ITEMS.values()) > 9
    for item in ITEMS.values():
        assert ("https://github.com/" in item.origin) == bool(item.data), item.name


@pytest.mark.parametrize("name", ITEMS)
def test_the_small_version_is_as_it_was(name: str) -> None:
    item, recorded = ITEMS[name], read_recorded(name, "small")
    path = SHARED_DATA / item.data
    if not path.exists():
        pytest.skip("the shared data are not here")
    options = replace(item.small, data=str(path)) if item.data else item.small
    rows = item.rows(options)
    assert [*_changes(item, rows, recorded.rows)] == []
    if name.startswith("tessel"):
        assert {row.case for row in rows} == set(item.cases(options))
        _check_claims(item, rows)
    else:
        item.trends(rows)


def _changes(item: Item, rows: Sequence[Row], before: Sequence[Row]) -> Iterator[str]:
    """Yield how rows differ from those that were kept; of an exact item those that the paper has."""
    ours, theirs = ({(row.case, row.label, row.metric): row for row in some} for some in (rows, before))
    yield from (f"{place} is new or gone" for place in ours.keys() ^ theirs.keys())
    for place in ours.keys() & theirs.keys():
        now, then, claim = ours[place].ours, theirs[place].ours, item.claim_of(ours[place])
        is_exact = claim is Claim.EXACT
        if place[-1] in VARYING or (is_exact and ours[place].published is None):
            continue
        room = 1e-9 if is_exact else 0.05
        if now != (then if then is None else pytest.approx(then, room, room)):
            yield f"{place}: {then} is now {now}"


def _check_claims(item: Item, rows: Sequence[Row]) -> None:
    """Check that rows are as claimed or say why, that trends hold, and that figures come from rows alone."""
    assert all(row.note for row in rows if row.ours is None)
    wrong = [row for row in rows if not item.is_as_claimed(row)]
    assert not wrong or item.because
    if item.claim is Claim.EXACT:
        assert not wrong
        assert any(row.published is not None for row in rows)
    trends = item.trends(rows)
    assert all(trend.shown_by for trend in trends)
    if item.name not in MEASURED:
        assert [trend.conclusion for trend in trends if not trend.holds] == []
    if item.draw is not None:
        figure = item.draw(rows)
        assert image(figure, "svg") == image(item.draw(rows), "svg")
