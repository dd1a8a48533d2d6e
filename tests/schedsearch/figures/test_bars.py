"""Bars: one for each value, a cross where there is none."""

from __future__ import annotations

from schedsearch.figures.bars import BarPanel, draw_bars

BARS = [
    BarPanel("A", {"4 GPUs": {"first": 1.0, "second": None}, "8 GPUs": {"first": 2.0, "second": 30.0}}),
    BarPanel("B", {"4 GPUs": {"second": 3.0}}),
]


def test_each_value_is_a_bar_and_a_missing_one_a_cross() -> None:
    figure = draw_bars(BARS, "seconds")
    first, second = figure.axes
    assert sorted(bar.get_height() for bar in first.patches) == [1.0, 2.0, 30.0]
    assert [text.get_text() for text in first.texts] == ["\N{MULTIPLICATION SIGN}"]
    assert [bar.get_height() for bar in second.patches] == [3.0]
    assert [label.get_text() for label in first.get_xticklabels()] == ["4 GPUs", "8 GPUs"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["first", "second"]
