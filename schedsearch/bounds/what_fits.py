"""Numbers of micro-batches that fit a device's memory at once, where these hold different amounts.

Where a device has too many states to go through (`schedsearch.proof.device_states`), this says of them what
the capacity does not: memory for 100 units holds two micro-batches of 37, not 2.7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]
"""Two blocks, as indices, of which the second waits for the first."""


@dataclass(frozen=True)
class Amounts:
    """Memory that micro-batches between pairs of blocks hold on a device: multiples of a few amounts.

    Attributes:
        units: The amounts, in units of memory; none is a multiple of another.
        times: How often a micro-batch between a pair holds each; shape ``(amounts, pairs)``.
        pairs: Two blocks of the device each.
    """

    units: tuple[int, ...]
    times: NDArray[np.int64]
    pairs: Sequence[Pair]

    def fit(self, free: int, after: int | None = None) -> NDArray[np.int64]:
        """Return how many of each amount fit memory, where no more do; shape ``(ways, amounts)``.

        Args:
            free: Units of memory.
            after: A block before which a micro-batch is, for each that it waits for.
        """
        there = np.zeros(len(self.units), dtype=np.int64)
        for pair, (_, b) in enumerate(self.pairs):
            if b == after:
                there += self.times[:, pair]
        rest = free - int(there @ np.array(self.units))
        ways = [there + more for more in _fill(self.units, rest)]
        return np.array(ways, dtype=np.int64).reshape(-1, len(self.units))

    def max_ways(self, free: int) -> int:
        """Return how many ways `fit` goes through, at most."""
        return math.prod(free // unit + 1 for unit in self.units[:-1])

    def started(self, block: int) -> NDArray[np.int64]:
        """Return by how much the start of a block changes how many there are of each amount."""
        change = np.zeros(len(self.units), dtype=np.int64)
        for pair, (a, b) in enumerate(self.pairs):
            change += self.times[:, pair] * ((a == block) - (b == block))
        return change


def amounts_held(memory: Sequence[int], pairs: Sequence[Pair]) -> Amounts | None:
    """Return the amounts, or None where micro-batches do not hold what pairs say, or all of it fits exactly.

    Args:
        memory: Units that each block allocates; less than 0 for what it releases.
        pairs: Blocks of which the second waits for the first through no third.
    """
    held = _held_between(memory, pairs)
    if held is None:
        return None
    units: list[int] = []
    for amount in sorted({amount for amount in held if amount}):
        if all(amount % smaller for smaller in units):
            units.append(amount)
    if not units or units == [1]:
        return None
    units.reverse()  # of the smallest as many as are left
    of = [next(unit for unit in units if amount % unit == 0) for amount in held]
    times = [
        [amount // unit if of[pair] == unit else 0 for pair, amount in enumerate(held)] for unit in units
    ]
    return Amounts(tuple(units), np.array(times, dtype=np.int64), pairs)


def _held_between(memory: Sequence[int], pairs: Sequence[Pair]) -> list[int] | None:
    """Return what a micro-batch holds between each pair besides what it holds between others, or None.

    A block that waits for two others leaves open between which of them it is held.
    """
    before: dict[int, int] = {}
    for a, b in pairs:
        if before.setdefault(b, a) != a:
            return None
    released = {block: -units for block, units in enumerate(memory)}
    for block in sorted(released, reverse=True):  # a block comes after those that it waits for
        if block in before:
            released[before[block]] += released[block]
    held = [released[b] for _, b in pairs]
    whole = all(not released[block] for block in released if block not in before)
    return held if whole and min(held, default=0) >= 0 else None


def _fill(units: Sequence[int], free: int) -> Iterator[list[int]]:
    """Yield the numbers of each amount with which no more of the last fit memory."""
    if free < 0:
        return
    first, *others = units
    if not others:
        yield [free // first]
        return
    for count in range(free // first + 1):
        for rest in _fill(others, free - count * first):
            yield [count, *rest]
