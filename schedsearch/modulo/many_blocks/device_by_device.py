"""Shorter periods for lines of devices under tight memory, by orders found from device to device.

Of interleaved 1F1B's chunks at 3/4 of its memory no solver finds in minutes what this finds in seconds.
A device is then idle for as long as some transfers to a neighbour and back take. With two chunks and one
micro-batch per repetend nothing less than one such round trip was seen to help; two can share it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction

from placements import Placement
from schedsearch.modulo.many_blocks.line_of_devices import LineOfDevices
from schedsearch.modulo.many_blocks.order_paths import OrderPaths
from schedsearch.repetend import Repetend
from schedsearch.solver.interrupts import INTERRUPTS

_MOST_GAPS = 4
"""Round trips of idle time per micro-batch, at most; with more, patterns of a few devices do as well."""

_MOST_BLOCKS = 16
"""Blocks that a device may run in a repetend; of more there are too many orders."""

_STALE = 12
"""Rounds without a lighter path after which a pool begins anew."""

_FINENESS = 0.002
"""Share of the bound below which a shorter period is no longer sought."""


def device_by_device(
    placement: Placement,
    sizes: Sequence[int],
    bound: Fraction,
    known: Fraction | float,
    deadline: float,
    seed: int = 0,
) -> Iterator[Repetend]:
    """Yield repetends of ever shorter periods that keep all capacities.

    Args:
        placement: What runs where, without optimizer blocks.
        sizes: Micro-batches per repetend that are allowed.
        bound: Ticks per micro-batch that no repetend beats.
        known: Ticks per micro-batch to beat.
        deadline: When to stop, in seconds of `time.monotonic`.
        seed: Of the random orders.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C.
    """
    line = LineOfDevices(placement)
    if not line.applies:
        return
    shortest = known
    most = _MOST_BLOCKS // line.time.shape[1]
    questions = [
        _Question(line, size, gaps, seed)
        for size in sizes
        if size <= most
        for gaps in range(_MOST_GAPS * size if line.round_trip else 0, -1, -1)
        if gaps == 0 or math.gcd(size, gaps) == 1
    ]
    while questions := [q for q in questions if q.may_beat(shortest, bound)]:
        found = min(questions, key=lambda q: q.effort).ask(questions, shortest, deadline)
        if time.monotonic() >= deadline:
            return
        if found is not None:
            shortest = Fraction(found.period, found.micro_batches)
            yield found


class _Question:
    """Whether there is a repetend of a number of micro-batches and round trips; asked again and again.

    Attributes:
        asked: How often it was.
        effort: Work on it until now and in the least that the next time takes. Each round of a pool counts
            with the square of the micro-batches.
        paths: The pool of the last time.
    """

    def __init__(self, line: LineOfDevices, micro_batches: int, gaps: int, seed: int) -> None:
        self.line = line
        self.gaps = gaps
        self.seed = seed
        self.asked = 0
        self.effort = _STALE * micro_batches**2
        self.paths = OrderPaths(line, micro_batches, gaps, seed)

    @property
    def period(self) -> Fraction:
        """Ticks per micro-batch."""
        return Fraction(self.paths.period, self.paths.micro_batches)

    def may_beat(self, shortest: Fraction | float, bound: Fraction) -> bool:
        """Whether the period is shorter by more than a trifle, and is not below the bound."""
        return bound <= self.period < shortest - float(bound) * _FINENESS

    def ask(
        self, others: Sequence[_Question], shortest: Fraction | float, deadline: float
    ) -> Repetend | None:
        """Look for a repetend until nothing gets better; begin with others' orders or random ones in turn."""
        size = self.paths.micro_batches
        self.paths = OrderPaths(self.line, size, self.gaps, self.seed + self.asked)
        if self.asked % 2 == 0:
            for other in others:
                if other.asked and other is not self:
                    self.paths.begin_with(other.paths)
        self.asked += 1
        free = self.line.placement.free_memory
        assert free is not None
        lightest, stale = math.inf, 0
        longest = math.ceil(shortest * size) - 1
        while stale < _STALE and time.monotonic() < deadline:
            INTERRUPTS.raise_if_seen()
            weighs = self.paths.improve()
            self.effort += size**2
            stale = stale + 1 if weighs >= lightest else 0
            lightest = min(lightest, weighs)
            if weighs <= free[self.line.fullest]:
                found = next(self.paths.repetends(longest, deadline), None)
                if found is not None:
                    return found
        return None
