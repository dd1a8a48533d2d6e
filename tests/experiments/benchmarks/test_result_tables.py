"""The tables of benchmarks: ratios the right way round, percents, means, and what counts as met."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import cast

import pytest

from experiments.benchmarks.comparison import MedianRatio, PeerComparison, Ratio
from experiments.benchmarks.instances.answers import BestKnown
from experiments.benchmarks.instances.measuring import BY_HAND, InstanceRow
from experiments.benchmarks.instances.tables import beaten_by_hand, gaps, markdown
from experiments.benchmarks.results import BenchmarkCase, BenchmarkRow, CaseResult, summary, write_results
from experiments.reproduce.gavel.spread import FactorSpread


def measured(name: str, result: CaseResult) -> BenchmarkRow:
    return BenchmarkRow("group", BenchmarkCase(name, "all of it", lambda: result), result)


ROWS = [
    measured(
        "faster",
        CaseResult(
            1.25,
            status="OPTIMAL",
            period=6.0,
            period_bound=6.0,
            makespan=30,
            makespan_bound=28.5,
            comparison=PeerComparison(
                "a task", "devices", 4, (1.0, 4.0, 3.0), (2.0, 2.0, 2.0), "energy", 3.0, 4.0
            ),
        ),
    ),
    measured("missed", CaseResult(2.5, missed=("too slow", "too large"), note="a | b")),
    measured("skipped", CaseResult(0.0, skipped="no GPU")),
]


def test_a_ratio_is_ours_over_theirs(tmp_path: Path) -> None:
    """Of 1/2, 4/2 and 3/2 the middle one is 1.5; our answer is 3 of 4."""
    write_results(tmp_path / "found.json", {"cpu": "a CPU"}, ROWS)
    text = (tmp_path / "found.md").read_text()
    assert text.splitlines()[0] == "1 of 3 met, 1 skipped" == summary(ROWS)
    cells = [
        [cell.strip() for cell in line.split(" | ")] for line in text.splitlines() if line.startswith("|")
    ]
    faster = dict(zip(cells[0], cells[2], strict=True))
    assert faster["| CPU time, ours / theirs"] == "| 1.50 (0.50 to 2.00)"
    assert faster["answer, ours / theirs"] == "energy 0.7500"
    assert (faster["period"], faster["makespan"], faster["CPU s"]) == ("6", "30 (28.5)", "1.25")
    assert "| 2.50 | NO: too slow; too large | a \\| b |" in text and "| skipped: no GPU |" in text
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [row["met"] for row in rows] == [True, False, False]
    assert rows[0]["ours_over_theirs"]["answer"] == 0.75
    assert rows[0]["ours_over_theirs"]["cost"] == {"median": 1.5, "least": 0.5, "most": 2.0}


def test_a_ratio_is_of_neighbours_and_a_small_one_is_a_part() -> None:
    """The second pair was measured while the machine was half as fast; that changes no ratio."""
    ratio = Ratio.of([3.0, 6.0, 3.3], [2.0, 4.0, 2.0])
    assert str(ratio) == "1.50 (1.50 to 1.65)"
    assert str(Ratio.of([1.0, 1.0, 1.0], [20.0, 40.0, 100.0])) == "1/40 (1/100 to 1/20)"


def test_the_interval_of_a_median_is_that_of_the_sign_test() -> None:
    """For 100 pairs tables of order statistics give the 40th to the 61st, for 9 the 2nd to the 8th."""
    ratio = MedianRatio.of([float(value) for value in range(100, 0, -1)], [1.0] * 100)
    assert (ratio.median, ratio.low, ratio.high) == (50.5, 40.0, 61.0)
    ratio = MedianRatio.of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], [1.0] * 9)
    assert (ratio.low, ratio.high) == (2.0, 8.0)
    assert MedianRatio.of([2.0, 3.0], [1.0, 1.0]) == MedianRatio(2.5, 2.0, 3.0)
    assert str(ratio) == "5.000 (2.000 to 8.000)"


def test_the_mean_over_seeds_is_geometric() -> None:
    found = FactorSpread.of([2.0, 18.0])
    assert (found.mean, found.count) == (pytest.approx(6.0), 2)
    assert (found.low * found.high) ** 0.5 == pytest.approx(6.0)
    three = FactorSpread.of([1.0, 2.0, 4.0])
    assert three.high / three.mean == pytest.approx(2 ** (4.303 / 3**0.5), rel=1e-3)


class Best:
    """The best that is known of an instance: a period of 8, a makespan of 40, a device span of 20."""

    period_bound = Fraction(6)

    def best(self, figure: str) -> Fraction:
        return {"period": Fraction(8), "makespan": Fraction(40), "device_span": Fraction(20)}[figure]

    def bound(self, figure: str) -> Fraction:
        return {"period": Fraction(6), "makespan": Fraction(32), "device_span": Fraction(16)}[figure]


def row(
    instance: str, method: str, period: str | None, makespan: int | None, seconds: float = 0.0
) -> InstanceRow:
    return InstanceRow(
        instance, "small", False, method, 0, period=period, makespan=makespan, seconds=seconds, note="1F1B"
    )


INSTANCES = [
    row("one", "search", "9", 50, 2.0),
    row("two", "search", "6", 42, 4.0),
    row("three", "search", None, None, 0.3),
    row("one", BY_HAND, "17/2", 60),
    row("unknown", "search", "1", 1),
]


def test_gaps_are_in_percent_to_the_best_and_in_brackets_to_the_bound() -> None:
    """Periods 9 and 6 of 8: 12.5 above and 25 below; of the bound 6: 50 above and 0."""
    best = cast(dict[str, BestKnown], dict.fromkeys(("one", "two", "three"), Best()))
    searched = [each for each in INSTANCES if each.method == "search"]
    small, every = gaps(searched, best)
    assert (small["group"], every["group"]) == ("small", "all")
    assert (small["instances"], small["no answer"], small["optimal"]) == (3, 1, 1)
    assert small["period"] == [-6.25, 25.0]
    assert small["makespan"] == [(25 + 5) / 2, pytest.approx((56.25 + 31.25) / 2)]
    assert (small["device_span"], small["seconds"]) == (None, 2.1)
    text = markdown(INSTANCES, best)
    assert "| small | 3 | 1 | 1 | -6.25 (25.00) | 15.00 (43.75) | - | 2.1 |" in text
    assert beaten_by_hand(INSTANCES) == ["one: period 5.9% above (1F1B)"]
