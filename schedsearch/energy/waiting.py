"""What devices use while they wait: at the least, and what the clock at which they wait adds to that.

A device that waits stays at the clock of the block before, and before its first block at that of its first
block (Perseus, Sec. 4.1, has one blocking power for all). Effective energies are above the blocking power of
the clock where it is least, so that no plan uses less than the relaxed problem says; what a plan's own gaps
use beyond that is added to it here. A device without blocks waits at the least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placements import Placement, Profile
from schedsearch.energy.cost import lower_hull
from schedsearch.energy.graph import Floats, InstanceGraph, Ints, device_orders
from schedsearch.schedule import Schedule


def waiting_w(placement: Placement, profile: Profile) -> float:
    """Return the power of the GPUs of all devices together while all wait at the clock of least power."""
    return profile.min_blocking_power_w * sum(placement.gpus)


@dataclass(frozen=True, eq=False)
class WaitingPower:
    """Who waits after whom, and at which power above the least.

    Attributes:
        orders: For each device the indices of its instances, in its order.
        num_gpus: GPUs of each device; shape ``(devices,)``.
        clock_mhz: The profile's clocks, ascending.
        above_w: For each of these what a GPU that waits draws above the least.
    """

    orders: tuple[Ints, ...]
    num_gpus: Ints
    clock_mhz: Ints
    above_w: Floats

    @classmethod
    def of(cls, schedule: Schedule, profile: Profile, graph: InstanceGraph) -> WaitingPower:
        """Return the waiting of a schedule."""
        clocks = sorted({point.clock_mhz for points in profile.points.values() for point in points})
        least = profile.min_blocking_power_w
        above = [profile.blocking_w(clock) - least if profile.waits_by_clock else 0.0 for clock in clocks]
        orders = tuple(device_orders(schedule, graph))
        return cls(orders, np.array(schedule.placement.gpus), np.array(clocks), np.array(above))

    @property
    def is_even(self) -> bool:
        """Tell whether the blocking power is the same at all clocks."""
        return not self.above_w.any()

    def of_devices(
        self, start_ms: Floats, time_ms: Floats, clock_mhz: Ints, until_ms: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return what a GPU of each device uses above the least while it waits, and draws after its end.

        Args:
            start_ms: Start of each instance; shape ``(instances, plans)``.
            time_ms: How long each runs.
            clock_mhz: Its clock, one of the profile's; shape ``(instances, plans)``, or ``(instances, 1)``.
            until_ms: End of the iteration, not before the last block's; shape ``(plans,)``. None for that.

        Returns:
            Millijoules and watts; shape ``(devices, plans)`` each.
        """
        energy_mj, after_w = np.zeros((2, len(self.orders), start_ms.shape[1]))
        if self.is_even:
            return energy_mj, after_w
        end_ms = start_ms + time_ms
        until_ms = end_ms.max(axis=0) if until_ms is None else until_ms
        for device, order in enumerate(self.orders):
            if len(order):
                above = self.above_w[np.searchsorted(self.clock_mhz, clock_mhz[order])]
                gap = np.vstack([start_ms[order[1:]], until_ms]) - end_ms[order]
                energy_mj[device] = (above * gap).sum(axis=0) + above[0] * start_ms[order[0]]
                after_w[device] = above[-1]
        return energy_mj, after_w

    def of_all(
        self, start_ms: Floats, time_ms: Floats, clock_mhz: Ints, until_ms: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the same of all GPUs together; shape ``(plans,)`` each."""
        energy_mj, after_w = self.of_devices(start_ms, time_ms, clock_mhz, until_ms)
        return self.num_gpus @ energy_mj, self.num_gpus @ after_w


def undominated(time_ms: Floats, energy_mj: Floats, after_w: Floats) -> Ints:
    """Return the plans that no other beats at every deadline that both keep, by increasing time.

    Until a deadline a plan uses its energy, and a power after its end. A plan that ends no later, uses no
    more until the other's end, and draws no more then, beats the other. Where no plan draws more than the
    least afterwards, these are the plans that no other beats in both time and energy.

    Args:
        time_ms: End of each plan; shape ``(plans,)``.
        energy_mj: Energy until then, above that of waiting at the least power all the time.
        after_w: Power from then on, above the least.

    Returns:
        Indices, without equals; of plans that end together the one of least energy first.
    """
    order = np.lexsort((after_w, energy_mj, time_ms))
    if not after_w.any():
        energy = energy_mj[order]
        least = np.minimum.accumulate(energy)
        return order[energy < np.concatenate([[np.inf], least[:-1]])]
    kept = np.empty(len(order), dtype=np.int64)
    count = 0
    for i in order.tolist():
        others = kept[:count]
        until = energy_mj[others] + after_w[others] * (time_ms[i] - time_ms[others])
        if not ((until <= energy_mj[i]) & (after_w[others] <= after_w[i])).any():
            kept[count] = i
            count += 1
    return kept[:count]


def best_until(
    deadline_ms: Sequence[float] | Floats, time_ms: Floats, energy_mj: Floats, after_w: Floats
) -> Ints:
    """Return the plan of least energy until each deadline, of those that keep it.

    Args:
        deadline_ms: None before the end of the first plan.
        time_ms: End of each plan, ascending; energies and powers as in `undominated`.
        energy_mj: Likewise.
        after_w: Likewise.
    """
    number = np.searchsorted(time_ms, deadline_ms, side="right")
    return np.array(
        [
            int((energy_mj[:n] + after_w[:n] * (deadline - time_ms[:n])).argmin())
            for deadline, n in zip(deadline_ms, number.tolist(), strict=True)
        ],
        dtype=np.int64,
    )


def best_after(time_ms: float, end_ms: Floats, energy_mj: Floats, after_w: Floats) -> Ints:
    """Return the plans that are best for some deadline of at least a time that all plans keep.

    The less a plan draws after its end, the more it may use until then: a lower convex hull.
    """
    until = energy_mj + after_w * (time_ms - end_ms)
    order = undominated(after_w, until, np.zeros(len(until)))
    return order[lower_hull(after_w[order], until[order])]
