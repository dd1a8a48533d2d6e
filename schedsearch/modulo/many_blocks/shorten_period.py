"""Large-neighbourhood search for a repetend of a shorter period, where a whole query is too large.

What forbids a shorter period is a cycle of blocks that wait for each other. A neighbourhood begins with a
place of that cycle where a device's order could be another, and grows, cycle by cycle, until none is left
that forbids the period asked for; most neighbourhoods chosen at random would leave one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction

from schedsearch.modulo.many_blocks.segment_model import order_anew
from schedsearch.modulo.many_blocks.segments import Segments
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort

_BLOCKS = (6.0, 12.0, 200.0)
"""Blocks of a neighbourhood: the fewest, those of the first, and the most."""

_STEP = (1e-4, 1e-3, 0.5)
"""Share of the period by which an answer must be shorter: the smallest, the first, and the largest."""

_WORK = 1.0
"""Work of one query, in CP-SAT's deterministic time of about a second."""

_WORK_OF_BLOCK = 1e-4
"""Units of work that it takes to choose a neighbourhood, for each block of the repetend."""

_PATIENCE = 200
"""Neighbourhoods in a row that may bring nothing before the search ends."""


def shorten_period(
    repetend: Repetend, bound: Fraction, effort: Effort, until: float = math.inf, seed: int = 0
) -> Iterator[Repetend]:
    """Yield repetends of ever shorter periods, of as many micro-batches, until nothing is found any more.

    Args:
        repetend: To begin with.
        bound: Ticks per micro-batch that no repetend beats.
        effort: Told what is done.
        until: Work after which to stop.
        seed: Of the random choices.

    Raises:
        OutOfTimeError: The time limit is over.
        KeyboardInterrupt: There was a Ctrl-C.
    """
    choice = random.Random(seed)
    least = math.ceil(bound * repetend.micro_batches)
    size, step, in_vain = _BLOCKS[1], _STEP[1], 0
    while repetend.period > least and in_vain < _PATIENCE and effort.spent < until:
        effort.require_s()
        effort.spend(len(repetend.placement.blocks) * repetend.micro_batches * _WORK_OF_BLOCK)
        in_vain += 1
        period = max(least, repetend.period - max(1, int(repetend.period * step)))
        segments = Segments(repetend)
        if not segments.grow_until_free(period, int(2 * size), choice):
            size = min(_BLOCKS[2], size * 1.005)
            step = max(_STEP[0], step / 1.02)
            continue
        segments.grow(int(size), choice)
        found = order_anew(segments, period, effort.budget(_WORK, choice.randrange(1 << 30)))
        if found is None:
            size, step = min(_BLOCKS[2], size * 1.01), max(_STEP[0], step / 1.1)
            continue
        repetend, in_vain, step = found, 0, min(_STEP[2], step * 1.5)
        yield repetend
