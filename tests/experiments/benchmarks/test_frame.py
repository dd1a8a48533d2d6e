"""The frame: cases from lines, conditions, rows, tables, comparison, resuming, and wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from one_line_errors import raises_line

from experiments.benchmarks import command, frame
from experiments.benchmarks.command import main
from experiments.benchmarks.frame import (
    GROUPS,
    BenchmarkError,
    Case,
    Row,
    beside,
    lacking,
    measured,
    read_cases,
    read_rows,
    write_rows,
)
from experiments.benchmarks.timing import MedianRatio

LINES = """
small:
  measure: one
  name: "{size} of {color}"
  with: {size: 3}
  reach: [cpu_s < 1]
  each: {color: [red, blue]}
  cases:
  - {}
  - {size: 4, reach: [answer <= 4], needs: [no_such_package]}
"""


class Measures:
    calls: list[dict[str, Any]]

    @classmethod
    def one(cls, **arguments: Any) -> dict[str, Any]:
        cls.calls.append(arguments)
        if arguments.get("color") == "interrupted":
            raise KeyboardInterrupt
        return {"answer": arguments.get("size"), "cpu_s": 0.5}

    @staticmethod
    def prepare() -> None: ...

    @staticmethod
    def left_out(without: tuple[str, ...] = ()) -> dict[str, Any]:
        return {"answer": len(without)}


@pytest.fixture(autouse=True)
def measures(monkeypatch: pytest.MonkeyPatch) -> None:
    Measures.calls = []
    for module in (frame, command):
        monkeypatch.setattr(module, "measures_of", lambda _: Measures)


def cases_of(folder: Path, text: str) -> list[Case]:
    (folder / "search.yaml").write_text(text, encoding="utf-8")
    return read_cases("search", folder / "search.yaml")


def test_a_line_is_a_case_for_each_combination(tmp_path: Path) -> None:
    cases = cases_of(tmp_path, LINES)
    assert [case.name for case in cases] == ["3 of red", "3 of blue", "4 of red", "4 of blue"]
    assert [case.is_quick for case in cases] == [True, False, False, False]
    assert cases[1].arguments == {"size": 3, "color": "blue"}
    assert cases[2].reach == ("cpu_s < 1", "answer <= 4")
    assert measured(cases[0]) == Row("small", "3 of red", {"cpu_s": 0.5, "answer": 3}, ("cpu_s < 1",))
    assert measured(cases[2]).skipped == "no_such_package is not installed; pip install no_such_package"
    assert Measures.calls == [{"size": 3, "color": "red"}]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("measure: one", "measure: two", "small.measure: 'two' is not a measure of this group"),
        ("reach:", "reaches:", "small: has an unknown field 'reaches'"),
        ("- {size: 4", "- {size: 3", "'3 of red' is there twice; give another name"),
        ("{size: 3}", "[3]", r"small.with: \[3\] is not a mapping"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    with raises_line(BenchmarkError, str(tmp_path), match=message):
        cases_of(tmp_path, LINES.replace(old, new, 1))


ROWS = [
    Row("a", "faster", {"period": 6.0, "status": "OPTIMAL"}, ("period <= 6",)),
    Row("a", "missed", {"period": 9.0, "makespan": 30}, ("period <= 6",), ("period <= 6",)),
    Row("b", "skipped", {}, skipped="there is no GPU"),
]


def test_rows_are_a_results_file_and_a_table_for_each_part(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    write_rows(path, {"group": "search"}, ROWS)
    assert read_rows(path) == ROWS
    text = path.with_suffix(".md").read_text()
    assert text.startswith("1 of 3 met, 1 skipped\n\ngroup: search\n\n## a\n")
    assert "| case | must reach | reached | period | status | makespan |" in text
    assert "| missed | period <= 6 | NO: period <= 6 | 9 |  | 30 |" in text
    assert "| mean |  | 1 of 2 met | 7.5 |  | 30 |" in text
    assert "| skipped |  | skipped: there is no GPU |" in text


def test_a_comparison_is_of_what_both_have(tmp_path: Path) -> None:
    before = [Row("a", "faster", {"period": 8.0}), Row("a", "missed", {"period": 9.0, "makespan": 0})]
    lines = beside(ROWS, before).splitlines()[2:]
    assert lines == [f"| {part} | period | 2 | 0.8750 | 1 | 0 |" for part in ("a", "all")]


def test_older_results_files_are_read() -> None:
    older = {path.stem: read_rows(path) for path in (frame.CASES.parent / "measured").glob("*.json")}
    assert len(older) > 20 and all(older.values())
    assert older["search"][0].figures["period"] == 4 and older["search"][0].part == "shapes4"
    assert any(row.case == "k_4x16_memory_6" for row in older["instances"])


def run(folder: Path, *arguments: str) -> int:
    return main(["search", *arguments, "--output", str(folder / "rows.json")])


def test_a_run_is_interrupted_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = cases_of(tmp_path, LINES.replace("blue", "interrupted").replace(", needs: [no_such_package]", ""))
    monkeypatch.setattr(command, "read_cases", lambda _: cases)
    assert run(tmp_path, "--case", "3") == 130
    assert "--resume goes on" in capsys.readouterr().err
    assert [row.case for row in read_rows(tmp_path / "rows.json")] == ["3 of red"]
    Measures.calls = []
    assert run(tmp_path, "small", "--resume", "--case", "red", "--beside", str(tmp_path / "rows.json")) == 0
    assert Measures.calls == [{"size": 4, "color": "red"}]
    out = capsys.readouterr().out
    assert "| small | answer | 1 | 1.0000 | 0 | 0 |" in out and "2 of 2 met; results in " in out
    written = json.loads((tmp_path / "rows.json").read_text())
    about = {"platform", "cpu", "cores", "load_average", "niceness", "python", "packages", "date"}
    assert (written["schema_version"], set(written["machine"])) == (2, about)


def test_strategies_are_left_out_where_a_measure_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = cases_of(tmp_path, LINES + "other: {measure: left_out}\n")
    monkeypatch.setattr(command, "read_cases", lambda _: cases)
    assert run(tmp_path, "other", "--without", "annealing") == 0
    assert read_rows(tmp_path / "rows.json")[0].figures["answer"] == 1
    with pytest.raises(SystemExit):
        run(tmp_path, "--without", "annealing")
    assert "--without: nothing can be left out of small; name other parts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two"], "group: 'two' is not a group; use frontier, peers, search"),
        (["search", "large_ones"], "part: 'large_ones' is not a part; use small"),
        (["search", "--case", "no such"], "no case is left; leave out --quick or --case"),
        (["search", "--beside", "/no/such"], "/no/such: cannot be read"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cases, read = cases_of(tmp_path, LINES), frame.read_cases
    monkeypatch.setattr(command, "read_cases", lambda name: cases if name == "search" else read(name))
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_an_optional_package_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(frame.importlib.metadata, "version", lambda _: "1.0")
    assert lacking("lowtime==1.0") == lacking("lowtime") == ""
    assert lacking("lowtime==0.3.0") == "lowtime is 1.0; pip install lowtime==0.3.0"
    assert lacking("gavel/none.json") == "none.json is not there"


def test_the_interval_of_a_median_is_that_of_the_sign_test() -> None:
    """For 100 pairs tables of order statistics give the 40th to the 61st, for 9 the 2nd to the 8th."""
    ratio = MedianRatio.of([float(value) for value in range(100, 0, -1)], [1.0] * 100)
    assert ratio == MedianRatio(50.5, 40.0, 61.0)
    ratio = MedianRatio.of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], [1.0] * 9)
    assert ratio.figures("cpu") == {"cpu": 5.0, "cpu_low": 2.0, "cpu_high": 8.0}
    assert MedianRatio.of([2.0, 3.0], [1.0, 1.0]) == MedianRatio(2.5, 2.0, 3.0)


def test_every_condition_of_every_case_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    number = re.compile(r"\w+ (<=|>=|<|>|==) [\w.-]+")
    for group in GROUPS:
        for case in read_cases(group):
            assert all(number.fullmatch(part) for text in case.reach for part in text.split(" or ")), case
