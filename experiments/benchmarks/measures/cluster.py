"""CPU seconds of decisions about jobs on a cluster, of this process with its threads."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.benchmarks.inputs.loads import SCALE_FACTORS, ClusterLoad, load, random_throughputs
from experiments.benchmarks.timing import timed
from experiments.reproduce.gavel.options import cluster_of
from schedsearch.cluster.allocation import Allocation, check_allocation
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.registry import policy_of

_MOMENTS = 6
"""Decisions of a case; the first is not counted."""


def prepare() -> None:
    """Decide once about a few jobs, so that no case pays for imports."""
    few = load(random_throughputs(4, 0), cluster_of(max(SCALE_FACTORS)), 4, 1, seed=0)
    _decision_seconds(few, [policy_of("las")])


def allocation(*, policy: str, jobs: int, throughputs: str) -> dict[str, float]:
    """Decide at each moment, warm and cold; ``warm_s`` and ``cold_s`` are of the median decision.

    A policy object that decides at several moments may use its earlier decisions (a warm decision).

    Args:
        policy: Name of a policy.
        jobs: Jobs at each moment; there are three GPUs for four.
        throughputs: ``random`` ones, or ``random pairs`` of 26 types which share GPUs.
    """
    has_pairs = throughputs == "random pairs"
    rates = random_throughputs(26 if has_pairs else jobs, 0, shares_space=has_pairs)
    active = load(rates, cluster_of(round(jobs / 4)), jobs, _MOMENTS, seed=1)
    cold = _decision_seconds(active, [policy_of(policy) for _ in active.moments])
    warm = _decision_seconds(active, [policy_of(policy)] * _MOMENTS)
    return {"warm_s": statistics.median(warm[1:]), "cold_s": statistics.median(cold[1:])}


def _decision_seconds(jobs: ClusterLoad, policies: Sequence[Policy]) -> list[float]:
    """Return the CPU seconds of the decision at each moment by the policy of that moment, with its demand."""
    seconds = []
    for active, policy in zip(jobs.moments, policies, strict=True):

        def decide() -> Allocation:
            shares_space = policy.shares_space  # noqa: B023
            demand = jobs.throughputs.demand(jobs.cluster, active, shares_space=shares_space)  # noqa: B023
            return policy.allocate(demand)  # noqa: B023

        decision, decision_s = timed(decide)
        check_allocation(decision)
        seconds.append(decision_s)
    return seconds
