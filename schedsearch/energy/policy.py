"""Which plan of the frontier to run when, if energy has a price that changes over time.

The price may be money or grams of carbon dioxide per kilowatt-hour. Perseus plans for a deadline that a
straggler gives (Sec. 3.1); here the deadline of each iteration follows from that of the whole job: slow where
energy is dear, fast where it is cheap. As a function of how many iterations are run per second, the power
of the plans, mixed over time, is the lower hull of their points, so the least cost of the whole job is a
sum of convex functions with one constraint. Taking the cheapest additional iterations first, interval by
interval, is exact (a Lagrangian, whose multiplier is the cost of the last iteration taken).

The answer that can be run has at most two plans for each interval, one after the other, and whole
iterations that end in the interval in which they began. The price is taken to be known beforehand, and
changing plans to cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np

from placements.meaning import Meaning
from placements.plain_data import csv_records, in_file, read_csv
from schedsearch.energy.bound import proved
from schedsearch.energy.cost import lower_hull
from schedsearch.energy.frontier import FrequencyPlan, Frontier
from schedsearch.energy.graph import EnergyError

_MJ_PER_KWH = 3.6e9
"""Millijoules in a kilowatt-hour."""

_ENOUGH = 1e-9
"""Share of an iteration that rounding errors may lack."""


@dataclass(frozen=True)
class Interval:
    """A time of constant price."""

    duration_s: Annotated[float, Meaning("length of the interval", "s", above=0)]
    price_per_kwh: Annotated[float, Meaning("money or grams of carbon dioxide for a kilowatt-hour")]


@dataclass(frozen=True)
class SignalJob:
    """So many iterations, to be done in the time of a signal.

    Attributes:
        num_iterations: Number of iterations, at least 1.
        signal: Intervals one after another; the job's deadline is their end.
        pause_w: Power of each GPU while no iteration runs, until the deadline: the blocking power for
            devices that wait, 0 for those that are given back. None for the blocking power, at the clock
            where it is least: a pause is long enough to set it.
    """

    num_iterations: int
    signal: tuple[Interval, ...]
    pause_w: float | None = None


@dataclass(frozen=True)
class Stay:
    """What is run in one interval.

    Attributes:
        interval: When, and at what price.
        runs: Plans of the frontier, each with how many whole iterations of it are run, one after the other;
            at most two. None for a pause.
    """

    interval: Interval
    runs: tuple[tuple[FrequencyPlan, int], ...]

    @property
    def num_iterations(self) -> int:
        """Return how many iterations end in the interval."""
        return sum(count for _, count in self.runs)


@dataclass(frozen=True)
class EnergyPolicy:
    """What to run in each interval.

    Attributes:
        stays: One for each interval.
        cost: Cost of all devices until the deadline, in the unit of the price.
        min_cost: No way to run the frontier's plans costs less, also if iterations could be divided.
        energy_mj: Energy of all devices until the deadline.
    """

    stays: tuple[Stay, ...]
    cost: float
    min_cost: float
    energy_mj: float

    @property
    def gap(self) -> float:
        """Return by how much of the least cost the policy may be above the best one."""
        return self.cost / self.min_cost - 1 if self.min_cost > 0 else math.nan


def read_signal(path: str | Path) -> tuple[Interval, ...]:
    """Read a signal from a CSV file with the columns ``duration_s,price_per_kwh``, in order of time.

    Raises:
        EnergyError: The file cannot be read or is wrong; the message begins with its path.
    """
    with in_file(path, EnergyError):
        rows = csv_records(read_csv(path, EnergyError), "interval", EnergyError, Interval)
        return tuple(interval for _, interval in rows)


def until(signal: Sequence[Interval], deadline_s: float) -> tuple[Interval, ...]:
    """Return the part of a signal before a deadline.

    Raises:
        EnergyError: The deadline is not above 0, or the signal ends before it.
    """
    length_s = math.fsum(interval.duration_s for interval in signal)
    if not 0 < deadline_s <= length_s * (1 + _ENOUGH):
        raise EnergyError(
            f"job_deadline_s: {deadline_s:g} is not within the {length_s:g} s of the signal; "
            "give a time within it, or a longer signal"
        )
    kept, left_s = [], deadline_s
    for interval in signal:
        if left_s > 0:
            kept.append(Interval(min(interval.duration_s, left_s), interval.price_per_kwh))
        left_s -= interval.duration_s
    return tuple(kept)


def min_cost_policy(frontier: Frontier, job: SignalJob) -> EnergyPolicy:
    """Return which plan to run in each interval, at the least cost for all iterations of a job.

    Args:
        frontier: Frontier whose plans are used, and whose devices wait.
        job: Iterations and prices.

    Raises:
        EnergyError: The job cannot be done in time, or an argument is wrong.
    """
    return _Choice(frontier, job).policy()


class _Choice:
    """One problem; the arguments are those of `min_cost_policy`. A plan is its index, -1 a pause."""

    def __init__(self, frontier: Frontier, job: SignalJob) -> None:
        if job.num_iterations < 1:
            raise EnergyError(f"iterations: {job.num_iterations} is not at least 1")
        num_gpus = frontier.all_gpus
        pause_w = frontier.blocking_power_w if job.pause_w is None else job.pause_w
        if not 0 <= pause_w < math.inf:
            raise EnergyError(f"pause_w: {pause_w:g} is not a power; give 0 W or more")
        self.plans, self.job = frontier.plans, job
        self.pause_w = pause_w * num_gpus

    def rate(self, plan: int) -> float:
        """Return a plan's iterations per millisecond."""
        return 0.0 if plan < 0 else 1 / self.plans[plan].time_ms

    def power_w(self, plan: int) -> float:
        """Return the power of all devices while a plan is run again and again."""
        return self.pause_w if plan < 0 else self.plans[plan].energy_mj / self.plans[plan].time_ms

    @cached_property
    def hulls(self) -> dict[int, list[int]]:
        """Return the plans on the hull of rate and cost, slowest first, by the sign of the price."""
        plans = np.array([-1, *range(len(self.plans) - 1, -1, -1)])
        rate = np.array([self.rate(plan) for plan in plans.tolist()])
        power_w = np.array([self.power_w(plan) for plan in plans.tolist()])
        return {sign: plans[lower_hull(rate, sign * power_w)].tolist() for sign in (-1, 0, 1)}

    def hull(self, interval: Interval) -> list[int]:
        """Return the plans among which an interval chooses, slowest first."""
        price = interval.price_per_kwh
        return self.hulls[(price > 0) - (price < 0)]

    def steps(self) -> list[tuple[float, int, int, int]]:
        """Return (cost of an iteration more, interval, plan, next faster plan), the cheapest first."""
        found = []
        for i, interval in enumerate(self.job.signal):
            for slow, fast in pairwise(self.hull(interval)):
                more = (self.power_w(fast) - self.power_w(slow)) / (self.rate(fast) - self.rate(slow))
                found.append((interval.price_per_kwh * more / _MJ_PER_KWH, i, slow, fast))
        return sorted(found, key=lambda step: step[:2])

    def capacity(self, interval: Interval, plan: int) -> int:
        """Return how many whole iterations of a plan fit into an interval."""
        return math.floor(self.rate(plan) * interval.duration_s * 1e3 + _ENOUGH)

    def cost(self, interval: Interval, runs: Sequence[tuple[int, int]]) -> tuple[float, float]:
        """Return cost and energy in mJ of an interval that runs plans so often and pauses for the rest."""
        more = (n * (self.plans[i].energy_mj - self.pause_w * self.plans[i].time_ms) for i, n in runs)
        energy_mj = self.pause_w * interval.duration_s * 1e3 + math.fsum(more)
        return interval.price_per_kwh * energy_mj / _MJ_PER_KWH, energy_mj

    def min_cost(self) -> float:
        """Return the cost if iterations could be divided and mixed in any way."""
        left = float(self.job.num_iterations)
        cost = math.fsum(self.cost(interval, ())[0] for interval in self.job.signal)
        for each, i, slow, fast in self.steps():
            gained = (self.rate(fast) - self.rate(slow)) * self.job.signal[i].duration_s * 1e3
            taken = min(gained, left)
            cost += each * taken
            left -= taken
        return cost

    def policy(self) -> EnergyPolicy:
        """Return the answer that can be run."""
        signal = self.job.signal
        chosen = [self.cheapest(*each) for each in zip(signal, self.counts(), strict=True)]
        each = [self.cost(*stay) for stay in zip(signal, chosen, strict=True)]
        stays = tuple(
            Stay(interval, tuple((self.plans[plan], count) for plan, count in runs))
            for interval, runs in zip(signal, chosen, strict=True)
        )
        cost = math.fsum(cost for cost, _ in each)
        min_cost = proved(self.min_cost(), cost, math.fsum(abs(cost) for cost, _ in each))
        return EnergyPolicy(stays, cost, min_cost, math.fsum(energy for _, energy in each))

    def counts(self) -> list[int]:
        """Return how many iterations each interval runs: the cheapest steps first.

        Raises:
            EnergyError: All intervals at the fastest plan are too few.
        """
        signal, wanted = self.job.signal, self.job.num_iterations
        most = sum(self.capacity(interval, 0) for interval in signal)
        if most < wanted:
            raise EnergyError(
                f"iterations: {wanted} cannot be done in the time of the signal, at most {most} can; "
                "give fewer, or more time"
            )
        counts, left = [0] * len(signal), wanted
        for _, i, _, fast in self.steps():
            gained = min(max(self.capacity(signal[i], fast) - counts[i], 0), left)
            counts[i] += gained
            left -= gained
        return counts

    def cheapest(self, interval: Interval, count: int) -> list[tuple[int, int]]:
        """Return how to run so many iterations in an interval at the least cost: (plan, how often) each."""
        if count == 0:
            return []
        hull = [plan for plan in self.hull(interval) if plan >= 0]
        fit = [plan for plan in range(len(self.plans)) if self.capacity(interval, plan) >= count]
        ways = [[(plan, count)] for plan in fit]
        for slow, fast in pairwise(hull):
            if fast in fit:
                ways.append(self._mixed(interval, count, slow, fast))
        return min(ways, key=lambda runs: self.cost(interval, runs)[0])

    def _mixed(self, interval: Interval, count: int, slow: int, fast: int) -> list[tuple[int, int]]:
        """Return iterations of the faster of two plans, and as many of the slower as there is time for."""
        slow_ms, fast_ms = self.plans[slow].time_ms, self.plans[fast].time_ms
        spare_ms = interval.duration_s * 1e3 - count * fast_ms
        often = min(max(math.floor(spare_ms / (slow_ms - fast_ms) + _ENOUGH), 0), count)
        return [(plan, n) for plan, n in ((fast, count - often), (slow, often)) if n > 0]
