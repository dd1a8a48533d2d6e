"""The linear program that policies share: shares of the time, within the cluster's GPUs.

It does not know a policy's goal. Pairs of jobs are many, and few are in a best allocation; so it begins with
each job alone, and adds pairs whose reduced costs say that they could help, until none does (column
generation).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from schedsearch.cluster.allocation import InfeasibleError
from schedsearch.cluster.demand import NOBODY, Demand, FloatArray, IntArray

MIN_WEIGHT = 1e-8
"""Weight of a job, at least, beside the one that counts most: the solver's tolerance."""
ATTRACTIVE = 1e-9
"""Rise of an objective of about 1 that a configuration must promise to be taken up."""
COLUMNS_PER_JOB = 2
"""Taken up at once, at most, for each job as the first and as the second of a pair."""
TINY = float(np.finfo(np.float64).tiny)

_NO_SHARES = "no shares of the time keep all rules"
_EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_MANY = 2000
"""Columns above which interior points are faster than the simplex, and not all are taken up at once."""


class AllocationProgram:
    """Shares of the time that keep the rules of all allocations (Eq. 5.1 to 5.3, and the power cap).

    Rows, each with a bound from above, are the GPUs of each type, the time of each job, its throughput (below
    0), and limits. Throughputs are parts of the highest of the job, so that tolerances mean the same for all.

    Attributes:
        demand: Jobs and configurations.
        prices: How much each job of the last least counts in its bound: at least 0, of sum 1. No shares have
            a sum of price x factor x throughput above the least.
    """

    def __init__(self, demand: Demand) -> None:
        """Build the rules of a demand."""
        self.demand = demand
        self.prices = np.zeros(0)
        configs, num_types, num_jobs = demand.configurations, len(demand.workers), len(demand.jobs)
        self._fastest = np.where(demand.fastest_steps_per_s > 0, demand.fastest_steps_per_s, 1.0)
        self._row_of = num_types + num_jobs + np.arange(num_jobs)  # that of the throughput of each job
        runs, slot = np.nonzero(configs.jobs != NOBODY)
        job = configs.jobs[runs, slot]
        values = configs.gpus, np.ones(len(runs)), -configs.steps_per_s[runs, slot] / self._fastest[job]
        rows = configs.gpu_type, num_types + job, self._row_of[job]
        columns = np.arange(len(configs)), runs, runs
        self._matrix = sparse.csc_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            (num_types + 2 * num_jobs, len(configs)),
        )
        self._most = np.concatenate([demand.workers, np.repeat([1.0, 0.0], num_jobs)])
        self._per_least = np.zeros(len(self._most))
        self._taken = np.flatnonzero(configs.is_alone | (len(configs) <= _MANY))
        if np.isfinite(demand.cluster.power_cap_w):
            self.limit(demand.added_power_w, demand.cluster.power_cap_w - demand.cluster.all_idle_w)

    def limit(self, coefficients: FloatArray, at_most: float, *, per_least: float = 0.0) -> None:
        """Add a constraint: the sum of shares times coefficients is at most `at_most`.

        `maximize_least` raises this limit by `per_least` for each unit of the minimum that it finds.
        """
        unit = max(float(np.abs(coefficients).max(initial=0.0)), TINY)
        row = sparse.csr_array(coefficients[None] / unit)
        self._matrix = sparse.vstack([self._matrix, row], format="csc")
        self._most = np.append(self._most, at_most / unit)
        self._per_least = np.append(self._per_least, per_least / unit)

    def set_floors(self, steps_per_s: FloatArray) -> None:
        """Set the minimum throughput of each job in steps per second, replacing earlier ones; 0 for none."""
        self._most[self._row_of] = -steps_per_s / self._fastest

    def maximize(self, coefficients: FloatArray) -> FloatArray:
        """Return the shares that maximize their sum times coefficients.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        unit = max(float(np.abs(coefficients).max(initial=0.0)), TINY)
        return self._solved(coefficients / unit, self._most, sparse.csc_array((len(self._most), 0)))[0]

    def maximize_least(
        self, factors: FloatArray, jobs: IntArray | None = None, offsets: FloatArray | float = 0.0
    ) -> tuple[FloatArray, float]:
        """Return the shares that maximize the least of factor x throughput - offset, and that least.

        Args:
            factors: Factor of each of these jobs.
            jobs: All where none are given.
            offsets: Offset of each of these jobs, not below factor x floor. The least is at least 0.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        chosen = np.arange(len(self.demand.jobs)) if jobs is None else jobs
        none = np.zeros(len(self.demand.configurations))
        if not len(chosen):
            return self.maximize(none), np.inf
        rows, units = self._row_of[chosen], 1 / (factors * self._fastest[chosen])
        weights = np.maximum(units / units.max(), MIN_WEIGHT)
        most = self._most.copy()
        most[rows] = -offsets * units
        least = -self._per_least / float(units.max())
        least[rows] = weights
        shares, duals = self._solved(none, most, sparse.csc_array(least[:, None]))
        self.prices = weights * duals[rows]
        return shares, float((factors * self.demand.rates(shares)[chosen] - offsets).min())

    def _solved(
        self, objective: FloatArray, most: FloatArray, others: sparse.csc_array
    ) -> tuple[FloatArray, FloatArray]:
        """Return the best shares of all configurations, and the prices of the rows, which have bounds."""
        num_shares, taken = len(objective), self._taken
        while True:
            is_all = len(taken) == num_shares
            shown = self._matrix if is_all else self._matrix[:, taken]
            gains = np.append(objective[taken], np.ones(others.shape[1]))
            try:
                values, prices = _best(gains, _beside(shown, others), most)
            except InfeasibleError:
                if is_all:
                    raise
                taken = np.arange(num_shares)
                continue
            rise = np.zeros(num_shares) if is_all else objective - self._matrix.T @ prices
            rise[taken] = 0.0
            more = self._most_promising(rise)
            if not len(more):
                shares = np.zeros(num_shares)
                shares[taken] = values[: len(taken)]
                self._taken = taken
                return shares, prices
            taken = np.union1d(taken, more)

    def _most_promising(self, rise: FloatArray) -> IntArray:
        """Return for each job the pairs that promise most."""
        attractive = np.flatnonzero(rise > ATTRACTIVE)
        chosen = []
        for job in self.demand.configurations.jobs[attractive].T:
            order = np.lexsort((-rise[attractive], job))
            place = np.arange(len(order)) - np.searchsorted(job[order], job[order])
            chosen.append(attractive[order[place < COLUMNS_PER_JOB]])
        return np.unique(np.concatenate(chosen))


def _beside(matrix: sparse.csc_array, others: sparse.csc_array) -> sparse.csc_array:
    """Return the columns of both; `sparse.hstack` takes as long as a small program."""
    parts = zip((matrix.data, matrix.indices), (others.data, others.indices), strict=True)
    data, indices = (np.concatenate(pair) for pair in parts)
    starts = np.append(matrix.indptr, matrix.indptr[-1] + others.indptr[1:])
    return sparse.csc_array((data, indices, starts), (matrix.shape[0], len(starts) - 1))


def _best(gains: FloatArray, matrix: sparse.csc_array, most: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the values of at least 0 with the largest sum of gains, and the price of each row."""
    if not len(gains):
        if (most < 0).any():
            raise InfeasibleError(_NO_SHARES)
        return np.zeros(0), np.zeros(len(most))
    first, then = ("highs-ipm", "highs-ds") if len(gains) > _MANY else ("highs-ds", "highs-ipm")
    for method, options in ((first, _EXACT), (then, _EXACT), (then, {})):  # where one is not sure, the next
        result = linprog(-gains, matrix, most, method=method, options=options)
        if result.status == 0:
            return np.maximum(result.x, 0.0), np.maximum(-result.ineqlin.marginals, 0.0)
        if result.status == 2:
            raise InfeasibleError(_NO_SHARES)
    raise AssertionError(result.message)
