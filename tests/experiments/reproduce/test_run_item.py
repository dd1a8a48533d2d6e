"""An item made case by case: what is kept, what is made anew, and what is said of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from experiments.config.options import OptionError
from experiments.reproduce import run_item as run_item_module
from experiments.reproduce.catalogue import ITEMS
from experiments.reproduce.item import Basis, CaseOptions, Claim, Item, Row, Trend
from experiments.reproduce.item_files import described, manifest, write_item
from experiments.reproduce.recorded import read_recorded, record, rows_to_csv
from experiments.reproduce.run_item import MadeItem, run_item
from placements.forms.meaning import option


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
        published = {"1": 1.0, "2": 5.0}.get(case)
        return [
            Row(
                "square",
                "value",
                float(case) ** 2,
                published,
                digits=1,
                basis=Basis.FORMULA if case == "1" else None,
            )
        ]


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
        small=Squares(most=1),
        data="gavel",
    )


def run(item: Item, options: Squares, folder: Path) -> MadeItem:
    return run_item(item, options, folder, lambda *_: None)


def test_after_an_interruption_it_goes_on_at_the_next_case(tmp_path: Path) -> None:
    first, second, third = Maker(interrupted="3"), Maker(), Maker()
    with pytest.raises(KeyboardInterrupt):
        run(item_of(first), Squares(), tmp_path)
    made = run(item_of(second), Squares(), tmp_path)
    assert (first.asked, second.asked) == (["1", "2"], ["3"])
    assert (made.kept, len(made.trends), made.is_anew) == (2, 1, False)
    assert [row.ours for row in made.rows] == [1, 4, 9]
    assert run(item_of(third), Squares(), tmp_path).rows == made.rows
    assert third.asked == []


@pytest.mark.parametrize("change", ["options", "input", "broken", "other form"])
def test_what_depends_on_something_else_is_made_anew(change: str, tmp_path: Path) -> None:
    given = tmp_path / "given.json"
    given.write_text("1")
    options = Squares(data=str(given))
    run(item_of(Maker()), options, tmp_path)
    kept = tmp_path / "squares_cases.json"
    match change:
        case "options":
            options = replace(options, most=2)
        case "input":
            given.write_text("2")
        case "broken":
            kept.write_text(kept.read_text()[:-20])
        case "other form":
            kept.write_text(json.dumps({"schema_version": 1, "of": {}, "cases": [{"name": "1"}]}))
    maker = Maker()
    made = run(item_of(maker), options, tmp_path)
    assert len(maker.asked) == options.most
    assert made.is_anew and made.kept == 0
    assert "made anew" in described(made)


def test_a_row_that_is_not_as_claimed_is_said(tmp_path: Path) -> None:
    made = run(item_of(Maker()), Squares(), tmp_path)
    text = described(made)
    assert [row.case for row in made.not_as_claimed] == ["2"]
    assert "claimed: exact: 0 of 1 (printed value), 1 of 1 (formula of the paper)" in text
    assert "NOT AS CLAIMED: 2, square, value" in text
    assert "holds: squares grow (3 of them)" in text
    assert run(item_of(Maker(), Claim.TREND), Squares(), tmp_path / "trend").not_as_claimed == ()


def test_the_files_of_an_item(tmp_path: Path) -> None:
    made = run(item_of(Maker()), Squares(), tmp_path)
    paths = write_item(made, "full", tmp_path)
    assert [path.name for path in paths] == ["squares_rows.csv", "squares.json"]
    rows = list(csv.DictReader((tmp_path / "squares_rows.csv").read_text().splitlines()))
    assert (rows[1]["ours"], rows[1]["published"], rows[1]["difference"]) == ("4", "5", "-0.2")
    assert rows[2]["published"] == rows[2]["difference"] == ""
    data = json.loads((tmp_path / "squares.json").read_text())
    assert (data["rows"], data["rows_compared"], data["rows_as_claimed"]) == (3, 2, 1)
    assert data["rows_by_basis"] == {"printed value": 1, "formula of the paper": 1}
    assert data["options"] == {"most": 3} and data["inputs_sha256"] == {}


def test_a_kept_result_is_read_as_it_was_made(tmp_path: Path) -> None:
    item = item_of(Maker())
    made = run(item, Squares(), tmp_path)
    write_item(made, "small", tmp_path)
    record("squares", "small", tmp_path, tmp_path / "results")
    found = read_recorded("squares", "small", tmp_path / "results")
    assert found is not None
    assert found.manifest["options"] == manifest(made, "small")["options"]
    assert rows_to_csv(found.rows) == rows_to_csv(made.rows)
    assert read_recorded("squares", "full", tmp_path / "results") is None


def test_several_processes_make_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of each item the first case tells whether the others are worth a process of their own."""
    item = ITEMS["tessel_table3"]
    alone = run(item, item.small, tmp_path / "alone")
    monkeypatch.setattr(run_item_module, "LONG_S", -1.0)
    so_far = list[int]()

    def report(case: str, done: int, whole: int) -> None:
        so_far.append(done)

    made = run_item(item, item.small, tmp_path / "together", report, num_processes=2)
    assert made.rows == alone.rows
    assert [case.name for case in made.cases] == [case.name for case in alone.cases]
    assert so_far == [*range(made.num_cases + 1)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Squares(most=0), "most: 0 is not a whole number of 1 or more"),
        (CaseOptions(("4",)), "only: '4' is not known; the options are 1, 2"),
        (CaseOptions(("1", "1")), "only: '1' is named twice; name each once"),
    ],
)
def test_options_are_checked_by_their_declaration(options: object, says: str) -> None:
    item = replace(item_of(Maker()), known=("1", "2"))
    with pytest.raises(OptionError, match=f"^{says}"):
        item.cases(options)
