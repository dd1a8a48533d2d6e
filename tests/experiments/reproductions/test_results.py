"""The kept results: the page is made from them, and each item's small version gives them again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from places import SHARED_DATA

from experiments.reproductions.catalogue import ITEMS
from experiments.reproductions.item import Item
from experiments.reproductions.recorded import FOLDER, changes, read_recorded
from experiments.reproductions.results_page import FIGURES, PAGE, draw_figures, results_page


def test_the_page_is_that_of_the_kept_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == results_page(ITEMS.values()), "make it with record=true"


def test_figures_of_the_page_are_drawn_from_the_kept_rows(tmp_path: Path) -> None:
    page, items = PAGE.read_text(encoding="utf-8"), [ITEMS["tessel_figure11"], ITEMS["tessel_table2"]]
    draw_figures(items, tmp_path / FIGURES)
    drawn = [path.name for path in (tmp_path / FIGURES).iterdir()]
    assert drawn == ["tessel_figure11.png"]
    assert f"({FIGURES}/tessel_figure11.png)" in page and "tessel_table2.png" not in page


def test_every_kept_result_is_that_of_an_item() -> None:
    full, small = ({path.stem for path in (FOLDER / size).glob("*.json")} for size in ("full", "small"))
    assert full <= small
    assert small == set(ITEMS)


def _inputs(item: Item) -> list[tuple[str, str]]:
    return [*item.inputs.items(), *item.optional_inputs.items()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ITEMS)
def test_the_small_version_is_as_it_was(name: str, tmp_path: Path) -> None:
    item, recorded = ITEMS[name], read_recorded(name, "small")
    paths = {option: SHARED_DATA / place for option, place in _inputs(item)}
    if not all(path.exists() for path in paths.values()):
        pytest.skip("the shared data are not here")
    options = replace(item.small, **{option: str(path) for option, path in paths.items()})
    rows = [row for case in item.cases(options) for row in item.make(options, case)]
    assert recorded is not None
    assert changes(item, rows, recorded.rows) == []
    item.trends(rows)
    item.files(rows)
