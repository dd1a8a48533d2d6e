"""Greedy modulo scheduling: one micro-batch's blocks, each at the first tick at which its devices are free.

Free means in every period, as in the reservation table of Rau's "Iterative Modulo Scheduling", but no block
is moved again. This takes milliseconds for any placement, on hundreds of devices too. The longer the period,
the fewer micro-batches are in flight, so that some period fits almost any memory. The module knows no
objective: a device may be left with gaps that are too short for any block.
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
    """Try longer and longer periods from the bound up, each forwards and backwards, without optimizer blocks.

    Yields:
        None for each try without a repetend that fits in memory, and then one repetend with the least period
        of its orders; no repetend if it would be no shorter than one block after another.
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
    """Return a repetend of one micro-batch, without regard to memory; None if a block finds no gap.

    Blocks that several devices run together get their ticks within the period first, as they need a gap that
    these have in common. The period is at least each device's load. Where time runs backwards, the last block
    comes first, each as late as it can be.
    """
    blocks = placement.topological_order[:: -1 if backwards else 1]
    busy: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # by device: starts and ticks of blocks

    def reserve(block: Block, ready: int) -> int | None:
        """Reserve and return a block's first free start from `ready` on; None if no gap is long enough."""
        here, start = [interval for device in block.devices for interval in busy[device]], ready
        while start < ready + period:
            ends = [start - behind + t for begin, t in here if (behind := (start - begin) % period) < t]
            ends += [
                start + ahead + t for begin, t in here if (ahead := (begin - start) % period) < block.time
            ]
            if not ends:
                for device in block.devices:
                    busy[device].append((start, block.time))
                return start
            start = max(ends)
        return None

    shared = {block.name: reserve(block, 0) for block in blocks if len(block.devices) > 1}
    starts: dict[str, int] = {}
    for block in blocks:
        ready = 0
        for name in placement.successors[block.name] if backwards else block.after:
            ends = (block.name, name) if backwards else (name, block.name)
            there = starts[name] + placement.by_name[name].time + placement.transfer_time(*ends)
            ready = max(ready, there)
        tick = shared[block.name] if block.name in shared else reserve(block, ready)
        if tick is None:
            return None
        starts[block.name] = ready + (tick - ready) % period
    first = {
        (block.name, 0): -starts[block.name] - block.time if backwards else starts[block.name]
        for block in blocks
    }
    return Repetend.from_first_starts(placement, 1, period, first)
