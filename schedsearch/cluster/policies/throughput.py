"""Policies that maximize a weighted sum of throughputs: largest total, first in first out, shortest first.

(Dissertation, Sec. 5.4.2.) Each is one linear program; SJF has two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from schedsearch.cluster.demand import Demand, FloatArray, IntArray
from schedsearch.cluster.policies.policy import SLACK, SharesPolicy, check_runnable, worth
from schedsearch.cluster.policies.program import AllocationProgram


@dataclass(frozen=True)
class MaxTotalThroughput(SharesPolicy):
    """Maximizes the sum of all throughputs, in steps per second; jobs with short steps so come first."""

    term: ClassVar[str] = "max_total_throughput"

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        shares = AllocationProgram(demand).maximize(demand.configurations.steps_per_s.sum(axis=1))
        return shares, float(demand.rates(shares).sum())


@dataclass(frozen=True)
class FirstInFirstOut(SharesPolicy):
    """Maximizes the sum of throughput / throughput on the fastest type, times M for the first of M jobs.

    The next has M - 1 and so on. It is a *soft* order: a late job may take the place of an earlier one that
    loses little by going elsewhere.
    """

    fills_idle_gpus: ClassVar[bool] = False
    term: ClassVar[str] = "fifo"

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        values = _worth_in_order(demand, np.arange(len(demand.jobs)))
        shares = AllocationProgram(demand).maximize(values)
        return shares, float(values @ shares)


@dataclass(frozen=True)
class ShortestJobFirst(SharesPolicy):
    """Minimizes the time of the job that can be done first, which is the objective, in seconds.

    The text says nothing about the others; they follow as in `FirstInFirstOut`, by the time each would take
    on its fastest type.
    """

    term: ClassVar[str] = "sjf"

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        check_runnable(demand, self.name)
        if not demand.jobs:
            return np.zeros(0), 0.0
        order = np.argsort(demand.steps_left / demand.alone_steps_per_s.max(axis=1), kind="stable")
        is_first = np.arange(len(order)) == order[0]
        program = AllocationProgram(demand)
        fastest = demand.rates(program.maximize(demand.coefficients(is_first.astype(np.float64))))
        program.set_floors(np.where(is_first, fastest * (1 - SLACK), 0.0))
        shares = program.maximize(_worth_in_order(demand, order))
        return shares, float(demand.steps_left[order[0]] / demand.rates(shares)[order[0]])


def _worth_in_order(demand: Demand, order: IntArray) -> FloatArray:
    """Return the worth of shares if the first of n jobs in an order counts n, the next n - 1, the last 1."""
    values = np.zeros(len(order))
    values[order] = np.arange(len(order), 0, -1)
    return worth(demand, values)
