"""The relaxed problem as a linear program, for what the minimum cuts of `relaxation` cannot say.

Instances that share a clock, a period, and limits on the energy of some of the devices are rows and columns
of one program. What an instance costs at a time is its curve's lower convex hull, cut into segments that
are used steepest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph, Ints
from schedsearch.energy.relaxed.highs import Rows, SolverError, SolverStatus, minimized, status_of


@dataclass(frozen=True, eq=False)
class Timing:
    """Who waits for whom, and whose clocks are one; see `schedsearch.energy.constrained.folding.FoldedGraph`.

    Attributes:
        tail: Node that is waited for, for each edge.
        head: Node that waits.
        delay_ms: Least time between the two.
        rounds: How many periods are added to that.
        group: For each node the variable time that it takes.
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
        """Return the same with some variable times fixed to one of their modes; -1 for those that are not."""
        pairs = zip(self.curves, mode.tolist(), strict=True)
        return replace(self, curves=[curve if k < 0 else curve.only(k) for curve, k in pairs])


def free_timing(graph: InstanceGraph, curves: Mapping[str, CostCurve]) -> Timing:
    """Return the view of a graph in which every instance has its own time, on the curve of its block."""
    tail, head, delay_ms = graph.edge_arrays
    return Timing(
        tail=tail,
        head=head,
        delay_ms=delay_ms,
        rounds=np.zeros(len(tail), dtype=np.int64),
        group=np.arange(graph.size),
        curves=[curves[name] for name in graph.runs],
        count=np.ones(graph.size),
    )


@dataclass(frozen=True, eq=False)
class EnergyLimit:
    """A weighted sum of effective energies must not exceed a power times the length of the iteration.

    Attributes:
        weight: Weight of each variable time's energy, instead of `Timing.count`.
        power_w: Effective power: above the blocking power.
    """

    weight: Floats
    power_w: float


@dataclass(frozen=True, eq=False)
class RelaxedTimes:
    """An optimum.

    Attributes:
        planned_ms: Best value of each variable time.
        period_ms: The period.
        time_ms: Length of the iteration.
        energy_mj: Effective energy.
        edge_price: What each edge of `Timing` costs: effective energy in millijoules per millisecond by which
            it were shorter. Without an edge of price 0 the optimum is the same. Where the length of the
            iteration is made least: milliseconds per millisecond. Empty where no program was solved.
    """

    planned_ms: Floats
    period_ms: float
    time_ms: float
    energy_mj: float
    edge_price: Floats = field(default_factory=lambda: np.zeros(0))


def min_energy(timing: Timing, deadline_ms: float, limits: Sequence[EnergyLimit] = ()) -> RelaxedTimes | None:
    """Return the relaxed plan of least energy that keeps the deadline, or None where none does.

    Raises:
        SolverError: The solver failed, so that nothing is known of either.
    """
    return _Program(timing, limits).solve(deadline_ms)


def least_time(timing: Timing, limits: Sequence[EnergyLimit]) -> RelaxedTimes | None:
    """Return the relaxed plan of the shortest iteration under limits, or None where none keeps them.

    Raises:
        SolverError: The solver failed, so that nothing is known of either.
    """
    return _Program(timing, limits).solve(None)


def min_possible_mj(timing: Timing) -> float:
    """Return the effective energy with everything at its cheapest, which no plan is below at any deadline."""
    return float(timing.count @ [curve.energy_mj[-1] for curve in timing.curves])


class _Program:
    """Columns: start of each node, use of each segment, period, length of the iteration.

    Times are in units of the median time and energies of the median energy, so that tolerances mean the
    same for every profile.
    """

    def __init__(self, timing: Timing, limits: Sequence[EnergyLimit]) -> None:
        self.timing = timing
        hulls = [(curve.time_ms[curve.hull], curve.energy_mj[curve.hull]) for curve in timing.curves]
        self.unit_ms = float(np.median([time[0] for time, _ in hulls]))
        spans = [float(energy[0] - energy[-1]) for _, energy in hulls if len(energy) > 1]
        self.unit_mj = float(np.median(spans)) if spans else 1.0
        self.fastest = np.array([time[0] for time, _ in hulls]) / self.unit_ms
        self.most = np.array([energy[0] for _, energy in hulls]) / self.unit_mj
        self.length = np.concatenate([np.diff(time) for time, _ in hulls]) / self.unit_ms
        rise = np.concatenate([np.diff(energy) for _, energy in hulls]) / self.unit_mj
        self.slope = rise / self.length
        self.owner = np.repeat(np.arange(len(hulls)), [len(time) - 1 for time, _ in hulls])
        self.num_nodes, self.num_segments = len(timing.group), len(self.owner)
        self.period, self.end = self.num_nodes + self.num_segments, self.num_nodes + self.num_segments + 1
        self.rows = Rows()
        self._add_edges()
        self._add_ends()
        for limit in limits:
            self._add_limit(limit)

    def _times_of(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return (position in `nodes`, column) of the segments that make up the nodes' times."""
        num_of = np.bincount(self.owner, minlength=len(self.fastest))
        first = np.cumsum(num_of) - num_of
        groups = self.timing.group[nodes]
        repeat = num_of[groups]
        position = np.repeat(np.arange(len(nodes)), repeat)
        within = np.arange(len(position)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
        return position, self.num_nodes + first[groups[position]] + within

    def _add_edges(self) -> None:
        timing = self.timing
        edge = np.arange(len(timing.tail))
        position, column = self._times_of(timing.tail)
        one = np.ones(len(edge))
        self.rows.add(
            -timing.delay_ms / self.unit_ms - self.fastest[timing.group[timing.tail]],
            (edge, timing.tail, one),
            (edge, timing.head, -one),
            (position, column, np.ones(len(column))),
            (edge, np.full(len(edge), self.period), timing.rounds.astype(np.float64)),
        )

    def _add_ends(self) -> None:
        node = np.arange(self.num_nodes)
        position, column = self._times_of(node)
        one = np.ones(len(node))
        self.rows.add(
            -self.fastest[self.timing.group],
            (node, node, one),
            (position, column, np.ones(len(column))),
            (node, np.full(len(node), self.end), -one),
        )

    def _add_limit(self, limit: EnergyLimit) -> None:
        power = limit.power_w * self.unit_ms / self.unit_mj
        scale = 1 / max(float(limit.weight.sum()), 1.0)
        columns = np.append(np.arange(self.num_nodes, self.period), self.end)
        value = scale * np.append(limit.weight[self.owner] * self.slope, -power)
        self.rows.add(
            np.array([-scale * float(limit.weight @ self.most)]), (np.zeros_like(columns), columns, value)
        )

    def solve(self, deadline_ms: float | None) -> RelaxedTimes | None:
        count = self.end + 1
        lower, upper = np.zeros(count), np.full(count, np.inf)
        upper[self.num_nodes : self.period] = self.length
        objective = np.zeros(count)
        if deadline_ms is None:
            objective[self.end] = 1.0
        else:
            lower[self.end] = upper[self.end] = deadline_ms / self.unit_ms
            objective[self.num_nodes : self.period] = self.timing.count[self.owner] * self.slope
        answer = minimized(objective, upper, self.rows, lower=lower)
        status = status_of(answer)
        if status is SolverStatus.INFEASIBLE:
            return None
        if status is not SolverStatus.OPTIMAL:
            what = "under limits" if deadline_ms is None else f"for {deadline_ms:.12g} ms"
            raise SolverError(f"schedule: the solver failed {what} ({answer.message}); ask for another time")
        used = answer.x[self.num_nodes : self.period]
        planned = self.fastest + np.bincount(self.owner, used, minlength=len(self.fastest))
        energy = self.most + np.bincount(self.owner, used * self.slope, minlength=len(self.fastest))
        unit = 1.0 if deadline_ms is None else self.unit_mj / self.unit_ms
        price = -np.asarray(answer.ineqlin.marginals)[: len(self.timing.tail)] * unit
        return RelaxedTimes(
            planned * self.unit_ms,
            float(answer.x[self.period]) * self.unit_ms,
            float(answer.x[self.end]) * self.unit_ms,
            float(self.timing.count @ energy) * self.unit_mj,
            np.maximum(price, 0.0),
        )
