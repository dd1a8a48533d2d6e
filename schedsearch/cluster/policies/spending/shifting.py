"""Jobs shifted in time: energy has a price that changes, in money or carbon, and jobs that can wait do so.

The program is that of one decision, once for each interval of the signal that is still to come: shares of
each interval's time, within its GPUs and power, and for each job the steps that it must have done by the end
of its window. Only what it says of the present interval is run; the next decision sees further. For one job
this is `schedsearch.energy.min_cost_policy`, whose bound it reaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle

import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array, eye_array, hstack, kron, vstack

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import NOBODY, Demand, FloatArray, IntArray
from schedsearch.cluster.gpu_cluster import ClusterError, require
from schedsearch.cluster.linear_program import LinearProgram
from schedsearch.cluster.policies.program import AllocationProgram
from schedsearch.cluster.policies.spending.energy import KEPT, FloorRules, Floors, check_powers
from schedsearch.energy import Interval, read_signal

_J_PER_KWH = 3.6e6
"""Joules in a kilowatt-hour."""

SPARES = (KEPT, 1 - 1e-3)
"""Shares of what a program found to be possible that are asked for; the second if the first is too much."""
_SOONER = 1e-6
"""Share of the mean price by which the end of the horizon is dearer than now."""


@dataclass(frozen=True)
class LeastSignalCost(FloorRules):
    """Takes the least cost of energy over the intervals to come that does each job's steps in its window.

    The floors are those of `FloorRules`, each on average over the job's window: until its SLO or the horizon,
    whichever is first. A job without SLO is promised an end, that of its floor: when it is first seen, and
    again whenever its floor then would end it earlier. So it is not put off for ever. SLOs come before
    promises; of either kind, if not all can be kept, each job has the same share of what it needs. The
    objective is the cost of all energy until the horizon, in the unit of the price.

    Attributes:
        signal: Prices from second 0 of the simulation on; after its end it begins again.
        horizon_s: How far it looks ahead, at most; above 0.

    Raises:
        ClusterError: The signal is empty, or the horizon is not above 0.
    """

    name: str = "least_signal_cost"
    signal: tuple[Interval, ...] = ()
    horizon_s: float = 86400.0
    _promised_s: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the signal and the horizon."""
        super().__post_init__()
        if not self.signal:
            raise ClusterError("signal: has no intervals; give at least one")
        is_time = 0 < self.horizon_s < math.inf
        require(is_time, "horizon_s", self.horizon_s, "a time above 0; give seconds")

    @classmethod
    def of_file(
        cls,
        signal: str,
        horizon_s: float = 86400.0,
        min_share: float = 0.9,
        spare_s: float = 0.0,
        is_strict: bool = False,
    ) -> LeastSignalCost:
        """Return the policy for the signal of a CSV file; see `schedsearch.energy.read_signal`.

        Raises:
            EnergyError: The file cannot be read or is wrong.
            ClusterError: A number is out of its range.
        """
        found = read_signal(signal)
        return cls(min_share, spare_s, is_strict, signal=found, horizon_s=horizon_s)

    def allocate(self, demand: Demand) -> Allocation:
        """Return what is run in the present interval.

        Raises:
            InfeasibleError: See `set_floors`.
            ClusterError: No power is known.
        """
        check_powers(demand, self.name)
        intervals = tuple(coming(self.signal, demand.now_s, self.horizon_s))
        floors = self.set_floors(AllocationProgram(demand))
        promised = np.flatnonzero(~np.isfinite(floors.window_s) & (floors.steps_per_s > 0))
        with_promises = self._with_promises(demand, floors, promised)
        found = min_cost_shares(demand, with_promises, intervals, promised)
        until_s = demand.now_s + intervals[0].duration_s
        notes = replace(floors, share=found.slo_share).notes
        return Allocation(demand, found.shares[0], found.cost, notes, until_s)

    def _with_promises(self, demand: Demand, floors: Floors, promised: IntArray) -> Floors:
        """Return the floors in which some jobs have until their promised ends; SLOs are wanted in full."""
        window_s, steps_left = floors.window_s.copy(), demand.steps_left
        for job in promised.tolist():
            name, fair_s = demand.jobs[job].name, steps_left[job] / floors.steps_per_s[job]
            left_s = min(self._promised_s.get(name, math.inf) - demand.now_s, fair_s)
            if (
                left_s * demand.fastest_steps_per_s[job] < steps_left[job]
            ):  # nothing keeps it, so it is promised anew
                left_s = fair_s
            self._promised_s[name], window_s[job] = demand.now_s + left_s, left_s
        is_asked = np.isfinite(window_s)
        rates = np.where(is_asked, steps_left / np.where(is_asked, window_s, 1.0), 0.0)
        return replace(floors, steps_per_s=rates, window_s=window_s)


def coming(signal: tuple[Interval, ...], now_s: float, horizon_s: float) -> Iterator[Interval]:
    """Yield the intervals of a signal that repeats, from a time on, until the horizon.

    >>> day = (Interval(10.0, 1.0), Interval(10.0, 2.0))
    >>> [(one.duration_s, one.price_per_kwh) for one in coming(day, 35.0, 17.0)]
    [(5.0, 2.0), (10.0, 1.0), (2.0, 2.0)]
    """
    length_s = math.fsum(interval.duration_s for interval in signal)
    skipped_s, left_s = math.fmod(now_s, length_s), horizon_s
    for interval in cycle(signal):
        duration_s = min(interval.duration_s - skipped_s, left_s)
        skipped_s = max(skipped_s - interval.duration_s, 0.0)
        if duration_s > 0:
            yield Interval(duration_s, interval.price_per_kwh)
            left_s -= duration_s
        if left_s <= 0:
            return


@dataclass(frozen=True, eq=False)
class IntervalShares:
    """The configurations that run in each interval.

    Attributes:
        shares: Shares of each interval's time; shape (intervals, configurations).
        cost: Cost of all energy, in the unit of the price.
        slo_share: Share of the floors that come first that each job has, because they cannot all be kept; or
            1.
        promised_share: Likewise of those that are promised.
    """

    shares: FloatArray
    cost: float
    slo_share: float = 1.0
    promised_share: float = 1.0


def min_cost_shares(
    demand: Demand, floors: Floors, intervals: tuple[Interval, ...], promised: IntArray | None = None
) -> IntervalShares:
    """Return what is run in each interval at the least cost of all energy.

    A job runs in its window only: in an interval in which this ends, for the part before. Its GPUs and power
    are then kept for it during the whole interval, which is on the safe side. Where the floors cannot all be
    kept each job has the same share of its own, the highest that is possible.

    Args:
        demand: Demand at the begin of the first interval.
        floors: Each on average over its window, or over all intervals if these end before.
        intervals: One after the other.
        promised: Jobs whose floors come after those of the others; shape (promised,).
    """
    durations = np.array([interval.duration_s for interval in intervals])
    prices = np.array([interval.price_per_kwh for interval in intervals]) / _J_PER_KWH
    idle_cost = float(prices @ durations) * demand.idle_power_w
    if not demand.jobs:
        return IntervalShares(np.zeros((len(intervals), 0)), idle_cost)
    begins = np.concatenate([[0.0], np.cumsum(durations)[:-1]])
    program = _Program(demand, floors, durations, begins)
    joules = (program.seconds * demand.added_power_w[:, None]).T
    # Of equal prices the earlier is taken, or else a job may be put off again and again.
    sooner = joules * (prices + _SOONER * np.abs(prices).mean() * begins / durations.sum())[:, None]
    slo_share = promised_share = 1.0
    shares = program.least(sooner, program.min_steps)
    if shares is None:
        is_promised = np.isin(np.arange(len(demand.jobs)), [] if promised is None else promised)
        of_slos = np.where(is_promised, 0.0, program.min_steps)
        slo_share = program.highest_share(np.zeros(len(of_slos)), of_slos)
        of_slos *= slo_share
        of_promised = np.where(is_promised, program.min_steps, 0.0)
        promised_share = program.highest_share(KEPT * of_slos, of_promised)
        for spare in SPARES:
            shares = program.least(sooner, spare * (of_slos + promised_share * of_promised))
            if shares is not None:
                break
        assert shares is not None  # a little less than what a program found to be possible
    return IntervalShares(
        shares, float((joules * prices[:, None] * shares).sum()) + idle_cost, slo_share, promised_share
    )


class _Program:
    """Shares of intervals: within each one's GPUs and power, and of no job more steps than are left.

    Attributes:
        seconds: Seconds that each configuration has in each interval, as the windows of its jobs end; shape
            (configurations, intervals).
        min_steps: Steps that each job must have done at the end of the intervals, or of its window if this is
            first, to have its floor; shape (jobs,).
    """

    def __init__(self, demand: Demand, floors: Floors, durations: FloatArray, begins: FloatArray) -> None:
        """Write the rules down; times in s."""
        window_s = np.minimum(floors.window_s, durations.sum())
        self.min_steps = np.minimum(floors.steps_per_s * window_s, demand.steps_left)
        in_window_s = np.clip(window_s[:, None] - begins, 0.0, durations)
        jobs = demand.configurations.jobs
        of_second = np.where((jobs[:, 1] == NOBODY)[:, None], np.inf, in_window_s[jobs[:, 1]])
        self.seconds = np.minimum(in_window_s[jobs[:, 0]], of_second)
        self._is_there = (self.seconds > 0).T.ravel()
        self._left = demand.steps_left
        # In parts of what is left, so that all rows have numbers of one size.
        rates = diags_array(1 / self._left) @ _by_job(demand, demand.configurations.steps_per_s)
        self._done = csr_array(hstack([rates @ diags_array(one) for one in self.seconds.T]))[
            :, self._is_there
        ]
        rules = kron(eye_array(len(durations)), _rules(demand), format="csr")[:, self._is_there]
        self._rules = vstack([self._done, rules], format="csr")
        self._limits = np.concatenate([np.ones(len(demand.jobs)), np.tile(_limits(demand), len(durations))])

    def least(self, cost: FloatArray, min_steps: FloatArray) -> FloatArray | None:
        """Return the shares of least cost in which each job has its least steps; None if there are none.

        Args:
            cost: Cost of a share of 1; shape (intervals, configurations), as the shares.
            min_steps: Shape (jobs,).
        """
        asked = np.flatnonzero(min_steps)
        worth = -cost.ravel()[self._is_there]
        at_least = KEPT * min_steps[asked] / self._left[asked]
        found = _solved(
            worth, np.full(len(worth), np.inf), self._done[asked], at_least, self._rules, self._limits
        )
        if found is None:
            return None
        shares = np.zeros(cost.size)
        shares[self._is_there] = np.maximum(found, 0.0)
        return shares.reshape(cost.shape)

    def highest_share(self, min_steps: FloatArray, wanted: FloatArray) -> float:
        """Return the highest share, at most 1, of wanted steps that jobs can have beside others' least."""
        asked = np.flatnonzero(min_steps + wanted)
        least = hstack([self._done[asked], csr_array(-(wanted[asked] / self._left[asked])[:, None])])
        rules = hstack([self._rules, csr_array((self._rules.shape[0], 1))])
        worth = np.append(np.zeros(self._rules.shape[1]), 1.0)
        most = np.append(np.full(self._rules.shape[1], np.inf), 1.0)
        found = _solved(worth, most, least, min_steps[asked] / self._left[asked], rules, self._limits)
        return 0.0 if found is None else float(found[-1])


def _solved(
    worth: FloatArray,
    most: FloatArray,
    least: csr_array,
    at_least: FloatArray,
    rules: csr_array,
    limits: FloatArray,
) -> FloatArray | None:
    """Return the columns, up to `most`, that are worth most and keep the rules; None if none keep them."""
    unit = max(float(np.abs(worth).max(initial=0.0)), np.finfo(np.float64).tiny)
    program = LinearProgram(
        worth / unit,
        most,
        csc_array(vstack([least, rules])),
        np.concatenate([at_least, np.full(len(limits), -np.inf)]),
        np.concatenate([np.full(len(at_least), np.inf), limits]),
    )
    found = program.solved(None)
    return None if found is None else found.values


def _rules(demand: Demand) -> csr_array:
    """Return what shares of one interval take: of each job's time, each type's GPUs, and the power."""
    found = demand.configurations
    types = np.arange(len(demand.workers))
    gpus = np.where(found.gpu_type == types[:, None], found.gpus, 0)
    time = _by_job(demand, np.ones(found.jobs.shape))
    return csr_array(vstack([time, gpus, demand.added_power_w[None, :] if _has_cap(demand) else gpus[:0]]))


def _limits(demand: Demand) -> FloatArray:
    spare_w = demand.cluster.power_cap_w - demand.idle_power_w
    return np.concatenate([np.ones(len(demand.jobs)), demand.workers, [spare_w] if _has_cap(demand) else []])


def _has_cap(demand: Demand) -> bool:
    return math.isfinite(demand.cluster.power_cap_w)


def _by_job(demand: Demand, values: FloatArray) -> csr_array:
    """Return values of the jobs of each configuration as a matrix; shape (jobs, configurations)."""
    jobs = demand.configurations.jobs
    columns = np.repeat(np.arange(len(jobs))[:, None], 2, axis=1)
    is_there = jobs != NOBODY
    shape = len(demand.jobs), len(jobs)
    return csr_array((values[is_there], (jobs[is_there], columns[is_there])), shape=shape)
