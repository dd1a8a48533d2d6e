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
from scipy import sparse

from schedsearch.cluster.allocation import InfeasibleError
from schedsearch.cluster.demand import (
    NO_CONFIGURATION,
    NOBODY,
    Demand,
    FloatArray,
    IntArray,
)
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
ROUNDING = 1e-9
"""Part by which a floor may be above what is the same but for rounding."""


class AllocationProgram:
    """Shares of the time that keep the rules of all allocations (Eq. 5.1 to 5.3, and the power cap).

    Floors and limits stay until they are given anew; each solution starts from the basis of the one before.
    The rows are the GPUs of each type, the time of each job, its throughput, and limits. Throughputs count
    as parts of the highest that the job has, so that the solver's tolerances mean the same for all.
    """

    def __init__(self, demand: Demand, last: AllocationProgram | None = None) -> None:
        """Build the rules of a demand.

        Args:
            demand: What is asked.
            last: Program of a demand on the same types, to begin with its configurations and basis.
        """
        self.demand = demand
        self._fastest = np.where(demand.fastest_steps_per_s > 0, demand.fastest_steps_per_s, 1.0)
        self._floors = np.zeros(len(demand.jobs))
        self._matrix = self._rules()
        self._upper = np.concatenate([demand.workers, np.repeat([1.0, np.inf], len(demand.jobs))])
        self._per_least = np.zeros(len(self._upper))
        self._taken = np.unique(demand.fastest_alone[demand.fastest_alone != NO_CONFIGURATION])
        self._basis: Basis | None = None  # its columns are all configurations, and then others
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
        units = np.full(rule.max(initial=0) + 1, np.finfo(np.float64).tiny)
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
        unit = max(float(np.abs(coefficients).max(initial=0.0)), np.finfo(np.float64).tiny)
        none = sparse.csc_array((len(self._upper), 0))
        return self._solved(coefficients / unit, self._floors, none, np.zeros(0))

    def maximize_gains(
        self, factors: FloatArray, jobs: Sequence[int], levels: FloatArray, at_most: float
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
        chosen = np.array(jobs, dtype=np.int64)
        units = 1 / (factors * self._fastest[chosen])
        gains = sparse.csc_array(
            (-at_most * units, (self._row_of(chosen), np.arange(len(chosen)))),
            (len(self._upper), len(chosen)),
        )
        self._solved(
            np.zeros(len(self.demand.configurations)),
            self._raised(chosen, levels * units),
            gains,
            np.ones(len(chosen)),
        )
        return at_most * self._others

    def maximize_least(
        self,
        factors: FloatArray,
        jobs: Sequence[int] | None = None,
        offsets: FloatArray | None = None,
    ) -> tuple[FloatArray, float]:
        """Return the shares that maximize the least of factor x throughput - offset, and that least.

        Args:
            factors: Factor of each of these jobs.
            jobs: All where none are given.
            offsets: Offset of each of these jobs, not below factor x floor; 0 where none are given. The least
                is at least 0.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        chosen = np.arange(len(self.demand.jobs)) if jobs is None else np.array(jobs, dtype=np.int64)
        none = np.zeros(len(self.demand.configurations))
        if not len(chosen):
            return self.maximize(none), np.inf
        less = np.zeros(len(chosen)) if offsets is None else offsets
        units = 1 / (factors * self._fastest[chosen])
        weights = np.maximum(units / units.max(), MIN_WEIGHT)
        floors = self._raised(chosen, less * units)
        least = -self._per_least / float(units.max())
        least[self._row_of(chosen)] = -weights
        if self._basis is None:
            self._basis = self._first_basis(chosen, weights)
        shares = self._solved(none, floors, sparse.csc_array(least[:, None]), np.full(1, np.inf))
        self._prices = weights * self._duals[self._row_of(chosen)]
        return shares, float((factors * self.demand.rates(shares)[chosen] - less).min())

    @property
    def prices(self) -> FloatArray:
        """Return how much each job of the last least counts in its bound.

        They are at least 0, of sum 1; no shares have a sum of price x factor x throughput above the least.
        """
        prices: FloatArray = np.abs(self._prices)
        return prices

    def _row_of(self, jobs: IntArray) -> IntArray:
        """Return the rows of the throughput of jobs."""
        rows: IntArray = len(self.demand.workers) + len(self.demand.jobs) + jobs
        return rows

    def _raised(self, jobs: IntArray, bounds: FloatArray) -> FloatArray:
        """Return the floors with those of some jobs raised, as parts of their highest throughput."""
        assert (bounds >= self._floors[jobs] * (1 - ROUNDING)).all(), "a job's floor is above its level"
        floors = self._floors.copy()
        floors[jobs] = bounds
        return floors

    def _rules(self) -> sparse.csc_array:
        """Return the rows of types and jobs, shape (types + 2 x jobs, configurations)."""
        found, num_types = self.demand.configurations, len(self.demand.workers)
        runs, slot = np.nonzero(found.jobs != NOBODY)
        job = found.jobs[runs, slot]
        speed = found.steps_per_s[runs, slot] / self._fastest[job]
        values = np.concatenate([found.gpus, np.ones(len(runs)), speed])
        rows = np.concatenate([found.gpu_type, num_types + job, self._row_of(job)])
        columns = np.concatenate([np.arange(len(found)), runs, runs])
        return sparse.csc_array(
            (values, (rows, columns)), (num_types + 2 * len(self.demand.jobs), len(found))
        )

    def _begin_as(self, last: AllocationProgram) -> None:
        """Take up the configurations of a program, and begin with its basis."""
        kept = _same_configurations(last.demand, self.demand, last._taken)
        is_kept = kept != NO_CONFIGURATION
        self._taken = np.union1d(self._taken, kept[is_kept])
        if last._basis is None:
            return
        columns = np.zeros(len(self.demand.configurations), dtype=np.bool_)
        columns[kept[is_kept]] = last._basis.columns[last._taken[is_kept]]
        place = {active.name: index for index, active in enumerate(last.demand.jobs)}
        before = np.array([place.get(active.name, NOBODY) for active in self.demand.jobs], dtype=np.int64)
        types, jobs, _ = np.split(last._basis.rows, np.cumsum([len(self.demand.workers), 2 * len(place)]))
        of_jobs = np.where(before == NOBODY, True, jobs.reshape(2, -1)[:, before])
        others = last._basis.columns[len(last.demand.configurations) :]
        self._basis = Basis(np.append(columns, others), np.append(types, of_jobs))

    def _first_basis(self, chosen: IntArray, weights: FloatArray) -> Basis:
        """Return a basis to begin a least with: each job alone on one type, and these about equally full.

        Each type has a price, which rises with how full it is, and each job takes the type on which its part
        of the least costs least.
        """
        demand, found = self.demand, self.demand.configurations
        alone = demand.fastest_alone[chosen]
        workers = np.maximum(demand.workers, ATTRACTIVE)
        needed = np.full(alone.shape, np.inf)
        rates = found.steps_per_s[alone, 0] / self._fastest[chosen, None]
        is_there = (alone != NO_CONFIGURATION) & (rates > 0)
        np.divide(weights[:, None] * found.gpus[alone], rates, out=needed, where=is_there)
        prices = 1 / workers
        for number in range(NUM_PRICES):
            best = (needed * prices).argmin(axis=1)
            of_best = needed[np.arange(len(chosen)), best]
            is_able = np.isfinite(of_best)
            full = np.bincount(best[is_able], of_best[is_able], len(workers)) / workers
            prices = prices * np.exp(full / max(full.max(), ATTRACTIVE) / np.sqrt(1 + number))
        columns = np.append(np.zeros(len(found), dtype=np.bool_), True)
        columns[alone[is_able, best[is_able]]] = True
        rows = np.ones(len(self._upper), dtype=np.bool_)
        rows[self._row_of(chosen[is_able])] = False
        rows[full.argmax()] = False
        return Basis(columns, rows)

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
        lower[self._row_of(np.arange(len(floors)))] = floors
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
                self._keep(solution.basis)
                gain = objective - self._matrix.T @ solution.duals
                gain[taken] = 0.0
                best = np.argsort(-gain, kind="stable")[: COLUMNS_PER_JOB * len(self.demand.jobs)]
                more = best[gain[best] > ATTRACTIVE]
                if not len(more):
                    break
            self._taken = np.union1d(taken, more)
        self._duals, self._others = solution.duals, solution.values[len(taken) :]
        shares = np.zeros(len(objective))
        shares[taken] = np.maximum(solution.values[: len(taken)], 0.0)
        return shares

    def _start(self, num_others: int) -> Basis | None:
        """Return the basis before; columns and rows that it does not know are new."""
        if self._basis is None:
            return None
        shares, others = np.split(self._basis.columns, [len(self.demand.configurations)])
        if len(others) != num_others:
            others = np.zeros(num_others, dtype=np.bool_)
        new = np.ones(len(self._upper) - len(self._basis.rows), dtype=np.bool_)
        return Basis(np.append(shares[self._taken], others), np.append(self._basis.rows, new))

    def _keep(self, basis: Basis | None) -> None:
        if basis is not None:
            shares, others = np.split(basis.columns, [len(self._taken)])
            columns = np.append(np.zeros(len(self.demand.configurations), dtype=np.bool_), others)
            columns[self._taken] = shares
            self._basis = Basis(columns, basis.rows)


class ProgramSequence:
    """Gives a program for each demand of a run: the last one, changed, where they have much in common.

    It is a part of a policy, whose decisions come in the order of time.
    """

    def __init__(self) -> None:
        """Begin without a program."""
        self._last: AllocationProgram | None = None

    def of(self, demand: Demand) -> AllocationProgram:
        """Return the program of a demand, without limits or floors; that of an earlier one is lost."""
        last = self._last
        has_much = last is not None and _has_much_in_common(last.demand, demand)
        self._last = AllocationProgram(demand, last if has_much else None)
        return self._last


def _has_much_in_common(old: Demand, new: Demand) -> bool:
    names = {active.name for active in old.jobs}
    num_same = sum(active.name in names for active in new.jobs)
    return old.cluster.gpu_types == new.cluster.gpu_types and 2 * num_same > max(len(old.jobs), len(new.jobs))


def _same_configurations(old: Demand, new: Demand, chosen: IntArray) -> IntArray:
    """Return where chosen configurations of an old demand are in a new one; -1 for those that are not.

    They are the same if they have the same jobs, type, GPUs, clock, servers and throughputs.
    """
    if not len(new.configurations):
        return np.full(len(chosen), NO_CONFIGURATION)
    place = {active.name: index for index, active in enumerate(new.jobs)}
    gone = len(place)
    moved = np.array([*(place.get(active.name, gone) for active in old.jobs), NOBODY], dtype=np.int64)
    of_chosen = _columns_of(old)[chosen]
    of_chosen[:, :2] = moved[old.configurations.jobs[chosen]]
    sizes = np.maximum(of_chosen.max(axis=0, initial=0), _columns_of(new).max(axis=0)) + 2
    wanted, codes = (_codes(one, sizes) for one in (of_chosen, _columns_of(new)))
    order = np.argsort(codes, kind="stable")
    at = order[np.minimum(np.searchsorted(codes[order], wanted), len(order) - 1)]
    is_same = (codes[at] == wanted) & (
        new.configurations.steps_per_s[at] == old.configurations.steps_per_s[chosen]
    ).all(axis=1)
    return np.where(is_same, at, NO_CONFIGURATION)


def _columns_of(demand: Demand) -> IntArray:
    """Return what tells configurations apart: jobs, type, GPUs, clock, servers; (configurations, 6)."""
    return np.column_stack([demand.configurations.ways, demand.configurations.is_unconsolidated])


def _codes(columns: IntArray, sizes: IntArray) -> IntArray:
    """Return a number for each row, the same for the same rows; entries are from -1 to size - 2."""
    codes: IntArray = np.ravel_multi_index(tuple((columns + 1).T), tuple(sizes.tolist())).astype(np.int64)
    return codes
