"""Predicted iterations beside measured ones, and other placements of the output layer."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import SHARED_DATA

from experiments.config.options import OptionError
from experiments.reproduce.item import Row
from experiments.reproduce.measured.measured_iterations import MeasuredIteration, PieceTimes
from experiments.reproduce.measured.vocabulary_parallelism import (
    MOVED,
    SHARED,
    VOCABULARY_PARALLELISM,
    MeasuredVocabularyOptions,
    moved_layers,
    predicted_ms,
    with_layers,
    with_shared_output,
)
from placements.profiles.operating_point import ProfileError

RUNS = SHARED_DATA / "vocabulary_parallelism"
HEADER = "case,layers_per_stage,F_us_per_stage,B_us_per_stage,iteration_ms"
ITEM = VOCABULARY_PARALLELISM


EVEN = MeasuredIteration(
    "even",
    (2, 2, 2, 2),
    (PieceTimes(2.0, 4.5), PieceTimes(2.0, 4.0), PieceTimes(2.0, 4.0), PieceTimes(5.0, 9.0)),
    1800.0,
)
"""Layers of 1 and 2 ms, an embedding of 0.5, an output layer of 3 and 5."""


def rows_of(tmp_path: Path, *lines: str) -> list[Row]:
    (tmp_path / "measured_iterations.csv").write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")
    options = MeasuredVocabularyOptions(data=str(tmp_path), work_limit=2.5)
    return list(ITEM.rows(options))


def test_two_runs_by_hand(tmp_path: Path) -> None:
    """The first has a last stage of 14 ms; the second has two stages, so nothing to infer pieces from."""
    rows = rows_of(
        tmp_path, "slow,2|2|2|2,2e3|2e3|2e3|5e3,4500|4e3|4e3|9e3,1800", "two,1|1,1e3|1e3,2e3|2e3,400"
    )
    (slow, moved, shared, two) = rows
    assert (slow.ours, two.ours) == (128 * 14 + 3 * 2 + 2 * 4 + 4.5, 387.0)
    assert (moved.label, shared.label) == (MOVED, SHARED)
    assert all(128 * 8 < (row.ours or 0) < 1810.5 for row in (moved, shared))
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


def test_pieces_are_inferred_from_the_stages() -> None:
    assert EVEN.layer == PieceTimes(1.0, 2.0)
    assert EVEN.embedding == PieceTimes(0.0, 0.5)
    assert EVEN.output_layer == PieceTimes(3.0, 5.0)
    assert predicted_ms(EVEN) == 128 * 14 + 3 * 2 + 2 * 4 + 4.5


def test_layers_move_away_from_the_output_layer() -> None:
    assert moved_layers(EVEN) == (2, 3, 3, 0)
    placement = with_layers(EVEN, moved_layers(EVEN))
    assert [placement.ms(placement.load(device)) for device in range(4)] == [6.5, 9.0, 9.0, 8.0]
    assert placement.memory == (4, 4, 4, 4)


def test_the_output_layer_stands_on_all_devices() -> None:
    placement = with_shared_output(EVEN, num_in_flight=6)
    times = {block.name: placement.ms(block.time) for block in placement.blocks}
    assert times["F0"] == times["F3"] == 2.0
    assert (times["H"], times["HB"], times["B3"], times["B0"]) == (0.8, 1.2, 4.0, 4.5)
    assert placement.by_name["H"].devices == (0, 1, 2, 3)
    assert placement.by_name["B3"].after == ("HB",)
    assert placement.memory == (6, 6, 6, 6)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,1|1|1,2|2,3|3|3,9", r"F_us_per_stage: has 2 numbers for the 3 stages"),
        ("a,1|1|1,2|2|x,3|3|3,9", r"F_us_per_stage\[2\]: 'x' is not"),
        ("a,1|1.5|1,2|2|2,3|3|3,9", r"layers_per_stage\[1\]: '1.5' is not a whole number"),
        ("a,1|1,1|-1,2|2,4", r"F_us_per_stage\[1\]: '-1' is not"),
    ],
)
def test_wrong_runs_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "measured_iterations.csv"
    with pytest.raises(ProfileError, match=f"^{path}: line 2, column {message}"):
        rows_of(tmp_path, line)


def test_runs_and_their_folder_are_needed(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="line 3: case a is in line 2 too; keep one row"):
        rows_of(tmp_path, "a,1|1,1|1,2|2,4", "a,1|1,1|1,2|2,4")
    with pytest.raises(OptionError, match="^data: has no value; give the folder"):
        ITEM.cases(MeasuredVocabularyOptions())
