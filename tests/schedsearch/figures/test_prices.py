"""Prices over time: steps where they change, one legend, and the same bytes every time."""

from __future__ import annotations

import numpy as np
import pytest

from schedsearch.figures.canvas import COLUMN_INCHES, image
from schedsearch.figures.prices import PricePanel, draw_prices

DAYS = np.array([0.0, 1.0, 2.5])
PANELS = [
    PricePanel("one", {"a": (DAYS, np.array([1.0, 2.0, 1.5])), "b": (DAYS, np.array([3.0, 3.0, 3.0]))}),
    PricePanel("two", {"b": (DAYS, np.array([0.5, 0.5, 0.6]))}),
    PricePanel("three", {"c": (DAYS, np.array([9.0, 8.0, 7.0]))}),
]


def test_each_zone_is_a_step_line_of_one_look() -> None:
    figure = draw_prices(PANELS, "day", "$ per hour", width=9.0)
    first, second, third, empty = figure.axes
    assert [line.get_ydata().tolist() for line in first.lines] == [[1.0, 2.0, 1.5], [3.0, 3.0, 3.0]]
    assert {line.get_drawstyle() for line in first.lines} == {"steps-post"}
    assert second.lines[0].get_color() == first.lines[1].get_color() != third.lines[0].get_color()
    assert first.get_ylim()[0] == 0.0 and first.get_ylim()[1] > 3.0
    assert not empty.get_visible() and second.get_xlabel() == third.get_xlabel() == "day"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]


def test_it_is_as_wide_as_a_column_and_the_same_every_time() -> None:
    figure = draw_prices(PANELS, "day", "$ per hour", width=COLUMN_INCHES)
    assert figure.get_figwidth() == pytest.approx(COLUMN_INCHES)
    assert image(figure, "svg") == image(draw_prices(PANELS, "day", "$ per hour", width=COLUMN_INCHES), "svg")
