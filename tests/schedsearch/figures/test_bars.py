"""Bars: one for each value, a cross where there is none; memory of layouts as stacks, and what a GPU has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedsearch.figures.bars import BarPanel, MemoryPanel, draw_bars, draw_layout_memory

BARS = [
    BarPanel("A", {"4 GPUs": {"first": 1.0, "second": None}, "8 GPUs": {"first": 2.0, "second": 30.0}}),
    BarPanel("B", {"4 GPUs": {"second": 3.0}}),
]

PANELS = [
    MemoryPanel(
        "PP 2",
        {
            "stage 0": {"weights": 10.0, "attention": 5.0, "logits": 0.0, "rounding": 0.001},
            "stage 1": {"weights": 8.0, "attention": 2.0, "logits": 3.0, "rounding": 0.0},
        },
        24.0,
        4.0,
    ),
    MemoryPanel(
        "TP 2", {"stage 0": {"weights": 12.0, "attention": 7.0, "logits": 2.0, "rounding": 0.0}}, 24.0, 4.0
    ),
]


def test_stacks_end_where_their_parts_add_up() -> None:
    first, second = draw_layout_memory(PANELS).axes
    assert [axes.get_title(loc="left") for axes in (first, second)] == [each.title for each in PANELS]
    assert [label.get_text() for label in first.get_yticklabels()] == ["stage 0", "stage 1"]
    ends = [bar.get_x() + bar.get_width() for bar in first.patches]
    assert ends == pytest.approx([10.0, 8.0, 15.0, 10.0, 15.0, 13.0])
    assert second.patches[-1].get_x() + second.patches[-1].get_width() == pytest.approx(21.0)
    low, high = first.get_ylim()
    assert low > high, "the first stage is on top"


def test_what_a_gpu_has_is_a_line_and_small_parts_are_left_out() -> None:
    figure = draw_layout_memory(PANELS)
    for axes in figure.axes:
        assert [line.get_xdata()[0] for line in axes.lines] == [20.0, 24.0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *("weights", "attention", "logits"),
        *("without the reserve of 4 GiB", "memory of a GPU, 24 GiB"),
    ]
    whole = draw_layout_memory([replace(PANELS[1], reserve_gib=0.0)])
    assert whole.legends[0].get_texts()[-1].get_text() == "memory of a GPU, 24 GiB"
    assert len(whole.legends[0].get_texts()) == 4


def test_each_value_is_a_bar_and_a_missing_one_a_cross() -> None:
    figure = draw_bars(BARS, "seconds")
    first, second = figure.axes
    assert sorted(bar.get_height() for bar in first.patches) == [1.0, 2.0, 30.0]
    assert [text.get_text() for text in first.texts] == ["\N{MULTIPLICATION SIGN}"]
    assert [bar.get_height() for bar in second.patches] == [3.0]
    assert [label.get_text() for label in first.get_xticklabels()] == ["4 GPUs", "8 GPUs"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["first", "second"]
