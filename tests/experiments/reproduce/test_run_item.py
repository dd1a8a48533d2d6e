"""An item made case by case: what is kept, what is made anew, and what is said of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from experiments.config.options import OptionError
from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend
from experiments.reproduce.item_result import item_result, manifest
from experiments.reproduce.recorded import read_recorded, record, rows_to_csv
from experiments.reproduce.run_item import MadeItem, run_item
from placements.forms.meaning import option
from schedsearch.figures.bars import BarPanel, draw_bars


@dataclass(frozen=True)
class Squares:
    """Options of the item of these tests."""

    most: int = option(3, "largest number", min=1)
    data: str | None = None


class Maker:
    """Makes squares, and counts how often it is asked; one of them may be interrupted."""

    def __init__(self, interrupted: str = "") -> None:
        self.asked = list[str]()
        self.interrupted = interrupted

    def __call__(self, options: Squares, case: str) -> Sequence[Row]:
        if case == self.interrupted:
            raise KeyboardInterrupt
        self.asked.append(case)
        return [Row("square", "value", float(case) ** 2, {"1": 1.0, "2": 5.0}.get(case), digits=1)]


def item_of(make: Maker, claim: Claim = Claim.EXACT) -> Item:
    return Item(
        "squares",
        "Nobody",
        "Table I",
        "squares of numbers",
        claim,
        lambda options: [str(number + 1) for number in range(options.most)],
        make,
        lambda rows: [Trend("squares grow", True, f"{len(rows)} of them")],
        lambda rows: draw_bars([BarPanel("squares", {"all": {row.case: row.ours for row in rows}})], "n"),
        small=Squares(most=1),
        data="gavel",
    )


def run(item: Item, options: Squares, folder: Path) -> MadeItem:
    return run_item(item, options, folder, lambda *_: None)


def test_after_an_interruption_it_goes_on_at_the_next_case(tmp_path: Path) -> None:
    first, second, third = Maker(interrupted="3"), Maker(), Maker()
    cut = item_result(run(item_of(first), Squares(), tmp_path), "full")
    assert cut.interrupted == "2 of 3 cases of squares are kept, and the same command goes on there, in"
    assert list(cut.files) == ["squares_rows.csv"]
    made = run(item_of(second), Squares(), tmp_path)
    assert (first.asked, second.asked) == (["1", "2"], ["3"])
    assert (made.num_kept, len(made.trends)) == (2, 1)
    assert [row.ours for row in made.rows] == [1, 4, 9]
    assert run(item_of(third), Squares(), tmp_path).rows == made.rows
    assert third.asked == []


@pytest.mark.parametrize("change", ["options", "input", "broken"])
def test_what_depends_on_something_else_is_made_anew(change: str, tmp_path: Path) -> None:
    given = tmp_path / "given.json"
    given.write_text("1")
    options = Squares(data=str(given))
    run(item_of(Maker()), options, tmp_path)
    match change:
        case "options":
            options = replace(options, most=2)
        case "input":
            given.write_text("2")
        case "broken":
            for path in (tmp_path / "cases").rglob("output.pkl"):
                path.write_bytes(path.read_bytes()[:-20])
    maker = Maker()
    made = run(item_of(maker), options, tmp_path)
    assert len(maker.asked) == len(made.rows) == options.most


def test_a_row_that_is_not_as_claimed_is_said(tmp_path: Path) -> None:
    text = "\n".join(item_result(run(item_of(Maker()), Squares(), tmp_path), "full").sentences)
    assert "claimed: exact: 1 of 2" in text
    assert "NOT AS CLAIMED: 2, square, value" in text
    assert "holds: squares grow (3 of them)" in text
    assert run(item_of(Maker(), Claim.TREND), Squares(), tmp_path / "trend").not_as_claimed == ()


def test_the_files_of_an_item(tmp_path: Path) -> None:
    result = item_result(run(item_of(Maker()), Squares(), tmp_path), "full")
    result.write(tmp_path)
    rows = list(csv.DictReader((tmp_path / "squares_rows.csv").read_text().splitlines()))
    assert (rows[1]["ours"], rows[1]["published"], rows[1]["difference"]) == ("4", "5", "-0.2")
    assert rows[2]["published"] == rows[2]["difference"] == ""
    data = json.loads((tmp_path / "squares.json").read_text())
    assert (data["rows"], data["rows_compared"], data["rows_as_claimed"]) == (3, 2, 1)
    assert data["options"] == {"most": 3} and data["inputs_sha256"] == {}
    assert all((tmp_path / f"squares.{form}").exists() for form in ("svg", "pdf", "png"))


def test_a_kept_result_is_read_as_it_was_made(tmp_path: Path) -> None:
    made = run(item_of(Maker()), Squares(), tmp_path)
    for size in ("small", "full"):
        record("squares", size, manifest(made, size), made.rows, tmp_path / "results")
    kept = read_recorded("squares", "small", tmp_path / "results")
    assert (kept.manifest["size"], kept.manifest["options"]) == ("small", {"most": 3})
    assert rows_to_csv(kept.rows) == rows_to_csv(made.rows)
    assert read_recorded("others", "full", tmp_path / "results") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Squares(most=0), "most: 0 is not a whole number of 1 or more"),
        (CaseOptions(("4",)), "only: '4' is not known; the options are 1, 2"),
        (CaseOptions(("1", "1")), "only: '1' is named twice; name each once"),
    ],
)
def test_options_are_checked_by_their_declaration(options: object, message: str) -> None:
    item = replace(item_of(Maker()), known=("1", "2"))
    with pytest.raises(OptionError, match=f"^{message}"):
        item.cases(options)
