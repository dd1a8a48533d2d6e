"""The commands by another method than ours, and with a cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schedsearch.schedule_file import read_schedule

SMALL = ["placement=v_shape", "placement.num_devices=2", "search.num_micro_batches=3", "search.memory=2"]


@pytest.mark.parametrize("method", ["tessel", "time_optimal"])
def test_the_baselines_write_the_same_files(method: str, ran, tmp_path: Path) -> None:
    done = ran("search", *SMALL, f"search.method={method}")
    data = json.loads((tmp_path / "out/schedule.json").read_text())
    read_schedule(tmp_path / "out/schedule.json")
    assert data["search_status"] == "OPTIMAL"
    assert data["makespan"] == data["makespan_bound"] == 16
    assert (data["repetend"] is None) == (data["period"] is None) == (method == "time_optimal")
    assert "makespan    160 ms: proved (bound 160 ms)" in done.stdout
    assert "none yet" not in done.stderr.splitlines()[-1]
    assert "search: " in done.stderr


def test_the_main_job_with_a_baseline(ran, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    quick = ["runtime.launcher=fork", "runtime.iterations=1", "energy.num_plans=5"]
    ran("run", *SMALL, "search.method=tessel", *quick)
    measurement = json.loads((tmp_path / "out/measurement.json").read_text())
    assert measurement["bitwise_equal"]
    report = (tmp_path / "out/report.html").read_text()
    assert "Made by" not in report
    assert "period and makespan proved" in report


def test_a_search_begins_with_a_file(ran, tmp_path: Path) -> None:
    line = ["search", "placement=v_shape", "search.num_micro_batches=8", "search.memory=3"]
    ran(*line, "search.work_limit=20")
    first = tmp_path / "first.json"
    (tmp_path / "out/schedule.json").rename(first)
    line.append("search.time_limit_s=1e-6")
    ran(*line, f"search.begin_with={first}")
    again, before = (json.loads(path.read_text()) for path in (tmp_path / "out/schedule.json", first))
    for figure in ("period", "micro_batches_per_repetend", "makespan"):
        assert again[figure] == before[figure]
    (tmp_path / "out/schedule.json").unlink()
    ran(*line)
    alone = json.loads((tmp_path / "out/schedule.json").read_text())
    assert alone["period"] / alone["micro_batches_per_repetend"] > again["period"] / 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("search.method=tesel", "search.method: 'tesel' is not known; did you mean tessel?"),
        ("search.begin_with=none.json", "none.json: cannot be read"),
    ],
)
def test_wrong_input(override: str, message: str, refused) -> None:
    assert message in refused("search", *SMALL, override)
