"""Who runs in the next round, and on which GPUs, so that received times come near an allocation's shares.

It does not know why the shares are as they are, nor how many steps a round brings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
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


@dataclass(frozen=True, eq=False)
class RunnableConfigurations:
    """Configurations that may run until the next decision, in the order of the demand.

    Attributes:
        keys: What each one is.
        configurations: The same as arrays.
        share: Share of the time.
        is_queued: Whether it waits for its turn; others are what those become in other servers.
    """

    keys: tuple[Key, ...] = ()
    configurations: Configurations = field(default_factory=Configurations.none)
    share: FloatArray = field(default_factory=lambda: np.zeros(0))
    is_queued: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @classmethod
    def of(cls, allocation: Allocation, *, fills_idle_gpus: bool) -> RunnableConfigurations:
        """Return the configurations with a share, and all of one job if idle GPUs may be filled."""
        found, shares = allocation.demand.configurations, allocation.shares
        may_run = shares > MIN_SHARE
        if fills_idle_gpus:
            may_run |= found.is_alone
        kept = may_run
        if found.is_unconsolidated.any():
            _, way = np.unique(found.ways, axis=0, return_inverse=True)
            kept = (np.bincount(way.reshape(-1), may_run) > 0)[way.reshape(-1)]
        found, shares = found.only(kept), np.where(shares > MIN_SHARE, shares, 0.0)[kept]
        names = [active.name for active in allocation.demand.jobs]
        jobs = [tuple(names[job] for job in pair if job != NOBODY) for pair in found.jobs.tolist()]
        columns = found.gpu_type, found.gpus, found.clock_mhz, found.is_unconsolidated
        keys = zip(jobs, *(column.tolist() for column in columns), strict=True)
        return cls(tuple(keys), found, shares, may_run[kept])


@dataclass(eq=False)
class RoundScheduler:
    """Chooses who runs, round after round (dissertation, Sec. 5.5, Algorithm 2).

    Priority is share over time received since the decision (Fig. 5.5). In one queue of all GPU types, as in
    Algorithm 2, candidates are taken by priority, then by what earlier allocations owe them, then by share,
    while they fit, in the cluster's power cap too, and their jobs are free.

    Gavel's simulator lets one type after another choose instead, which misses shares by far where jobs have
    some on several types: on 30 random fair allocations the most that a share is missed by after 500 rounds
    is 0.008 in one queue, and 0.64 with types in turn. The text divides by the fraction of all jobs' time on
    the type; that orders the candidates of one type in the same way, but prefers types with more GPUs to
    others: then it is 0.13.

    Attributes:
        cluster: Its GPUs.
        round_s: Length of a round; each candidate begins as if it had received half of it.
        fills_idle_gpus: Candidates without a share run on GPUs that would idle.
        sees_servers: A job is as fast as in the servers that it is placed in; one that cannot run so waits.
        candidates: Until the next decision.
        received_s: By each candidate since the decision, and half a round.
        deficits_s: What earlier allocations owe, by configuration; below 0 where it got too much.
        leases: GPU type and GPUs of the jobs that ran in the last round.
    """

    cluster: GpuCluster
    round_s: float
    fills_idle_gpus: bool = False
    sees_servers: bool = False
    candidates: RunnableConfigurations = field(default_factory=RunnableConfigurations)
    received_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    deficits_s: dict[Key, float] = field(default_factory=dict)
    leases: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Derive what each round needs."""
        cluster = self.cluster
        idle_w = [cluster.idle_power_w.get(gpu_type, 0.0) * n for gpu_type, n in cluster.workers.items()]
        self._spare_w = cluster.power_cap_w - sum(idle_w)
        self._prepare()

    def decide(self, allocation: Allocation | None, elapsed_s: float) -> tuple[float, float]:
        """Go on with another allocation, of the jobs that are active now.

        Args:
            allocation: None where there are no jobs.
            elapsed_s: Since the decision before.

        Returns:
            How far the shares received since then are from those of the allocation before: the mean of the
            absolute difference, over all candidates that had or should have had time, nan where there are
            none; and the most that one got too little, 0 where none did.
        """
        missed = self._settle(elapsed_s) if len(self.received_s) and elapsed_s > 0 else np.zeros(0)
        if allocation is None:
            self.candidates, names = RunnableConfigurations(), set[str]()
        else:
            self.candidates = RunnableConfigurations.of(allocation, fills_idle_gpus=self.fills_idle_gpus)
            names = {active.name for active in allocation.demand.jobs}
        self.deficits_s = {key: owed for key, owed in self.deficits_s.items() if names.issuperset(key[0])}
        self.received_s = np.full(len(self.candidates.keys), self.round_s / 2)
        self._prepare()
        error = float(np.abs(missed).mean()) if len(missed) else np.nan
        return error, float(missed.max(initial=0.0))

    def receive(self, candidates: Sequence[int], seconds: FloatArray) -> None:
        """Note how long each of these candidates ran."""
        self.received_s[candidates] += seconds

    def remove(self, name: str) -> None:
        """Note that a job is done: nothing with it runs any more."""
        for candidate in self._with.get(name, ()):
            self._is_there[candidate] = False
        self.leases.pop(name, None)

    def next_round(
        self,
        type_order: Sequence[int] | None = None,
        away: Mapping[int, Iterable[int]] | None = None,
    ) -> list[Assignment]:
        """Return who runs in the next round.

        Args:
            type_order: Order in which GPU types choose, each index once; where none is given, the candidates
                of all types stand in one queue.
            away: GPUs that cannot be used, by type.
        """
        lost = {number: {*gpus} for number, gpus in (away or {}).items()}
        usable = [
            [gpu for gpu in range(workers) if gpu not in lost.get(number, ())]
            for number, workers in enumerate(self.cluster.workers.values())
        ]
        chosen = self._chosen(self._queue(type_order), usable)
        placed = [
            assignment
            for number, candidates in enumerate(chosen)
            for assignment in self._placed(number, candidates, usable[number])
        ]
        self.leases = {name: (one.gpu_type, one.gpu_ids) for one in placed for name in one.jobs}
        return placed

    def end_lease(self, name: str) -> None:
        """Note that a job lost its GPUs."""
        self.leases.pop(name, None)

    def _settle(self, elapsed_s: float) -> FloatArray:
        """Add what candidates got too little to what they are owed; return that as shares of the time."""
        owed_s = self.candidates.share * elapsed_s - (self.received_s - self.round_s / 2)
        for key, seconds in zip(self.candidates.keys, owed_s.tolist(), strict=True):
            if seconds:
                self.deficits_s[key] = self.deficits_s.get(key, 0.0) + seconds
        is_there = self._is_there & ((self.candidates.share > 0) | (self.received_s > self.round_s / 2))
        return np.asarray(owed_s[is_there] / elapsed_s)

    def _prepare(self) -> None:
        """Derive what each round needs of the candidates, and of what is owed to them."""
        found, ways = self.candidates, self.candidates.configurations
        self._owed_s = np.array([self.deficits_s.get(key, 0.0) for key in found.keys], dtype=np.float64)
        self._gpus: list[int] = ways.gpus.tolist()
        idle_w = [self.cluster.idle_power_w.get(gpu_type, 0.0) for gpu_type in self.cluster.gpu_types]
        self._added_w: list[float] = (ways.power_w - np.array(idle_w)[ways.gpu_type] * ways.gpus).tolist()
        self._with: dict[str, list[int]] = {}
        for candidate, key in enumerate(found.keys):
            for name in key[0]:
                self._with.setdefault(name, []).append(candidate)
        self._is_there: BoolArray = found.is_queued.copy()
        self._place = dict(zip(found.keys, range(len(found.keys)), strict=True)) if self.sees_servers else {}

    def _queue(self, type_order: Sequence[int] | None) -> list[int]:
        """Return the candidates, first what should run first; equal ones as in the demand."""
        found = self.candidates
        priority = found.share / self.received_s
        turn = (
            np.zeros(len(found.keys))
            if type_order is None
            else np.argsort(type_order)[found.configurations.gpu_type]
        )
        order = np.lexsort((-found.share, -self._owed_s, -priority, turn))
        queue: list[int] = order[self._is_there[order]].tolist()
        return queue

    def _chosen(self, queue: Sequence[int], usable: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the candidates of each type that run.

        Under a power cap those that would go beyond it wait, as for GPUs; one that does so alone runs alone,
        for else it never would.
        """
        keys, gpus = self.candidates.keys, self._gpus
        left = [len(ids) for ids in usable]
        chosen: list[list[int]] = [[] for _ in usable]
        taken: set[str] = set()
        free, spare_w = sum(left), self._spare_w
        for candidate in queue:
            jobs, number = keys[candidate][0], keys[candidate][1]
            has_power = self._added_w[candidate] <= spare_w or not taken
            if has_power and gpus[candidate] <= left[number] and taken.isdisjoint(jobs):
                spare_w -= self._added_w[candidate]
                left[number] -= gpus[candidate]
                free -= gpus[candidate]
                taken.update(jobs)
                chosen[number].append(candidate)
                if not free:
                    break
        return chosen

    def _placed(self, number: int, chosen: Sequence[int], usable: Sequence[int]) -> Iterable[Assignment]:
        """Yield candidates with their GPUs: larger ones first, of equal ones those first that keep theirs.

        Those that want to be consolidated then choose before the others, which go where least is lost.
        """
        free = FreeGpus(usable, self.cluster.server_of(self.cluster.gpu_types[number]))
        sizes = sorted({self._gpus[candidate] for candidate in chosen}, reverse=True)
        for size in sizes:
            new = []
            for candidate in (one for one in chosen if self._gpus[one] == size):
                kept = self._kept(number, candidate, free)
                if kept is None:
                    new.append(candidate)
                else:
                    yield from self._assignment(number, candidate, free, kept)
            for candidate in sorted(new, key=self._is_apart):
                gpu_ids = free.apart(size) if self._is_apart(candidate) else free.best(size)
                yield from self._assignment(number, candidate, free, gpu_ids)

    def _is_apart(self, candidate: int) -> bool:
        return self.candidates.keys[candidate][-1]

    def _kept(self, number: int, candidate: int, free: FreeGpus) -> tuple[int, ...] | None:
        """Return the GPUs that one of the jobs had in the last round, if all can be had again."""
        for name in self.candidates.keys[candidate][0]:
            gpu_type, gpu_ids = self.leases.get(name, (-1, ()))
            if (
                gpu_type == number
                and len(gpu_ids) == self._gpus[candidate]
                and free.has(gpu_ids)
                and self._placed_as(number, candidate, gpu_ids) == candidate
            ):
                return gpu_ids
        return None

    def _placed_as(self, number: int, candidate: int, gpu_ids: tuple[int, ...]) -> int | None:
        """Return what a candidate is on given GPUs; None where it cannot run in their servers."""
        if not self.sees_servers:
            return candidate
        is_apart = self.cluster.is_unconsolidated(self.cluster.gpu_types[number], gpu_ids)
        return self._place.get((*self.candidates.keys[candidate][:-1], is_apart))

    def _assignment(
        self, number: int, candidate: int, free: FreeGpus, gpu_ids: tuple[int, ...]
    ) -> Iterable[Assignment]:
        """Yield a candidate on GPUs that it takes; nothing where it cannot run in their servers."""
        placed_as = self._placed_as(number, candidate, gpu_ids)
        if placed_as is not None:
            jobs = self.candidates.keys[candidate][0]
            renewed = tuple(self.leases.get(name) == (number, gpu_ids) for name in jobs)
            yield Assignment(candidate, jobs, number, free.take(gpu_ids), renewed, placed_as)


class FreeGpus:
    """GPUs of one type that nobody has yet in a round; server k has those from k times its size."""

    def __init__(self, gpu_ids: Sequence[int], per_server: int) -> None:
        """Begin with all that can be used."""
        self._per_server = per_server
        self._free = set(gpu_ids)
        self._lowest = sorted(gpu_ids, reverse=True)  # the next free one is last; some may be taken

    def has(self, gpu_ids: tuple[int, ...]) -> bool:
        """Return whether all of them are free."""
        return self._free.issuperset(gpu_ids)

    def take(self, gpu_ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return these, which are not free any more."""
        self._free.difference_update(gpu_ids)
        return gpu_ids

    def best(self, gpus: int) -> tuple[int, ...]:
        """Return this number of GPUs on as few servers as can be, where least of a server stays free."""
        if self._per_server == 1:
            while self._lowest[-1] not in self._free:
                self._lowest.pop()
            if gpus == 1:
                return (self._lowest[-1],)
            return tuple(islice((gpu for gpu in reversed(self._lowest) if gpu in self._free), gpus))
        servers = self._servers()
        fitting = [one for one in servers if len(one) >= gpus]
        if fitting:
            return tuple(min(fitting, key=len)[:gpus])
        fullest_first = sorted(servers, key=len, reverse=True)
        picked: list[int] = []
        while len(picked) + len(fullest_first[0]) < gpus:
            picked += fullest_first.pop(0)
        last = min((one for one in fullest_first if len(one) >= gpus - len(picked)), key=len)
        return tuple(sorted(picked + last[: gpus - len(picked)]))

    def apart(self, gpus: int) -> tuple[int, ...]:
        """Return this number of GPUs in as many servers as can be, first those where least is free."""
        in_turn = zip_longest(*sorted(self._servers(), key=len))
        return tuple(sorted([gpu for each in in_turn for gpu in each if gpu is not None][:gpus]))

    def _servers(self) -> list[list[int]]:
        """Return the free GPUs of each server that has some."""
        servers: dict[int, list[int]] = {}
        for gpu in sorted(self._free):
            servers.setdefault(gpu // self._per_server, []).append(gpu)
        return [*servers.values()]
