"""``search.scenarios``: one order for all, and a table of schedules in each."""

from __future__ import annotations

import csv
from pathlib import Path

from commands import refusal

from schedsearch.schedule_file import read_schedule

OPTIONS = [
    *("placement=v_shape", "placement.num_devices=4", "placement.forward_time=10"),
    *("placement.backward_time=20", "search.memory=4", "search.num_micro_batches=8", "search.work_limit=2.5"),
]


def test_the_order_is_best_on_average_and_the_table_says_how_others_do(ran, tmp_path: Path) -> None:
    scenarios = "search.scenarios=[{slow_devices: {1: 1.3}}, {slow_devices: {2: 1.3}}]"
    done = ran("search", *OPTIONS, scenarios)
    assert "scenarios: mean iteration of robust " in done.stdout
    rows = list(csv.DictReader((tmp_path / "out" / "scenarios.csv").open()))
    assert [(row["schedule"], row["scenario"]) for row in rows[:4]] == [
        (name, f"device {device} x 1.3") for name in ("robust", "searched") for device in (1, 2)
    ]
    assert "one_f_one_b" in {row["schedule"] for row in rows}
    means = {
        name: sum(float(r["mean_ms"]) for r in rows if r["schedule"] == name)
        for name in ("robust", "searched")
    }
    assert means["robust"] <= means["searched"]
    assert all(float(row["bound_ms"]) <= float(row["mean_ms"]) for row in rows)
    assert read_schedule(tmp_path / "out" / "schedule.json").num_micro_batches == 8


def test_scenarios_stand_in_a_file_too(ran, tmp_path: Path) -> None:
    path = tmp_path / "scenarios.yaml"
    path.write_text("- {name: spread, jitter: 0.1}\n- {name: net, slow_pairs: {1-2: 2}, weight: 3}\n")
    ran(
        "search", "schedule=one_f_one_b", *OPTIONS, f"search.scenarios={path}", "search.scenario_quantile=0.9"
    )
    rows = list(csv.DictReader((tmp_path / "out" / "scenarios.csv").open()))
    assert {row["scenario"] for row in rows} == {"spread", "net"}


def test_wrong_scenarios_are_refused_before_the_search(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "search.scenarios[0].jitter: -1 is not 0 or more" in refusal(
        "search", [*OPTIONS, "search.scenarios=[{jitter: -1}]"], out
    )
    assert "search.scenario_quantile: 2" in refusal("search", [*OPTIONS, "search.scenario_quantile=2"], out)
    assert "needs search.scenarios" in refusal("search", [*OPTIONS, "search.scenario_quantile=0.5"], out)
    missing = refusal("search", [*OPTIONS, f"search.scenarios={tmp_path / 'none.yaml'}"], out)
    assert "none.yaml" in missing
