"""A policy that knows throughputs of pairs by estimates, and learns those of the pairs that it runs.

What it gives is judged by the throughputs that jobs really get (dissertation, Sec. 5.6 and Fig. 5.16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from random import Random

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand, FloatArray, IntArray
from schedsearch.cluster.estimator.completion import Settings
from schedsearch.cluster.estimator.pairs import estimate_pairs, with_measurement
from schedsearch.cluster.gpu_cluster import ClusterError, require
from schedsearch.cluster.policies.policy import AskingPolicy
from schedsearch.cluster.throughputs import Throughputs

_RUN = 1e-9
"""Share of the time above which a pair was run, and not left over by the solver."""


@dataclass(frozen=True, eq=False)
class ThroughputProfile:
    """Throughputs that were measured before any job of a simulation came.

    Attributes:
        measured: All types alone, and some pairs.
        references: Types that were measured in all pairs with each other.
    """

    measured: Throughputs
    references: Sequence[str]


def profiled(throughputs: Throughputs, reference_share: float, beside: int, seed: int) -> ThroughputProfile:
    """Return a profile with few pairs, drawn at random.

    Args:
        throughputs: Throughputs with all pairs.
        reference_share: Share of the types that are references; above 0 and at most 1.
        beside: References beside which each other type is measured; 1 or more.
        seed: Seed of what is drawn.

    Raises:
        ClusterError: A number is out of its range, or there are no pairs.
    """
    wanted = "above 0 and at most 1; give a share of the types"
    require(0 < reference_share <= 1, "reference_share", reference_share, wanted)
    require(beside >= 1, "profiled", beside, "1 or more; give a number of reference types")
    if not throughputs.pairs:
        raise ClusterError("reference_share: the throughputs have no pairs; leave it out, or give pairs")
    random = Random(seed)
    types = [*dict.fromkeys(job_type for job_type, _ in throughputs.alone)]
    references = random.sample(types, max(int(len(types) * reference_share), 1))
    measured = {frozenset(pair) for pair in combinations_with_replacement(references, 2)}
    for job_type in types:
        if job_type not in references:
            drawn = random.sample(references, min(beside, len(references)))
            measured |= {frozenset((job_type, one)) for one in drawn}
    pairs = {key: each for key, each in throughputs.pairs.items() if frozenset(key[:2]) in measured}
    return ThroughputProfile(replace(throughputs, pairs=pairs), references)


@dataclass
class EstimatingPolicy(AskingPolicy):
    """Asks another policy as if pairs ran as they were measured or else are estimated.

    Two jobs that do not fit on the same GPUs never share them, whatever was estimated: a cluster sees that at
    the first try.

    Attributes:
        policy: Policy that decides; it looks at pairs.
        profile: What was measured beforehand.
        learns: A pair that was given time has been measured at the next decision; the others are estimated
            anew then.
        seed: Seed of what is held out to choose how throughputs are estimated.

    Raises:
        ClusterError: The policy does not look at pairs, or a reference has no throughputs.
    """

    profile: ThroughputProfile
    learns: bool = True
    seed: int = 0
    _learned: dict[tuple[str, str, int, str], tuple[float, float]] = field(
        default_factory=dict, init=False, repr=False
    )
    _settings: dict[int, tuple[Settings, Settings]] | None = field(default=None, init=False, repr=False)
    _measured: Throughputs = field(init=False, repr=False)
    _estimated: Throughputs = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Estimate all pairs."""
        if not self.policy.shares_space:
            raise ClusterError(
                f"policy {self.policy.name} does not look at pairs, so none are estimated; "
                "take one that does, as las_packed"
            )
        self._measured = self.profile.measured
        self._estimate()

    @property
    def name(self) -> str:
        """Return the name of the policy, and that it is given estimates."""
        return f"{self.policy.name}_estimated"

    def allocate(self, demand: Demand) -> Allocation:
        """Return what the policy decides on estimates, as shares of what jobs really get."""
        seen = self.policy.allocate(demand.with_rates(self._rates(demand)))
        if self.learns:
            self._learn(demand, seen.shares)
        return replace(seen, demand=demand)

    def _rates(self, demand: Demand) -> FloatArray:
        """Return throughputs of all configurations, with those of pairs as they are known."""
        found = demand.configurations
        rates = found.steps_per_s.copy()
        pairs, firsts, kind_of = _kinds_of_pairs(demand)
        kinds = (_key(demand, int(pairs[first])) for first in firsts)
        known = [self._estimated.pair(*key[:3]).get(key[3], (0.0, 0.0)) for key in kinds]
        rates[pairs] = np.array(known, dtype=np.float64).reshape(-1, 2)[kind_of]
        return rates

    def _learn(self, demand: Demand, shares: FloatArray) -> None:
        """Take the pairs that are given time for measured from now on."""
        before = len(self._learned)
        is_run = ~demand.configurations.is_alone & (shares > _RUN)
        for index in np.flatnonzero(is_run).tolist():
            key = one, other, gpus, gpu_type = _key(demand, index)
            if gpu_type not in self._measured.pair(one, other, gpus):
                first, second = demand.configurations.steps_per_s[index].tolist()
                self._learned[key] = first, second
                self._measured = with_measurement(self._measured, key[:3], gpu_type, (first, second))
        if len(self._learned) > before:
            self._estimate()

    def _estimate(self) -> None:
        found = estimate_pairs(self._measured, self.profile.references, self.seed, self._settings)
        self._settings = dict(found.settings)
        self._estimated = found.throughputs


def _kinds_of_pairs(demand: Demand) -> tuple[IntArray, IntArray, IntArray]:
    """Return which configurations are pairs, the first of each kind among these, and the kind of each.

    Pairs of one kind have jobs of the same types, in the same order, on as many GPUs of one type.
    """
    found = demand.configurations
    pairs = np.flatnonzero(~found.is_alone)
    types = {name: number for number, name in enumerate(dict.fromkeys(one.job.type for one in demand.jobs))}
    type_of = np.array([types[one.job.type] for one in demand.jobs], dtype=np.int64)
    columns = np.column_stack([type_of[found.jobs[pairs]], found.gpu_type[pairs], found.gpus[pairs]])
    _, firsts, kind_of = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    return pairs, firsts, kind_of.reshape(-1)


def _key(demand: Demand, index: int) -> tuple[str, str, int, str]:
    """Return the types of both jobs of a pair, the number of GPUs and their type."""
    (one, other), number, gpus = demand.configurations[index]
    return demand.jobs[one].job.type, demand.jobs[other].job.type, gpus, demand.cluster.gpu_types[number]
