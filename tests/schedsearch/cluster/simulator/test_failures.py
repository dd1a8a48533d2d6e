"""GPUs that fail: what their jobs lose, by hand and on average."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from cluster.small_clusters import OnFirstType, throughputs_of
from outcome_check import check_outcome

from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.simulator.failures import GpuFailures
from schedsearch.cluster.simulator.options import FailureOptions, SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster

RATES = throughputs_of({"a": {"v100": 1.0}}, (1, 2))


@pytest.mark.parametrize("loses_lease", [False, True])
def test_a_failure_takes_back_the_round_or_the_lease(loses_lease: bool) -> None:
    """The seed's first failure comes in some round of the only job; then the GPU is away for 1000 s."""
    options = SimulationOptions(
        failures=FailureOptions(20000.0, 1000.0, loses_lease), records_rounds=True, stop_at_s=1e6
    )
    fails_s = Random(7).expovariate(1 / 20000)
    assert 360 < fails_s < 40000
    outcome = simulate_cluster(
        [Job("0", "a", 50000.0)], GpuCluster({"v100": 1}), RATES, OnFirstType(), options
    )
    check_outcome(outcome, RATES, options)
    failed = next(one for one in outcome.recorded if one.runs[0].failed)
    assert failed.runs[0].end_s == fails_s
    assert failed.runs[0].steps == (-failed.start_s if loses_lease else 0.0,)
    after = outcome.recorded[outcome.recorded.index(failed) + 1]
    assert after.start_s == fails_s + 1000
    assert after.runs[0].renewed == (False,)
    assert outcome.jobs[0].failures == sum(one.runs[0].failed for one in outcome.recorded) >= 1
    without = simulate_cluster([Job("0", "a", 50000.0)], GpuCluster({"v100": 1}), RATES, OnFirstType())
    assert outcome.average_jct_s > without.average_jct_s + 1000


def test_gpus_are_away_as_often_as_their_times_say() -> None:
    """Away for repair / (repair + mean time) of the time: 1 / 5."""
    failures = GpuFailures.of(GpuCluster({"v100": 40}), FailureOptions(4000.0, 1000.0), seed=1)
    away = 0
    for time_s in range(0, 2_000_000, 1000):
        failures.advance(time_s)
        away += len(failures.away.get(0, ()))
    assert away / (40 * 2000) == pytest.approx(0.2, abs=0.01)


def test_the_seed_alone_draws_failures() -> None:
    cluster, options = GpuCluster({"v100": 3}), FailureOptions(500.0, 100.0)
    one, other = (GpuFailures.of(cluster, options, seed=2) for _ in range(2))
    one.advance(10000.0)
    for time_s in range(0, 10001, 10):
        other.advance(time_s)
    assert (one.events, one.away) == (other.events, other.away)
    assert one.random.getstate() == other.random.getstate()
    assert GpuFailures.of(cluster, replace(options, repair_s=0.0), seed=3).events != other.events
