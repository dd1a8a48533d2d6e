"""What no plan can beat: the relaxed frontier, as the least energy for every length of the iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph
from schedsearch.energy.relaxed.relaxation import breakpoints

BOUND_TOLERANCE = 1e-6
"""Share of the energies that were added up by which a proved bound may be above what was found.

HiGHS keeps its rows, integers and reduced costs to 1e-6 and better, and the minimum cuts round powers to
2**-28 of the median one. A bound that is further above a plan is wrong, and must not be hidden.
"""


def proved(bound: float, found: float, scale: float = 0.0) -> float:
    """Return a lower bound of what was found, with rounding errors taken off where it is above.

    Args:
        bound: Bound of energy, time or cost; nothing is below it.
        found: Something that the bound is of.
        scale: Size of what was added up, where the sum itself may be about 0.
    """
    most = BOUND_TOLERANCE * (abs(found) + scale)
    assert bound <= found + most, f"the bound {bound!r} is above {found!r}, which was found"
    return min(bound, found)


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

    def price_w(self, time_ms: float) -> float:
        """Return the shadow price of time there: what a shorter iteration costs, in millijoules per ms."""
        if len(self.time_ms) == 1 or time_ms >= self.time_ms[-1]:
            return 0.0
        after = max(int(np.searchsorted(self.time_ms, time_ms, side="right")), 1)
        slope = np.diff(self.effective_mj[after - 1 : after + 1]) / np.diff(
            self.time_ms[after - 1 : after + 1]
        )
        return float(-slope[0])


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
