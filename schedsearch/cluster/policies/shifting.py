"""Jobs shifted in time: energy has a price that changes, in money or carbon, and jobs that can wait do so.

The program is that of one decision, once for each interval of the signal that is still to come: shares of
each interval's time, within its GPUs and power, and for each job the steps that it must have done by the end
of its window. Only what it says of the present interval is run; the next decision sees further. For one job
this is `schedsearch.energy.least_cost_policy`, whose bound it reaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, diags_array, hstack, kron, vstack

from schedsearch.cluster.allocation import Allocation, InfeasibleError
from schedsearch.cluster.demand import NOBODY, Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.policies.energy import KEPT, FloorRules, Floors
from schedsearch.cluster.policies.program import Program
from schedsearch.energy import Interval, read_signal

_J_PER_KWH = 3.6e6
"""Joules in a kilowatt-hour."""

_SOONER = 1e-6
"""By which share of the mean price the end of the horizon is dearer than now."""

_INFEASIBLE = 2
"""What scipy calls a program without an answer."""


@dataclass(frozen=True)
class LeastSignalCost(FloorRules):
    """Takes the least cost of energy over the intervals to come that does each job's steps in its window.

    The floors are those of `FloorRules`, each on average over the job's window: until its SLO or the horizon,
    whichever is first. A job without SLO is promised an end when it is first seen: that of its floor then.
    Its window ends there, and once it is behind, it has its floor in every interval; else it would be put off
    from decision to decision. The objective is the cost of all energy until the horizon, in the unit of the
    price.

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
        if not 0 < self.horizon_s < math.inf:
            raise ClusterError(f"horizon_s: {self.horizon_s!r} is not a time above 0; give seconds")

    @classmethod
    def of_file(
        cls,
        signal: str,
        horizon_s: float = 86400.0,
        least_share: float = 0.9,
        spare_s: float = 0.0,
        is_strict: bool = False,
    ) -> LeastSignalCost:
        """Return the policy for the signal of a CSV file; see `schedsearch.energy.read_signal`.

        Raises:
            EnergyError: The file cannot be read or is wrong.
            ClusterError: A number is out of its range.
        """
        found = read_signal(signal)
        return cls(least_share, spare_s, is_strict, signal=found, horizon_s=horizon_s)

    def allocate(self, demand: Demand) -> Allocation:
        """Return what is run in the present interval.

        Raises:
            InfeasibleError: See `set_floors`.
        """
        intervals = tuple(coming(self.signal, demand.now_s, self.horizon_s))
        floors = self._with_promises(demand, self.set_floors(Program(demand)), intervals[0].duration_s)
        shares, cost = least_cost_shares(demand, floors, intervals)
        until_s = demand.now_s + intervals[0].duration_s
        return Allocation(demand, shares[0], cost, floors.notes, until_s)

    def state_to_json(self) -> dict[str, float]:
        """Return the promises, by name of the job, as plain data."""
        return self._promised_s

    def restore_state(self, data: dict[str, float]) -> None:
        """Know again what was promised."""
        self._promised_s.update(data)

    def _with_promises(self, demand: Demand, floors: Floors, interval_s: float) -> Floors:
        """Return the floors in which jobs without SLO have until their promised ends."""
        rates, window_s = floors.steps_per_s.copy(), floors.window_s.copy()
        for job in np.flatnonzero(~np.isfinite(window_s) & (rates > 0)).tolist():
            name, steps_left = demand.jobs[job].name, demand.steps_left[job]
            end_s = self._promised_s.setdefault(name, demand.now_s + steps_left / rates[job])
            left_s = end_s - demand.now_s
            if left_s > 0 and steps_left / left_s <= rates[job]:
                rates[job], window_s[job] = steps_left / left_s, left_s
            else:
                window_s[job] = interval_s
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


def least_cost_shares(
    demand: Demand, floors: Floors, intervals: tuple[Interval, ...]
) -> tuple[FloatArray, float]:
    """Return the shares of each interval, shape (intervals, configurations), and the cost of all energy.

    A job runs in its window only: in an interval in which this ends, for the part before. Its GPUs and power
    are then kept for it during the whole interval, which is on the safe side.

    Args:
        demand: At the begin of the first interval.
        floors: Each on average over its window, or over all intervals if these end before.
        intervals: One after the other.

    Raises:
        InfeasibleError: The floors cannot be kept.
    """
    durations = np.array([interval.duration_s for interval in intervals])
    prices = np.array([interval.price_per_kwh for interval in intervals]) / _J_PER_KWH
    idle_cost = float(prices @ durations) * demand.idle_power_w
    if not demand.jobs:
        return np.zeros((len(intervals), 0)), idle_cost
    window_s = np.minimum(floors.window_s, durations.sum())
    least_steps = np.minimum(floors.steps_per_s * window_s, demand.steps_left)
    begins = np.concatenate([[0.0], np.cumsum(durations)[:-1]])
    in_window_s = np.clip(window_s[:, None] - begins, 0.0, durations)
    asked = np.flatnonzero(least_steps)
    jobs = demand.configurations.jobs
    of_second = np.where((jobs[:, 1] == NOBODY)[:, None], np.inf, in_window_s[jobs[:, 1]])
    seconds = np.minimum(in_window_s[jobs[:, 0]], of_second)  # of each configuration in each interval
    joules = seconds * demand.added_power_w[:, None]
    # Of equal prices the earlier is taken, or else a job may be put off again and again.
    later = _SOONER * np.abs(prices).mean() * begins / durations.sum()
    cost, sooner = (joules * prices).T.ravel(), (joules * (prices + later)).T.ravel()
    is_there = (seconds > 0).T.ravel()
    rates = _by_job(demand, demand.configurations.steps_per_s)
    steps = csr_array(hstack([rates @ diags_array(of_interval) for of_interval in seconds.T]))
    rules = vstack(
        [
            -(diags_array(1 / least_steps[asked]) @ steps[asked]),
            diags_array(1 / demand.steps_left) @ steps,
            kron(np.eye(len(intervals)), _rules(demand)),
        ],
        format="csc",
    )
    limits = [np.full(len(asked), -KEPT), np.ones(len(demand.jobs)), np.tile(_limits(demand), len(intervals))]
    found = linprog(sooner[is_there], A_ub=rules[:, is_there], b_ub=np.concatenate(limits), method="highs")
    if found.status == _INFEASIBLE:
        raise InfeasibleError("no shares of the intervals to come keep all floors")
    assert found.status == 0, found.message
    shares = np.zeros(len(cost))
    shares[is_there] = np.maximum(found.x, 0.0)
    by_interval: FloatArray = shares.reshape(len(intervals), -1)
    return by_interval, float(cost @ shares) + idle_cost


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
