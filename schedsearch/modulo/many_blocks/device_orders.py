"""Orders of one device's blocks in a period, and how many rounds its neighbour's run later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schedsearch.modulo.many_blocks.line_of_devices import MOST_WEIGHT, Step

Ints = NDArray[np.int64]
Weights = NDArray[np.int32]

_MOST_GAP = 16
"""Above the units of idle time after a block."""

_WEIGHTS = 2 * MOST_WEIGHT
"""As many weights as there may be, of either sign."""

_PAIRS_AT_ONCE = 200_000


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
        key = self.roles.astype(np.int64) * _MOST_GAP + self.gaps
        best, every = key.copy(), np.arange(count)
        for turn in range(1, length):
            turned = np.roll(key, -turn, axis=1)
            differs = turned != best
            first = differs.argmax(axis=1)
            less = differs.any(axis=1) & (turned[every, first] < best[every, first])
            best[less] = turned[less]
        best = np.unique(best, axis=0)
        return DeviceOrders((best // _MOST_GAP).astype(np.int8), (best % _MOST_GAP).astype(np.int8))

    def without(self, others: DeviceOrders) -> DeviceOrders:
        """Return those that are not among others."""
        known = {(a.tobytes(), b.tobytes()) for a, b in zip(others.roles, others.gaps, strict=True)}
        new = [
            i
            for i, (a, b) in enumerate(zip(self.roles, self.gaps, strict=True))
            if (a.tobytes(), b.tobytes()) not in known
        ]
        return self.take(np.array(new, dtype=np.int_))

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

    def changed(self, rng: np.random.Generator) -> DeviceOrders:
        """Return each with one block moved or two exchanged, and often a unit of idle time elsewhere."""
        roles, gaps = self.roles.copy(), self.gaps.copy()
        length = roles.shape[1]
        for row, idle in zip(roles, gaps, strict=True):
            i, j = rng.choice(length, size=2, replace=False)
            if rng.random() < 0.5:
                row[[i, j]] = row[[j, i]]
            else:
                moved = row[i]
                row[:] = np.insert(np.delete(row, i), j, moved)
            if idle.any() and rng.random() < 0.4:
                idle[rng.choice(np.flatnonzero(idle))] -= 1
                idle[rng.integers(length)] += 1
        return DeviceOrders(roles, gaps)


def whole_rounds(source: Ints, target: Ints, ticks: Ints | int, period: int) -> Ints:
    """Return how many places later in its role's sequence a block runs than the one it waits for.

    Args:
        source: Starts of the other in one period, ascending; shape ``(..., micro-batches)``.
        target: Its own; likewise.
        ticks: From the other's start to its own, at least; the shape of the rest.
        period: Ticks.
    """
    size = source.shape[-1]
    earliest = source + np.asarray(ticks)[..., None]
    before = -((target[..., None, :] - earliest[..., None]) // period)
    places: Ints = (before.sum(axis=-1) - np.arange(size)).max(axis=-1)
    return places


def shifts(before: Ints, after: Ints, steps: Sequence[Step], period: int) -> tuple[Ints, Ints]:
    """Return by how much the second of two devices may be shifted, and what that weighs.

    The weighted sum of `whole_rounds` changes only at some shifts: a later second device makes less wait for
    the first, and what the first waits for later.

    Args:
        before: Starts on the first device; shape ``(orders, roles, micro-batches)``.
        after: On the second; likewise.
        steps: Between them.
        period: Ticks.

    Returns:
        Shifts in ticks within the period, and the sums; shapes ``(orders before, orders after, shifts)``.
    """
    size = before.shape[-1]
    weighs: Ints = np.zeros((len(before), len(after)), dtype=np.int64)
    keys = []
    for step in steps:
        if step.forward:
            source, target = before[:, None, step.source], after[None, :, step.target]
        else:
            source, target = after[None, :, step.source], before[:, None, step.target]
        places = []
        for later in range(size):
            slack = [
                target[..., (n + later) % size] + (n + later) // size * period - source[..., n] - step.ticks
                for n in range(size)
            ]
            least = np.min(slack, axis=0)
            if step.forward:  # the shift is at least what is missing
                rounds = -least // period
                at = -least - rounds * period
                places.append(later + size * rounds)
                keys.append((2 * at) * _WEIGHTS + _WEIGHTS // 2 - step.weight)
            else:  # the shift is at most what is left
                rounds = least // period
                at = least - rounds * period
                places.append(later - size * rounds)
                keys.append((2 * at + 1) * _WEIGHTS + _WEIGHTS // 2 + step.weight)
        weighs = weighs + step.weight * (np.min(places, axis=0) + (size if step.forward else 0))
    key = np.sort(np.stack(keys, axis=-1), axis=-1)
    jump = key % _WEIGHTS - _WEIGHTS // 2
    at = key // _WEIGHTS
    upto = np.cumsum(jump, axis=-1)
    return at // 2, weighs[..., None] + np.where(at % 2 == 0, upto, upto - jump)


def least_weights(before: Ints, after: Ints, steps: Sequence[Step], period: int) -> Weights:
    """Return the least that `shifts` weighs; shape ``(orders before, orders after)``."""
    least = np.zeros((len(before), len(after)), dtype=np.int32)
    weighty = [step for step in steps if step.weight]
    if weighty and len(after):
        rows = max(1, _PAIRS_AT_ONCE // len(after))
        for first in range(0, len(before), rows):
            _, weighs = shifts(before[first : first + rows], after, weighty, period)
            least[first : first + rows] = weighs.min(axis=-1)
    return least


def most_held(starts: Ints, memory: Sequence[int]) -> Ints:
    """Return the most that each order adds to what its device holds, if no round were begun before.

    Args:
        starts: Shape ``(orders, roles, micro-batches)``, in ticks.
        memory: Units that each role allocates; less than 0 for what it releases.

    Returns:
        Units; shape ``(orders,)``.
    """
    most = np.full(len(starts), np.iinfo(np.int64).min)
    for role, units in enumerate(memory):
        if units <= 0:
            continue
        for n in range(starts.shape[-1]):
            begun = (starts <= starts[:, role, n, None, None]).sum(axis=-1)
            most = np.maximum(most, begun @ np.array(memory))
    return most
