"""Orders of one device's blocks in a period, and the repetend of those of all devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schedsearch.modulo.device_by_device.line_of_devices import LineOfDevices
from schedsearch.repetend import Repetend

Ints = NDArray[np.int64]

_MAX_GAP = 16
"""Above the units of idle time after a block."""


@dataclass(frozen=True)
class DeviceOrders:
    """Some ways to run a device's blocks in one period.

    Attributes:
        roles: What runs, in order; shape ``(orders, blocks)``, each role once per micro-batch.
        gaps: Units of idle time after each; the same shape.
    """

    roles: NDArray[np.int8]
    gaps: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.roles)

    def take(self, rows: NDArray[np.int_]) -> DeviceOrders:
        """Return some of them."""
        return DeviceOrders(self.roles[rows], self.gaps[rows])

    def and_also(self, others: DeviceOrders) -> DeviceOrders:
        """Return these and others."""
        return DeviceOrders(
            np.concatenate([self.roles, others.roles]), np.concatenate([self.gaps, others.gaps])
        )

    def repeated(self, times: int) -> DeviceOrders:
        """Return the orders of several periods, one after another."""
        return DeviceOrders(np.tile(self.roles, times), np.tile(self.gaps, times))

    def with_gaps(self, rng: np.random.Generator, gaps: int) -> DeviceOrders:
        """Return each with this number of units of idle time: some taken away, or put anywhere."""
        idle = self.gaps.copy()
        for row in idle:
            while (more := gaps - int(row.sum())) != 0:
                row[rng.integers(len(row)) if more > 0 else rng.choice(np.flatnonzero(row))] += np.sign(more)
        return DeviceOrders(self.roles, idle)

    def without_repeats(self) -> DeviceOrders:
        """Return each once, begun where its rotation is the first in lexical order."""
        count, length = self.roles.shape
        key = self.roles.astype(np.int64) * _MAX_GAP + self.gaps
        best, every = key.copy(), np.arange(count)
        for turn in range(1, length):
            turned = np.roll(key, -turn, axis=1)
            differs = turned != best
            first = differs.argmax(axis=1)
            less = differs.any(axis=1) & (turned[every, first] < best[every, first])
            best[less] = turned[less]
        best = np.unique(best, axis=0)
        return DeviceOrders((best // _MAX_GAP).astype(np.int8), (best % _MAX_GAP).astype(np.int8))

    def starts(self, time: Ints, unit: int) -> Ints:
        """Return the starts in the period; shape ``(orders, roles, micro-batches)``, in ticks.

        Args:
            time: Ticks of each role; shape ``(roles,)``.
            unit: Ticks of a unit of idle time.
        """
        ticks = time[self.roles] + self.gaps.astype(np.int64) * unit
        begin = np.cumsum(ticks, axis=1) - ticks
        each = [begin[self.roles == role].reshape(len(self), -1) for role in range(len(time))]
        return np.stack(each, axis=1)

    @classmethod
    def random(
        cls, rng: np.random.Generator, roles: int, micro_batches: int, gaps: int, count: int
    ) -> DeviceOrders:
        """Return random orders, each with `gaps` units of idle time."""
        blocks = np.tile(np.repeat(np.arange(roles, dtype=np.int8), micro_batches), (count, 1))
        order = rng.permuted(blocks, axis=1)
        idle = np.zeros_like(order)
        for _ in range(gaps):
            idle[np.arange(count), rng.integers(order.shape[1], size=count)] += 1
        return cls(order, idle)


def whole_rounds(source: Ints, target: Ints, ticks: Ints | int, period: int) -> Ints:
    """Return how many places later in its role's sequence a block runs than the one it waits for.

    Args:
        source: Starts of the other in one period, ascending; shape ``(..., micro-batches)``.
        target: Its own; likewise.
        ticks: Ticks from the other's start to its own, at least; the shape of the rest.
        period: Ticks.
    """
    size = source.shape[-1]
    earliest = source + np.asarray(ticks)[..., None]
    before = -((target[..., None, :] - earliest[..., None]) // period)
    places: Ints = (before.sum(axis=-1) - np.arange(size)).max(axis=-1)
    return places


def repetend_of(line: LineOfDevices, starts: Sequence[Ints], period: int, longest: int) -> Repetend | None:
    """Return the repetend of least period of each device's order, where blocks run as soon as they can.

    Args:
        line: The devices.
        starts: For each device the starts in one period, ascending; shape ``(roles, micro-batches)``.
        period: Ticks, with which it is told how many rounds later a block runs than the one it waits for.
        longest: Ticks that the period of the repetend may have.
    """
    size = starts[0].shape[1]
    place: dict[str, int] = {}
    where = {block.name: (d, role) for d, on in enumerate(line.on) for role, block in enumerate(on)}
    for block in line.placement.topological_order:
        place[block.name] = 0
        for name in block.after:
            (one, source), (other, target) = where[name], where[block.name]
            ticks = line.placement.by_name[name].time + line.placement.transfer_time(name, block.name)
            later = whole_rounds(starts[one][source], starts[other][target], ticks, period)
            place[block.name] = place[name] + int(later)
    cycles = []
    for on, begun in zip(line.on, starts, strict=True):
        cycle = sorted(
            (int(begun[i][n]), b.name, n - place[b.name]) for i, b in enumerate(on) for n in range(size)
        )
        cycles.append([((name, n % size), n // size) for _, name, n in cycle])
    return Repetend.of_min_period(line.placement, size, cycles, size * line.load, longest)
