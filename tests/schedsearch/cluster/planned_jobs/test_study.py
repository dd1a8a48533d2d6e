"""Jobs drawn at random, energy over time, and runs beside their baselines."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.planned_jobs.drawn_jobs import DrawOptions, drawn_jobs
from schedsearch.cluster.planned_jobs.energy_over_time import EnergyOverTime
from schedsearch.cluster.planned_jobs.planned_throughputs import PlannedThroughputs
from schedsearch.cluster.planned_jobs.study import RUNS, StudyOptions, study
from schedsearch.cluster.policies.fairness import MaxMinFairness
from schedsearch.cluster.policies.spending.shifting import LeastSignalCost
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs
from schedsearch.energy import Interval

HIGHEST, LOWER = JobOperatingPoint(1.0, 400.0, 1400), JobOperatingPoint(0.8, 200.0, 900)


def _on(gpus: int, *points: JobOperatingPoint) -> dict[str, tuple[JobOperatingPoint, ...]]:
    return {
        "a100": tuple(JobOperatingPoint(gpus * p.steps_per_s, gpus * p.power_w, p.clock_mhz) for p in points)
    }


TABLE = PlannedThroughputs(
    Throughputs({("gpt", gpus): _on(gpus, HIGHEST, LOWER) for gpus in (1, 2)}),
    Throughputs({("gpt", gpus): _on(gpus, HIGHEST) for gpus in (1, 2)}),
    {},
    {},
)
"""A job of a step per second and GPU, or of four fifths for half of the power."""

CLUSTER = GpuCluster({"a100": 2}, idle_power_w={"a100": 50.0})

DAY = (Interval(43200.0, 300.0), Interval(43200.0, 100.0))


def test_energy_over_time_is_that_of_the_simulation() -> None:
    """One job of 3600 steps on one GPU at 400 W, beside 50 W of the other, and then 100 W."""
    job = Job("one", "gpt", 3600.0, 1)
    options = SimulationOptions(records_rounds=True)
    outcome = simulate_cluster([job], CLUSTER, TABLE.highest_clocks, MaxMinFairness(), options)
    energy = EnergyOverTime(outcome)
    assert outcome.end_s == pytest.approx(3600.0)
    assert energy.kwh_until([1800.0, 3600.0, 7200.0]) == pytest.approx([0.225, 0.45, 0.55])
    assert outcome.kwh == pytest.approx(0.45)
    assert energy.peak_w == 450.0
    assert energy.share_above(449.0) == 1.0
    assert energy.share_above(450.0) == 0.0
    assert energy.cost((Interval(1800.0, 10.0), Interval(1800.0, 20.0)), 7200.0) == pytest.approx(
        0.225 * 10 + 0.225 * 20 + 0.05 * 10 + 0.05 * 20
    )
    assert energy.kw_by_hour(86400.0) == pytest.approx([0.45] + [0.1] * 23)


def test_jobs_are_drawn_as_asked() -> None:
    options = DrawOptions(3, 200.0, 10.0, (2.0, 8.0), 0.5, (1.5, 4.0), "a100")
    jobs = drawn_jobs(TABLE.throughputs, CLUSTER, options)
    assert jobs == drawn_jobs(TABLE.throughputs, CLUSTER, options)
    assert 1800 < len(jobs) < 2200
    hours = np.array([job.steps / job.scale_factor / 3600 for job in jobs])  # a step per second and GPU
    assert hours.min() >= 2.0
    assert hours.max() <= 8.0
    assert np.median(hours) == pytest.approx(4.0, rel=0.1)
    assert {job.scale_factors for job in jobs} == {(1, 2), (2, 1)}
    factors = np.array([job.slo_s / 3600 for job in jobs]) / hours
    has_slo = np.isfinite(factors)
    assert has_slo.mean() == pytest.approx(0.5, abs=0.05)
    assert 1.5 <= factors[has_slo].min() <= factors[has_slo].max() <= 4.0


def test_each_run_is_held_against_its_baseline() -> None:
    """What must hold of any trace that all runs finish: clocks save energy, and the cap is kept."""
    cluster = replace(CLUSTER, workers={"a100": 4})
    jobs = drawn_jobs(TABLE.throughputs, cluster, DrawOptions(days=2.0, jobs_per_day=16.0, hours=(1.0, 6.0)))
    found = study(TABLE, jobs, cluster, StudyOptions(tuple(RUNS), 1000.0, DAY))
    rows = {row["run"]: row for row in found.rows()}
    assert all(row["jobs_done"] == len(jobs) for row in rows.values())
    for row in rows.values():
        if row["baseline"]:
            assert row["kwh_saved"] == pytest.approx(1 - row["kwh"] / rows[row["baseline"]]["kwh"])
    assert rows["frontier"]["kwh_saved"] == pytest.approx(0.0, abs=1e-9), "fair jobs are as fast as can be"
    assert rows["frontier_capped"]["kwh_saved"] > 0.05
    assert rows["least_energy"]["kwh_saved"] > 0.1
    assert rows["least_carbon"]["kg_co2_saved"] > rows["least_carbon"]["kwh_saved"]
    for name in ("highest_clocks_capped", "frontier_capped"):
        assert rows[name]["share_above_cap"] == 0.0
        assert rows[name]["peak_kw"] <= 1.0
    for name, outcome in found.outcomes.items():
        idle_kwh = 0.2 * (found.end_s - outcome.end_s) / 3600
        assert rows[name]["kwh"] == pytest.approx(outcome.kwh + idle_kwh)


def test_a_decision_ends_with_its_interval() -> None:
    """The job could run at once; it waits for the cheap half of the day, for which nobody wakes it."""
    job = Job("one", "gpt", 3600.0, 1, arrival_s=3600.0, slo_s=80000.0)
    policy = LeastSignalCost(signal=DAY, horizon_s=86400.0)
    outcome = simulate_cluster([job], CLUSTER, TABLE.highest_clocks, policy, SimulationOptions())
    assert outcome.jobs[0].first_start_s == pytest.approx(43200.0)
    assert outcome.slo_violations == 0


def test_a_job_without_slo_is_not_put_off_beyond_its_promise() -> None:
    """Each hour is cheaper than the one before, so putting it off always pays; alone it takes 2 hours."""
    signal = tuple(Interval(3600.0, 1000.0 - hour) for hour in range(240))
    policy = LeastSignalCost(0.5, signal=signal, horizon_s=86400.0)
    outcome = simulate_cluster(
        [Job("one", "gpt", 7200.0, 1)], CLUSTER, TABLE.highest_clocks, policy, SimulationOptions()
    )
    assert outcome.jobs[0].finish_s <= 2 * 7200.0 + 360


def test_wrong_studies_are_refused() -> None:
    with pytest.raises(ClusterError, match="runs: 'fastest' is not known; use highest_clocks"):
        StudyOptions(("fastest",), 500.0, DAY)
    with pytest.raises(ClusterError, match="trace: has no jobs"):
        study(TABLE, [], CLUSTER, StudyOptions(("frontier",), 500.0, DAY))
    with pytest.raises(ClusterError, match="models: none runs in the cluster"):
        drawn_jobs(TABLE.throughputs, GpuCluster({"h100": 2}), DrawOptions())
    with pytest.raises(ClusterError, match=r"trace.hours: \(2.0, 1.0\) is not two times"):
        DrawOptions(hours=(2.0, 1.0))
    with pytest.raises(ClusterError, match="idle GPUs alone, which draw 100 W"):
        replace(CLUSTER, power_cap_w=90.0)
    with pytest.raises(ClusterError, match="other_scale_factors"):
        Job("one", "gpt", 1.0, 1, other_scale_factors=(1,))
    assert math.isinf(CLUSTER.power_cap_w)
