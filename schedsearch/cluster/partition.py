"""A large cluster in parts: jobs and GPUs are split at random, and each part is decided on for itself.

A policy's program grows faster than its jobs, and where there are many small jobs a random part looks much
like the whole; so parts are decided on in far less time, for a small loss (POP: Narayanan et al., SOSP 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import numpy as np

from schedsearch.cluster.allocation import Allocation, InfeasibleError
from schedsearch.cluster.demand import NOBODY, Demand, IntArray
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster, require
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.registry import policy_entry, policy_of


@dataclass
class PartitionedPolicy:
    """Splits what it is asked into parts, and asks a policy of its own for each.

    A job stays in its part. GPUs are split anew only where their numbers change. Pairs exist within a part.

    Attributes:
        policy_of: Makes the policy of one part.
        parts: 1 or more, and at most as many as the cluster has GPUs.
        joined: From the objectives of the parts that have jobs to that of the whole: `min` for fairness,
            `max` for finish times and makespans, `sum` for sums.
        seed: Seed of the random split.
    """

    policy_of: Callable[[], Policy]
    parts: int
    joined: Callable[[Sequence[float]], float]
    seed: int = 0
    _policies: list[Policy] = field(init=False, repr=False)
    _part_of: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _random: Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Make the policies."""
        require(self.parts >= 1, "policy parts", self.parts, "1 or more")
        self._policies = [self.policy_of() for _ in range(self.parts)]
        self._random = Random(self.seed)

    @property
    def name(self) -> str:
        """Return the name of the policy and the number of parts."""
        return f"{self._policies[0].name}_in_{self.parts}_parts"

    @property
    def shares_space(self) -> bool:
        """Return whether its policy looks at pairs."""
        return self._policies[0].shares_space

    @property
    def fills_idle_gpus(self) -> bool:
        """Return whether GPUs to which its policy gives no job may run one."""
        return bool(getattr(self._policies[0], "fills_idle_gpus", True))

    @property
    def is_agnostic(self) -> bool:
        """Return whether its policy takes all GPU types for equal."""
        return bool(getattr(self._policies[0], "is_agnostic", False))

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
        found = demand.configurations
        part_of_way = part_of[found.jobs[:, 0]]
        is_within = (found.jobs[:, 1] == NOBODY) | (part_of[found.jobs[:, 1]] == part_of_way)
        capacities = np.array([[*one.workers.values()] for one in clusters])
        is_within &= found.gpus <= capacities[part_of_way, found.gpu_type]
        whole = demand if self.shares_space else demand.without_pairs()
        shares = np.zeros(len(found))
        objectives: list[float] = []
        notes: list[str] = []
        for part, policy in enumerate(self._policies):
            members = np.flatnonzero(part_of == part)
            if not len(members):
                continue
            ways = np.flatnonzero(is_within & (part_of_way == part))
            if not policy.shares_space:
                ways = ways[found.is_alone[ways]]
            allocation = policy.allocate(_of_part(demand, clusters[part], members, ways))
            shares[ways] = allocation.shares
            objectives.append(allocation.objective)
            notes.extend(allocation.notes)
        shares = shares if self.shares_space else shares[found.is_alone]
        return Allocation(whole, shares, float(self.joined(objectives or [0.0])), tuple(notes))

    def _placed(self, demand: Demand, clusters: Sequence[GpuCluster]) -> IntArray:
        """Return the part of each job: where it is, or one of those that need the fewest GPUs per GPU."""
        names = [active.name for active in demand.jobs]
        fits = _fits(demand, clusters)
        self._part_of = {
            name: self._part_of[name]
            for index, name in enumerate(names)
            if name in self._part_of and fits[index, self._part_of[name]]
        }
        gpus = demand.scale_factors
        load = np.zeros(self.parts)
        for name, count in zip(names, gpus.tolist(), strict=True):
            if name in self._part_of:
                load[self._part_of[name]] += count
        newcomers = [index for index, name in enumerate(names) if name not in self._part_of]
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
            self._part_of[names[index]] = part
            load[part] += gpus[index]
        return np.array([self._part_of[name] for name in names], dtype=np.int64)


def _split(cluster: GpuCluster, parts: int, seed: int) -> list[GpuCluster]:
    """Return clusters of as many GPUs of each type as nearly as can be; which have one more is random."""
    random = Random(seed)
    order = list(range(parts))
    random.shuffle(order)
    counts: list[dict[str, int]] = [{} for _ in range(parts)]
    dealt = 0
    for gpu_type, workers in cluster.workers.items():
        for place in range(parts):
            is_larger = (place - dealt) % parts < workers % parts
            counts[order[place]][gpu_type] = workers // parts + is_larger
        dealt += workers % parts
    return [replace(cluster, workers=one, power_cap_w=cluster.power_cap_w / parts) for one in counts]


def _fits(demand: Demand, clusters: Sequence[GpuCluster]) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return which part has GPUs enough for which job, (jobs, parts); any, for a job that runs nowhere."""
    alone = demand.configurations.only(demand.configurations.is_alone)
    fits = np.zeros((len(demand.jobs), len(clusters)), dtype=np.bool_)
    for part, cluster in enumerate(clusters):
        workers = np.array([*cluster.workers.values()])
        fits[alone.jobs[alone.gpus <= workers[alone.gpu_type], 0], part] = True
    fits[demand.alone_steps_per_s.max(axis=1) == 0] = True
    return fits


def _of_part(demand: Demand, cluster: GpuCluster, members: IntArray, ways: IntArray) -> Demand:
    index_of = np.full(len(demand.jobs) + 1, NOBODY)
    index_of[members] = np.arange(len(members))
    chosen = demand.configurations.only(np.isin(np.arange(len(demand.configurations)), ways))
    return Demand(
        cluster,
        tuple(demand.jobs[member] for member in members.tolist()),
        replace(chosen, jobs=index_of[chosen.jobs]),
    )


def partitioned(name: str, parts: int, seed: int = 0, **options: object) -> PartitionedPolicy:
    """Return a policy in parts by its name, as `policy_of` knows it.

    Raises:
        ClusterError: There is no such policy or option, or it cannot be in parts.
    """
    policy_of(name, **options)
    if name == "makespan_budget" and parts > 1:
        raise ClusterError("policy makespan_budget has one budget for all jobs; leave parts out")
    return PartitionedPolicy(partial(policy_of, name, **options), parts, policy_entry(name).joined, seed)
