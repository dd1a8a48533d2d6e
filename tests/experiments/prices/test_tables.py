"""What strategies save, as tables, lines and curves: by hand from a few made-up costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from experiments.prices import drawings, tables
from experiments.prices.disturbances import Disturbed, disturbed
from schedsearch.cluster.prices.days import PriceConditions
from schedsearch.cluster.prices.study import Reduction, Study
from schedsearch.figures.panels import CurvePoint

NAN = float("nan")

FOUND = [
    Reduction("net", 4.0, "baseline", 1.0, 96.0, 99.5, 0.0),
    Reduction("slow net", 4.0, "baseline", 1.0, 60.0, 97.25, 0.0),
    Reduction("net", 4.0, "multi_cloud", 1.6, 60.0, 98.5, 0.0),
    Reduction("slow net", 4.0, "multi_cloud", 1.25, 48.0, 101.0, 0.0),
    Reduction("net", 4.0, "preemption", 3.2, 30.0, 98.75, 2.5),
    Reduction("slow net", 4.0, "preemption", 2.0, 30.0, 100.0, 1.5),
    Reduction("net", 4.0, "hindsight", 4.0, 24.0, NAN, NAN),
]

DISTURBED = [
    Disturbed(600.0, 2.0, FOUND[4], 3.0),
    Disturbed(600.0, 2.0, FOUND[5], 12.0),
    Disturbed(600.0, 2.0, FOUND[0], 0.8),
    Disturbed(600.0, 4.0, FOUND[4], 2.0),
    Disturbed(3600.0, 2.0, FOUND[4], 1.5),
]


def test_tables_have_each_figure_in_its_column() -> None:
    assert tables.reductions_csv(FOUND[4:5]) == "model,days,strategy,reduction\nnet,4,preemption,3.200000\n"
    assert tables.costs_csv([FOUND[4], FOUND[6]]).splitlines() == [
        "model,days,strategy,mean_dollars,mean_hours,mean_moves",
        "net,4,preemption,30,98.75,2.5",
        "net,4,hindsight,24,,",
    ]
    assert tables.disturbances_csv(DISTURBED[:2]).splitlines() == [
        "model,days,strategy,restart_s,preemptions_per_day,reduction,reduction_of_undisturbed_baseline,"
        "mean_moves",
        "net,4,preemption,600,2,3.2,3,2.5",
        "slow net,4,preemption,600,2,2,12,1.5",
    ]


def test_the_printed_table_has_a_line_for_each_model_and_a_column_for_each_strategy() -> None:
    lines = [line.split("  ") for line in tables.to_table(FOUND[:6]).splitlines()]
    head, *rows = ([cell.strip() for cell in line if cell] for line in lines)
    assert head == ["days model", "baseline multi_cloud", "preemption"]
    assert [row[-3:] for row in rows] == [["1.00", "1.60", "3.20"], ["1.00", "1.25", "2.00"]]


def test_the_mean_over_models_is_geometric() -> None:
    """The square root of 3 times 12 is 6; the mean of both is 7.5, and their product 36."""
    assert tables.mean_of_undisturbed(DISTURBED[:3], "preemption") == pytest.approx(6.0)
    assert list(tables.means_by_strategy(DISTURBED)) == [
        "restart 600 s, 2 preemptions per day: preemption 6.00, baseline 0.80",
        "restart 600 s, 4 preemptions per day: preemption 2.00",
        "restart 3600 s, 2 preemptions per day: preemption 1.50",
    ]


@dataclass(frozen=True)
class Costs:
    """A study that costs what it is told."""

    conditions: PriceConditions
    found: Sequence[Reduction]

    def reductions(self, days: Iterable[float]) -> Iterator[Reduction]:
        for length in days:
            yield from (replace(each, days=length) for each in self.found)


def test_disturbed_costs_are_held_against_the_undisturbed_baseline() -> None:
    """Undisturbed the baseline of `net` costs 96 $; disturbed it costs 120, and moving 48: half."""
    given = PriceConditions(restart_s=60.0, preemptions_per_day=3.0, checkpoint_s=9.0, whole_instance=True)
    costs = [replace(FOUND[0], mean_dollars=120.0), replace(FOUND[4], mean_dollars=48.0), FOUND[5]]

    def study_of(under: PriceConditions) -> Study:
        is_calm = under == PriceConditions(whole_instance=True)
        assert is_calm or under.checkpoint_s == 9.0
        return cast(Study, Costs(under, FOUND[:6] if is_calm else costs))

    found = list(disturbed(study_of, given, [0.0, 600.0], [1.0, 2.0], 8.0))
    assert [each.of_undisturbed for each in found] == [96 / 120, 96 / 48, 60 / 30] * 4
    assert [each[:2] for each in found[::3]] == [(0.0, 1.0), (0.0, 2.0), (600.0, 1.0), (600.0, 2.0)]
    assert {each.found.days for each in found} == {8.0}
    assert [*disturbed(study_of, given, [], [1.0], 8.0)] == []


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


def test_curves_show_what_moving_saves_over_staying(drawn: Drawn, tmp_path: Path) -> None:
    """Staying costs 60 $ and moving 30: twice as much; of the slow one 48 and 30."""
    drawings.save_durations(FOUND[2:6], tmp_path)
    net, slow = drawn.panels[0]
    assert (net.title, net.curves["dynamic"]) == ("net", [CurvePoint(4.0, 2.0)])
    assert (slow.title, slow.curves["dynamic"]) == ("slow net", [CurvePoint(4.0, 1.6)])


def test_curves_of_disturbances_are_geometric_means_by_rate(drawn: Drawn, tmp_path: Path) -> None:
    drawings.save_disturbed(DISTURBED, tmp_path)
    ten_minutes, an_hour = drawn.panels[0]
    assert ten_minutes.title == "restart of 600 s" and an_hour.title == "restart of 3600 s"
    assert [each.place for each in ten_minutes.curves["dynamic"]] == [2.0, 4.0]
    assert [each.value for each in ten_minutes.curves["dynamic"]] == pytest.approx([6.0, 2.0])
    assert ten_minutes.curves["the baseline itself"][0].value == pytest.approx(0.8)


def test_bars_show_the_reductions_by_model_and_strategy(drawn: Drawn, tmp_path: Path) -> None:
    drawings.save_reductions(FOUND[:6], tmp_path)
    (panel,) = drawn.panels[0]
    assert panel.groups == {
        "net": {"baseline": 1.0, "multi-cloud": 1.6, "dynamic": 3.2},
        "slow net": {"baseline": 1.0, "multi-cloud": 1.25, "dynamic": 2.0},
    }
