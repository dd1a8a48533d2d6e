"""Linear programs solved by HiGHS, among them the relaxed clock problem.

Instances that share a clock, and a period, are rows and columns of one program, which the minimum cuts of
`relaxation` cannot say. The cost of an instance over its time is
its curve's lower convex hull, cut into segments that are used steepest first. A failure of the solver does
not prove infeasibility. Scipy is loaded with the first program.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph, Ints

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult
    from scipy.sparse import csr_array

log = logging.getLogger(__name__)

_MODEL_ERROR = "(HiGHS Status 2:"
"""Part of scipy's message if HiGHS refused the program; scipy gives this the status of an infeasible one."""


def minimized(
    cost: Floats, bounds: tuple[Floats, Floats], matrix: csr_array, limit: Floats
) -> OptimizeResult | None:
    """Return scipy's optimum of a linear program; None without: it is infeasible, or the solver failed.

    A failure, after which neither an optimum nor infeasibility is known, is logged as a warning.

    Args:
        cost: Cost of each column; their sum is to be least.
        bounds: Lower and upper bound of each column.
        matrix: Inequalities: each row is at most its limit; shape ``(rows, columns)``.
        limit: Right-hand side of each row.
    """
    from scipy.optimize import linprog

    answer = linprog(
        cost,
        A_ub=matrix,
        b_ub=limit,
        bounds=np.column_stack(bounds),
        method="highs",
        options={
            "presolve": False,  # takes longer than it saves
            "primal_feasibility_tolerance": 1e-9,
            "dual_feasibility_tolerance": 1e-9,
        },
    )
    if answer.status == 0 and answer.x is not None:
        return answer
    if answer.status != 2 or _MODEL_ERROR in answer.message:
        log.warning("HiGHS failed, so its bound is left out: %s", answer.message)
    return None


@dataclass(frozen=True, eq=False)
class Timing:
    """The waits between instances as edges, and the clock groups that share a variable time.

    An edge says that its head starts no earlier than its tail starts, plus the tail's time, plus `delay_ms`,
    plus `rounds` times the period.

    Attributes:
        tail: Predecessor of each edge.
        head: Successor of each edge.
        delay_ms: Least time between the two.
        rounds: Periods added to that delay.
        group: Index of each node's variable time.
        curves: Cost of each variable time.
        count: How often its energy is counted.
    """

    tail: Ints
    head: Ints
    delay_ms: Floats
    rounds: Ints
    group: Ints
    curves: Sequence[CostCurve]
    count: Floats

    def fixed(self, mode: Ints) -> Timing:
        """Return this timing with some variable times fixed to a mode's time; mode -1 leaves one variable."""
        pairs = zip(self.curves, mode.tolist(), strict=True)
        return replace(self, curves=[curve if k < 0 else curve.only(k) for curve, k in pairs])


def free_timing(graph: InstanceGraph, curves: Mapping[str, CostCurve]) -> Timing:
    """Return the timing of a graph in which every instance has its own time, on its block's curve."""
    return Timing(
        graph.tail,
        graph.head,
        graph.delay_ms,
        rounds=np.zeros_like(graph.tail),
        group=np.arange(graph.size),
        curves=[curves[name] for name in graph.runs],
        count=np.ones(graph.size),
    )


@dataclass(frozen=True, eq=False)
class RelaxedTimes:
    """The optimum of a relaxed plan.

    Attributes:
        planned_ms: Best value of each variable time.
        period_ms: The period.
        time_ms: Length of the iteration.
        energy_mj: Effective energy.
        edge_price: Shadow price of each edge of `Timing`: effective energy saved in mJ for each ms by which
            the edge were shorter. Without an edge of price 0 the optimum is the same. Empty where no program
            was solved.
    """

    planned_ms: Floats
    period_ms: float
    time_ms: float
    energy_mj: float
    edge_price: Floats = field(default_factory=lambda: np.zeros(0))


def min_energy(timing: Timing, deadline_ms: float) -> RelaxedTimes | None:
    """Return the relaxed plan of least energy that keeps the deadline; None if no plan is found.

    Callers have another plan or bound then: it does not prove that there is none (see `minimized`).

    The columns are the start of each node, the use of each segment of the curves, the period, and the length
    of the iteration. Times are in units of the median time and energies of the median energy, so that
    tolerances mean the same for every profile.
    """
    from scipy.sparse import block_array, csr_array, eye_array

    hulls = [(curve.time_ms[curve.hull], curve.energy_mj[curve.hull]) for curve in timing.curves]
    unit_ms = float(np.median([time[0] for time, _ in hulls]))
    spans = [float(energy[0] - energy[-1]) for _, energy in hulls if len(energy) > 1]
    unit_mj = float(np.median(spans)) if spans else 1.0
    fastest = np.array([time[0] for time, _ in hulls]) / unit_ms
    most = np.array([energy[0] for _, energy in hulls]) / unit_mj
    length = np.concatenate([np.diff(time) for time, _ in hulls]) / unit_ms
    slope = np.concatenate([np.diff(energy) for _, energy in hulls]) / unit_mj / length
    owner = np.repeat(np.arange(len(hulls)), [len(time) - 1 for time, _ in hulls])
    nodes, tail, head, group = len(timing.group), timing.tail, timing.head, timing.group
    period, end = nodes + len(owner), nodes + len(owner) + 1
    start = eye_array(nodes, format="csr")
    segments = np.ones(len(owner)), (owner, np.arange(len(owner)))
    used = csr_array(segments, shape=(len(hulls), len(owner)))[group]  # segments of each node's time
    rounds, until_end = csr_array(timing.rounds[:, None]), csr_array(-np.ones((nodes, 1)))
    rows = [[start[tail] - start[head], used[tail], rounds, None], [start, used, None, until_end]]
    right = [-timing.delay_ms / unit_ms - fastest[group[tail]], -fastest[group]]
    lower, upper, objective = np.zeros(end + 1), np.full(end + 1, np.inf), np.zeros(end + 1)
    upper[nodes:period] = length
    lower[end] = upper[end] = deadline_ms / unit_ms
    objective[nodes:period] = timing.count[owner] * slope
    matrix = block_array(rows, format="csr")
    answer = minimized(objective, (lower, upper), matrix, np.concatenate(right))
    if answer is None:
        return None
    shares = answer.x[nodes:period]
    planned = fastest + np.bincount(owner, shares, minlength=len(hulls))
    energy = most + np.bincount(owner, shares * slope, minlength=len(hulls))
    unit_w = unit_mj / unit_ms
    return RelaxedTimes(
        planned * unit_ms,
        float(answer.x[period]) * unit_ms,
        float(answer.x[end]) * unit_ms,
        float(timing.count @ energy) * unit_mj,
        np.maximum(-np.asarray(answer.ineqlin.marginals)[: len(tail)] * unit_w, 0.0),
    )
