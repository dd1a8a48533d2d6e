"""GPUs that fail: what their jobs lose, by hand and on average."""

from __future__ import annotations

from random import Random

import pytest
from cluster.small_clusters import OnFirstType, throughputs_of
from outcome_check import check_outcome

from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
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
