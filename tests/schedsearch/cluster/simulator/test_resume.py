"""An interrupted simulation goes on as if nothing had been."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from signal import SIGINT, raise_signal
from typing import Any

import pytest
from cluster.small_clusters import Drawn, drawn_jobs, drawn_throughputs
from outcome_check import check_outcome, plain

from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.job_table import ClusterProgress
from schedsearch.cluster.simulator.options import FailureOptions, SimulationOptions
from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.cluster.simulator.simulation import simulate_cluster

CLUSTER = GpuCluster({"v100": 2, "k80": 3}, {"v100": 2.5}, {"v100": 2})
THROUGHPUTS = drawn_throughputs(Random(4), ("v100", "k80"), pairs=True)
JOBS = [replace(job, steps=30 * job.steps) for job in drawn_jobs(Random(7), 12, 2)]
OPTIONS = SimulationOptions(
    seed=3,
    types_in_turn=True,
    shuffles_types=True,
    stop_at_s=1e5,
    restart_s=10.0,
    failures=FailureOptions(2e4, 900.0, loses_lease=True),
    snapshots_s=3000.0,
    records_rounds=True,
)


class InterruptAt:
    """Presses Ctrl-C before some round."""

    def __init__(self, number: int, *, by_signal: bool = False) -> None:
        self.left, self.by_signal = number, by_signal

    def __call__(self, _: ClusterProgress) -> None:
        self.left -= 1
        if self.left == 0:
            if self.by_signal:
                raise_signal(SIGINT)
            else:
                raise KeyboardInterrupt


def run(on_progress: InterruptAt | None = None, state: Path | None = None, jobs: list[Job] = JOBS) -> Outcome:
    return simulate_cluster(
        jobs, CLUSTER, THROUGHPUTS, Drawn(5, shares_space=True), OPTIONS, on_progress, state
    )


@pytest.mark.parametrize("number", [1, 7, 60])
def test_resumed_simulations_are_the_same_bit_for_bit(number: int, tmp_path: Path) -> None:
    state = tmp_path / "state.pkl"
    first = run(InterruptAt(number, by_signal=number == 7), state)
    assert first.reason
    assert first.missing.startswith("interrupted from the keyboard: ")
    if first.recorded:
        check_outcome(first, THROUGHPUTS, OPTIONS)
    again = run(InterruptAt(3), state)
    assert again.reason
    resumed, whole = run(state=state), run()
    assert plain(resumed) == plain(whole)
    assert not state.exists()
    check_outcome(resumed, THROUGHPUTS, OPTIONS)


def test_a_state_of_another_simulation_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state.pkl"
    run(InterruptAt(9), state)
    with pytest.raises(ClusterError, match="is of another simulation, whose options differs"):
        simulate_cluster(
            JOBS, CLUSTER, THROUGHPUTS, Drawn(5, True), replace(OPTIONS, seed=4), state_path=state
        )
    with pytest.raises(ClusterError, match="is of another trace, from job job 0 on"):
        run(state=state, jobs=[replace(JOBS[0], steps=1.0), *JOBS[1:]])
    state.write_text("{}")
    with pytest.raises(ClusterError, match="is not the state of a simulation"):
        run(state=state)


@pytest.mark.parametrize("name", ["allox", "gandiva", "makespan_budget", "las_packed"])
def test_policies_that_know_what_they_did_before_go_on(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"budget_dollars": 2500.0} if name == "makespan_budget" else {}
    cluster = GpuCluster({"v100": 2, "k80": 3}, {"v100": 2.5, "k80": 0.5})
    jobs = [replace(job, scale_factor=1) for job in drawn_jobs(Random(7), 12, 2)]

    def simulated(on_progress: InterruptAt | None = None) -> Outcome:
        policy = policy_of(name, **options)
        return simulate_cluster(
            jobs, cluster, THROUGHPUTS, policy, SimulationOptions(reset_s=0.0), on_progress, state
        )

    state = tmp_path / "state.pkl"
    first = simulated(InterruptAt(6))
    assert first.reason
    resumed, whole = simulated(), simulated()
    assert 1 <= len(first.decisions.time_s) < len(whole.decisions.time_s)
    assert plain(resumed) == plain(whole)


def test_without_a_file_for_its_state_an_interrupted_simulation_is_no_result() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(InterruptAt(7, by_signal=True))


def test_a_policy_that_cannot_be_kept_is_told_before_anything_is_simulated(tmp_path: Path) -> None:
    class Local(Drawn):
        pass

    with pytest.raises(ClusterError, match="policy drawn: its state cannot be kept .*define its class in a"):
        simulate_cluster(JOBS, CLUSTER, THROUGHPUTS, Local(5), OPTIONS, state_path=tmp_path / "state.pkl")
