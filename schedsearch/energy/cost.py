"""The cost curve of a block: effective energy at each time that the block can take, and its convex hull.

A device that does not compute waits at the blocking power, so only the energy above it counts: the
*effective* energy of an option is its energy less blocking power times time (Perseus, Sec. 4.1, Eq. 4).
Where the blocking power depends on the clock, we take its minimum; see `simulation` for the rest.
Perseus fits an exponential to the options; we take their lower convex hull, because it passes through real
options, exists for any number of them, one included, and makes the relaxed problem a linear program.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placements import Placement, Profile
from schedsearch.energy.graph import Floats, Ints


@dataclass(frozen=True, eq=False)
class CostCurve:
    """The options of a block that no other option beats in both time and effective energy.

    Attributes:
        clocks: Clock of each option, a `Clock` with its configuration if the option has one.
        time_ms: Ascending; shape ``(options,)``.
        energy_mj: Effective energy on the GPUs of all of the block's devices together; strictly descending.
    """

    clocks: tuple[int, ...]
    time_ms: Floats
    energy_mj: Floats

    def only(self, options: Ints | int) -> CostCurve:
        """Return the curve with some options left."""
        kept = np.atleast_1d(options)
        clocks = tuple(self.clocks[option] for option in kept)
        return CostCurve(clocks, self.time_ms[kept], self.energy_mj[kept])

    @cached_property
    def hull(self) -> Ints:
        """Return the indices of the options on the lower convex hull; ascending, ends included."""
        return lower_hull(self.time_ms, self.energy_mj)


def lower_hull(time: Floats, energy: Floats) -> Ints:
    """Return the indices of the points on the lower convex hull, by ascending time, ends included."""
    kept: list[int] = []
    points = list(zip(time.tolist(), energy.tolist(), strict=True))
    for i, (right, high) in enumerate(points):
        while len(kept) > 1:
            (left, low), (middle, between) = points[kept[-2]], points[kept[-1]]
            if (between - low) * (right - middle) < (high - between) * (middle - left):
                break
            kept.pop()
        kept.append(i)
    return np.array(kept)


def undominated(time_ms: Floats, energy_mj: Floats, after_w: Floats | None = None) -> Ints:
    """Return the plans that no other beats at every deadline that both keep, by increasing time.

    Until a deadline a plan uses its energy, and a power after its end. A plan that ends no later, uses no
    more until the other's end, and draws no more then, beats the other. Where no plan draws more than the
    least afterwards, these are the plans that no other beats in both time and energy.

    Args:
        time_ms: End of each plan; shape ``(plans,)``.
        energy_mj: Energy until then, above the energy of waiting at the least power all the time.
        after_w: Power from then on, above the least; None for the least.

    Returns:
        Indices, without equals; of plans that end together the one of least energy first.
    """
    after_w = np.zeros(len(time_ms)) if after_w is None else after_w
    order = np.lexsort((after_w, energy_mj, time_ms))
    if not after_w.any():
        energy = energy_mj[order]
        return order[energy < np.append(np.inf, np.minimum.accumulate(energy)[:-1])]
    kept = order[:0]
    for i in order:
        until = energy_mj[kept] + after_w[kept] * (time_ms[i] - time_ms[kept])
        if not ((until <= energy_mj[i]) & (after_w[kept] <= after_w[i])).any():
            kept = np.append(kept, i)
    return kept


def cost_curve(run: str, num_gpus: int, profile: Profile) -> CostCurve:
    """Return the cost curve of a block in one of its modes, on `num_gpus` GPUs that all run at one clock."""
    points = profile.points[run]
    time, energy = np.array([(point.time_ms, point.energy_mj) for point in points]).T
    effective = num_gpus * (energy - profile.min_blocking_power_w * time)
    best = undominated(time, effective)
    return CostCurve(tuple(points[i].clock for i in best), time[best], effective[best])


def cost_curves(placement: Placement, profile: Profile) -> dict[str, CostCurve]:
    """Return the cost curve of every block of a placement, in each of its modes; see `Placement.runs`."""
    return {
        name: cost_curve(name, placement.gpus_of(block), profile) for name, block in placement.runs.items()
    }
