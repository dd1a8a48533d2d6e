"""The cluster's benchmark: its rows, what is compared with cvxpy, and what is missed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from experiments.benchmarks.cluster import cases as cluster_cases
from experiments.benchmarks.cluster import measuring
from experiments.benchmarks.cluster.beside_cvxpy import SOLVERS, Answers, reason_to_skip
from experiments.benchmarks.cluster.cases import BENCHMARK, POLICIES
from experiments.benchmarks.cluster.loads import (
    JOBS_THAT_END,
    PASSED_S,
    load,
    random_throughputs,
)
from experiments.benchmarks.cluster.measuring import allocation, decisions, partitioned, simulation
from experiments.benchmarks.cluster.terms import WORTH, Terms, shares_of
from experiments.reproduce.gavel.options import cluster_of
from schedsearch.cluster.demand import Configuration, Demand, FloatArray
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.registry import policy_of

SMALL = load(random_throughputs(20, 0), cluster_of(8), 20, 3, seed=0)


def test_rows_are_skipped_where_data_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_cases, "GAVEL", tmp_path)
    lacking = {case.lacks() for case in BENCHMARK.groups["allocations"]() if "Gavel's" in case.name}
    assert lacking == {"simulation_throughputs.json is not there"}


def test_jobs_come_and_end_between_moments() -> None:
    for before, after in zip(SMALL.moments, SMALL.moments[1:], strict=False):
        left = {active.name: active for active in before}
        stayed = [active for active in after if active.name in left]
        assert len(after) == len(before) == len(stayed) + JOBS_THAT_END
        for active in stayed:
            assert 0 < active.steps_left <= left[active.name].steps_left
            assert active.waited_s == left[active.name].waited_s + PASSED_S


def example() -> Terms:
    """The dissertation's example of max-min fairness, with 1000 steps each (Sec. 5.4.1)."""
    rates = [[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]]
    jobs = [ActiveJob(Job(str(number), "type", 1000.0), 1000.0) for number in range(3)]
    cluster = GpuCluster({"v100": 1, "k80": 1}, {"v100": 2.0, "k80": 1.0})
    configurations = [
        Configuration((job,), gpu_type, 1, (rate,))
        for job, row in enumerate(rates)
        for gpu_type, rate in zip(cluster.gpu_types, row, strict=True)
    ]
    return Terms.of(Demand.of(cluster, jobs, configurations))


@pytest.mark.parametrize(
    ("name", "shares", "worth"),
    [
        ("las", [[5 / 11, 0], [5 / 11, 1 / 11], [1 / 11, 10 / 11]], 11 / 8),
        ("makespan", [[0.25, 0], [0.25, 0.5], [0.5, 0.5]], 200.0),
        ("finish_time_fairness", [[1 / 3, 1 / 3]] * 3, 1.0),
        ("min_cost", [[1, 0], [0, 0], [0, 1]], 1 / (40 / 2 + 50)),
    ],
)
def test_worth_is_as_computed_by_hand(name: str, shares: list[list[float]], worth: float) -> None:
    assert WORTH[name][1](example(), np.array(shares)) == pytest.approx(worth)


def test_every_policy_that_is_compared_has_a_worth_and_solvers() -> None:
    assert {*POLICIES} == {*WORTH} == {*SOLVERS}


@pytest.mark.parametrize("name", POLICIES)
def test_a_better_answer_of_cvxpy_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own shares, enlarged against the rules, stand for cvxpy's."""
    ours = decisions(SMALL, [policy_of(name)] * len(SMALL.moments))
    shares: FloatArray = np.array([shares_of(one.allocation) for one in ours])

    def enlarged(_: str, solver: str, moments: object, *, by: float) -> Answers:
        return Answers(solver, by * shares, (1.0,) * len(shares))

    monkeypatch.setattr(measuring, "reason_to_skip", lambda: "")
    monkeypatch.setattr(measuring, "answers", partial(enlarged, by=1.0))
    found = allocation(SMALL, name, limit_s=None)
    assert found.comparison is not None and found.comparison.answer_ratio == pytest.approx(1.0)
    assert not found.missed
    monkeypatch.setattr(measuring, "answers", partial(enlarged, by=1.01))
    (missed,) = allocation(SMALL, name, limit_s=None).missed
    assert missed.endswith("times cvxpy's best")


def test_a_slow_decision_is_missed() -> None:
    missed = allocation(SMALL, "sjf", limit_s=0.0).missed
    assert [text.split()[0] for text in missed] == ["warm", "cold"]


def test_says_that_cvxpy_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "reason_to_skip", lambda: "cvxpy is not installed")
    found = allocation(SMALL, "las", limit_s=None)
    assert found.comparison is None and found.note.endswith("; cvxpy is not installed")


@pytest.mark.parametrize("name", POLICIES)
def test_cvxpy_is_compared_with_where_it_is_installed(name: str) -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)
    found = allocation(SMALL, name, limit_s=None)
    assert found.comparison is not None and not found.missed
    assert found.comparison.answer_ratio == pytest.approx(1.0, rel=1e-4)


def test_parts_lose_some_of_the_objective() -> None:
    jobs = replace(SMALL, cluster=cluster_of(16), moments=SMALL.moments[:1])
    (whole,) = decisions(jobs, [policy_of("las")])
    assert partitioned(jobs, "las", 2, whole).note.startswith("loses ")
    halved = replace(whole, allocation=replace(whole.allocation, objective=whole.allocation.objective / 2))
    assert partitioned(jobs, "las", 2, halved).missed == ("better than the whole",)


def test_a_simulation_is_timed() -> None:
    throughputs = random_throughputs(3, 0)
    types = dict.fromkeys(("type 0", "type 1"), True)
    found = simulation(throughputs, types, cluster_of(2), "las", jobs_per_hour=1.0, num_jobs=8, limit_s=60.0)
    assert not found.missed and found.note.startswith("average completion time ")
    slow = simulation(throughputs, types, cluster_of(2), "las", jobs_per_hour=1.0, num_jobs=8, limit_s=0.0)
    assert slow.missed == ("more than 0 CPU s",)
