"""What must come back to the first device of a ring, and how likely an order of a device lets it.

Of the first device the whole order is given, and what it holds above its average. What it holds on average
is what blocks take from each to the next, around the ring, times their weights. So of a device's order it is
known how much the first holds up to there, and for each of its messages which places on the first device are
in reach at all. Which places messages get is chosen with what is left of the capacity, likeliest first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.graph.compiled import compiled
from schedsearch.modulo.device_by_device.next_device import DeviceBlocks, Floats, Ints, Prices, price_of_late

_PLACES = 5
"""Places later than the first in reach that a message may get, and the first."""

_MAX_LEFT = 64
"""Above the capacity left that matters."""

NOT_POSSIBLE = 1e6
"""Price of an order that leaves nothing of the capacity; more for each unit missing."""


class Flows(NamedTuple):
    """Messages that go on from a device to the last and, in a ring, to the first.

    Attributes:
        from_first: Whether it comes from the first device; else from the device itself.
        source: The role that sends it there.
        to_first: Whether it goes to the first device.
        target: The role that gets it.
        ticks: From start to start where no device is between.
        ticks_per_device: For each that is.
    """

    from_first: NDArray[np.bool_]
    source: Ints
    to_first: NDArray[np.bool_]
    target: Ints
    ticks: Ints
    ticks_per_device: Ints

    def roles(self) -> Ints:
        """Return of each flow a role of the device itself."""
        return np.where(self.from_first, self.target, self.source)


@compiled
def price_closing(
    starts: Ints,
    held: Floats,
    begun: Ints,
    firsts: Ints,
    flows: Flows,
    devices: int,
    blocks: DeviceBlocks,
    period: int,
    capacity: float,
    prices: Prices,
    price: Floats,
    slack: Floats,
) -> None:
    """Write how unlikely it is that orders of a device go on to a whole ring.

    Args:
        starts: Starts of the blocks of a device in one period; shape ``(orders, roles, micro-batches)``.
        held: What the first device holds for each, at its peak, up to there; in units of weight.
        begun: With which order of the first device each began.
        firsts: The starts of those; as `starts`.
        flows: What goes on to the last device and back.
        devices: Still to come.
        blocks: What devices run.
        period: Ticks.
        capacity: What the first device may hold.
        prices: What waiting costs.
        price: Where to write it; shape ``(orders,)``.
        slack: Where to write the ticks that each block may wait until the last device; as `starts`. Of
            orders that are not possible infinite.
    """
    orders, _, size = starts.shape
    count = len(flows.source)
    each = np.empty((count, _PLACES))
    place = np.empty(count, np.int64)
    least = np.empty((count + 1, _MAX_LEFT))
    for order in range(orders):
        slack[order] = np.inf
        min_held = held[order]
        for flow in range(count):
            source, target, ticks, weight, role = _ends(
                flow, starts[order], firsts[begun[order]], flows, devices, blocks
            )
            place[flow] = _first_place(source, target, ticks, period)
            for later in range(_PLACES):
                each[flow, later] = 0.0
                for n in range(size):
                    left = _left(source, target, ticks, period, n, place[flow] + later)
                    each[flow, later] += price_of_late(float(left), weight, prices.usual[role], prices.spread)
                    if later == 0:
                        min_held += weight * (left + ticks) / period
        left_over = int(np.floor(capacity - min_held + 1e-6))
        if left_over < 0:
            price[order] = NOT_POSSIBLE * (1 - left_over)
            continue
        left_over = min(left_over, _MAX_LEFT - 1)
        least[0] = 0.0
        for flow in range(count):
            role = flows.target[flow] if flows.from_first[flow] else flows.source[flow]
            for units in range(left_over + 1):
                least[flow + 1, units] = np.inf
                for later in range(min(_PLACES, units // blocks.weight[role] + 1)):
                    total = least[flow, units - later * blocks.weight[role]] + each[flow, later]
                    least[flow + 1, units] = min(least[flow + 1, units], total)
        price[order] = least[count, left_over]
        for flow in range(count - 1, -1, -1):
            source, target, ticks, weight, role = _ends(
                flow, starts[order], firsts[begun[order]], flows, devices, blocks
            )
            later = 0
            while least[flow, left_over - later * weight] + each[flow, later] > least[flow + 1, left_over]:
                later += 1
            left_over -= later * weight
            for n in range(size):
                left = _left(source, target, ticks, period, n, place[flow] + later)
                if not flows.from_first[flow]:
                    slack[order, flows.source[flow], n] = left
                if not flows.to_first[flow]:
                    slack[order, flows.target[flow], (n + place[flow] + later) % size] = left


@compiled
def _ends(
    flow: int, starts: Ints, first: Ints, flows: Flows, devices: int, blocks: DeviceBlocks
) -> tuple[Ints, Ints, int, int, int]:
    """Return starts where a flow comes from and goes to, its ticks, weight and role on the device."""
    source = first[flows.source[flow]] if flows.from_first[flow] else starts[flows.source[flow]]
    target = first[flows.target[flow]] if flows.to_first[flow] else starts[flows.target[flow]]
    role = flows.target[flow] if flows.from_first[flow] else flows.source[flow]
    ticks = flows.ticks[flow] + devices * flows.ticks_per_device[flow]
    return source, target, ticks, blocks.weight[role], role


@compiled
def _left(source: Ints, target: Ints, ticks: int, period: int, n: int, place: int) -> int:
    """Return how many ticks a message of micro-batch `n` has left if it is for one so many places later."""
    size = len(source)
    return target[(n + place) % size] + (n + place) // size * period - source[n] - ticks  # type: ignore[no-any-return]


@compiled
def _first_place(source: Ints, target: Ints, ticks: int, period: int) -> int:
    """Return for how many places later at least all messages come in time."""
    size = len(source)
    place = ((source[0] + ticks - target[0]) // period - 1) * size
    n = 0
    while n < size:
        if _left(source, target, ticks, period, n, place) < 0:
            place += 1
            n = 0
        else:
            n += 1
    return place  # type: ignore[no-any-return]
