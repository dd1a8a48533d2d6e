"""Greedy modulo scheduling: one micro-batch's blocks, each at the first tick at which its devices are free.

Free means in every period, as in the reservation table of Rau's "Iterative Modulo Scheduling", but no block
is moved again. That takes milliseconds for any placement, on hundreds of devices too. The longer the period,
the fewer micro-batches are in flight, so that some period fits almost any memory. The module does not know
what is made least: a device may be left with gaps that are too short for any block.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

from placements import Block, Placement
from schedsearch.repetend import Repetend
from schedsearch.starts.serial import serial_period
from schedsearch.starts.steady_state import fits

_STEP = 1 / 128
"""Share by which the next period that is tried is longer."""


def greedy_repetends(placement: Placement, bound: Fraction) -> Iterator[Repetend | None]:
    """Try ever longer periods from the bound up, each forwards and backwards.

    Args:
        placement: What runs where, without optimizer blocks.
        bound: Ticks per micro-batch that no repetend beats.

    Yields:
        None for each try without a repetend that fits in memory, and then one, with the least period of its
        orders; none where it would be no shorter than one block after another.
    """
    least = period = math.ceil(bound)
    while period < serial_period(placement):
        for backwards in (False, True):
            repetend = greedy_repetend(placement, period, backwards)
            if repetend is not None and fits(repetend):
                yield repetend.with_min_period(least)
                return
            yield None
        period += max(1, int(period * _STEP))


def greedy_repetend(placement: Placement, period: int, backwards: bool = False) -> Repetend | None:
    """Return a repetend of one micro-batch, whatever it holds.

    Blocks that several devices run together get their ticks within the period first, as they need a gap that
    these have in common.

    Args:
        placement: What runs where, without optimizer blocks.
        period: Ticks; at least each device's load.
        backwards: Whether time runs backwards: the last block comes first, each as late as it can be.

    Returns:
        The repetend; None where a block finds no gap.
    """
    blocks = placement.topological_order[:: -1 if backwards else 1]
    table = _ReservationTable(period)
    shared = {block.name: table.reserve(block, 0) for block in blocks if len(block.devices) > 1}
    starts: dict[str, int] = {}
    for block in blocks:
        ready = 0
        for name in placement.successors[block.name] if backwards else block.after:
            ends = (block.name, name) if backwards else (name, block.name)
            there = starts[name] + placement.by_name[name].time + placement.transfer_time(*ends)
            ready = max(ready, there)
        if block.name not in shared:
            start = table.reserve(block, ready)
        elif (tick := shared[block.name]) is not None:
            start = ready + (tick - ready) % period
        else:
            start = None
        if start is None:
            return None
        starts[block.name] = start
    first = {
        (block.name, 0): -starts[block.name] - block.time if backwards else starts[block.name]
        for block in blocks
    }
    return Repetend.from_first_starts(placement, 1, period, first)


class _ReservationTable:
    """When devices are busy in every period."""

    def __init__(self, period: int) -> None:
        self.period = period
        self.busy: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """For each device the starts of its blocks, and their ticks."""

    def reserve(self, block: Block, ready: int) -> int | None:
        """Return the first start from a tick on at which a block's devices are free, and reserve it.

        Returns:
            None where there is none.
        """
        busy = [each for device in block.devices for each in self.busy[device]]
        start = ready
        while start < ready + self.period:
            ends = [
                start - behind + ticks
                for begin, ticks in busy
                if (behind := (start - begin) % self.period) < ticks
            ]
            ends += [
                start + ahead + ticks
                for begin, ticks in busy
                if (ahead := (begin - start) % self.period) < block.time
            ]
            if not ends:
                for device in block.devices:
                    self.busy[device].append((start, block.time))
                return start
            start = max(ends)
        return None
