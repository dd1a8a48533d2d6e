"""Schedules as text that fits a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from modes_and_streams import communicated, offloading, recomputed, recomputing

from placements import Block, Kind, Placement
from placements.modes import Decision
from placements.shapes import SHAPES, v_shape, wave_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.picture import fitted, picture, shortened
from schedsearch.schedule import as_soon_as_possible
from schedsearch.searches.search import search


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [40, 80, 106])
def test_no_line_is_wider_than_the_terminal(shape: str, width: int) -> None:
    schedule = gpipe(SHAPES[shape](), 20)
    *rows, caption = fitted(schedule, width).splitlines()
    assert max(map(len, [*rows, caption])) <= width
    assert all(line.endswith(" ...") for line in rows)
    assert caption.endswith(" ms; .3: micro-batch 3")
    *rows, caption = fitted(schedule, width, with_end=True).splitlines()
    assert len(rows) == schedule.placement.num_devices and max(map(len, [*rows, caption])) <= width
    assert all(" ... " in row for row in rows)


def test_what_fits_is_whole() -> None:
    schedule = one_f_one_b(v_shape(2), 4)
    assert fitted(schedule, 200) == picture(schedule) + "\na column: 1 ms; .3: micro-batch 3"
    assert fitted(schedule, 200, with_end=True) == fitted(schedule, 200)


def test_a_number_before_the_dot_is_the_block_everywhere() -> None:
    """F0 was micro-batch 0 in the picture and stage 0 in the files."""
    wave = picture(gpipe(wave_shape(2), 2)).splitlines()
    assert wave[0].startswith("0 | F0.0 F0.1 .    ") and "F3.0" in wave[0] and "F2.1" in wave[1]
    assert picture(gpipe(v_shape(2), 1)).splitlines()[1].startswith("1 | .  F1 B1 B1 B1 .")


def test_a_block_much_shorter_than_a_column_is_seen() -> None:
    """The embedding on all devices, a tick of 62, was drawn over by the block after it."""
    shape = Placement(
        "shape", 2, (Block("E", Kind.F, (0, 1), 2), Block("F0", Kind.F, (0,), 30, after=("E",)))
    )
    schedule = gpipe(shape, 1)
    assert schedule.makespan == 32
    rows = picture(schedule, max_columns=8).splitlines()
    assert rows == ["0 | E  F0 F0 F0 F0 F0 F0 F0", "1 | E  .  .  .  .  .  .  ."]


def test_of_many_devices_the_first_and_the_last_are_drawn() -> None:
    result = search(v_shape(64), 70, objectives=["period"])
    assert result.schedule is not None
    lines = fitted(result.schedule, 80, result.repetend).splitlines()
    assert len(lines) == 16
    assert lines.count("... 58 more devices ...") == 2
    assert [line.split()[0] for line in lines[:7]] == ["0", "1", "2", "3", "4", "...", "63"]


def test_a_repetend_of_later_micro_batches_is_no_wider_than_the_line() -> None:
    """Micro-batches in flight may be numbered higher than the schedule has: F.22 beside 8 micro-batches."""
    placement = v_shape(12, 5, 12)
    result = search(placement, 8, objectives=("period",))
    assert result.schedule is not None and result.repetend is not None
    text = fitted(result.schedule, 79, result.repetend)
    assert ".22" in text.partition("the repetend")[2]
    assert max(map(len, text.splitlines())) <= 79


def test_a_block_in_a_mode_has_its_letter_and_its_time() -> None:
    assert picture(recomputed()).splitlines() == [
        "0 | F.0  F.1r .    .    B.0  B.0  .    B.1r B.1r B.1r",
        "1 | .    F.0  B.0  B.0  F.1  B.1  B.1  .    .    .",
        "r: recompute",
    ]
    assert fitted(recomputed(), 80).splitlines()[-1] == "a column: 2 ms; .3: micro-batch 3; r: recompute"


def test_each_stream_has_a_row() -> None:
    rows = picture(communicated()).splitlines()
    assert [row.partition(" | ")[0] for row in rows] == ["0              ", "0 communication"]
    assert [row.count("attention.1") for row in rows] == [4, 0]
    assert [row.count("dispatch.1") for row in rows] == [0, 6]


def test_a_repetend_is_drawn_without_blocks_that_a_mode_leaves_out() -> None:
    result = search(offloading(), 8, work_limit=300)
    assert result.repetend is not None and result.schedule is not None
    drawn = fitted(result.schedule, 60, result.repetend).partition("repetend")[2]
    names = {name for name, _ in result.repetend.blocks}
    assert [name in drawn for name in ("I.", "O.")] == ["I0" in names, "O0" in names]


def test_many_devices_are_shortened_with_their_streams() -> None:
    rows = [f"{device:>2}{stream} | F0" for device in range(20) for stream in ("      ", " copies")]
    lines = shortened([*rows, "r: recompute"])
    assert lines[:2] == [" 0       | F0", " 0 copies | F0"] and lines[-1] == "r: recompute"
    assert lines[10] == "... 14 more devices ..." and len(lines) == 14
    assert shortened(rows[:32]) == rows[:32]


def test_modes_with_one_initial_have_letters_of_their_own() -> None:
    placement = recomputing()
    keep, recompute = placement.decisions[0].choices
    choices = keep, recompute, replace(recompute, name="reload")
    both = replace(placement, decisions=(Decision(choices), placement.decisions[1]))
    orders = [[("F0", 0), ("F0", 1), ("B0", 0), ("B0", 1)], [("F1", 0), ("B1", 0), ("F1", 1), ("B1", 1)]]
    schedule = as_soon_as_possible(both, 2, orders, ((1, 0), (2, 1)))
    assert picture(schedule).splitlines()[-1] == "r: recompute; e: reload"
