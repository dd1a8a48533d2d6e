from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from quick_rows import quick_rows

from experiments.benchmarks.results import Case, CaseResult
from experiments.benchmarks.search.cases import BENCHMARK
from experiments.benchmarks.search.measuring import BestKnown, finite, steady, sweep
from placements.shapes import v_shape

V3 = v_shape(3).with_memory(3)


def test_the_quick_cases_reach_what_they_must(tmp_path: Path) -> None:
    rows = quick_rows(BENCHMARK, tmp_path / "results.json")
    assert len(rows) > 15
    assert {"shapes4", "every_memory", "several", "finite", "real_ratios"} <= {row["group"] for row in rows}
    for row in rows:
        assert row["cpu_s"] > 0
        # Whether it was quick enough depends on the machine; what was found does not.
        assert all("CPU s" in text for text in row["missed"]), row


def test_a_wrong_expectation_is_reported_as_not_met(tmp_path: Path) -> None:
    cases = [
        Case("wrong", "period", "period 3", partial(steady, V3, period=3, cpu_s=1e6)),
        Case("wrong", "bubble", "period at most 3", partial(steady, V3, at_most=3.5, cpu_s=1e6)),
        Case("wrong", "time", "no time", partial(steady, V3, period=4, cpu_s=1e-9)),
        Case("wrong", "sweep", "period 3", partial(sweep, {"memory 3": (V3, 3.0)}, cpu_s=1e6, each_s=1e6)),
        Case("wrong", "makespan", "less than possible", partial(_finite, BestKnown(23, is_optimal=True))),
        Case("right", "makespan", "least", partial(_finite, BestKnown(24, is_optimal=True))),
        Case("right", "proof", "proved", partial(_finite, BestKnown(24, is_optimal=False))),
        Case("right", "period", "period 4", partial(steady, V3, period=4, cpu_s=1e6)),
    ]
    rows = BENCHMARK.run(cases, tmp_path / "results.json")
    assert [row.result.is_met for row in rows] == [case.group == "right" for case in cases]
    assert rows[0].result.missed == ("period is not 3",)
    assert rows[3].result.missed == ("memory 3: period is not 3.0",)
    written = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["rows"]
    assert [row["met"] for row in written] == [case.group == "right" for case in cases]
    assert "NO: period is not 3" in (tmp_path / "results.md").read_text(encoding="utf-8")


def _finite(best: BestKnown) -> CaseResult:
    return finite(V3, 4, best, time_limit_s=10.0)
