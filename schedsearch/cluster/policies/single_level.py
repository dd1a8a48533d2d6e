"""Gavel's other policies of one level (dissertation, Sec. 5.4.2): of the time at which jobs end, and of sums.

The makespan and finish-time fairness, which do not know jobs that are still to come; and weighted sums of
throughputs: the largest total, first in first out, shortest first. Each is one linear program; SJF has two,
finish-time fairness a few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from schedsearch.cluster.demand import Demand, FloatArray, IntArray
from schedsearch.cluster.policies.fairness import isolated_steps_per_s
from schedsearch.cluster.policies.policy import SLACK, SharesPolicy, check_runnable, filled, worth
from schedsearch.cluster.policies.program import AllocationProgram

PRECISION = 1e-7
"""Relative, of a finish-time ratio."""


@dataclass(frozen=True)
class Makespan(SharesPolicy):
    """Minimizes the time until all jobs are done, in seconds: the longest of steps left / throughput.

    It is one linear program: the least of throughput / steps left is as high as can be. Gavel bisects the
    time until 5 %.
    """

    term: ClassVar[str] = "makespan"

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        check_runnable(demand, self.name)
        program = AllocationProgram(demand)
        shares, least = program.maximize_least(1 / demand.steps_left)
        return filled(program, shares, least * demand.steps_left), 1 / least


@dataclass(frozen=True)
class FinishTimeFairness(SharesPolicy):
    """Minimizes the largest finish-time ratio (Themis's rho).

    The ratio of a job is the time it takes to its end as it goes, over that with 1/n of the cluster: (waited
    + steps left / throughput) / (isolated so far + steps left / isolated throughput).

    A bisection would solve some twenty linear programs. Here the prices of one program say that no ratio
    below some bound can be had (`_next_bound`), and the next program is that of the bound; as soon as the
    prices are those of the best ratio, the bound is that ratio: a few programs are enough.
    """

    term: ClassVar[str] = "finish_time_fairness"

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        check_runnable(demand, self.name)
        program, steps = AllocationProgram(demand), demand.steps_left
        waited_s = np.array([active.waited_s for active in demand.jobs])
        so_far_s = np.array([active.isolated_s for active in demand.jobs])
        isolated_s = so_far_s + steps / isolated_steps_per_s(demand)

        def largest_ratio(steps_per_s: FloatArray) -> float:
            with np.errstate(divide="ignore"):
                return float(((waited_s + steps / steps_per_s) / isolated_s).max(initial=0.0))

        last, bound, best, best_shares = -1.0, largest_ratio(demand.fastest_steps_per_s), np.inf, np.zeros(0)
        while bound > last:
            shares, least = program.maximize_least(1 / (steps / (bound * isolated_s - waited_s)))
            ratio = largest_ratio(demand.rates(shares))
            if ratio <= best:
                best, best_shares = ratio, shares
            if best <= bound * (1 + PRECISION):
                break
            last, bound = bound, _next_bound(bound, waited_s, isolated_s, program.prices, least)
        return filled(program, best_shares, steps / (best * isolated_s - waited_s)), best


def _next_bound(
    ratio: float, waited_s: FloatArray, isolated_s: FloatArray, prices: FloatArray, least: float
) -> float:
    """Return a ratio that cannot be gone below, by the program of another lower bound.

    The program maximized the least of throughput / needed. Its prices (at least 0, of sum 1) say that no
    allocation has sum(price x throughput / needed at this ratio) above that least; so a ratio that can be had
    has sum(price x needed / needed at this ratio) of at most it. That sum falls as the ratio grows, and is
    convex: from the left, Newton's steps never go too far. A job's seconds are those since its arrival, and
    from there to its end on its own share of the cluster.
    """
    left_s = ratio * isolated_s - waited_s
    while True:
        at_s = ratio * isolated_s - waited_s
        terms = prices * left_s / at_s
        excess = float(terms.sum()) - least
        step = excess / float((terms * isolated_s / at_s).sum()) if excess > 0 else 0.0
        if step <= ratio * 1e-14:
            return ratio
        ratio += step


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
