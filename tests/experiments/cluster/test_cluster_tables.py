"""The tables, lines, files and figures of a simulated cluster: by hand from a made-up outcome."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.cluster.outcome_tables import jobs_table, outcome_facts, outcome_to_dict, series_table
from experiments.cluster.pictures import busy_gpus
from experiments.cluster.task import allocation_to_dict
from experiments.report.result import Result, fact_lines
from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.simulator.outcome import JobOutcome, Outcome, RoundSeries

JOBS = (
    JobOutcome(Job("before", "a", 10.0), 10.0, 0.0, 3600.0, 1800.0, 3600.0, 1.5, 0.25, starts=1),
    JobOutcome(
        Job("quick", "a", 40.0, 2, arrival_s=1800.0, slo_s=9000.0),
        *(40.0, 1900.0, 9000.0, 3600.0, 14200.0, 8.0, 2.5),
        starts=3,
        renewals=5,
    ),
    JobOutcome(
        Job("slow", "b", 60.0, arrival_s=3600.0, slo_s=7200.0, weight=2.0, entity="us"),
        *(60.0, 4000.0, 18000.0, 28800.0, 14000.0, 6.5, 1.25),
        starts=2,
        renewals=9,
    ),
    JobOutcome(Job("after", "a", 10.0, arrival_s=7200.0), 4.0, starts=1),
)

OUTCOME = Outcome(
    "las",
    GpuCluster({"v100": 3, "k80": 1}, {"v100": 2.0}, idle_power_w={"v100": 50.0, "k80": 200 / 3}),
    360.0,
    (1, 3),
    21600.0,
    "",
    JOBS,
    {"v100": 32400.0, "k80": 5400.0},
    rounds=RoundSeries(
        np.array([0.0, 360.0]), np.array([[3, 0], [1, 1]]), np.array([4, 5]), np.array([2, 1])
    ),
    decided_s=np.array([0.0]),
    share_errors=np.array([0.125]),
)
"""Of the jobs that count, one is done 2 h after its arrival and one 4 h; the second is 2 h late."""


def test_lines_of_an_outcome_tell_hours_shares_and_counts() -> None:
    """Busy are 32400 + 5400 of 4 times 21600 GPU seconds; fairness is 7200 / 3600 and 14400 / 28800."""
    lines = [" ".join(line.split()) for line in fact_lines(outcome_facts(OUTCOME))]
    for expected in (
        "Average job completion time 3 h (2 of 2 jobs are done)",
        f"Utilisation {37800 / 86400:.1%}",
        "Cost 16.00 $",
        "Completion time, 50 % of the jobs at most 3 h",
        "Completion time, 90 % of the jobs at most 3.8 h",
        "Makespan 4.5 h",
        "Finish-time fairness (rho), mean 1.25 (largest 2;",
        "Preemptions 3 (14 leases",
        "Energy 4.75 kWh",
        "SLO violations 1 of 2 jobs (50.0%)",
        "Simulated time 6 h (4 jobs arrived)",
    ):
        assert any(line.startswith(expected) for line in lines), f"{expected} is not in {lines}"
    assert not any(line.startswith(("Not done", "Left out")) for line in lines)


def test_files_of_an_outcome_have_each_figure_under_its_name(tmp_path: Path) -> None:
    tables = {"jobs": jobs_table(OUTCOME), "series": series_table(OUTCOME)}
    Result(tables=tables, files={"cluster.json": outcome_to_dict(OUTCOME, {("a", 8): 3})}).write(tmp_path)
    jobs = list(csv.DictReader(io.StringIO((tmp_path / "jobs.csv").read_text())))
    assert [job["is_measured"] for job in jobs] == ["0", "1", "1", "0"]
    quick, slow, after = jobs[1:]
    assert {name: float(quick[name]) for name in ("arrival_s", "first_start_s", "finish_s", "jct_s")} == {
        "arrival_s": 1800.0,
        "first_start_s": 1900.0,
        "finish_s": 9000.0,
        "jct_s": 7200.0,
    }
    assert (float(quick["isolated_s"]), float(quick["finish_time_ratio"])) == (3600.0, 2.0)
    assert (float(quick["gpu_s"]), float(quick["dollars"]), float(quick["kwh"])) == (14200.0, 8.0, 2.5)
    assert (quick["scale_factor"], quick["preemptions"]) == ("2", "2")
    assert (quick["is_late"], slow["is_late"], after["is_late"]) == ("0", "1", "0")
    assert (slow["weight"], slow["entity"], slow["type"]) == ("2.0", "us", "b")
    assert (after["finish_s"], after["jct_s"], after["slo_s"]) == ("", "", "")
    assert (float(after["steps"]), float(after["steps_done"])) == (10.0, 4.0)
    assert (tmp_path / "series.csv").read_text().splitlines() == [
        "start_s,busy_v100,busy_k80,active_jobs,waiting_jobs",
        "0.0,3,0,4,2",
        "360.0,1,1,5,1",
    ]
    data = json.loads((tmp_path / "cluster.json").read_text())
    assert data["utilisation_by_type"] == {"v100": 0.5, "k80": 0.25}
    assert data["average_jct_s"] == 10800.0 and data["makespan_s"] == 16200.0
    assert (data["dollars"], data["kwh"], data["share_error"]) == (16.0, pytest.approx(4.75), 0.125)
    assert data["slo"] == {"jobs": 2, "violations": 1, "violation_share": 0.5}
    assert data["jobs"] == {
        "measured": 2,
        "window": [1, 3],
        "arrived": 4,
        "done": 2,
        "missing": "",
        "skipped": [{"type": "a", "scale_factor": 8, "count": 3}],
    }
    assert (data["preemptions"], data["lease_renewals"]) == (3, 14)
    assert data["jct_percentiles_s"]["50"] == 10800.0 and data["finish_time_ratio_percentiles"]["50"] == 1.25
    figures = OUTCOME.figures
    assert (figures["jct_p50_s"], figures["max_finish_time_ratio"]) == (10800.0, 2.0)


def test_busy_gpus_are_averages_over_hours() -> None:
    """Three V100s are busy in the first round of 360 s, and one GPU of each type in the second."""
    busy = busy_gpus(OUTCOME)
    assert (busy.begins_h[0], busy.begins_h[-1]) == (0.0, 6.0)
    lengths = np.diff(busy.begins_h)
    assert {name: float(values @ lengths) for name, values in busy.busy.items()} == {
        "v100": pytest.approx(4 * 0.1),
        "k80": pytest.approx(0.1),
    }


def test_the_file_of_a_decision_has_each_clock_and_pair() -> None:
    """Two clocks of one job, and a pair."""
    demand = Demand.of(
        GpuCluster({"v100": 2, "k80": 1}, {"v100": 3.0}),
        [ActiveJob(Job(name, "any", 10.0), 10.0) for name in ("a", "b")],
        [
            Configuration((0,), "v100", 1, (10.0,), 200.0, 1380),
            Configuration((0,), "v100", 1, (8.0,), 100.0, 900),
            Configuration((1, 0), "v100", 1, (6.0, 4.0)),
            Configuration((1,), "k80", 1, (2.0,)),
        ],
    )
    data = allocation_to_dict(Allocation(demand, np.array([0.25, 0.5, 0.25, 1e-15]), float("inf")))
    assert data["shares"] == {"a": {"v100": 0.75, "k80": 0.0}, "b": {"v100": 0.0, "k80": 0.0}}
    (pair,) = data["pairs"]
    assert (pair["jobs"], pair["gpu_type"], pair["share"]) == (("b", "a"), "v100", 0.25)
    assert data["steps_per_s"] == {"a": pytest.approx(7.5), "b": pytest.approx(1.5)}
    assert [one["clock_mhz"] for one in data["configurations"]] == [1380, 900, 0]
    assert data["dollars_per_hour"] == pytest.approx(3.0) and data["power_w"] == pytest.approx(100.0)
    assert data["objective"] is None
