"""Lower bounds on the period and the span, for any number of micro-batches per repetend.

Knows nothing of the search.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from placements import Placement
from schedsearch.proof.conflicts import conflicts
from schedsearch.proof.memory_occupancy import memory_occupancy_bound
from schedsearch.proof.mode_choice import mode_choice
from schedsearch.proof.timeline import Timeline


def load_bound(placement: Placement) -> int:
    """Return the busiest device's work per micro-batch in ticks.

    Proof: a device runs one block at a time, and every micro-batch brings it the same work.
    """
    relaxed = placement.relaxed
    return max(relaxed.load(device) for device in range(relaxed.num_devices))


def period_bound(placement: Placement) -> Fraction:
    """Return the greatest of the bounds by load, conflicts and memory occupancy, in ticks per micro-batch."""
    relaxed = placement.relaxed
    proof = conflicts(relaxed)
    shared = Fraction(0) if proof is None else proof.bound(relaxed)
    mixed = mode_choice(placement.per_micro_batch)
    modes = Fraction(0) if mixed is None else mixed.bound(placement.per_micro_batch)
    beside = side_by_side_bound(placement)
    return max(Fraction(load_bound(placement)), shared, modes, beside, memory_occupancy_bound(relaxed))


def side_by_side_bound(placement: Placement) -> Fraction:
    """Return a bound by streams that slow each other down, in ticks per micro-batch; 0 where none do.

    Proof. Let two streams of a device have C and M ticks of work for a micro-batch, and take f and g times
    as long side by side, which they are for x ticks of a period T per micro-batch. So the first runs for
    ``C + (1 - 1/f) x`` ticks, the second for ``M + (1 - 1/g) x``, and both sums less x fit into T. Of the
    two limits that hold T from below, ``C + (1 - 1/f) x`` and ``C + M - (1/f + 1/g - 1) x``, the first grows
    with x and the second falls; where they meet, at ``x = g M``, T is at least ``C + (1 - 1/f) g M``. Where
    ``1/f + 1/g`` is below 1 side by side never pays, and T is at least ``C + M``.
    """
    best, bound = replace(placement.at_best, slowdown=()), Fraction(0)
    work = {lane: best.load(number) for number, lane in enumerate(best.lanes)}
    for each in placement.slowdown:
        for one, other in (each.streams, each.streams[::-1]):
            f, g = placement.slowdown_of(one, other), placement.slowdown_of(other, one)
            share = min(Fraction(1), (1 - 1 / f) * g)
            for device in range(placement.num_devices):
                beside = Fraction(work.get((device, other), 0))
                bound = max(bound, work.get((device, one), 0) + share * beside)
    return bound


def min_period(placement: Placement, micro_batches: int) -> int:
    """Return a lower bound on the whole ticks of the period of a repetend of so many micro-batches.

    Proof: a period is a whole number of ticks, and a block that took longer would run into itself in the next
    round.
    """
    bound = math.ceil(period_bound(placement) * micro_batches)
    return max(bound, max(block.time for block in placement.per_micro_batch.relaxed.blocks))


def critical_path(placement: Placement) -> int:
    """Return the ticks that one micro-batch needs on idle devices: no span is shorter.

    Proof: along a path of blocks that wait for each other, each starts after the one before it has ended and
    its output has been transferred.
    """
    whole = Timeline(placement.per_micro_batch.at_best, frozenset())
    return max(start + whole.length[name] for name, start in whole.heads.items())
