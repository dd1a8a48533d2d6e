"""Lower bounds on the period and the span, for any number of micro-batches per repetend.

Knows nothing of the search.
"""

from __future__ import annotations

import math
from fractions import Fraction

from placements import Placement
from schedsearch.bounds.conflicts import conflicts
from schedsearch.bounds.memory_occupancy import memory_occupancy_bound
from schedsearch.bounds.mode_choice import mode_choice
from schedsearch.bounds.timeline import Timeline


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
    return max(Fraction(load_bound(placement)), shared, modes, memory_occupancy_bound(relaxed))


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
