"""A policy that knows throughputs of pairs only by estimates (dissertation, Sec. 5.3.3 and Fig. 5.16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from random import Random

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.estimator.pairs import estimate_pairs
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.throughputs import Throughputs

PROFILED = 3
"""Reference types beside which each new type is measured."""


def estimated(throughputs: Throughputs, seed: int) -> Throughputs:
    """Return throughputs whose pairs are estimated from few of them.

    Half of the types, drawn at random, are references and measured in all pairs; each other type is measured
    beside `PROFILED` of them.

    Args:
        throughputs: With all pairs.
        seed: Of what is drawn.
    """
    random = Random(seed)
    types = [*dict.fromkeys(job_type for job_type, _ in throughputs.alone)]
    references = random.sample(types, len(types) // 2)
    measured = {frozenset(pair) for pair in combinations_with_replacement(references, 2)}
    for job_type in types:
        if job_type not in references:
            measured |= {
                frozenset((job_type, one))
                for one in random.sample(references, min(PROFILED, len(references)))
            }
    pairs = {key: each for key, each in throughputs.pairs.items() if frozenset(key[:2]) in measured}
    return estimate_pairs(replace(throughputs, pairs=pairs), references, seed).throughputs


@dataclass(frozen=True)
class WithEstimates:
    """Asks another policy as if pairs ran as estimated.

    Two jobs that do not fit on the same GPUs never share them, whatever was estimated: a cluster sees that at
    the first try.

    Attributes:
        policy: That decides.
        throughputs: Estimated.
    """

    policy: Policy
    throughputs: Throughputs

    @property
    def name(self) -> str:
        """Return the name of the policy, and that it is given estimates."""
        return f"{self.policy.name}_estimated"

    @property
    def shares_space(self) -> bool:
        """Return whether the policy looks at pairs."""
        return self.policy.shares_space

    def allocate(self, demand: Demand) -> Allocation:
        """Return what the policy decides on estimates, as shares of what jobs really get."""
        found = demand.configurations
        rates = found.steps_per_s.copy()
        for number in np.flatnonzero(~found.is_alone).tolist():
            (one, other), gpu_type, _ = found[number]
            rates[number] = self._pair(demand, one, other, demand.cluster.gpu_types[gpu_type])
        seen = self.policy.allocate(demand.with_rates(rates))
        return replace(seen, demand=demand)

    def _pair(self, demand: Demand, one: int, other: int, gpu_type: str) -> Sequence[float]:
        first, second = demand.jobs[one].job, demand.jobs[other].job
        return self.throughputs.pair(first.type, second.type, first.scale_factor).get(gpu_type, (0.0, 0.0))
