"""CPU seconds of decisions about jobs on a cluster, of this process with its threads."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.benchmarks.inputs.loads import moments_of, random_throughputs
from experiments.benchmarks.timing import timed
from experiments.reproduce.gavel.options import cluster_of
from schedsearch.cluster.allocation import Allocation, check_allocation
from schedsearch.cluster.jobs import ActiveJob
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.registry import policy_of

_MOMENTS = 6
"""Decisions of a case; the first is not counted."""


def prepare() -> None:
    """Decide once about a few jobs, so that no case pays for imports."""
    allocation(policy="las", jobs=32, throughputs="random")


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
    cluster, moments = cluster_of(round(jobs / 4)), moments_of(rates, jobs, _MOMENTS, seed=1)

    def decision_s(decider: Policy, active: Sequence[ActiveJob]) -> float:
        def decide() -> Allocation:
            return decider.allocate(rates.demand(cluster, active, shares_space=decider.shares_space))

        decision, seconds = timed(decide)
        check_allocation(decision)
        return seconds

    cold = [decision_s(policy_of(policy), active) for active in moments]
    kept = policy_of(policy)
    warm = [decision_s(kept, active) for active in moments]
    return {"warm_s": statistics.median(warm[1:]), "cold_s": statistics.median(cold[1:])}
