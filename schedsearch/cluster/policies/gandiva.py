"""Sharing of GPUs by trial, as Gandiva does (Xiao et al., OSDI 2018), a baseline of Gavel.

It knows no types and solves nothing: jobs take turns on all GPUs alike, and where there are more jobs than
GPUs it puts random pairs together, looks how fast they are, and keeps those that are worth it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand, FloatArray

JobPair = tuple[str, str]


@dataclass
class Gandiva:
    """Divides each type equally among jobs and pairs of jobs.

    At each decision it breaks the pairs of the last one whose throughputs, each over that of the job alone on
    the same type, sum to less than 1 on average over the types; it does not try them again. If the jobs left
    need more GPUs than there are, it pairs jobs at random, of as many GPUs each, until they fit or none is
    left that may be paired. A pair on trial runs until the next decision, so a bad guess costs what it costs.

    Gavel's code does the same, with three differences: it pairs all jobs, however few GPUs are short; it may
    try a bad pair again; and its pairs run also on types where nothing comes of it.

    Attributes:
        seed: Seed of the random pairs.
    """

    seed: int = 0

    shares_space: ClassVar[bool] = True
    name: ClassVar[str] = "gandiva"

    _random: Random = field(init=False, repr=False)
    _pairs: list[JobPair] = field(default_factory=list, init=False, repr=False)
    _bad: set[JobPair] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        """Seed the random numbers."""
        self._random = Random(self.seed)

    def allocate(self, demand: Demand) -> Allocation:
        """Return the division; the objective is the sum over jobs of throughput / fastest alone."""
        index_of = {active.name: index for index, active in enumerate(demand.jobs)}
        worth = _worth(demand)
        known = [pair for pair in self._pairs if pair[0] in index_of and pair[1] in index_of]
        is_good = [worth.get((index_of[one], index_of[two]), 0.0) >= 1 for one, two in known]
        self._bad = {pair for pair in self._bad if pair[0] in index_of and pair[1] in index_of}
        self._bad |= {pair for pair, good in zip(known, is_good, strict=True) if not good}
        self._pairs = [pair for pair, good in zip(known, is_good, strict=True) if good]
        self._pair_at_random(demand, worth)
        pairs = [(index_of[one], index_of[two]) for one, two in self._pairs]
        paired = {job for pair in pairs for job in pair}
        units = [*pairs, *((job,) for job in range(len(demand.jobs)) if job not in paired)]
        shares = _equal_shares(demand, units)
        fastest = demand.alone_steps_per_s.max(axis=1)
        normalized = np.divide(demand.rates(shares), fastest, out=np.zeros_like(fastest), where=fastest > 0)
        return Allocation(demand, shares, float(normalized.sum()))

    def _pair_at_random(self, demand: Demand, worth: dict[tuple[int, int], float]) -> None:
        paired = {name for pair in self._pairs for name in pair}
        scale_factors = demand.scale_factors.astype(np.int64).tolist()
        index_of = {active.name: index for index, active in enumerate(demand.jobs)}
        needed = sum(scale_factors) - sum(scale_factors[index_of[one]] for one, _ in self._pairs)
        candidates = [job for job, active in enumerate(demand.jobs) if active.name not in paired]
        self._random.shuffle(candidates)
        while candidates and needed > demand.cluster.num_gpus:
            one = candidates.pop()
            for other in candidates:
                first, second = sorted((one, other))
                names = (demand.jobs[first].name, demand.jobs[second].name)
                if (first, second) in worth and names not in self._bad:
                    candidates.remove(other)
                    self._pairs.append(names)
                    needed -= scale_factors[one]
                    break


def _worth(demand: Demand) -> dict[tuple[int, int], float]:
    """Return the sum of both normalized throughputs of each pair that can share, averaged over all GPUs."""
    found = demand.configurations
    which = np.flatnonzero(~found.is_alone)
    alone = demand.alone_steps_per_s[found.jobs[which], found.gpu_type[which, None]]
    sums = np.divide(found.steps_per_s[which], alone, out=np.zeros(alone.shape), where=alone > 0).sum(axis=1)
    parts = sums * demand.workers[found.gpu_type[which]] / demand.workers.sum()
    worth: dict[tuple[int, int], float] = {}
    for (one, two), part in zip(found.jobs[which].tolist(), parts.tolist(), strict=True):
        pair = (min(one, two), max(one, two))
        worth[pair] = worth.get(pair, 0.0) + part
    return worth


def _equal_shares(demand: Demand, units: list[tuple[int, ...]]) -> FloatArray:
    """Return the shares of jobs and pairs that have as many GPUs of each type on average.

    A unit that would so run more than all the time runs all the time, divided among types in the same way.
    """
    ways = _fastest_of(demand)
    shares = np.zeros(len(demand.configurations))
    chosen = [[ways.get((unit, number)) for number in range(len(demand.workers))] for unit in units]
    is_there = np.array([[way is not None for way in row] for row in chosen]).reshape(
        len(units), len(demand.workers)
    )
    sharing = np.maximum(is_there.sum(axis=0), 1)
    for row, there in zip(chosen, is_there, strict=True):
        gpus = np.array([demand.configurations.gpus[way] if way is not None else 1 for way in row])
        times = there * demand.workers / sharing / gpus
        times /= max(times.sum(), 1.0)
        for way, time in zip(row, times.tolist(), strict=True):
            if way is not None:
                shares[way] = time
    return shares


def _fastest_of(demand: Demand) -> dict[tuple[tuple[int, ...], int], int]:
    """Return the configuration in which each job or pair is fastest on each type."""
    found = demand.configurations
    best: dict[tuple[tuple[int, ...], int], int] = {}
    for index in np.argsort(found.steps_per_s.sum(axis=1), kind="stable").tolist():
        jobs, number, _ = found[index]
        best[tuple(sorted(jobs)), number] = index
    return best
