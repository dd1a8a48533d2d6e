from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from quick_rows import quick_rows

from experiments.benchmarks.frontier import cases as frontier_cases
from experiments.benchmarks.frontier import lowtime_plans
from experiments.benchmarks.frontier.ablation import main as ablation
from experiments.benchmarks.frontier.cases import BENCHMARK, synthetic_profile
from experiments.benchmarks.frontier.measuring import (
    Task,
    against_lowtime,
    against_perseus,
    exact,
    gaps,
    saving,
    speed,
    stragglers,
    under_limits,
)
from experiments.benchmarks.results import Case
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b

LIMITS = {"dwell_ms": 20.0, "latency_ms": 5.0, "slowdown": 1.1, "most": 50.0, "cpu_s": 1e3}
SMALL = Task(one_f_one_b(v_shape(2), 3), synthetic_profile(v_shape(2), 4, seed=1, noise=0.01))


def test_the_quick_cases_reach_what_they_must(tmp_path: Path) -> None:
    rows = quick_rows(BENCHMARK, tmp_path / "results.json")
    assert {"speed", "savings", "gaps", "perseus", "exact", "stragglers"} <= {row["group"] for row in rows}
    for row in rows:
        # Whether it was quick enough depends on the machine; what was found does not.
        assert all("CPU s" in text or "look-up" in text for text in row["missed"]), row
    table = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "\n| group | case | must reach | CPU s | met | note |\n" in table, "no empty columns"


def test_a_wrong_expectation_is_reported_as_not_met(tmp_path: Path) -> None:
    cases = [
        Case("wrong", "speed", "no time", partial(speed, SMALL, cpu_s=1e-9)),
        Case("wrong", "saving", "all", partial(saving, SMALL, at_least=99.0, published=1.0)),
        Case("wrong", "gap", "none", partial(gaps, SMALL, mean=0.0, most=0.0)),
        Case("wrong", "stragglers", "long", partial(stragglers, SMALL, factors=(3.0, 2.0), look_up_s=1.0)),
        Case("wrong", "switching", "none", partial(under_limits, SMALL, **(LIMITS | {"most": -1.0}))),
        Case("right", "switching", "any", partial(under_limits, SMALL, **LIMITS)),
        Case("right", "gap", "any", partial(gaps, SMALL, mean=100.0, most=100.0)),
        Case("right", "perseus", "above", partial(against_perseus, SMALL, unit_ms=5.0)),
        Case("right", "exact", "within", partial(exact, SMALL, num_deadlines=4, work_limit=60.0)),
    ]
    rows = BENCHMARK.run(cases, tmp_path / "results.json")
    assert [row.result.is_met for row in rows] == [case.group == "right" for case in cases]
    assert "NO: more than 1e-09 CPU s" in (tmp_path / "results.md").read_text(encoding="utf-8")


def test_rows_are_skipped_where_what_they_need_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frontier_cases, "STAGE_PROFILES", tmp_path)
    output = tmp_path / "results.json"
    assert BENCHMARK.main(["savings", "--quick", "--output", str(output)]) == 0
    assert "0 of 2 met, 2 skipped" in capsys.readouterr().out
    assert "| skipped: gpt3-175b" in output.with_suffix(".md").read_text(encoding="utf-8")


@pytest.mark.parametrize("installed", ["", "0.2.0"])
def test_says_which_lowtime_is_missing(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowtime_plans.importlib.util, "find_spec", lambda _: object() if installed else None)
    monkeypatch.setattr(lowtime_plans.importlib.metadata, "version", lambda _: installed)
    found = against_lowtime(SMALL, unit_ms=1.0, ratio=1.0)
    assert found.skipped.endswith("pip install lowtime==0.3.0")
    assert not found.is_met


def test_lowtime_is_compared_with_where_it_is_installed() -> None:
    if reason := lowtime_plans.reason_to_skip():
        pytest.skip(reason)
    task = Task(one_f_one_b(v_shape(2), 3), synthetic_profile(v_shape(2), 30, seed=1, noise=0.005))
    found = against_lowtime(task, unit_ms=1.0, ratio=0.0)
    assert found.is_met, found


def test_the_made_up_profile_is_the_same_every_time() -> None:
    one, same, other = (synthetic_profile(v_shape(3), 9, seed, noise=0.01) for seed in (4, 4, 5))
    assert one == same
    assert one.points != other.points
    times = np.array([point.time_ms for point in one.points["F0"]])
    assert times[0] > times[-1]


def test_the_ablation_has_a_row_for_each_generator(capsys: pytest.CaptureFixture[str]) -> None:
    assert ablation(["--quick"]) == 0
    table = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert {"-", "floor", "forward", "backward", "fixed", "spliced", "neighbourhoods"} <= {
        row[1] for row in table
    }
    whole = {row[0]: float(row[3]) for row in table if row[1] == "-"}
    assert all(float(row[3]) >= whole[row[0]] - 1e-4 for row in table if row[1] == "spliced")
    assert any(float(row[3]) > whole[row[0]] for row in table)
