"""Decisions about jobs on a cluster, beside plain formulations in cvxpy.

CPU seconds are those of this process with its threads, and of cvxpy's process in its own.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from experiments.benchmarks.comparison import SHARED_DATA, beside_peer
from experiments.benchmarks.inputs.loads import SCALE_FACTORS, ClusterLoad, load, random_throughputs
from experiments.benchmarks.others import cvxpy_programs
from experiments.benchmarks.others.cvxpy_programs import PROGRAMS
from experiments.benchmarks.timing import timed
from experiments.reproduce.gavel.options import cluster_of
from schedsearch.cluster.allocation import Allocation, check_allocation
from schedsearch.cluster.demand import Demand, FloatArray
from schedsearch.cluster.inputs.throughput_file import read_throughputs
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.throughputs import Throughputs

_MOMENTS = 6
"""Decisions of a case; the first is not counted."""


def prepare() -> None:
    """Decide once about a few jobs, so that no case pays for imports."""
    few = load(random_throughputs(4, 0), cluster_of(max(SCALE_FACTORS)), 4, 1, seed=0)
    for name in PROGRAMS:
        decisions(few, [policy_of(name)])


def decisions(jobs: ClusterLoad, policies: Sequence[Policy]) -> list[tuple[Allocation, float, float]]:
    """Return the decision at each moment, by the policy of that moment, and CPU seconds: demand and decision.

    A policy object that decides at several moments may use what it knew before (a warm decision).
    """
    found = []
    for active, policy in zip(jobs.moments, policies, strict=True):
        shares_space = policy.shares_space
        demand, demand_s = timed(
            lambda: jobs.throughputs.demand(jobs.cluster, active, shares_space=shares_space)  # noqa: B023
        )
        allocation, decision_s = timed(lambda: policy.allocate(demand))  # noqa: B023
        check_allocation(allocation)
        found.append((allocation, demand_s, decision_s))
    return found


def allocation(*, policy: str, jobs: int, throughputs: str) -> dict[str, Any]:
    """Decide at each moment, warm and cold; and with cvxpy, where it is installed and knows the policy.

    ``warm_s`` and ``cold_s`` are of the median decision with its demand. ``over_cvxpy`` is how many times as
    bad our objective is as cvxpy's best, at worst.

    Args:
        policy: Name of a policy.
        jobs: At each moment; there are three GPUs for four.
        throughputs: ``random`` ones, ``random pairs`` of 26 types which share GPUs, or ``Gavel's``.
    """
    of = load(_throughputs(throughputs, jobs), cluster_of(round(jobs / 4)), jobs, _MOMENTS, seed=1)
    cold = decisions(of, [policy_of(policy) for _ in of.moments])[1:]
    warm = decisions(of, [policy_of(policy)] * _MOMENTS)[1:]
    seconds = ([demand_s + decision_s for _, demand_s, decision_s in found] for found in (warm, cold))
    figures = dict(zip(("warm_s", "cold_s"), map(statistics.median, seconds), strict=True))
    if policy not in PROGRAMS or importlib.util.find_spec("cvxpy") is None:
        return figures
    allocations, _, decision_s = zip(*warm, strict=True)
    return figures | beside_cvxpy(policy, allocations, decision_s)


def _throughputs(name: str, jobs: int) -> Throughputs:
    if name == "Gavel's":
        return read_throughputs(SHARED_DATA / "gavel" / "simulation_throughputs.json")
    return random_throughputs(26 if "pairs" in name else jobs, 0, shares_space="pairs" in name)


def beside_cvxpy(policy: str, warm: Sequence[Allocation], cpu_s: Sequence[float]) -> dict[str, Any]:
    """Compare decisions with cvxpy's by its fastest solver, and their objectives with its best solver's.

    Raises:
        subprocess.CalledProcessError: cvxpy's process failed; its words are on the screen.
    """
    moments = [terms_of(one.demand) | {"shares": shares_of(one)} for one in warm]
    with TemporaryDirectory() as folder:
        read, written = Path(folder) / "terms.npz", Path(folder) / "answers.npy"
        stacked = {name: np.array([terms[name] for terms in moments]) for name in moments[0]}
        np.savez(read, allow_pickle=False, **stacked)
        command = [sys.executable, "-m", cvxpy_programs.__name__, policy, str(read), str(written)]
        subprocess.run(command, check=True, timeout=600.0)
        ratios, seconds = np.moveaxis(np.load(written), -1, 0)
    fastest, over = seconds[np.median(seconds, axis=1).argmin()], ratios.max(axis=0)
    over_cvxpy = {"over_cvxpy": float(over.max()), "median_over_cvxpy": float(np.median(over))}
    return beside_peer(cpu_s, fastest.tolist()) | over_cvxpy


def terms_of(demand: Demand) -> dict[str, FloatArray]:
    """Return the inputs of a decision about jobs alone as plain arrays, by job, type, or both.

    There is one configuration for each job and type. ``isolated_s`` is a job's time so far and until its end
    on its own part of the cluster; ``proportional_steps_per_s`` is its rate if its time is divided as the
    GPUs among the types.
    """
    rates, workers = demand.alone_steps_per_s, demand.workers
    own = workers / len(demand.jobs) / demand.scale_factors[:, None]
    own /= np.maximum(own.sum(axis=1, keepdims=True), 1)
    so_far = np.array([active.isolated_s for active in demand.jobs])
    return {
        "steps_per_s": rates,
        "scale_factors": demand.scale_factors,
        "weights": demand.weights,
        "steps_left": demand.steps_left,
        "waited_s": np.array([active.waited_s for active in demand.jobs]),
        "isolated_s": so_far + demand.steps_left / (rates * own).sum(axis=1),
        "proportional_steps_per_s": rates @ (workers / workers.sum()),
        "workers": workers,
        "dollars_per_hour": np.array([demand.cluster.price_of(name) for name in demand.cluster.gpu_types]),
    }


def shares_of(allocation: Allocation) -> FloatArray:
    """Return the shares of jobs alone, shape (jobs, types)."""
    demand = allocation.demand
    shares = np.zeros((len(demand.jobs), len(demand.workers)))
    alone = demand.configurations.is_alone
    found = demand.configurations.only(alone)
    np.add.at(shares, (found.jobs[:, 0], found.gpu_type), allocation.shares[alone])
    return shares
