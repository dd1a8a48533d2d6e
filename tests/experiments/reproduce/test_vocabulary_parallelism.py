"""Predicted iterations beside measured ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import SHARED_DATA

from experiments.reproduce.item import DataOptions, Row
from experiments.reproduce.measured.vocabulary_parallelism import ITEMS
from placements.profiles.operating_point import ProfileError

RUNS = SHARED_DATA / "vocabulary_parallelism"
HEADER = "case,F_us_per_stage,B_us_per_stage,iteration_ms"
(ITEM,) = ITEMS


def rows_of(tmp_path: Path, *lines: str) -> list[Row]:
    (tmp_path / "measured_iterations.csv").write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")
    return list(ITEM.rows(DataOptions(data=str(tmp_path))))


def test_two_runs_by_hand(tmp_path: Path) -> None:
    """The first has a last stage of 14 ms."""
    rows = rows_of(tmp_path, "slow,2e3|2e3|2e3|5e3,4500|4e3|4e3|9e3,1800", "two,1e3|1e3,2e3|2e3,400")
    assert [row.ours for row in rows] == [128 * 14 + 3 * 2 + 2 * 4 + 4.5, 387.0]
    assert [ITEM.is_as_claimed(row) for row in rows] == [True, False]


@pytest.mark.skipif(not RUNS.is_dir(), reason="the measured runs are not there")
def test_the_published_runs_are_within_two_percent() -> None:
    rows = ITEM.rows(DataOptions(data=str(RUNS)))
    assert len(rows) == 8 and all(ITEM.is_as_claimed(row) for row in rows)
    assert all(-0.016 < (row.difference or 0.0) < 0 for row in rows)
    assert sum(abs(row.difference or 0.0) for row in rows) / len(rows) < 0.0095


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,2|2,3|3|3,9"], r"line 2, column B_us_per_stage: has 3 numbers for the 2 stages"),
        (["a,2|2|x,3|3|3,9"], r"line 2, column F_us_per_stage\[2\]: 'x' is not"),
        (["a,1|-1,2|2,4"], r"line 2, column F_us_per_stage\[1\]: '-1' is not"),
        (["a,1|1,2|2,4"] * 2, "line 3: case a is in line 2 too; keep one row"),
    ],
)
def test_wrong_runs_are_named(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(ProfileError, match=f"^{tmp_path}/measured_iterations.csv: {message}"):
        rows_of(tmp_path, *lines)
