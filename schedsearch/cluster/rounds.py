"""Jobs and GPUs of the next round: received times come near an allocation's shares.

The module does not know the policy behind the shares, nor the steps of a round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import NOBODY, BoolArray, Configurations, FloatArray
from schedsearch.cluster.gpu_cluster import GpuCluster

MIN_SHARE = 1e-9
"""Shares up to here are none: a linear program's zeros."""

Key = tuple[tuple[str, ...], int, int, int, bool]
"""A configuration: names of its jobs, index of the GPU type, GPUs, clock in MHz, if unconsolidated."""


class Assignment(NamedTuple):
    """One configuration that runs in a round.

    Attributes:
        candidate: Its index among the candidates.
        jobs: Names of its job, or of both.
        gpu_type: Index of the type.
        gpu_ids: Ids of its GPUs, among those of the type.
        renewed: Whether each job ran on the same GPUs in the round before: its lease is renewed.
        placed_as: Index of the configuration that it is on these GPUs: the candidate's, but for its servers.
    """

    candidate: int
    jobs: tuple[str, ...]
    gpu_type: int
    gpu_ids: tuple[int, ...]
    renewed: tuple[bool, ...]
    placed_as: int


class RoundScheduler:
    """Chooses the jobs of each round (dissertation, Sec. 5.5, Algorithm 2).

    Priority is share over time received since the decision (Fig. 5.5). In one queue of all GPU types, as in
    Algorithm 2, candidates are taken by priority, then by time owed by earlier allocations, then by share,
    while they fit, in the cluster's power cap too, and their jobs are free.

    Gavel's simulator lets one type after another choose instead, which misses shares by far where jobs have
    some on several types: on 30 random fair allocations the most that a share is missed by after 500 rounds
    is 0.008 in one queue, and 0.64 with types in turn. The text divides by the fraction of all jobs' time on
    the type; that orders the candidates of one type in the same way, but prefers types with more GPUs to
    others: then it is 0.13.

    Attributes:
        cluster: Its GPUs.
        gpu_ids: Ids of the GPUs of each type that can be used.
        round_s: Length of a round; each candidate begins as if it had received half of it.
        fills_idle_gpus: Candidates without a share run on GPUs that would idle.
        sees_servers: A job is as fast as in the servers that it is placed in; one that cannot run so waits.
        keys: Configuration of each candidate, until the next decision, in the order of the demand.
        candidates: The same as arrays, with the forms of candidates in other servers.
        share: Share of the time of each candidate.
        received_s: Seconds that each candidate ran since the decision, plus half a round.
        deficits_s: Seconds that earlier allocations owe, by configuration; below 0 where it got too much.
        leases: GPU type and GPUs of the jobs that ran in the last round.
    """

    def __init__(
        self, cluster: GpuCluster, round_s: float, fills_idle_gpus: bool = False, sees_servers: bool = False
    ) -> None:
        """Begin without jobs."""
        self.cluster, self.round_s = cluster, round_s
        self.fills_idle_gpus, self.sees_servers = fills_idle_gpus, sees_servers
        self.gpu_ids = [[*range(count)] for count in cluster.workers.values()]
        self.deficits_s: dict[Key, float] = {}
        self.leases: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.decide(None, 0.0)

    def decide(self, allocation: Allocation | None, elapsed_s: float) -> float:
        """Go on with another allocation, of the jobs that are active now.

        Args:
            allocation: None where there are no jobs.
            elapsed_s: Since the decision before.

        Returns:
            Error of the shares received since then against the allocation before: the mean of the absolute
            difference, over all candidates that had or should have had time, nan where there are
            none.
        """
        missed = self._settle(elapsed_s) if elapsed_s > 0 else np.zeros(0)
        names = [] if allocation is None else [active.name for active in allocation.demand.jobs]
        configs = Configurations.none() if allocation is None else allocation.demand.configurations
        share = np.zeros(0) if allocation is None else allocation.shares
        may_run = (share > MIN_SHARE) | (self.fills_idle_gpus & configs.is_alone)
        kept = may_run
        if configs.is_unconsolidated.any():  # in few servers or in many, a candidate may become the other
            ways = np.column_stack([configs.jobs, configs.gpu_type, configs.gpus, configs.clock_mhz])
            _, way = np.unique(ways, axis=0, return_inverse=True)
            kept = (np.bincount(way.reshape(-1), may_run) > 0)[way.reshape(-1)]
        self.candidates = configs = configs.only(kept)
        self.share = np.where(share > MIN_SHARE, share, 0.0)[kept]
        self._is_there: BoolArray = may_run[kept]
        jobs = [tuple(names[job] for job in pair if job != NOBODY) for pair in configs.jobs.tolist()]
        columns = configs.gpu_type, configs.gpus, configs.clock_mhz, configs.is_unconsolidated
        self.keys = list(zip(jobs, *(column.tolist() for column in columns), strict=True))
        self.deficits_s = {key: owed for key, owed in self.deficits_s.items() if {*key[0]} <= {*names}}
        self.received_s = np.full(len(self.keys), self.round_s / 2)
        self._owed_s = np.array([self.deficits_s.get(key, 0.0) for key in self.keys], dtype=np.float64)
        self._added_w = [] if allocation is None else allocation.demand.added_power_w[kept].tolist()
        self._place = dict(zip(self.keys, range(len(self.keys)), strict=True)) if self.sees_servers else {}
        return float(np.abs(missed).mean()) if len(missed) else np.nan

    def receive(self, candidates: Sequence[int], seconds: FloatArray) -> None:
        """Add the seconds that each of these candidates ran."""
        self.received_s[candidates] += seconds

    def remove(self, name: str) -> None:
        """Note that a job is done: its configurations no longer run."""
        self._is_there &= np.array([name not in names for names, *_ in self.keys], dtype=np.bool_)
        self.end_lease(name)

    def end_lease(self, name: str) -> None:
        """Note that a job lost its GPUs, so that its lease is not renewed."""
        self.leases.pop(name, None)

    def next_round(self, type_order: Sequence[int] | None = None) -> list[Assignment]:
        """Return the assignments of the next round.

        GPU types choose in an order, each index once; without one, the candidates of all types stand in one
        queue.
        """
        placed = [
            assignment
            for number, candidates in enumerate(self._chosen(self._queue(type_order)))
            for assignment in self._placed(number, candidates)
        ]
        self.leases = {name: (one.gpu_type, one.gpu_ids) for one in placed for name in one.jobs}
        return placed

    def _settle(self, elapsed_s: float) -> FloatArray:
        """Add each candidate's missing time to its deficit; return these times over the elapsed time."""
        owed_s = self.share * elapsed_s - (self.received_s - self.round_s / 2)
        for key, seconds in zip(self.keys, owed_s.tolist(), strict=True):
            if seconds:
                self.deficits_s[key] = self.deficits_s.get(key, 0.0) + seconds
        is_there = self._is_there & ((self.share > 0) | (self.received_s > self.round_s / 2))
        return np.asarray(owed_s[is_there] / elapsed_s)

    def _queue(self, type_order: Sequence[int] | None) -> list[int]:
        """Return the candidates by turn of GPU types, if any, then by falling priority."""
        turn_of = np.argsort(type_order) if type_order else np.zeros(len(self.cluster.workers))
        turn = turn_of[self.candidates.gpu_type]
        order = np.lexsort((-self.share, -self._owed_s, -self.share / self.received_s, turn))
        queue: list[int] = order[self._is_there[order]].tolist()
        return queue

    def _chosen(self, queue: Sequence[int]) -> list[list[int]]:
        """Return the candidates of each type that run.

        Under a power cap those that would go beyond it wait, as for GPUs; one that does so alone runs alone,
        for else it never would.
        """
        cluster = self.cluster
        left, taken = [*cluster.workers.values()], set[str]()
        chosen: list[list[int]] = [[] for _ in left]
        free, spare_w = sum(left), cluster.power_cap_w - cluster.all_idle_w
        for candidate in queue:
            jobs, number, gpus, *_ = self.keys[candidate]
            has_power = self._added_w[candidate] <= spare_w or not taken
            if has_power and gpus <= left[number] and taken.isdisjoint(jobs):
                spare_w -= self._added_w[candidate]
                left[number] -= gpus
                free -= gpus
                taken.update(jobs)
                chosen[number].append(candidate)
                if not free:
                    break
        return chosen

    def _placed(self, number: int, chosen: Sequence[int]) -> Iterator[Assignment]:
        """Yield candidates with their GPUs: larger candidates first; at equal size, those on their old GPUs.

        Consolidated ones choose next, then unconsolidated ones, which take the servers with the least free
        GPUs. A candidate that cannot run in the servers left waits.
        """
        gpu_type = self.cluster.gpu_types[number]
        free = FreeGpus(self.gpu_ids[number], self.cluster.server_of(gpu_type))

        def on(candidate: int, gpu_ids: tuple[int, ...]) -> Iterator[Assignment]:
            placed_as = self._placed_as(candidate, gpu_ids)
            if placed_as is not None:
                jobs = self.keys[candidate][0]
                renewed = tuple(self.leases.get(name) == (number, gpu_ids) for name in jobs)
                free.ids -= {*gpu_ids}
                yield Assignment(candidate, jobs, number, gpu_ids, renewed, placed_as)

        for size in sorted({self.keys[candidate][2] for candidate in chosen}, reverse=True):
            new = []
            for candidate in (one for one in chosen if self.keys[one][2] == size):
                if kept := self._kept(candidate, free):
                    yield from on(candidate, kept)
                else:
                    new.append(candidate)
            for candidate in sorted(new, key=lambda one: self.keys[one][-1]):
                is_apart = self.keys[candidate][-1]
                yield from on(candidate, free.apart(size) if is_apart else free.best(size))

    def _kept(self, candidate: int, free: FreeGpus) -> tuple[int, ...]:
        """Return the GPUs that one of the jobs had in the last round, if all can be had again; else none."""
        names, number, gpus, *_ = self.keys[candidate]
        for name in names:
            gpu_type, gpu_ids = self.leases.get(name, (-1, ()))
            is_there = gpu_type == number and len(gpu_ids) == gpus and free.ids.issuperset(gpu_ids)
            if is_there and self._placed_as(candidate, gpu_ids) == candidate:
                return gpu_ids
        return ()

    def _placed_as(self, candidate: int, gpu_ids: tuple[int, ...]) -> int | None:
        """Return a candidate's configuration on given GPUs; None if it cannot run in their servers."""
        if not self.sees_servers:
            return candidate
        names, number, gpus, clock_mhz, _ = self.keys[candidate]
        is_apart = self.cluster.is_unconsolidated(self.cluster.gpu_types[number], gpu_ids)
        return self._place.get((names, number, gpus, clock_mhz, is_apart))


class FreeGpus:
    """GPUs of one type that are still free in a round; server k has the ids from k times its size."""

    def __init__(self, gpu_ids: Sequence[int], per_server: int) -> None:
        """Begin with all that can be used."""
        self.ids, self._per_server = set(gpu_ids), per_server

    def best(self, gpus: int) -> tuple[int, ...]:
        """Return this number of GPUs on as few servers as possible, with the least left free on the last."""
        if self._per_server == 1:
            return tuple(sorted(self.ids)[:gpus])
        fullest_first, picked = sorted(self._servers(), key=len, reverse=True), list[int]()
        while len(picked) + len(fullest_first[0]) < gpus:
            picked += fullest_first.pop(0)
        last = min((one for one in fullest_first if len(one) >= gpus - len(picked)), key=len)
        return tuple(sorted(picked + last[: gpus - len(picked)]))

    def apart(self, gpus: int) -> tuple[int, ...]:
        """Return a number of GPUs in as many servers as possible, first those with the least free GPUs."""
        in_turn = zip_longest(*sorted(self._servers(), key=len))
        return tuple(sorted([gpu for turn in in_turn for gpu in turn if gpu is not None][:gpus]))

    def _servers(self) -> list[list[int]]:
        """Return the free GPUs of each server that has some."""
        by_server = groupby(sorted(self.ids), lambda gpu: gpu // self._per_server)
        return [[*gpus] for _, gpus in by_server]
