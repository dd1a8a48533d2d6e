"""Lines: every point drawn where it is, the same looks in every panel, and the same bytes every time."""

from __future__ import annotations

import pytest

from schedsearch.figures.curves import image
from schedsearch.figures.lines import LinePanel, draw_lines

PANELS = [
    LinePanel("A", {"first": [(0, 1), (0.5, 2)], "second": [(0, 1), (0.5, 1.25)]}, "a note", {"here": 0.25}),
    LinePanel("B", {"second": [(0.1, 3.0)]}),
    LinePanel("C", {}),
    LinePanel("D", {"first": [(0, 0.5)]}),
]


def test_every_point_is_drawn_where_it_is() -> None:
    figure = draw_lines(PANELS, "place", "value", "title")
    first = figure.axes[0]
    drawn = {line.get_label(): list(map(tuple, line.get_xydata())) for line in first.lines}
    assert drawn["first"] == [(0, 1), (0.5, 2)]
    assert drawn["second"] == [(0, 1), (0.5, 1.25)]
    assert [0.25, 0.25] in [list(line.get_xdata()) for line in first.lines]
    assert first.get_title(loc="right") == "a note"
    assert [text.get_text() for text in first.texts] == ["here"]
    low, high = first.get_ylim()
    assert low < 0.5 < 3.0 < high  # shared by all panels


def test_lines_keep_their_looks_and_one_legend_names_them_all() -> None:
    figure = draw_lines(PANELS, "place", "value", "title")
    colors = {line.get_color() for axes in figure.axes for line in axes.lines if line.get_label() == "second"}
    assert len(colors) == 1
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", "second"]
    assert [axes.get_visible() for axes in figure.axes] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml")])
def test_the_same_data_give_the_same_bytes(form: str, start: bytes) -> None:
    first, second = (image(draw_lines(PANELS, "place", "value", "title"), form) for _ in range(2))
    assert first.startswith(start)
    assert first == second
