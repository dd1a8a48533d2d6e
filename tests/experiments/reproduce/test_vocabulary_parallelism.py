"""Predicted iterations beside measured ones, and other placements of the output layer."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from places import SHARED_DATA

from experiments.config.options import OptionError
from experiments.reproduce.item import Row
from experiments.reproduce.measured.vocabulary_parallelism import (
    MOVED,
    SHARED,
    VOCABULARY_PARALLELISM,
    MeasuredVocabularyOptions,
)
from placements.profiles.operating_point import ProfileError

RUNS = SHARED_DATA / "vocabulary_parallelism"
HEADER = "case,layers_per_stage,F_us_per_stage,B_us_per_stage,iteration_ms"
ITEM = VOCABULARY_PARALLELISM


def rows_of(tmp_path: Path, *lines: str) -> list[Row]:
    (tmp_path / "measured_iterations.csv").write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")
    options = MeasuredVocabularyOptions(data=str(tmp_path), work_limit=2.5)
    return list(ITEM.rows(options))


def test_two_runs_by_hand(tmp_path: Path) -> None:
    """The first has a last stage of 14 ms; the second has two stages, so nothing to infer pieces from."""
    rows = rows_of(
        tmp_path, "slow,2|2|2|2,2e3|2e3|2e3|5e3,4500|4e3|4e3|9e3,1800", "two,1|1,1e3|1e3,2e3|2e3,400"
    )
    text = ITEM.files(rows)
    lines = list(csv.reader(text["vocabulary_parallelism.csv"].splitlines()))
    assert lines == [
        ["row", "measured_ms", "predicted_ms"],
        ["slow", "1800.0", f"{128 * 14 + 3 * 2 + 2 * 4 + 4.5:.1f}"],
        ["two", "400.0", "387.0"],
    ]
    others = list(csv.DictReader(text["other_placements.csv"].splitlines()))
    assert [(each["row"], each["placement"]) for each in others] == [("slow", MOVED), ("slow", SHARED)]
    assert all(128 * 8 < float(each["predicted_ms"]) < 1810.5 for each in others)
    within, faster = ITEM.trends(rows)
    assert within.holds
    assert within.shown_by == "1.92%, at most 3.25%"
    assert faster.shown_by.endswith("times as fast")


@pytest.mark.skipif(not RUNS.is_dir(), reason="the measured runs are not there")
def test_the_published_runs_are_within_two_percent() -> None:
    options = MeasuredVocabularyOptions(data=str(RUNS), work_limit=0.1)
    cases = ITEM.cases(options)
    assert len(cases) == 8
    rows = [next(iter(ITEM.make(options, run))) for run in cases.values()]
    assert all(ITEM.is_as_claimed(row) for row in rows)
    assert all(-0.016 < (row.difference or 0.0) < 0 for row in rows)
    assert sum(abs(row.difference or 0.0) for row in rows) / len(rows) < 0.0095


def test_fewer_layers_than_stages_are_predicted_alone(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "few,0|2|0,1e3|1e3|1e3,2e3|2e3|2e3,400")
    assert [row.ours for row in rows] == [128 * 3 + 2 * 3]


def test_wrong_runs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "measured_iterations.csv"
    with pytest.raises(ProfileError, match="line 3: case a is in line 2 too; keep one row"):
        rows_of(tmp_path, "a,1|1,1|1,2|2,4", "a,1|1,1|1,2|2,4")
    with pytest.raises(ProfileError, match=rf"^{path}: line 2, column F_us_per_stage\[1\]: '-1' is not"):
        rows_of(tmp_path, "a,1|1,1|-1,2|2,4")
    with pytest.raises(OptionError, match="^data: has no value; give the folder"):
        ITEM.cases(MeasuredVocabularyOptions())
