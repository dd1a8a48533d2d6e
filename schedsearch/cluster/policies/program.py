"""The linear program that policies share: shares of the time, within the GPUs that there are.

It does not know what a policy wants. HiGHS solves it, by scipy. Of pairs of jobs there are many, and few are
in a best allocation; so it begins with each job alone, and takes up pairs where the prices of what it has say
that they could help, until none does (column generation).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from schedsearch.cluster.allocation import InfeasibleError
from schedsearch.cluster.demand import NOBODY, Demand, FloatArray, IntArray

MIN_WEIGHT = 1e-8
"""Weight of a job, at least, beside the one that counts most, in a program of a least throughput.

The solver's tolerances are of this size. A job below it needs next to nothing, and gets as much as one there.
"""
ATTRACTIVE = 1e-9
"""Rise of an objective of about 1 that a configuration must promise to be taken up."""
COLUMNS_PER_JOB = 2
"""Taken up at once, at most, for each job as the first and as the second of a pair: few make many rounds, and
many make slow ones."""
TINY = float(np.finfo(np.float64).tiny)

_EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_MANY = 2000
"""Columns above which interior points are faster than the simplex, and not all are taken up at once."""
_OPTIMAL, _INFEASIBLE = 0, 2


class AllocationProgram:
    """Shares of the time that keep the rules of all allocations (Eq. 5.1 to 5.3, and the power cap).

    Floors and limits stay until they are given anew. The rows, each of which is at most so much, are the GPUs
    of each type, the time of each job, its throughput (below 0), and limits. Throughputs count as parts of
    the highest that the job has, so that the solver's tolerances mean the same for all.

    Attributes:
        demand: What is asked.
        prices: How much each job of the last least counts in its bound. They are at least 0, of sum 1; no
            shares have a sum of price x factor x throughput above the least.
    """

    def __init__(self, demand: Demand) -> None:
        """Build the rules of a demand."""
        self.demand = demand
        self.prices = np.zeros(0)
        found, num_types, num_jobs = demand.configurations, len(demand.workers), len(demand.jobs)
        self._fastest = np.where(demand.fastest_steps_per_s > 0, demand.fastest_steps_per_s, 1.0)
        self._row_of = num_types + num_jobs + np.arange(num_jobs)  # that of the throughput of each job
        runs, slot = np.nonzero(found.jobs != NOBODY)
        job = found.jobs[runs, slot]
        values = found.gpus, np.ones(len(runs)), -found.steps_per_s[runs, slot] / self._fastest[job]
        rows = found.gpu_type, num_types + job, self._row_of[job]
        columns = np.arange(len(found)), runs, runs
        self._matrix = sparse.csc_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            (num_types + 2 * num_jobs, len(found)),
        )
        self._most = np.concatenate([demand.workers, np.repeat([1.0, 0.0], num_jobs)])
        self._per_least = np.zeros(len(self._most))
        self._taken = np.flatnonzero(found.is_alone | (len(found) <= _MANY))
        if np.isfinite(demand.cluster.power_cap_w):
            self.limit(demand.added_power_w, demand.cluster.power_cap_w - demand.idle_power_w)

    def limit(
        self,
        coefficients: FloatArray,
        at_most: float,
        *,
        per_least: float = 0.0,
        rules: IntArray | None = None,
    ) -> None:
        """Add rules: in each, the sum of shares times coefficients is at most so much.

        Args:
            coefficients: Coefficient of each configuration.
            at_most: The bound of each rule.
            per_least: What the bound has more for each unit of the least that `maximize_least` finds.
            rules: Number of each configuration's rule, from 0; one rule for all if none is given.
        """
        rule = np.zeros(len(coefficients), dtype=np.int64) if rules is None else rules
        units = np.full(rule.max(initial=0) + 1, TINY)
        np.maximum.at(units, rule, np.abs(coefficients))
        entries = coefficients / units[rule], (rule, np.arange(len(rule)))
        rows = sparse.csr_array(entries, (len(units), len(rule)))
        self._matrix = sparse.vstack([self._matrix, rows], format="csc")
        self._most = np.append(self._most, at_most / units)
        self._per_least = np.append(self._per_least, per_least / units)

    def set_floors(self, steps_per_s: FloatArray) -> None:
        """Set what each job must at least get, in steps per second; 0 or less for nothing."""
        self._most[self._row_of] = -np.maximum(steps_per_s, 0.0) / self._fastest

    def maximize(self, coefficients: FloatArray) -> FloatArray:
        """Return the shares that maximize their sum times coefficients.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        unit = max(float(np.abs(coefficients).max(initial=0.0)), TINY)
        none = sparse.csc_array((len(self._most), 0))
        return self._solved(coefficients / unit, self._most, none)[0]

    def maximize_gains(
        self, factors: FloatArray, jobs: IntArray, levels: FloatArray, at_most: float
    ) -> FloatArray:
        """Return by how much each job's factor times throughput can be above its level, in the sum.

        Args:
            factors: Factor of each of these jobs.
            jobs: Jobs whose gains are added; no gain counts for more than `at_most`.
            levels: Level of each of these jobs; none of them falls below its own, which is not below its
                floor.
            at_most: Above 0.

        Raises:
            InfeasibleError: The levels and the floors cannot all be kept.
        """
        units = 1 / (factors * self._fastest[jobs])
        entries = at_most * units, (self._row_of[jobs], np.arange(len(jobs)))
        gains = sparse.csc_array(entries, (len(self._most), len(jobs)))
        most = self._most.copy()
        most[self._row_of[jobs]] = -levels * units
        return at_most * self._solved(np.zeros(len(self.demand.configurations)), most, gains, 1.0)[1]

    def maximize_least(
        self,
        factors: FloatArray,
        jobs: Sequence[int] | IntArray | None = None,
        offsets: FloatArray | float = 0.0,
    ) -> tuple[FloatArray, float]:
        """Return the shares that maximize the least of factor x throughput - offset, and that least.

        Args:
            factors: Factor of each of these jobs.
            jobs: All where none are given.
            offsets: Offset of each of these jobs, not below factor x floor. The least is at least 0.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        chosen = np.arange(len(self.demand.jobs)) if jobs is None else np.array(jobs, dtype=np.int64)
        none = np.zeros(len(self.demand.configurations))
        if not len(chosen):
            return self.maximize(none), np.inf
        rows, units = self._row_of[chosen], 1 / (factors * self._fastest[chosen])
        weights = np.maximum(units / units.max(), MIN_WEIGHT)
        most = self._most.copy()
        most[rows] = -offsets * units
        least = -self._per_least / float(units.max())
        least[rows] = weights
        shares, _, duals = self._solved(none, most, sparse.csc_array(least[:, None]))
        self.prices = weights * duals[rows]
        return shares, float((factors * self.demand.rates(shares)[chosen] - offsets).min())

    def _solved(
        self, objective: FloatArray, most: FloatArray, others: sparse.csc_array, at_most: float = np.inf
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the shares that are best among all configurations, the other values, and the rows' prices.

        Args:
            objective: Objective coefficient of each configuration.
            most: The bound of each row.
            others: Columns beside the shares, which count 1 in the objective: the least, or gains.
            at_most: Bound of each of them.
        """
        num_others, every = others.shape[1], np.arange(len(objective))
        taken = self._taken
        while True:
            shown = self._matrix if len(taken) == len(every) else self._matrix[:, taken]
            gains = np.append(objective[taken], np.ones(num_others))
            limits = np.append(np.full(len(taken), np.inf), np.full(num_others, at_most))
            found = _best(gains, _beside(shown, others), most, limits)
            if found is None:
                if len(taken) == len(every):
                    raise InfeasibleError("no shares of the time keep all rules")
                taken = every
                continue
            values, prices = found
            rise = objective - self._matrix.T @ prices if len(taken) < len(every) else np.zeros(len(every))
            rise[taken] = 0.0
            more = self._most_promising(rise)
            if not len(more):
                shares = np.zeros(len(objective))
                shares[taken] = values[: len(taken)]
                self._taken = taken
                return shares, values[len(taken) :], prices
            taken = np.union1d(taken, more)

    def _most_promising(self, rise: FloatArray) -> IntArray:
        """Return for each job the pairs that promise most."""
        found = np.flatnonzero(rise > ATTRACTIVE)
        chosen = []
        for job in self.demand.configurations.jobs[found].T:
            order = np.lexsort((-rise[found], job))
            place = np.arange(len(order)) - np.searchsorted(job[order], job[order])
            chosen.append(found[order[place < COLUMNS_PER_JOB]])
        return np.unique(np.concatenate(chosen))


def _beside(matrix: sparse.csc_array, others: sparse.csc_array) -> sparse.csc_array:
    """Return the columns of both; `sparse.hstack` takes as long as a small program."""
    parts = zip((matrix.data, matrix.indices), (others.data, others.indices), strict=True)
    data, indices = (np.concatenate(each) for each in parts)
    starts = np.append(matrix.indptr, matrix.indptr[-1] + others.indptr[1:])
    return sparse.csc_array((data, indices, starts), (matrix.shape[0], len(starts) - 1))


def _best(
    gains: FloatArray, matrix: sparse.csc_array, most: FloatArray, limits: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return the values of 0 to their limits with the largest sum of gains, and the price of each row.

    Returns:
        None where no values keep all rows.
    """
    if not len(gains):
        return (np.zeros(0), np.zeros(len(most))) if (most >= 0).all() else None
    bounds = np.column_stack([np.zeros(len(limits)), limits])
    first, then = ("highs-ipm", "highs-ds") if len(gains) > _MANY else ("highs-ds", "highs-ipm")
    for method, options in ((first, _EXACT), (then, _EXACT), (then, {})):  # where one is not sure, the next
        found = linprog(-gains, matrix, most, bounds=bounds, method=method, options=options)
        if found.status in (_OPTIMAL, _INFEASIBLE):
            break
    assert found.status in (_OPTIMAL, _INFEASIBLE), found.message
    if found.status == _INFEASIBLE:
        return None
    return np.maximum(found.x, 0.0), np.maximum(-found.ineqlin.marginals, 0.0)
