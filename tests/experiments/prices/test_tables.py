"""Savings of strategies as tables, lines and curves: by hand from a few made-up costs."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.prices import drawings
from experiments.prices import task as tables
from schedsearch.cluster.prices.study import Reduction

FOUND = [
    Reduction("net", 4.0, "baseline", 1.0, 96.0, 99.5, 0.0),
    Reduction("slow net", 4.0, "baseline", 1.0, 60.0, 97.25, 0.0),
    Reduction("net", 4.0, "multi_cloud", 1.6, 60.0, 98.5, 0.0),
    Reduction("slow net", 4.0, "multi_cloud", 1.25, 48.0, 101.0, 0.0),
    Reduction("net", 4.0, "preemption", 3.2, 30.0, 98.75, 2.5),
    Reduction("slow net", 4.0, "preemption", 2.0, 30.0, 100.0, 1.5),
]


def test_tables_have_each_figure_in_its_column() -> None:
    assert (
        tables.reductions_table(FOUND[4:5]).text
        == "model,days,strategy,reduction\nnet,4,preemption,3.200000\n"
    )
    assert tables.costs_table(FOUND[4:5]).text.splitlines() == [
        "model,days,strategy,mean_dollars,mean_hours,mean_moves",
        "net,4,preemption,30,98.75,2.5",
    ]


def test_the_printed_table_has_a_line_for_each_model_and_a_column_for_each_strategy() -> None:
    head, *rows = (line.split() for line in tables.to_lines(FOUND))
    assert head == ["days", "model", "baseline", "multi_cloud", "preemption"]
    assert [row[-3:] for row in rows] == [["1.00", "1.60", "3.20"], ["1.00", "1.25", "2.00"]]


class Drawn:
    """The figures that were about to be drawn, each as it is on a wide page."""

    def __init__(self) -> None:
        self.panels: list[Any] = []

    def draw(self, panels: Any, *labels: object, **options: object) -> None:
        self.panels.append(panels)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    kept = Drawn()
    for name in ("draw_panels", "draw_bars"):
        monkeypatch.setattr(drawings, name, kept.draw)
    monkeypatch.setattr(drawings, "save_widths", lambda *given: b"")
    return kept
