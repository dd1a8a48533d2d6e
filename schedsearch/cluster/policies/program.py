"""The linear program that policies share: shares of the time, within the GPUs that there are.

It owns the modelling layer (MathOpt, with its simplex GLOP). It does not know what a policy wants. Two things
make it quick. *Column generation*: most configurations, above all most pairs of jobs, are in no best
allocation; the program begins with each job alone, and takes up others only when the prices of what it has
say that they could help, until none does, so that its solutions are those of all configurations. And from one
decision to the next it changes only what differs: rows and columns are known by the names of their jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from ortools.math_opt.python import mathopt

from schedsearch.cluster.allocation import InfeasibleError
from schedsearch.cluster.demand import NO_CONFIGURATION, NOBODY, Demand, FloatArray, IntArray

LEAST_WEIGHT = 1e-8
"""What a job counts for at least beside the one that counts most, in a program of a least throughput.

The solver's tolerances are of this size. A job below it needs next to nothing, and gets as much as one there.
"""
ATTRACTIVE = 1e-9
"""By how much a configuration must promise to raise an objective of about 1 to be taken up."""
INFEASIBLE = (mathopt.TerminationReason.INFEASIBLE, mathopt.TerminationReason.INFEASIBLE_OR_UNBOUNDED)
"""What the solver says of an infeasible program, as none is unbounded."""
COLUMNS_PER_JOB = 3
"""Taken up at once, at most, for each job: few make many rounds, and many make slow ones."""


@dataclass(frozen=True, eq=False)
class _JobRows:
    """The rows of a job.

    Attributes:
        time: Its shares are at most 1 together.
        speed: Its throughput, as a part of its highest, is at least a multiple of the least.
        fastest: That highest throughput, in steps per second, when it came.
        floors: One row, its throughput at least at its floor, if it has had a floor; else none.
    """

    time: mathopt.LinearConstraint
    speed: mathopt.LinearConstraint
    fastest: float
    floors: list[mathopt.LinearConstraint] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Limit:
    """A rule of a policy: the sum of shares times coefficients is within its bound.

    The bound may grow with the least, by so much per unit of it.
    """

    coefficients: FloatArray
    row: mathopt.LinearConstraint
    per_least: float


class Program:
    """Shares of the time that keep the rules of all allocations (Eq. 5.1 to 5.3, and the power cap).

    Floors and limits stay until they are given anew, or the demand is; each solution starts from the basis of
    the one before. Throughputs count as parts of the highest that the job has, so that the solver's
    tolerances mean the same for all.
    """

    def __init__(self, demand: Demand) -> None:
        """Build the rules of a demand."""
        self._model = mathopt.Model()
        self._least = self._model.add_variable(lb=0.0)
        self._in_least: dict[mathopt.LinearConstraint, float] = {}
        self._of_type = [self._model.add_linear_constraint(lb=-np.inf) for _ in demand.workers]
        self._rows: dict[str, _JobRows] = {}
        self._limits: list[_Limit] = []
        self._columns: dict[int, mathopt.Variable] = {}
        self.demand = demand
        self._set_rules()
        self._take_up(np.unique(demand.fastest_alone[demand.fastest_alone != NO_CONFIGURATION]))
        self._solver = mathopt.IncrementalSolver(self._model, mathopt.SolverType.GLOP)

    def change_to(self, demand: Demand) -> None:
        """Go on with another demand on the same types; what is the same stays, floors and limits do not."""
        self.set_floors(np.zeros(len(self.demand.jobs)))
        for limit in self._limits:
            self._model.delete_linear_constraint(limit.row)
        self._limits = []
        kept = _same_configurations(self.demand, demand, np.array([*self._columns], dtype=np.int64))
        for old, new in zip([*self._columns], kept.tolist(), strict=True):
            if new == NO_CONFIGURATION:
                self._model.delete_variable(self._columns[old])
        columns = zip(kept.tolist(), self._columns.values(), strict=True)
        self._columns = {new: share for new, share in columns if new != NO_CONFIGURATION}
        there = {active.name for active in demand.jobs}
        for name in [name for name in self._rows if name not in there]:
            rows = self._rows.pop(name)
            self._in_least.pop(rows.speed, None)
            for row in (rows.time, rows.speed, *rows.floors):
                self._model.delete_linear_constraint(row)
        self.demand = demand
        self._set_rules()
        alone = np.unique(demand.fastest_alone[demand.fastest_alone != NO_CONFIGURATION])
        self._take_up(np.setdiff1d(alone, kept))

    def limit(self, coefficients: FloatArray, at_most: float, *, per_least: float = 0.0) -> None:
        """Add a rule: the sum of shares times coefficients is at most so much.

        Args:
            coefficients: Of each configuration.
            at_most: The bound.
            per_least: What the bound has more for each unit of the least that `maximize_least` finds.
        """
        unit = max(float(np.abs(coefficients).max(initial=0.0)), np.finfo(np.float64).tiny)
        row = self._model.add_linear_constraint(lb=-np.inf, ub=at_most / unit)
        limit = _Limit(coefficients / unit, row, per_least / unit)
        for index in np.flatnonzero(limit.coefficients).tolist():
            if index in self._columns:
                limit.row.set_coefficient(self._columns[index], float(limit.coefficients[index]))
        self._limits.append(limit)

    def set_floors(self, steps_per_s: FloatArray) -> None:
        """Set what each job must at least get, in steps per second; 0 or less for nothing."""
        new = set()
        for job, (active, least) in enumerate(zip(self.demand.jobs, steps_per_s.tolist(), strict=True)):
            rows = self._rows[active.name]
            if least > 0 and not rows.floors:
                rows.floors.append(self._model.add_linear_constraint(lb=-np.inf, ub=np.inf))
                new.add(job)
            for floor in rows.floors:
                floor.lower_bound = least / rows.fastest if least > 0 else -np.inf
        for index, share in self._columns.items() if new else ():
            for job, rows, rate in self._jobs_of(index):
                if job in new:
                    rows.floors[0].set_coefficient(share, rate / rows.fastest)

    def maximize(self, coefficients: FloatArray) -> FloatArray:
        """Return the shares that maximize their sum times coefficients.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        self._set_least({})
        unit = max(float(np.abs(coefficients).max(initial=0.0)), np.finfo(np.float64).tiny)
        self._set_objective(coefficients / unit)
        return self._solved(coefficients / unit)

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
        self._set_least({})
        of_jobs = [self._rows[self.demand.jobs[job].name] for job in jobs]
        gains = [self._model.add_variable(lb=0.0, ub=1.0) for _ in jobs]
        units = 1 / (factors * [one.fastest for one in of_jobs])
        for rows, gain, unit, level in zip(of_jobs, gains, units.tolist(), levels.tolist(), strict=True):
            rows.speed.lower_bound = level * unit
            rows.speed.set_coefficient(gain, -at_most * unit)
        self._model.maximize(mathopt.LinearSum(gains))
        try:
            self._solved(np.zeros(len(self.demand.configurations)))
            return at_most * np.array(self._result.variable_values(gains))
        finally:
            for rows, gain in zip(of_jobs, gains, strict=True):
                rows.speed.lower_bound = 0.0
                self._model.delete_variable(gain)

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
            offsets: Of each of these jobs; 0 where none are given. The least is at least 0.

        Raises:
            InfeasibleError: No shares keep all rules.
        """
        chosen = [*range(len(self.demand.jobs))] if jobs is None else [*jobs]
        none = np.zeros(len(self.demand.configurations))
        if not chosen:
            return self.maximize(none), np.inf
        of_jobs = [self._rows[self.demand.jobs[job].name] for job in chosen]
        rows = [one.speed for one in of_jobs]
        less = np.zeros(len(chosen)) if offsets is None else offsets
        units = 1 / (factors * [one.fastest for one in of_jobs])
        weights = np.maximum(units / units.max(), LEAST_WEIGHT)
        self._set_least(dict(zip(rows, weights.tolist(), strict=True)))
        for row, bound in zip(rows, (less * units).tolist(), strict=True):
            row.lower_bound = bound
        for limit in self._limits:
            if limit.per_least:
                limit.row.set_coefficient(self._least, -limit.per_least / float(units.max()))
        self._set_objective(none)
        shares = self._solved(none)
        self._prices = weights * self._result.dual_values(rows)
        for row in rows:
            row.lower_bound = 0.0
        return shares, float((factors * self.demand.rates(shares)[chosen] - less).min())

    @property
    def prices(self) -> FloatArray:
        """Return how much each job of the last least counts in its bound.

        They are at least 0, of sum 1; no shares have a sum of price x factor x throughput above the least.
        """
        prices: FloatArray = np.abs(self._prices)
        return prices

    def _set_rules(self) -> None:
        """Set the rows of the demand: jobs that have none yet, GPUs, power."""
        model, demand = self._model, self.demand
        for row, workers in zip(self._of_type, demand.workers.tolist(), strict=True):
            row.upper_bound = workers
        for active, fastest in zip(demand.jobs, demand.fastest_steps_per_s.tolist(), strict=True):
            if active.name not in self._rows:
                self._rows[active.name] = _JobRows(
                    model.add_linear_constraint(lb=-np.inf, ub=1.0),
                    model.add_linear_constraint(lb=0.0, ub=np.inf),
                    fastest or 1.0,
                )
        if np.isfinite(demand.cluster.power_cap_w):
            self.limit(demand.added_power_w, demand.cluster.power_cap_w - demand.idle_power_w)

    def _jobs_of(self, index: int) -> list[tuple[int, _JobRows, float]]:
        """Return the jobs of a configuration, their rows, and their throughputs in it."""
        found = self.demand.configurations
        return [
            (job, self._rows[self.demand.jobs[job].name], rate)
            for job, rate in zip(found.jobs[index].tolist(), found.steps_per_s[index].tolist(), strict=True)
            if job != NOBODY
        ]

    def _take_up(self, configurations: IntArray) -> None:
        found = self.demand.configurations
        for index in configurations.tolist():
            share = self._model.add_variable(lb=0.0)
            self._columns[index] = share
            self._of_type[found.gpu_type[index]].set_coefficient(share, float(found.gpus[index]))
            for _, rows, rate in self._jobs_of(index):
                rows.time.set_coefficient(share, 1.0)
                for row in (rows.speed, *rows.floors):
                    row.set_coefficient(share, rate / rows.fastest)
            for limit in self._limits:
                if limit.coefficients[index]:
                    limit.row.set_coefficient(share, float(limit.coefficients[index]))

    def _set_least(self, weights: dict[mathopt.LinearConstraint, float]) -> None:
        """Set how much of the least the rows of jobs must have; the least is an objective if some do."""
        for row in self._in_least.keys() - weights.keys():
            row.set_coefficient(self._least, 0.0)
        for row, weight in weights.items():
            row.set_coefficient(self._least, -weight)
        self._in_least = weights
        self._least.upper_bound = np.inf if weights else 0.0

    def _set_objective(self, coefficients: FloatArray) -> None:
        values = zip(self._columns.values(), coefficients[[*self._columns]].tolist(), strict=True)
        self._model.maximize(
            mathopt.LinearSum([self._least, *(value * share for share, value in values if value)])
        )

    def _solved(self, coefficients: FloatArray) -> FloatArray:
        """Return the shares that are best among all configurations."""
        while True:
            result = self._solve()
            reason = result.termination.reason
            if reason in INFEASIBLE:
                more = np.setdiff1d(np.arange(len(self.demand.configurations)), [*self._columns])
                if not len(more):
                    raise InfeasibleError("no shares of the time keep all rules")
            else:
                assert reason == mathopt.TerminationReason.OPTIMAL, result.termination
                self._result = result
                more = self._attractive(coefficients)
            if not len(more):
                break
            self._take_up(more)
            for index in more.tolist():
                self._model.objective.set_linear_coefficient(self._columns[index], float(coefficients[index]))
        shares = np.zeros(len(self.demand.configurations))
        shares[[*self._columns]] = result.variable_values([*self._columns.values()])
        return np.maximum(shares, 0.0)

    def _solve(self) -> mathopt.SolveResult:
        """Solve from the last basis; anew where GLOP lost it, and with HiGHS where GLOP is not sure."""
        try:
            result = self._solver.solve()
        except (AttributeError, RuntimeError):  # an error of GLOP, of which MathOpt 9.15 cannot say which
            self._solver = mathopt.IncrementalSolver(self._model, mathopt.SolverType.GLOP)
            result = self._solver.solve()
        if result.termination.reason == mathopt.TerminationReason.IMPRECISE:
            result = mathopt.solve(self._model, mathopt.SolverType.HIGHS)
        return result

    def _attractive(self, coefficients: FloatArray) -> IntArray:
        """Return configurations not taken up that could raise the objective, by their reduced cost."""
        found = self.demand.configurations
        if len(self._columns) == len(found):
            return np.zeros(0, dtype=np.int64)
        all_rows = [self._rows[active.name] for active in self.demand.jobs]
        dual = self._result.dual_values
        time = np.append(dual([rows.time for rows in all_rows]), 0.0)
        speed = np.append(dual([rows.speed for rows in all_rows]), 0.0)
        floor = np.append([sum(dual(rows.floors)) if rows.floors else 0.0 for rows in all_rows], 0.0)
        fastest = np.append([rows.fastest for rows in all_rows], 1.0)
        per_step = (speed + floor) / fastest
        gain = coefficients - (time[found.jobs] + per_step[found.jobs] * found.steps_per_s).sum(axis=1)
        gain -= np.array(dual(self._of_type))[found.gpu_type] * found.gpus
        for limit in self._limits:
            gain -= dual(limit.row) * limit.coefficients
        gain[[*self._columns]] = 0.0
        best: IntArray = np.argsort(-gain, kind="stable")[: COLUMNS_PER_JOB * len(self.demand.jobs)]
        attractive: IntArray = best[gain[best] > ATTRACTIVE]
        return attractive


class Programs:
    """Gives a program for each demand of a run: the last one, changed, where they have much in common.

    It is a part of a policy, whose decisions come in the order of time.
    """

    def __init__(self) -> None:
        """Begin without a program."""
        self._last: Program | None = None

    def of(self, demand: Demand) -> Program:
        """Return the program of a demand, without limits or floors; that of an earlier one is lost."""
        if self._last is not None and _has_much_in_common(self._last.demand, demand):
            self._last.change_to(demand)
        else:
            self._last = Program(demand)
        return self._last


def _has_much_in_common(old: Demand, new: Demand) -> bool:
    names = {active.name for active in old.jobs}
    num_same = sum(active.name in names for active in new.jobs)
    return old.cluster.gpu_types == new.cluster.gpu_types and 2 * num_same > max(len(old.jobs), len(new.jobs))


def _same_configurations(old: Demand, new: Demand, chosen: IntArray) -> IntArray:
    """Return where chosen configurations of an old demand are in a new one; -1 for those that are not.

    They are the same if they have the same jobs, type, GPUs, clock and throughputs.
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
    """Return what tells configurations apart: jobs, type, GPUs, clock; shape (configurations, 5)."""
    found = demand.configurations
    return np.column_stack([found.jobs, found.gpu_type, found.gpus, found.clock_mhz])


def _codes(columns: IntArray, sizes: IntArray) -> IntArray:
    """Return a number for each row, the same for the same rows; entries are from -1 to size - 2."""
    codes: IntArray = np.ravel_multi_index(tuple((columns + 1).T), tuple(sizes.tolist())).astype(np.int64)
    return codes
