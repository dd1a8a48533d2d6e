from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.benchmarks.frontier import cases as frontier_cases
from experiments.benchmarks.frontier import lowtime_plans
from experiments.benchmarks.frontier.ablation import main as ablation
from experiments.benchmarks.frontier.cases import BENCHMARK, made_up, synthetic_profile
from experiments.benchmarks.frontier.measuring import (
    against_lowtime,
    against_perseus,
    exact,
    gaps,
    saving,
    speed,
    stragglers,
    under_limits,
)
from placements.shapes import v_shape

LIMITS = {"dwell_ms": 20.0, "latency_ms": 5.0, "slowdown": 1.1, "most": 50.0, "cpu_s": 1e3}
SMALL = made_up(v_shape(2), 3, 4, seed=1, noise=0.01)


def test_a_wrong_expectation_is_reported_as_not_met() -> None:
    assert speed(SMALL, cpu_s=1e-9).missed == ("more than 1e-09 CPU s",)
    assert saving(SMALL, at_least=99.0, published=1.0).missed
    assert gaps(SMALL, mean=0.0, most=0.0).missed
    assert stragglers(SMALL, factors=(3.0, 2.0), look_up_s=1.0).missed
    assert under_limits(SMALL, **(LIMITS | {"most": -1.0})).missed
    assert under_limits(SMALL, **LIMITS).is_met
    assert gaps(SMALL, mean=100.0, most=100.0).is_met
    assert against_perseus(SMALL, unit_ms=5.0).is_met
    assert exact(SMALL, num_deadlines=4, work_limit=60.0).is_met


def test_rows_are_skipped_where_what_they_need_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier_cases, "STAGE_PROFILES", tmp_path)
    cases = BENCHMARK.groups["savings"]()
    assert {case.lacks() for case in cases} == {
        "gpt3-175b+a100_sxm_bf16.csv is not there",
        "gpt3-175b+a40_bf16.csv is not there",
    }


def test_lowtime_is_compared_with_where_it_is_installed() -> None:
    if reason := lowtime_plans.reason_to_skip():
        pytest.skip(reason)
    found = against_lowtime(made_up(v_shape(2), 3, 30, seed=1, noise=0.005), unit_ms=1.0, ratio=0.0)
    assert found.is_met, found


def test_the_made_up_profile_is_the_same_every_time() -> None:
    one, same, other = (synthetic_profile(v_shape(3), 9, seed, noise=0.01) for seed in (4, 4, 5))
    assert one == same
    assert one.points != other.points
    times = np.array([point.time_ms for point in one.points["F0"]])
    assert times[0] > times[-1]


def test_the_ablation_has_a_row_for_each_generator(capsys: pytest.CaptureFixture[str]) -> None:
    assert ablation(["--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("| case |") for line in lines].count(True) == 1
    table = [line.split(" | ") for line in lines[2:]]
    assert {"-", "floor", "forward", "backward", "fixed", "spliced", "neighbourhoods"} <= {
        row[1] for row in table
    }
    whole = {row[0]: float(row[3]) for row in table if row[1] == "-"}
    assert all(float(row[3]) >= whole[row[0]] - 1e-4 for row in table if row[1] == "spliced")
    assert any(float(row[3]) > whole[row[0]] for row in table)
