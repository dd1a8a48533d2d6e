"""What a case of the cluster's benchmark measures: decisions one after the other, and whole simulations.

CPU seconds are those of this process with its threads, and of cvxpy's process in its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.benchmarks.cluster.beside_cvxpy import SOLVERS, answers, reason_to_skip
from experiments.benchmarks.cluster.loads import ClusterLoad
from experiments.benchmarks.cluster.terms import WORTH, Terms, shares_of
from experiments.benchmarks.comparison import PeerComparison
from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import CpuClock
from schedsearch.cluster import partition
from schedsearch.cluster.allocation import Allocation, check_allocation
from schedsearch.cluster.generator import GeneratorOptions, generated
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.cluster.throughputs import Throughputs

_ALMOST = 1e-6
"""Part by which solvers' tolerances may make an answer worse."""


@dataclass(frozen=True)
class CheckedDecision:
    """One checked decision, with the CPU seconds of the demand and of the policy."""

    allocation: Allocation
    demand_s: float
    decision_s: float


def decisions(load: ClusterLoad, policies: Sequence[Policy]) -> list[CheckedDecision]:
    """Return the decision at each moment, by the policy of that moment.

    A policy object that decides at several moments may use what it knew before (a warm decision).
    """
    found = []
    for jobs, policy in zip(load.moments, policies, strict=True):
        clock = CpuClock()
        demand = load.throughputs.demand(load.cluster, jobs, shares_space=policy.shares_space)
        demand_s = clock.seconds
        allocation = policy.allocate(demand)
        found.append(CheckedDecision(allocation, demand_s, clock.seconds - demand_s))
        check_allocation(allocation)
    return found


def allocation(load: ClusterLoad, name: str, *, limit_s: float | None) -> CaseResult:
    """Decide at each moment, warm and cold; and with cvxpy, where it knows the policy.

    The first moment is not counted. With a limit, the median decision with its demand may take that many CPU
    seconds.
    """
    num = len(load.moments)
    cold = decisions(load, [policy_of(name) for _ in range(num)])[1:]
    warm = decisions(load, [policy_of(name)] * num)[1:]
    took_s = {
        kind: statistics.median(one.demand_s + one.decision_s for one in found)
        for kind, found in (("warm", warm), ("cold", cold))
    }
    wrong = {
        f"{kind} {each_s:.2g} CPU s": limit_s is not None and each_s > limit_s
        for kind, each_s in took_s.items()
    }
    demand_s = statistics.median(one.demand_s for one in warm)
    note = f"cold {took_s['cold']:.3g} CPU s; the demand is {demand_s:.2g} of it"
    result = CaseResult(took_s["warm"], true_of(wrong), note=note)
    return _beside_cvxpy(result, load, name, warm) if name in WORTH else result


def _beside_cvxpy(
    result: CaseResult, load: ClusterLoad, name: str, warm: Sequence[CheckedDecision]
) -> CaseResult:
    if reason := reason_to_skip():
        return replace(result, note=f"{result.note}; {reason}")
    moments = [Terms.of(load.throughputs.demand(load.cluster, jobs)) for jobs in load.moments]
    theirs = [answers(name, solver, moments) for solver in SOLVERS[name]]
    fastest = min(theirs, key=lambda each: statistics.median(each.cpu_s[1:]))
    what, worth = WORTH[name]
    counted = list(enumerate(moments))[1:]
    ours = [worth(terms, shares_of(one.allocation)) for (_, terms), one in zip(counted, warm, strict=True)]
    best = [min(worth(terms, each.shares[number]) for each in theirs) for number, terms in counted]
    ratios = [one / other for one, other in zip(ours, best, strict=True)]
    compared = PeerComparison(
        f"cvxpy, {name}",
        "jobs",
        len(load.moments[0]),
        tuple(one.decision_s for one in warm),
        fastest.cpu_s[1:],
        what,
        statistics.median(ratios),
        1.0,
    )
    worse = {f"{what} {max(ratios):.8g} times cvxpy's best": max(ratios) > 1 + _ALMOST}
    told = ", ".join(f"{each.solver} {statistics.median(each.cpu_s[1:]):.3g}" for each in theirs)
    return replace(
        result,
        missed=(*result.missed, *true_of(worse)),
        note=f"{result.note}; cvxpy {told} CPU s",
        comparison=compared,
    )


def partitioned(load: ClusterLoad, name: str, num_parts: int, whole: CheckedDecision) -> CaseResult:
    """Decide about the jobs of one moment in parts, and tell what the objective loses beside the whole.

    The objective of the policy must be a minimum that is to be as high as possible.
    """
    (parts,) = decisions(load, [partition.partitioned(name, num_parts)])
    loss = 1 - parts.allocation.objective / whole.allocation.objective
    note = (
        f"loses {100 * loss:.2f} % of the objective; the whole takes {whole.decision_s:.3g} CPU s, and the "
        f"demand {whole.demand_s:.2g} more"
    )
    return CaseResult(parts.decision_s, true_of({"better than the whole": loss < -_ALMOST}), note=note)


def simulation(
    throughputs: Throughputs,
    types: Mapping[str, bool],
    cluster: GpuCluster,
    name: str,
    *,
    jobs_per_hour: float,
    num_jobs: int,
    limit_s: float,
) -> CaseResult:
    """Simulate jobs that come all the time until the last of them is done.

    ``types`` says of each job type whether it may run on more than one GPU; ``limit_s`` is in CPU seconds.
    """
    generator = GeneratorOptions(seed=0, lam_s=3600 / jobs_per_hour, num_jobs=num_jobs)
    clock = CpuClock()
    trace = [*generated(types, throughputs, generator)]
    outcome = simulate_cluster(trace, cluster, throughputs, policy_of(name), SimulationOptions())
    took_s = clock.seconds
    wrong = {f"more than {limit_s:g} CPU s": took_s > limit_s, outcome.missing: bool(outcome.missing)}
    note = (
        f"average completion time {outcome.average_jct_s / 3600:.2f} h, {len(outcome.rounds.start_s)} "
        f"rounds, {len(outcome.decisions.time_s)} decisions about up to {outcome.decisions.jobs.max()} jobs"
    )
    return CaseResult(took_s, true_of(wrong), note=note)
