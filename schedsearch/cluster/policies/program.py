"""The linear program that policies share: shares of the time, within the GPUs that there are.

It does not know what a policy wants. Two things make it quick. *Column generation*: most configurations,
above all most pairs of jobs, are in no best allocation; the program begins with each job alone, and takes up
others only when the prices of what it has say that they could help, until none does, so that its solutions
are those of all configurations. And a *basis* to start from: that of the solution before, also of the
decision before, whose jobs are known by their names.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from schedsearch.cluster.allocation import InfeasibleError
from schedsearch.cluster.demand import NO_CONFIGURATION, NOBODY, BoolArray, Demand, FloatArray, IntArray
from schedsearch.cluster.linear_program import Basis, LinearProgram

MIN_WEIGHT = 1e-8
"""Weight of a job, at least, beside the one that counts most, in a program of a least throughput.

The solver's tolerances are of this size. A job below it needs next to nothing, and gets as much as one there.
"""
ATTRACTIVE = 1e-9
"""Rise of an objective of about 1 that a configuration must promise to be taken up."""
COLUMNS_PER_JOB = 3
"""Taken up at once, at most, for each job: few make many rounds, and many make slow ones."""
NUM_PRICES = 30
"""Configurations of each type that are tried for a first basis."""
TINY = float(np.finfo(np.float64).tiny)


class AllocationProgram:
    """Shares of the time that keep the rules of all allocations (Eq. 5.1 to 5.3, and the power cap).

    Floors and limits stay until they are given anew; each solution starts from the basis of the one before.
    The rows are the GPUs of each type, the time of each job, its throughput, and limits. Throughputs count
    as parts of the highest that the job has, so that the solver's tolerances mean the same for all.

    Attributes:
        demand: What is asked.
        prices: How much each job of the last least counts in its bound. They are at least 0, of sum 1; no
            shares have a sum of price x factor x throughput above the least.
    """

    def __init__(self, demand: Demand, last: AllocationProgram | None = None) -> None:
        """Build the rules of a demand.

        Args:
            demand: What is asked.
            last: Program of a demand on the same types, to begin with its configurations and basis.
        """
        self.demand = demand
        self.prices = np.zeros(0)
        found, num_types, num_jobs = demand.configurations, len(demand.workers), len(demand.jobs)
        self._fastest = np.where(demand.fastest_steps_per_s > 0, demand.fastest_steps_per_s, 1.0)
        self._floors = np.zeros(num_jobs)
        self._row_of = num_types + num_jobs + np.arange(num_jobs)  # that of the throughput of each job
        runs, slot = np.nonzero(found.jobs != NOBODY)
        job = found.jobs[runs, slot]
        values = found.gpus, np.ones(len(runs)), found.steps_per_s[runs, slot] / self._fastest[job]
        rows = found.gpu_type, num_types + job, self._row_of[job]
        columns = np.arange(len(found)), runs, runs
        self._matrix = sparse.csc_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            (num_types + 2 * num_jobs, len(found)),
        )
        self._upper = np.concatenate([demand.workers, np.repeat([1.0, np.inf], num_jobs)])
        self._per_least = np.zeros(len(self._upper))
        self._taken = np.unique(demand.fastest_alone[demand.fastest_alone != NO_CONFIGURATION])
        self._basis: tuple[BoolArray, BoolArray, BoolArray] | None = None  # all shares, other columns, rows
        if last is not None:
            self._begin_as(last)
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
        self._upper = np.append(self._upper, at_most / units)
        self._per_least = np.append(self._per_least, per_least / units)

    def set_floors(self, steps_per_s: FloatArray) -> None:
        """Set what each job must at least get, in steps per second; 0 or less for nothing."""
        self._floors = np.maximum(steps_per_s, 0.0) / self._fastest

    def maximize(self, coefficients: FloatArray) -> FloatArray:
        """Return the shares that maximize their sum times coefficients.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        unit = max(float(np.abs(coefficients).max(initial=0.0)), TINY)
        none = sparse.csc_array((len(self._upper), 0))
        return self._solved(coefficients / unit, self._floors, none, np.zeros(0))

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
        entries = -at_most * units, (self._row_of[jobs], np.arange(len(jobs)))
        gains = sparse.csc_array(entries, (len(self._upper), len(jobs)))
        floors = self._floors.copy()
        floors[jobs] = levels * units
        self._solved(np.zeros(len(self.demand.configurations)), floors, gains, np.ones(len(jobs)))
        return at_most * self._others

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
        units = 1 / (factors * self._fastest[chosen])
        weights = np.maximum(units / units.max(), MIN_WEIGHT)
        floors = self._floors.copy()
        floors[chosen] = offsets * units
        least = -self._per_least / float(units.max())
        least[self._row_of[chosen]] = -weights
        if self._basis is None:
            self._basis = self._first_basis(chosen, weights)
        shares = self._solved(none, floors, sparse.csc_array(least[:, None]), np.full(1, np.inf))
        self.prices = np.abs(weights * self._duals[self._row_of[chosen]])
        return shares, float((factors * self.demand.rates(shares)[chosen] - offsets).min())

    def _begin_as(self, last: AllocationProgram) -> None:
        """Take up the configurations of a program, and begin with its basis."""
        olds, news = _same_configurations(last.demand, self.demand, last._taken)
        self._taken = np.union1d(self._taken, news)
        if last._basis is None:
            return
        last_shares, others, last_rows = last._basis
        shares = np.zeros(len(self.demand.configurations), dtype=np.bool_)
        shares[news] = last_shares[olds]
        place = {active.name: index for index, active in enumerate(last.demand.jobs)}
        before = np.array([place.get(active.name, NOBODY) for active in self.demand.jobs], dtype=np.int64)
        types, jobs, _ = np.split(last_rows, np.cumsum([len(self.demand.workers), 2 * len(place)]))
        of_jobs = np.where(before == NOBODY, True, jobs.reshape(2, -1)[:, before])
        self._basis = shares, others, np.append(types, of_jobs)

    def _first_basis(self, chosen: IntArray, weights: FloatArray) -> tuple[BoolArray, BoolArray, BoolArray]:
        """Return a basis to begin a least with: each job alone on one type, and these about equally full.

        Each type has a price, which rises with how full it is, and each job takes the type on which its part
        of the least costs least.
        """
        found, alone = self.demand.configurations, self.demand.fastest_alone[chosen]
        workers = np.maximum(self.demand.workers, ATTRACTIVE)
        rates = found.steps_per_s[alone, 0] / self._fastest[chosen, None]
        is_there = (alone != NO_CONFIGURATION) & (rates > 0)
        gpus = weights[:, None] * found.gpus[alone]
        needed = np.divide(gpus, rates, out=np.full(alone.shape, np.inf), where=is_there)
        prices = 1 / workers
        for number in range(NUM_PRICES):
            best = (needed * prices).argmin(axis=1)
            of_best = needed[np.arange(len(chosen)), best]
            is_able = np.isfinite(of_best)
            full = np.bincount(best[is_able], of_best[is_able], len(workers)) / workers
            prices = prices * np.exp(full / max(full.max(), ATTRACTIVE) / np.sqrt(1 + number))
        shares, rows = np.zeros(len(found), dtype=np.bool_), np.ones(len(self._upper), dtype=np.bool_)
        shares[alone[is_able, best[is_able]]] = True
        rows[self._row_of[chosen[is_able]]] = False
        rows[full.argmax()] = False
        return shares, np.ones(1, dtype=np.bool_), rows

    def _solved(
        self, objective: FloatArray, floors: FloatArray, others: sparse.csc_array, most: FloatArray
    ) -> FloatArray:
        """Return the shares that are best among all configurations.

        Args:
            objective: Objective coefficient of each configuration.
            floors: What the throughput of each job is at least, as a part of its highest.
            others: Columns beside the shares, which count 1 in the objective: the least, or gains.
            most: Of each of them.
        """
        lower = np.full(len(self._upper), -np.inf)
        lower[self._row_of] = floors
        while True:
            taken = self._taken
            program = LinearProgram(
                np.append(objective[taken], np.ones(len(most))),
                np.append(np.full(len(taken), np.inf), most),
                sparse.hstack([self._matrix[:, taken], others], format="csc"),
                lower,
                self._upper,
            )
            solution = program.solved(self._start(len(most)))
            if solution is None:
                more = np.setdiff1d(np.arange(len(objective)), taken)
                if not len(more):
                    raise InfeasibleError("no shares of the time keep all rules")
            else:
                if solution.basis is not None:
                    shares = np.zeros(len(objective), dtype=np.bool_)
                    of_taken, of_others = np.split(solution.basis.columns, [len(taken)])
                    shares[taken] = of_taken
                    self._basis = shares, of_others, solution.basis.rows
                gain = objective - self._matrix.T @ solution.duals
                gain[taken] = 0.0
                best = np.argsort(-gain, kind="stable")[: COLUMNS_PER_JOB * len(self.demand.jobs)]
                more = best[gain[best] > ATTRACTIVE]
                if not len(more):
                    break
            self._taken = np.union1d(taken, more)
        self._duals, self._others = solution.duals, solution.values[len(taken) :]
        values = np.zeros(len(objective))
        values[taken] = np.maximum(solution.values[: len(taken)], 0.0)
        return values

    def _start(self, num_others: int) -> Basis | None:
        """Return the basis before; columns and rows that it does not know are new."""
        if self._basis is None:
            return None
        shares, others, rows = self._basis
        if len(others) != num_others:
            others = np.zeros(num_others, dtype=np.bool_)
        new = np.ones(len(self._upper) - len(rows), dtype=np.bool_)
        return Basis(np.append(shares[self._taken], others), np.append(rows, new))


class ProgramSequence:
    """Gives a program for each demand of a run: the last one, changed, where they have much in common.

    It is a part of a policy, whose decisions come in the order of time.
    """

    _last: AllocationProgram | None = None

    def of(self, demand: Demand) -> AllocationProgram:
        """Return the program of a demand, without limits or floors; that of an earlier one is lost."""
        last = self._last
        if last is not None:
            names = {active.name for active in last.demand.jobs}
            num_same = sum(active.name in names for active in demand.jobs)
            has_same_types = last.demand.cluster.gpu_types == demand.cluster.gpu_types
            if not has_same_types or 2 * num_same <= max(len(names), len(demand.jobs)):
                last = None
        self._last = AllocationProgram(demand, last)
        return self._last


def _same_configurations(old: Demand, new: Demand, chosen: IntArray) -> tuple[IntArray, IntArray]:
    """Return those of the chosen configurations of an old demand that a new one has, and where it has them.

    They are the same if they have the same jobs, type, GPUs, clock, servers and throughputs.
    """
    number_of = {active.name: index for index, active in enumerate(new.jobs)}
    gone = len(number_of)
    moved = np.array([*(number_of.get(active.name, gone) for active in old.jobs), NOBODY], dtype=np.int64)
    wanted = _rows_of(old, moved)[chosen]
    _, at, news = np.intersect1d(
        wanted, _rows_of(new, np.append(np.arange(gone), NOBODY)), return_indices=True
    )
    return chosen[at], news


def _rows_of(demand: Demand, number_of: IntArray) -> npt.NDArray[np.void]:
    """Return what tells each configuration apart, as one value; jobs have other numbers."""
    found = demand.configurations
    others = found.gpu_type, found.gpus, found.clock_mhz, found.is_unconsolidated, found.steps_per_s
    rows = np.column_stack([number_of[found.jobs], *others]).astype(np.float64)
    return np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * 8))).reshape(-1)
