"""Candidates for a repetend: the micro-batch of each of its blocks (Tessel, Sec. IV-B and IV-C).

Knows no solver: it enumerates candidates, and counts the memory held before a repetend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from placements import Block, Placement

Indices = Mapping[str, int]
"""The micro-batch of each block of a repetend: n_i of block B_i (Tessel, Eq. 3)."""


def max_in_flight(placement: Placement, num_micro_batches: int) -> int:
    """Return the greatest number of micro-batches in a repetend that is worth a try (Tessel, Alg. 1, line 6).

    The paper says "from the memory" and not how; its authors' code divides the capacity by what one
    micro-batch takes on the device where it takes most, rounded up, and so do we. Where capacities differ,
    which the paper does not know, the largest counts. Neither more micro-batches than there are nor, as each
    has a block in the repetend, more than blocks are of use. It is no bound: with memory 3 the K-shape has
    no bubble with three micro-batches, and this gives two.
    """
    most = min(num_micro_batches, len(placement.blocks))
    if placement.free_memory is None:
        return most
    taken = max(
        sum(max(block.memory_on(device), 0) for block in placement.on(device))
        for device in range(placement.num_devices)
    )
    return min(most, max(1, math.ceil(max(placement.free_memory) / taken))) if taken else most


def assignments(placement: Placement, in_flight: int) -> Iterator[dict[str, int]]:
    """Yield the assignments of micro-batch indices below `in_flight` to the blocks of a repetend.

    A block's micro-batch started no later than the micro-batch of any of its inputs: its index is at
    most the least of theirs, in any DAG as in a chain (Tessel, Property IV.2). Small indices come first, in
    topological order of the blocks. The same repetend with all indices shifted is not yielded twice, and each
    index has a block, as in the authors' code; Eq. 3 does not say so, and without it the candidates are
    several times as many.

    Args:
        placement: What runs where.
        in_flight: Indices are below it (Tessel's N_R).
    """
    order, chosen = placement.topological_order, dict[str, int]()

    def extend() -> Iterator[dict[str, int]]:
        if len(chosen) == len(order):
            yield dict(chosen)
            return
        block = order[len(chosen)]
        for index in range(_greatest(block, chosen, in_flight) + 1):
            chosen[block.name] = index
            if _can_use_all(chosen, order, in_flight):
                yield from extend()
            del chosen[block.name]

    return extend()


def _greatest(block: Block, indices: Indices, in_flight: int) -> int:
    return min((indices[name] for name in block.after), default=in_flight - 1)


def _can_use_all(chosen: Indices, order: tuple[Block, ...], in_flight: int) -> bool:
    """Return whether the blocks without an index can still take all missing ones, each up to its greatest."""
    missing = sorted({*range(in_flight)} - {*chosen.values()}, reverse=True)
    greatest, left = dict(chosen), order[len(chosen) :]
    for block in left:
        greatest[block.name] = _greatest(block, greatest, in_flight)
    most = sorted((greatest[block.name] for block in left), reverse=True)
    return len(missing) <= len(most) and all(i <= top for i, top in zip(missing, most, strict=False))


def memory_at_entry(placement: Placement, indices: Indices) -> list[int]:
    """Return the memory that each device holds before a repetend, which is the same after it.

    A block with index n has run for n micro-batches (Tessel, Sec. IV-B, "Efficient repetend search"); and
    a repetend releases what it allocates.
    """
    return [
        sum(block.memory_on(device) * indices[block.name] for block in placement.on(device))
        for device in range(placement.num_devices)
    ]
