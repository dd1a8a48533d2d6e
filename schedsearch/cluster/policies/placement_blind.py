"""A policy that does not know servers, the baseline of one that does (dissertation, Sec. 5.3.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.policies.policy import AskingPolicy
from schedsearch.cluster.throughputs import Throughputs

BLIND = "_blind"
"""End of the name of a policy that does not know servers."""


@dataclass
class PlacementBlindPolicy(AskingPolicy):
    """Asks another policy as if each job had all its GPUs in as few servers as it needs.

    What jobs get is the throughput in the servers that they are placed in.

    Attributes:
        policy: Policy that decides.
        throughputs: What it knows.
    """

    throughputs: Throughputs

    def __post_init__(self) -> None:
        """Forget what jobs get in several servers."""
        self.throughputs = replace(self.throughputs, unconsolidated=None)

    @property
    def name(self) -> str:
        """Return the name of the policy, and that it does not know servers."""
        return self.policy.name + BLIND

    def allocate(self, demand: Demand) -> Allocation:
        """Return what the policy decides, as shares of configurations in as few servers as can be.

        Time of a job on GPUs on which it cannot run at all in the servers that are there is lost.
        """
        seen = self.policy.allocate(
            self.throughputs.demand(
                demand.cluster, demand.jobs, shares_space=self.shares_space, now_s=demand.now_s
            )
        )
        consolidated_last = np.argsort(~demand.configurations.is_unconsolidated, kind="stable")
        ways = demand.configurations.ways.tolist()
        place = {tuple(ways[index]): index for index in consolidated_last.tolist()}
        shares = np.zeros(len(ways))
        for way, share in zip(seen.demand.configurations.ways.tolist(), seen.shares.tolist(), strict=True):
            if tuple(way) in place:
                shares[place[tuple(way)]] = share
        return replace(seen, demand=demand, shares=shares)
