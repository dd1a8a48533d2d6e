"""The linear program that policies share: shares of the time, within the GPUs that there are.

It owns the modelling layer (MathOpt, with its simplex GLOP). It does not know what a policy wants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ortools.math_opt.python import mathopt

from schedsearch.cluster.allocation import InfeasibleError
from schedsearch.cluster.demand import NOBODY, Demand, FloatArray


class Program:
    """Shares of the time that keep the rules of all allocations (Eq. 5.1 to 5.3, and the power cap).

    Floors and limits stay until they are given anew; each solution starts from the basis of the one before.
    """

    def __init__(self, demand: Demand) -> None:
        """Build the rules of a demand."""
        self.demand = demand
        found = demand.configurations
        self._model = mathopt.Model()
        self._shares = [self._model.add_variable(lb=0.0) for _ in range(len(found))]
        terms: list[list[mathopt.LinearTerm]] = [[] for _ in demand.jobs]
        in_time: list[list[mathopt.Variable]] = [[] for _ in demand.jobs]
        of_type: list[list[mathopt.LinearTerm]] = [[] for _ in demand.cluster.gpu_types]
        for share, jobs, rates, number, gpus in zip(
            self._shares,
            found.jobs.tolist(),
            found.steps_per_s.tolist(),
            found.gpu_type.tolist(),
            found.gpus.tolist(),
            strict=True,
        ):
            of_type[number].append(gpus * share)
            for job, rate in zip(jobs, rates, strict=True):
                if job != NOBODY:
                    in_time[job].append(share)
                    terms[job].append(rate * share)
        for shares in in_time:
            self._model.add_linear_constraint(mathopt.LinearSum(shares) <= 1)
        for gpus, workers in zip(of_type, demand.workers.tolist(), strict=True):
            self._model.add_linear_constraint(mathopt.LinearSum(gpus) <= workers)
        if np.isfinite(demand.cluster.power_cap_w):
            self.limit(found.power_w, demand.cluster.power_cap_w)
        self._least = self._model.add_variable(lb=-np.inf)
        self._above_least: list[mathopt.LinearConstraint] = []
        self._rates = [mathopt.LinearSum(one) for one in terms]
        self._fastest = demand.fastest_steps_per_s
        self._floors: list[mathopt.LinearConstraint] = []
        self._by_least: list[tuple[mathopt.LinearConstraint, float]] = []
        self._solver = mathopt.IncrementalSolver(self._model, mathopt.SolverType.GLOP)

    def limit(self, coefficients: FloatArray, at_most: float) -> None:
        """Add a rule: the sum of shares times coefficients is at most so much."""
        self._model.add_linear_constraint(self._sum(coefficients) <= at_most)

    def set_floors(self, steps_per_s: FloatArray) -> None:
        """Set what each job must at least get, in steps per second; 0 or less for nothing."""
        for floor in self._floors:
            self._model.delete_linear_constraint(floor)
        self._floors = [
            self._model.add_linear_constraint(rate >= least)
            for rate, least in zip(self._rates, steps_per_s.tolist(), strict=True)
            if least > 0
        ]

    def maximize(self, coefficients: FloatArray) -> FloatArray:
        """Return the shares that maximize their sum times coefficients.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        self._set_least([], np.zeros(0), np.zeros(0))
        self._model.maximize(self._sum(coefficients))
        return self._solved()

    def limit_by_least(self, coefficients: FloatArray, factor: float) -> None:
        """Add a rule: the sum of shares times coefficients is at most a factor times the least.

        The least is what `maximize_least` maximizes.
        """
        self._by_least.append((self._model.add_linear_constraint(self._sum(coefficients) <= 0), factor))

    def maximize_gains(
        self, factors: FloatArray, jobs: Sequence[int], levels: FloatArray, at_most: float
    ) -> FloatArray:
        """Return by how much each job's factor times throughput can be above its level, in the sum.

        Args:
            factors: Of each of these jobs.
            jobs: Whose gains are added; no gain counts for more than `at_most`.
            levels: Of each of these jobs; none of them falls below its own.
            at_most: Above 0.

        Raises:
            InfeasibleError: The levels and the floors cannot all be kept.
        """
        self._set_least([], np.zeros(0), np.zeros(0))
        gains = [self._model.add_variable(lb=0.0, ub=at_most) for _ in jobs]
        rules = [
            self._model.add_linear_constraint(factor * self._rates[job] - gain >= level)
            for gain, job, factor, level in zip(gains, jobs, factors.tolist(), levels.tolist(), strict=True)
        ]
        self._model.maximize(mathopt.LinearSum(gains))
        try:
            found = np.array(self._result().variable_values(gains))
        finally:
            for rule in rules:
                self._model.delete_linear_constraint(rule)
            for gain in gains:
                self._model.delete_variable(gain)
        return found

    def maximize_least(
        self,
        factors: FloatArray,
        jobs: Sequence[int] | None = None,
        offsets: FloatArray | None = None,
    ) -> tuple[FloatArray, float]:
        """Return the shares that maximize the least of factor x throughput - offset, and that least.

        Args:
            factors: Of each of these jobs.
            jobs: All where none are given.
            offsets: Of each of these jobs; 0 where none are given.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        chosen = range(len(self._rates)) if jobs is None else jobs
        if not chosen:
            return self.maximize(np.zeros(len(self._shares))), np.inf
        less = np.zeros(len(chosen)) if offsets is None else offsets
        fastest = self._fastest[list(chosen)]
        unit = float((factors * fastest).min())
        self._set_least(chosen, _scaled(factors, fastest), less / unit)
        for rule, factor in self._by_least:
            rule.set_coefficient(self._least, -factor * unit)
        self._model.maximize(self._least)
        shares = self._solved()
        return shares, float((factors * self.demand.rates(shares)[list(chosen)] - less).min())

    @property
    def prices(self) -> FloatArray:
        """Return by how much the last least would rise if the throughput of each job counted 1 more.

        They are at least 0, of sum 1: no shares have a sum of price x factor x throughput above that least.
        """
        prices: FloatArray = np.array(self._last.dual_values(self._above_least))
        return np.abs(prices)

    def _sum(self, coefficients: FloatArray) -> mathopt.LinearSum:
        chosen = np.flatnonzero(coefficients)
        return mathopt.LinearSum(
            factor * self._shares[index]
            for index, factor in zip(chosen.tolist(), coefficients[chosen].tolist(), strict=True)
        )

    def _set_least(self, jobs: Sequence[int], factors: FloatArray, offsets: FloatArray) -> None:
        for one in self._above_least:
            self._model.delete_linear_constraint(one)
        self._above_least = [
            self._model.add_linear_constraint(factor * self._rates[job] - self._least >= offset)
            for job, factor, offset in zip(jobs, factors.tolist(), offsets.tolist(), strict=True)
        ]

    def _solved(self) -> FloatArray:
        result = self._result()
        shares: FloatArray = np.maximum(np.array(result.variable_values(self._shares)), 0.0)
        return shares

    def _result(self) -> mathopt.SolveResult:
        result = self._solver.solve()
        if result.termination.reason == mathopt.TerminationReason.INFEASIBLE:
            raise InfeasibleError("no shares of the time keep all rules")
        assert result.termination.reason == mathopt.TerminationReason.OPTIMAL, result.termination
        self._last = result
        return result


def _scaled(factors: FloatArray, fastest: FloatArray) -> FloatArray:
    """Return the factors in a unit in which the least is at most 1; none counts above `MOST_OF_LEAST`."""
    highest = factors * fastest
    scaled: FloatArray = np.minimum(factors / highest.min(), MOST_OF_LEAST / fastest)
    return scaled


MOST_OF_LEAST = 1e8
"""Factor times fastest throughput of a job, over that of the job that has the least of it, in a program.

The solver's tolerances are of about 1e-8. A job above asks for less than that share of the time; it gets as
much as one that is just there.
"""
