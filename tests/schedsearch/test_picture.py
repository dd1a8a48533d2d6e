"""Schedules as text that fits a terminal."""

from __future__ import annotations

import pytest

from placements.shapes import SHAPES, v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.modulo.search import search
from schedsearch.picture import fitted, picture


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_wider_than_the_terminal(shape: str, width: int) -> None:
    schedule = gpipe(SHAPES[shape](), 20)
    lines = fitted(schedule, width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line.endswith(" ...") for line in lines)


def test_what_fits_is_whole() -> None:
    schedule = one_f_one_b(v_shape(2), 4)
    assert fitted(schedule, 200) == picture(schedule)


def test_a_long_picture_shows_the_repetend() -> None:
    """Each block runs once in a period; its number says how many micro-batches later it is than others."""
    result = search(v_shape(2, backward_time=2).with_memory(2), 30, objectives=["period"])
    assert result.repetend is not None and result.schedule is not None
    assert fitted(result.schedule, 60, result.repetend).splitlines()[2:] == [
        "the repetend, once every 3 ms:",
        *_steady(result.repetend.start, result.repetend.modulo_stage),
    ]


def _steady(start: dict[str, tuple[int, ...]], rounds: dict[str, tuple[int, ...]]) -> list[str]:
    rows = []
    for device in range(2):
        cells = ["."] * 3
        for name, time in ((f"F{device}", 1), (f"B{device}", 2)):
            for tick in range(start[name][0], start[name][0] + time):
                cells[tick % 3] = f"{name[0]}{rounds[name][0]}"
        rows.append(f"{device} | {' '.join(cells)}")
    return rows
