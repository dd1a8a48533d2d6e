"""Curves: every point drawn, what is open told from what is proved, and the same bytes every time."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from schedsearch.figures.curves import Panel, draw_curves, image

CURVES = {
    "first": [(1, 0.5, 0.5, True), (2, 0.25, 0.0, False)],
    "second": [(1, 0.5, 0.5, True), (2, 0.0, 0.0, True)],
}
PANELS = [
    Panel("A", CURVES),
    Panel("B", {"second": [(3, 0.9, 0.9, True)]}),
    Panel("C", {}),
    Panel("D", CURVES),
]


def marks(axes: Axes, hollow: bool) -> list[float]:
    """The heights of the marks of points, open or proved."""
    return [
        float(line.get_ydata()[0])
        for line in axes.lines
        if line.get_marker() not in ("", "None", "_") and (line.get_markerfacecolor() == "white") == hollow
    ]


def test_open_points_are_hollow_with_a_whisker_down_to_the_bound() -> None:
    axes = draw_curves(PANELS, "place", "share", "title").axes[0]
    assert sorted(marks(axes, hollow=False)) == [0.0, 0.5, 0.5]
    assert marks(axes, hollow=True) == [0.25]
    whiskers = [list(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) == 2]
    assert [0.0, 0.25] in whiskers


def test_curves_keep_their_looks_in_every_panel_and_stand_beside_each_other() -> None:
    figure = draw_curves(PANELS, "place", "share", "title")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:2] == ["first", "second"]
    second = {line.get_color() for axes in (figure.axes[0], figure.axes[1]) for line in axes.lines[-1:]}
    assert len(second) == 1
    near_one = {float(line.get_xdata()[0]) for line in figure.axes[0].lines if line.get_xdata()[0] < 1.5}
    left, right = sorted(near_one)
    assert left < 1 < right


def test_all_values_are_within_the_axes() -> None:
    for axes in draw_curves(PANELS, "place", "share", "title").axes[: len(PANELS)]:
        low, high = axes.get_ylim()
        assert low < 0 <= 0.9 < high


@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml")])
def test_the_same_data_give_the_same_bytes(form: str, start: bytes) -> None:
    first, second = (image(draw_curves(PANELS, "place", "share", "title"), form) for _ in range(2))
    assert first.startswith(start)
    assert first == second
