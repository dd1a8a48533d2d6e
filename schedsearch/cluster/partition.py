"""A large cluster in parts: jobs and GPUs are split at random, and each part is decided on for itself.

A policy's program grows faster than its jobs, and where there are many small jobs a random part looks much
like the whole; so parts are decided on in far less time, for a small loss (POP: Narayanan et al., SOSP 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from schedsearch.cluster.allocation import Allocation, InfeasibleError
from schedsearch.cluster.demand import NOBODY, BoolArray, Demand, IntArray
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster, require
from schedsearch.cluster.policies.policy import AskingPolicy, Policy
from schedsearch.cluster.policies.registry import policy_entry, policy_of


@dataclass
class PartitionedPolicy(AskingPolicy):
    """Splits what it is asked into parts, and asks a policy of its own for each.

    A job stays in its part. GPUs are split anew only where their numbers change. Pairs exist within a part.

    Attributes:
        policy: Policy of the first part, which has not decided yet; the other parts have copies.
        parts: 1 or more, and at most as many as the cluster has GPUs.
        joined: From the objectives of the parts that have jobs to that of the whole: `min` for fairness,
            `max` for finish times and makespans, `sum` for sums.
        seed: Seed of the random split.
    """

    parts: int
    joined: Callable[[Sequence[float]], float]
    seed: int = 0
    _policies: list[Policy] = field(init=False, repr=False)
    _part_of: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _random: Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Make the policies."""
        require(self.parts >= 1, "policy parts", self.parts, "1 or more")
        self._policies = [self.policy, *(deepcopy(self.policy) for _ in range(1, self.parts))]
        self._random = Random(self.seed)

    @property
    def name(self) -> str:
        """Return the name of the policy and the number of parts."""
        return f"{self.policy.name}_in_{self.parts}_parts"

    def allocate(self, demand: Demand) -> Allocation:
        """Return the allocations of all parts together.

        Raises:
            ClusterError: There are more parts than GPUs.
            InfeasibleError: No part has the GPUs of a job, or the policy finds nothing in one of the parts.
        """
        if self.parts > demand.cluster.num_gpus:
            raise ClusterError(
                f"policy parts: {self.parts} are more than the {demand.cluster.num_gpus} GPUs; give fewer"
            )
        clusters = _split(demand.cluster, self.parts, self.seed)
        part_of = self._placed(demand, clusters)
        whole = demand if self.shares_space else demand.without_pairs()
        found = whole.configurations
        part_of_way = part_of[found.jobs[:, 0]]
        workers = np.array([[*one.workers.values()] for one in clusters])
        is_within = (found.jobs[:, 1] == NOBODY) | (part_of[found.jobs[:, 1]] == part_of_way)
        is_within &= found.gpus <= workers[part_of_way, found.gpu_type]
        objectives: list[float] = []
        notes: list[str] = []
        shares = np.zeros(len(found))
        for part, policy in enumerate(self._policies):
            members = np.flatnonzero(part_of == part)
            if len(members):
                ways = np.flatnonzero(is_within & (part_of_way == part))
                chosen = found.only(ways)
                number_of = np.full(len(demand.jobs) + 1, NOBODY)
                number_of[members] = np.arange(len(members))
                jobs = tuple(demand.jobs[member] for member in members.tolist())
                of_part = Demand(clusters[part], jobs, replace(chosen, jobs=number_of[chosen.jobs]))
                allocation = policy.allocate(of_part)
                shares[ways] = allocation.shares
                objectives.append(allocation.objective)
                notes += allocation.notes
        return Allocation(whole, shares, float(self.joined(objectives or [0.0])), tuple(notes))

    def _placed(self, demand: Demand, clusters: Sequence[GpuCluster]) -> IntArray:
        """Return the part of each job: where it is, or one of those that need the fewest GPUs per GPU."""
        names, gpus = [active.name for active in demand.jobs], demand.scale_factors
        fits = _fits(demand, clusters)
        part_of, load = np.full(len(names), NOBODY), np.zeros(self.parts)
        for index, name in enumerate(names):
            part = self._part_of.get(name, NOBODY)
            if part != NOBODY and fits[index, part]:
                part_of[index] = part
                load[part] += gpus[index]
        newcomers = np.flatnonzero(part_of == NOBODY).tolist()
        self._random.shuffle(newcomers)
        newcomers.sort(key=lambda index: -gpus[index])
        sizes = np.array([one.num_gpus for one in clusters], dtype=np.float64)
        for index in newcomers:
            open_parts = np.flatnonzero(fits[index])
            if not len(open_parts):
                largest = max(max(one.workers.values()) for one in clusters)
                raise InfeasibleError(
                    f"policy {self.name}: job {names[index]} needs {gpus[index]:.0f} GPUs of one type, but a "
                    f"part has {largest} at most; give fewer parts"
                )
            loads = (load[open_parts] + gpus[index]) / sizes[open_parts]
            part = int(open_parts[self._random.choice(np.flatnonzero(loads == loads.min()).tolist())])
            part_of[index] = part
            load[part] += gpus[index]
        self._part_of = dict(zip(names, part_of.tolist(), strict=True))
        return part_of


def _split(cluster: GpuCluster, parts: int, seed: int) -> list[GpuCluster]:
    """Return clusters of as many GPUs of each type as nearly as can be; which have one more is random."""
    order = [*range(parts)]
    Random(seed).shuffle(order)
    counts: list[dict[str, int]] = [{} for _ in order]
    dealt = 0
    for gpu_type, workers in cluster.workers.items():
        for place, part in enumerate(order):
            counts[part][gpu_type] = workers // parts + ((place - dealt) % parts < workers % parts)
        dealt += workers % parts
    return [replace(cluster, workers=one, power_cap_w=cluster.power_cap_w / parts) for one in counts]


def _fits(demand: Demand, clusters: Sequence[GpuCluster]) -> BoolArray:
    """Return which part has GPUs enough for which job, (jobs, parts); any, for a job that runs nowhere."""
    alone = demand.configurations.only(demand.configurations.is_alone)
    fits = np.zeros((len(demand.jobs), len(clusters)), dtype=np.bool_)
    for part, cluster in enumerate(clusters):
        workers = np.array([*cluster.workers.values()])
        fits[alone.jobs[alone.gpus <= workers[alone.gpu_type], 0], part] = True
    fits[demand.alone_steps_per_s.max(axis=1) == 0] = True
    return fits


def partitioned(name: str, parts: int, seed: int = 0, **options: object) -> PartitionedPolicy:
    """Return a policy in parts by its name, as `policy_of` knows it.

    Raises:
        ClusterError: There is no such policy or option, or it cannot be in parts.
    """
    if name == "makespan_budget" and parts > 1:
        raise ClusterError("policy makespan_budget has one budget for all jobs; leave parts out")
    return PartitionedPolicy(policy_of(name, **options), parts, policy_entry(name).joined, seed)
