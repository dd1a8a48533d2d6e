"""`experiments.cluster_study` from model names to its files, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import one_line_error
from places import ROOT

from experiments.cluster_study.task import cells

Command = Callable[..., subprocess.CompletedProcess[str]]

SMALL = (
    "models=[gpt3_1.3b]",
    "batches=[16]",
    "counts=[2,4]",
    "gpu_types=[a100]",
    "workers=[4]",
    "num_plans=5",
    "search_time_limit_s=1",
    "days=1",
    "jobs_per_day=6",
    "power_cap_w=1500",
)


def test_a_small_study_writes_its_files_and_goes_on_from_its_plans(command: Command, tmp_path: Path) -> None:
    done = command("cluster_study", *SMALL, draws=True)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    plans = sorted(out.glob("plans/*.pkl"))
    assert len(plans) == 2, "one for each number of GPUs"
    first = json.loads((out / "cluster_study.json").read_text())
    runs = {row["run"]: row for row in first["runs"]}
    assert runs.keys() == {
        *("highest_clocks", "frontier", "highest_clocks_capped", "frontier_capped"),
        "least_energy",
    }
    assert runs["least_energy"]["kwh_saved"] > 0
    with (out / "cluster_study.csv").open(newline="") as file:
        assert [row["run"] for row in csv.DictReader(file)] == list(runs)
    assert "least_energy: least energy within SLOs" in (out / "cluster_study.md").read_text()
    assert all((out / f"{name}.png").stat().st_size > 5000 for name in ("savings", "power_by_hour"))
    times = [path.stat().st_mtime_ns for path in plans]
    done = command("cluster_study", *SMALL, "runs=[least_energy]")
    assert done.returncode == 0, done.stderr
    assert [path.stat().st_mtime_ns for path in plans] == times, "what was planned is not planned again"
    again = json.loads((out / "cluster_study.json").read_text())
    assert [row["average_jct_h"] for row in again["runs"]] == [
        runs[name]["average_jct_h"] for name in ("highest_clocks", "least_energy")
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("gpu_types=[k80]", "gpu_types: 'k80' is not known"),
        ("workers=[4,4]", "workers: [4, 4] is not a number for each of gpu_types; give 1"),
        ("hours=[1]", "hours: [1] is not two numbers"),
        ("models=[gpt5]", "gpt5"),
        ("runs=[fastest]", "runs: 'fastest' is not known"),
    ],
)
def test_mistakes_are_one_line(override: str, message: str, command: Command) -> None:
    done = command("cluster_study", *SMALL, override)
    assert message in one_line_error(done)


def test_the_year_of_the_docs_is_that_of_its_file() -> None:
    page = (ROOT / "docs" / "concepts" / "cluster_power.md").read_text(encoding="utf-8")
    data = json.loads((ROOT / "docs" / "studies" / "cluster_year.json").read_text(encoding="utf-8"))
    assert data["end_h"] > 365 * 24 - 24
    for row in data["runs"]:
        assert f"| {' | '.join(cells(row))} |" in page
    text = page.partition("## A year")[2]
    saved = {f"{100 * row['kwh_saved']:.1f} %" for row in data["runs"] if row["kwh_saved"]}
    times = {f"{1 - row['average_jct_h_saved']:.2f}" for row in data["runs"] if row["baseline"]}
    assert {*re.findall(r"\d+\.\d+ %", text)} <= saved
    assert {*re.findall(r"(\d\.\d\d) (?:times|of the time)", text)} <= times
