"""What no plan can beat: the relaxed frontier, as the least energy for every length of the iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph
from schedsearch.energy.relaxation import breakpoints


@dataclass(frozen=True, eq=False)
class LowerBound:
    """The relaxed frontier, piecewise linear between its breakpoints.

    Attributes:
        time_ms: Length of the iteration at each breakpoint, ascending.
        effective_mj: Least effective energy there.
        waiting_w: Power of all devices while they wait, at the clock of least blocking power.
    """

    time_ms: Floats
    effective_mj: Floats
    waiting_w: float

    def at(self, time_ms: float) -> float:
        """Return the energy in millijoules, waiting included, below which no iteration this long can go."""
        return float(np.interp(time_ms, self.time_ms, self.effective_mj)) + self.waiting_w * time_ms


def lower_bound(graph: InstanceGraph, curves: Mapping[str, CostCurve], waiting_w: float) -> LowerBound:
    """Return the lower bound of all plans of a graph.

    Args:
        graph: Who waits for whom.
        curves: Cost curve of each block.
        waiting_w: Power of all devices while they wait.
    """
    points = [(point.time_ms, point.energy_mj) for point in breakpoints(graph, curves)]
    time, energy = zip(*reversed(points), strict=True)
    return LowerBound(np.array(time), np.array(energy), waiting_w)
