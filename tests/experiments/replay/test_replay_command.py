"""`experiments.replay`: its tables, what it leaves out, and what it refuses."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import refusal
from made_up_job_traces import write_trace


def uneven(step: int, replica: int, kind: str, block: int, n: int) -> float:
    return (3 if (replica, n) == (0, 0) else 1) * (0.010 if kind == "F" else 0.020)


@pytest.mark.always
def test_all_jobs_of_a_folder_are_replayed(command, tmp_path: Path) -> None:
    write_trace(tmp_path, uneven, name="one", steps=(1, 2))
    write_trace(tmp_path, uneven, name="two", stages=3, chunks=2, replicas=1, steps=(5,))
    done = command("replay", f"data={tmp_path}", "work_limit=0.05")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    rows = list(csv.DictReader((out / "replay.csv").read_text().splitlines()))
    columns = "job iterations measured_ms simulated_ms reordered_ms reassigned_ms bound_ms"
    assert " ".join(rows[0]) == columns
    assert [(row["job"], row["iterations"]) for row in rows] == [("one", "2"), ("two", "1")]
    for row in rows:
        assert float(row["simulated_ms"]) == pytest.approx(float(row["measured_ms"]), rel=1e-3)
        assert float(row["bound_ms"]) <= float(row["reassigned_ms"]) <= float(row["simulated_ms"])
    iterations = list(csv.DictReader((out / "iterations.csv").read_text().splitlines()))
    assert [(row["job"], row["step"]) for row in iterations] == [("one", "1"), ("one", "2"), ("two", "5")]
    assert "one, 2 iterations: measured" in done.stdout


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    message = refusal("replay", [f"data={tmp_path}"], tmp_path / "out")
    assert "has no trace-NAME.csv.gz; give a folder with at least one" in message
    write_trace(tmp_path, uneven)
    (tmp_path / "meta-job.yaml").write_text("dp_size: 2\npp_size: 3\n")
    message = refusal("replay", [f"data={tmp_path}"], tmp_path / "out2")
    assert "column stage: goes to 1, where the meta file says pp_size 3" in message


def test_the_times_of_a_job_are_scenarios_of_a_search(command, tmp_path: Path) -> None:
    write_trace(tmp_path, uneven, name="one", steps=(1, 2))
    assert command("replay", f"data={tmp_path}", "work_limit=0.01").returncode == 0
    out = tmp_path / "out"
    done = command(
        "search",
        *("placement=file", f"placement.path={out / 'placement-one.yaml'}", "search.num_micro_batches=4"),
        *(f"search.scenarios={out / 'scenarios-one.yaml'}", "search.scenario_quantile=0.95"),
        *("search.work_limit=0.5", "schedule=one_f_one_b"),
    )
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((out / "scenarios.csv").read_text().splitlines()))
    assert {row["schedule"] for row in rows} >= {"robust", "one_f_one_b"}
    for row in rows:
        assert row["scenario"] == "as measured in one"
        assert 0 < float(row["error_ms"]) < float(row["mean_ms"]) / 10
        assert float(row["bound_ms"]) <= float(row["mean_ms"])
