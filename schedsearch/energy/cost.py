"""What an instance of a block costs at each time it can take: its options, and their lower convex hull.

A device that does not compute waits at the blocking power, so only the energy above it counts: the
*effective* energy of an option is its energy less blocking power times time (Perseus, Sec. 4.1, Eq. 4).
Where the blocking power depends on the clock, that is the least of any clock; see `waiting` for the rest.
Perseus fits an exponential to the options; we take their lower convex hull, because it passes through real
options, exists for any number of them, one included, and makes the relaxed problem a linear program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placements import Placement, Profile
from placements.profiles.operating_point import config_of
from schedsearch.energy.graph import Floats, Ints


@dataclass(frozen=True, eq=False)
class CostCurve:
    """The options of a block that no other option beats in both time and effective energy.

    Attributes:
        clock_mhz: Clock of each option; shape ``(options,)``.
        time_ms: Ascending.
        energy_mj: Effective energy on the GPUs of all of the block's devices together; strictly descending.
        config: Configuration of each option; empty where the block has none.
    """

    clock_mhz: Ints
    time_ms: Floats
    energy_mj: Floats
    config: tuple[str, ...] = ()

    def only(self, option: int) -> CostCurve:
        """Return the curve with a single option left."""
        kept = slice(option, option + 1)
        return CostCurve(self.clock_mhz[kept], self.time_ms[kept], self.energy_mj[kept], self.config[kept])

    @cached_property
    def hull(self) -> Ints:
        """Return the indices of the options on the lower convex hull; ascending, ends included."""
        return lower_hull(self.time_ms, self.energy_mj)


def lower_hull(time: Floats, energy: Floats) -> Ints:
    """Return the indices of the points on the lower convex hull; ascending, ends included.

    Args:
        time: Or whatever else the points are over; ascending.
        energy: Energy of each point.
    """
    kept: list[int] = []
    points = list(zip(time.tolist(), energy.tolist(), strict=True))
    for i, right in enumerate(points):
        while len(kept) > 1 and not _is_below(points[kept[-1]], points[kept[-2]], right):
            kept.pop()
        kept.append(i)
    return np.array(kept)


def _is_below(middle: tuple[float, float], left: tuple[float, float], right: tuple[float, float]) -> bool:
    """Tell whether a point lies strictly below the line between two others."""
    rise_before = (middle[1] - left[1]) * (right[0] - middle[0])
    rise_after = (right[1] - middle[1]) * (middle[0] - left[0])
    return rise_before < rise_after


def cost_curve(run: str, num_gpus: int, profile: Profile) -> CostCurve:
    """Return the cost curve of a block, in its mode, that runs on so many GPUs, all at one clock."""
    power = profile.min_blocking_power_w
    points = profile.points[run]
    options = [(p.time_ms, num_gpus * (p.energy_mj - power * p.time_ms), p.clock) for p in points]
    best = list(pareto(options))
    time, energy, clock = zip(*best, strict=True)
    config = tuple(map(config_of, clock))
    return CostCurve(
        np.array(clock, dtype=np.int64), np.array(time), np.array(energy), config if any(config) else ()
    )


def pareto(options: Iterable[tuple[float, float, int]]) -> Iterable[tuple[float, float, int]]:
    """Yield the (time, energy, clock) options by increasing time that cost less than every faster one."""
    least = float("inf")
    for option in sorted(options):
        if option[1] < least:
            least = option[1]
            yield option


def cost_curves(placement: Placement, profile: Profile) -> dict[str, CostCurve]:
    """Return the cost curve of every block of a placement, in each of its modes; see `Placement.runs`."""
    return {
        name: cost_curve(name, placement.gpus_of(block), profile) for name, block in placement.runs.items()
    }
