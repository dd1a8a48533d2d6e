"""Panels: every point where it is, open told from proved, one legend, and the same bytes every time."""

from __future__ import annotations

import io

import pytest
from matplotlib.axes import Axes
from matplotlib.image import imread

from schedsearch.figures.canvas import COLUMN_INCHES, image
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels

CURVES = {
    "first": [CurvePoint(1, 0.5), CurvePoint(2, 0.25, 0.0)],
    "second": [CurvePoint(1, 0.5), CurvePoint(2, 0.0)],
}
LINES = [
    Panel(
        "A",
        {"first": [CurvePoint(0, 1), CurvePoint(0.5, 2)], "second": [CurvePoint(0, 1)]},
    ),
    Panel("B", {"second": [CurvePoint(0.1, 3.0)]}),
    Panel("C", {}),
    Panel("D", {"first": [CurvePoint(0, 0.5)]}),
]


def marks(axes: Axes, hollow: bool) -> list[float]:
    """The heights of the marks of points, open or proved."""
    return [
        float(line.get_ydata()[0])
        for line in axes.lines
        if line.get_marker() not in ("", "None", "_") and (line.get_markerfacecolor() == "white") == hollow
    ]


def test_open_points_are_hollow_with_a_whisker_down_to_the_bound() -> None:
    axes = draw_panels([Panel("A", CURVES)], "place", "share", "title").axes[0]
    assert sorted(marks(axes, hollow=False)) == [0.0, 0.5, 0.5]
    assert marks(axes, hollow=True) == [0.25]
    whiskers = [list(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) == 2]
    assert [0.0, 0.25] in whiskers


def test_every_point_is_drawn_where_it_is() -> None:
    first = draw_panels(LINES, "place", "value", "title").axes[0]
    drawn = {line.get_label(): list(map(tuple, line.get_xydata())) for line in first.lines}
    assert drawn["first"] == [(0, 1), (0.5, 2)]
    assert drawn["second"] == [(0, 1)]
    assert marks(first, hollow=False) == [1, 2, 1]
    assert first.get_title(loc="left") == "A"
    low, high = first.get_ylim()
    assert low < 0.5 < 3.0 < high  # shared by all panels


def test_a_column_of_a_paper_has_two_panels_beside_each_other_and_no_title() -> None:
    figure = draw_panels(LINES, "place", "value", "title", width=COLUMN_INCHES)
    assert figure.get_figwidth() == pytest.approx(COLUMN_INCHES)
    assert figure.get_suptitle() == ""
    assert len({axes.get_subplotspec().colspan.start for axes in figure.axes}) == 2


def test_long_names_of_many_curves_are_whole_and_told_apart() -> None:
    """A sweep of four options had names cut at both sides, and its ninth curve looked like the first."""
    names = [f"placement=k_shape, num_micro_batches={n}, backward_time=3, slowdown=1.5" for n in range(20)]
    figure = draw_panels([Panel("A", dict.fromkeys(names, CURVES["first"]))], "place", "value", "title")
    pixels = imread(io.BytesIO(image(figure, "png")))
    assert (pixels[:, [0, -1]] == 1.0).all(), "something is beyond the edge"
    assert figure.axes[0].get_position().height * figure.get_figheight() > 2.0
    lines = figure.legends[0].legend_handles
    assert len({(h.get_color(), h.get_marker(), str(h.get_linestyle())) for h in lines}) == 20
