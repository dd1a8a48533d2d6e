"""Sharing of GPUs by trial, as Gandiva does (Xiao et al., OSDI 2018), a baseline of Gavel.

It knows no types and solves nothing: jobs take turns on all GPUs alike, and where there are more jobs than
GPUs it pairs jobs at random, measures their speed, and keeps the pairs that gain.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import NO_CONFIGURATION, Demand, FloatArray

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

    def __post_init__(self) -> None:
        """Begin without pairs."""
        self._random, self._pairs, self._bad = Random(self.seed), list[JobPair](), set[JobPair]()

    def allocate(self, demand: Demand) -> Allocation:
        """Return the division; the objective is the sum over jobs of throughput / fastest alone."""
        names, worth = [active.name for active in demand.jobs], _worth(demand)
        known, self._pairs = [pair for pair in self._pairs if {*pair} <= {*names}], []
        for pair in known:
            (self._pairs.append if worth.get(pair, 0.0) >= 1 else self._bad.add)(pair)
        self._pair_at_random(demand, names, worth)
        paired = {name for pair in self._pairs for name in pair}
        shares = _equal_shares(demand, [*self._pairs, *((name,) for name in names if name not in paired)])
        fastest = demand.alone_steps_per_s.max(axis=1)
        normalized = np.divide(demand.rates(shares), fastest, out=np.zeros_like(fastest), where=fastest > 0)
        return Allocation(demand, shares, float(normalized.sum()))

    def _pair_at_random(self, demand: Demand, names: list[str], worth: dict[JobPair, float]) -> None:
        gpus, paired = demand.scale_factors, {name for pair in self._pairs for name in pair}
        needed = gpus.sum() - sum(gpus[names.index(one)] for one, _ in self._pairs)
        candidates = [job for job, name in enumerate(names) if name not in paired]
        self._random.shuffle(candidates)
        while candidates and needed > demand.cluster.num_gpus:
            one = candidates.pop()
            for other in candidates:
                pair = names[min(one, other)], names[max(one, other)]
                if pair in worth and pair not in self._bad:
                    candidates.remove(other)
                    self._pairs.append(pair)
                    needed -= gpus[one]
                    break


def _worth(demand: Demand) -> dict[JobPair, float]:
    """Return the sum of both normalized throughputs of each pair that can share, averaged over all GPUs."""
    configs, names = demand.configurations, [active.name for active in demand.jobs]
    which = np.flatnonzero(~configs.is_alone)
    alone = demand.alone_steps_per_s[configs.jobs[which], configs.gpu_type[which, None]]
    sums = np.divide(configs.steps_per_s[which], alone, out=np.zeros(alone.shape), where=alone > 0).sum(1)
    parts = sums * demand.workers[configs.gpu_type[which]] / demand.workers.sum()
    worth: dict[JobPair, float] = defaultdict(float)
    for (one, two), part in zip(np.sort(configs.jobs[which]).tolist(), parts.tolist(), strict=True):
        worth[names[one], names[two]] += part
    return worth


def _equal_shares(demand: Demand, units: list[tuple[str, ...]]) -> FloatArray:
    """Return shares that give each job or pair the same mean number of GPUs of each type.

    A unit that would so run more than all the time runs all the time, divided among types in the same way.
    """
    configs, types = demand.configurations, range(len(demand.workers))
    fastest: dict[tuple[tuple[str, ...], int], int] = {}
    for index in np.argsort(configs.steps_per_s.sum(axis=1), kind="stable").tolist():
        jobs, number, _ = configs[index]
        fastest[tuple(demand.jobs[job].name for job in sorted(jobs)), number] = index
    chosen = [[fastest.get((unit, number), NO_CONFIGURATION) for number in types] for unit in units]
    ways = np.array(chosen, dtype=np.int64).reshape(len(units), len(types))
    is_there = ways != NO_CONFIGURATION
    times = is_there * demand.workers / np.maximum(is_there.sum(axis=0), 1) / np.append(configs.gpus, 1)[ways]
    times /= np.maximum(times.sum(axis=1, keepdims=True), 1.0)
    shares = np.zeros(len(configs))
    shares[ways[is_there]] = times[is_there]
    return shares
