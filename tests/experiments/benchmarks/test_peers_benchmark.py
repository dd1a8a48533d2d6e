"""The benchmark beside peers: its rows, what is missed and skipped, and its figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from quick_rows import quick_rows

from experiments.benchmarks.comparison import Comparison, Ratio
from experiments.benchmarks.frontier import lowtime_plans
from experiments.benchmarks.peers import measuring
from experiments.benchmarks.peers.cases import BENCHMARK, TORCH_SCHEDULES
from experiments.benchmarks.peers.measuring import against_torch_schedule
from experiments.benchmarks.peers.plots import draw_costs
from experiments.benchmarks.peers.recurrence import least_time_ms
from experiments.benchmarks.peers.torch_schedules import SHIPPED, torch_schedule
from experiments.benchmarks.planners.measuring import random_chain
from experiments.benchmarks.results import COMPARED, Case, CaseResult, Row
from placements.planners.pipedream.planner import best_plan
from placements.planners.pipedream.topology import Level
from schedsearch.validate import validate


def compared(size: int, ours: float = 10.0, task: str = "one") -> CaseResult:
    found = Comparison(task, "devices", size, (1.0, 2.0, 3.0), (40.0, 100.0, 120.0), "makespan", ours, 10.0)
    return CaseResult(2.0, comparison=found)


def row(result: CaseResult) -> Row:
    return Row(Case("group", "case", "must", lambda: result), result)


def test_the_quick_cases_reach_what_they_must_and_say_what_is_missing(tmp_path: Path) -> None:
    rows = quick_rows(BENCHMARK, tmp_path / "results.json")
    assert {row["group"] for row in rows} == set(BENCHMARK.groups)
    for row in rows:
        assert not row["missed"], row
        if row["skipped"]:
            assert row["skipped"] == lowtime_plans.reason_to_skip()
            continue
        cost = row["ours_over_theirs"]["cost"]
        assert 0 < cost["least"] <= cost["median"] <= cost["most"]
        assert len(row["comparison"]["ours_s"]) == len(row["comparison"]["peer_s"])
    head = (tmp_path / "results.md").read_text(encoding="utf-8").partition("\n| ")[2]
    assert head.startswith(" | ".join(COMPARED)), "ratios come first"


def test_ratios_are_of_pairs() -> None:
    found = compared(2, ours=9.0).comparison
    assert found is not None
    assert found.cost == Ratio(0.025, 0.02, 0.025)
    assert row(compared(2, ours=9.0)).cells[:2] == ("1/40 (1/50 to 1/40)", "makespan 0.9000")
    assert row(CaseResult(1.0)).cells[:2] == ("", "")


def test_a_longer_answer_of_ours_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "peak_memory", lambda schedule: [1] * schedule.placement.num_devices)
    found = against_torch_schedule("GPipe", 2, 4, rounds=1, title="torch's GPipe")
    assert found.missed == ("makespan 24 is above 15",)
    assert not found.is_met


@pytest.mark.parametrize("name", TORCH_SCHEDULES)
def test_schedules_of_torch_are_valid_and_of_its_own_stages(name: str) -> None:
    schedule = validate(torch_schedule(name, 4, 8))
    assert sum(block.kind.value == "F" for block in schedule.placement.blocks) == 4 * SHIPPED[name]


@pytest.mark.parametrize("seed", range(4))
def test_the_printed_recurrence_finds_the_planners_time(seed: int) -> None:
    graph, level = random_chain(9, seed), Level(6, 1.25)
    assert least_time_ms(graph, level) == pytest.approx(best_plan(graph, [level]).time_ms, rel=1e-12)


def test_a_figure_is_drawn_of_tasks_of_several_sizes(tmp_path: Path) -> None:
    rows = [row(compared(size)) for size in (4, 2, 8)]
    lone = Comparison("other", "blocks", 3, (1.0,), (1.0,), "makespan", 1.0, 1.0)
    draw_costs([*rows, row(CaseResult(1.0)), row(CaseResult(1.0, comparison=lone))], tmp_path / "peers.json")
    assert {path.name for path in tmp_path.iterdir()} == {"peers_devices.png", "peers_devices.svg"}
