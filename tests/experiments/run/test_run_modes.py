"""Runs of schedules that choose modes: from the search to scripts, plan, simulation and measurement."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from modes_and_streams import options_for, recomputing
from places import ROOT

from placements.placement_file import read_placement
from runtime.codegen.script import programs_of, read_scripts
from schedsearch.schedule_file import read_schedule

EXAMPLES = ROOT / "examples"


def test_modes_are_chosen_planned_run_and_compared(ran, tmp_path: Path) -> None:
    done = ran(
        "run",
        *options_for(replace(recomputing(), memory=(12, 12)), tmp_path, 4),
        *("search.work_limit=1", "energy.num_plans=10", "energy.slowdown=1.1"),
        *("runtime.launcher=in_process", "runtime.device=cpu", "runtime.simulated_gpus=true"),
        *("runtime.trace=true", "runtime.iterations=2"),
    )
    out = tmp_path / "out"
    schedule = read_schedule(out / "schedule.json")
    assert any(map(any, schedule.chosen)), "12 units hold the activations of one micro-batch"
    assert programs_of(read_scripts(out / "scripts")).chosen == schedule.chosen
    measured = json.loads((out / "measurement.json").read_text())
    assert measured["bitwise_equal"] and measured["max_gradient_error"] == 0
    simulated = json.loads((out / "simulated.json").read_text())
    plan = json.loads((out / "plan.json").read_text())
    for name in ("time_ms", "energy_mj"):
        assert simulated[name] == pytest.approx(plan[name]), "virtual GPUs run what was planned"
    planned = {
        (row["block"], int(row["micro_batch"])): float(row["time_ms"])
        for row in csv.DictReader((out / "frequencies.csv").read_text().splitlines())
    }
    assert planned.keys() == schedule.start_of.keys()
    again = [(name, n) for name, n in planned if name == "B0" and schedule.mode(name, n)]
    assert all(planned[instance] >= 6 - 1e-9 for instance in again), "a forward and a backward"
    assert "best by hand" in done.stdout


def test_a_layer_of_experts_runs_on_two_streams_with_the_clocks_of_its_plan(ran, tmp_path: Path) -> None:
    placement = replace(read_placement(EXAMPLES / "communication.yaml"), slowdown=())
    ran(
        "run",
        *options_for(placement, tmp_path, 3),
        *("search.work_limit=1", "energy.num_plans=10", "runtime.launcher=in_process", "runtime.device=cpu"),
        *("runtime.iterations=1", "runtime.num_experts=3"),
    )
    measured = json.loads((tmp_path / "out" / "measurement.json").read_text())
    assert measured["bitwise_equal"] and measured["max_gradient_error"] == 0
    calls = (tmp_path / "out" / "scripts" / "device_0.py").read_text().splitlines()
    beside = [line for line in calls if 'stream="communication"' in line]
    assert beside and not any("clock_mhz" in line for line in beside)
    assert any("attention_F" in line and "clock_mhz" in line for line in calls)
