"""The benchmark beside peers: its rows, what is missed and skipped, and its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.benchmarks.comparison import PeerComparison
from experiments.benchmarks.peers import measuring
from experiments.benchmarks.peers.cases import TORCH_SCHEDULES
from experiments.benchmarks.peers.measuring import against_torch_schedule
from experiments.benchmarks.peers.plots import draw_costs
from experiments.benchmarks.peers.recurrence import min_time_ms
from experiments.benchmarks.peers.torch_schedules import SHIPPED, torch_schedule
from experiments.benchmarks.planners.measuring import random_chain
from experiments.benchmarks.results import BenchmarkCase, BenchmarkRow, CaseResult
from placements.planners.pipedream.planner import best_plan
from placements.planners.pipedream.topology import Level
from schedsearch.validate import validate


def test_a_longer_answer_of_ours_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "peak_memory", lambda schedule: [1] * schedule.placement.num_devices)
    found = against_torch_schedule("GPipe", 2, 4, rounds=1)
    assert found.missed == ("makespan 24 is above 15",)
    assert not found.is_met


@pytest.mark.parametrize("name", TORCH_SCHEDULES)
def test_schedules_of_torch_are_valid_and_of_its_own_stages(name: str) -> None:
    schedule = validate(torch_schedule(name, 4, 8))
    assert sum(block.kind.value == "F" for block in schedule.placement.blocks) == 4 * SHIPPED[name]


@pytest.mark.parametrize("seed", range(4))
def test_the_printed_recurrence_finds_the_planners_time(seed: int) -> None:
    graph, level = random_chain(9, seed), Level(6, 1.25)
    assert min_time_ms(graph, level) == pytest.approx(best_plan(graph, [level]).time_ms, rel=1e-12)


def test_a_figure_is_drawn_of_tasks_of_several_sizes(tmp_path: Path) -> None:
    def row(task: str, size_name: str, size: int) -> BenchmarkRow:
        found = PeerComparison(task, size_name, size, (1.0, 2.0), (40.0, 100.0), "makespan", 10.0, 10.0)
        result = CaseResult(2.0, comparison=found)
        return BenchmarkRow("group", BenchmarkCase("case", "must", lambda: result), result)

    rows = [row("one", "devices", size) for size in (4, 2, 8)]
    draw_costs([*rows, row("other", "blocks", 3)], tmp_path / "peers.json")
    assert {path.name for path in tmp_path.iterdir()} == {"peers_devices.png", "peers_devices.svg"}
