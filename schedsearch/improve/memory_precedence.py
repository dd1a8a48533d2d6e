"""What the memory of a device says about the order of its blocks, when each runs micro-batches in order.

Knows no solver and no times. All that a search for whole schedules knows of memory is here.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from placements import Block, Placement
from schedsearch import bounds


@dataclass(frozen=True)
class Check:
    """A block at whose start a device's memory must be checked.

    Attributes:
        device: Whose memory.
        block: Name of the block.
        memory: What it takes there.
        room: Most that the device may hold once the block has started.
    """

    device: int
    block: str
    memory: int
    room: int


@dataclass(frozen=True)
class Precedence:
    """Micro-batch ``k`` of a block waits for micro-batch ``needed(k) - 1`` of one that gives back.

    Attributes:
        block: Name of the block that waits.
        giver: Name of the block that it waits for.
        least: Least memory of micro-batch ``k`` itself when its block starts.
        without: Least memory of an earlier micro-batch whose giver has not started.
        returned: How much less it is, at least, when the giver has.
        room: See `Check`.
    """

    block: str
    giver: str
    least: int
    without: int
    returned: int
    room: int

    def needed(self, micro_batch: int) -> int:
        """Return how many micro-batches of the giver must have run before this one of the block starts."""
        return max(0, -((self.room - self.least - self.without * micro_batch) // self.returned))


@functools.lru_cache(maxsize=8)
def checks(placement: Placement) -> tuple[tuple[Check, tuple[Precedence, ...]], ...]:
    """Return where memory must be checked, where a block takes or needs some, and what it waits for."""
    found = [
        Check(device, block.name, block.memory_on(device), capacity - block.transient)
        for device, capacity in enumerate(placement.free_memory or ())
        for block in placement.on(device)
        if block.memory_on(device) > 0 or block.transient > 0
    ]
    return tuple((check, tuple(_precedences(placement, check))) for check in found)


def holders(placement: Placement, device: int) -> list[Block]:
    """Return the blocks that change a device's memory."""
    return [block for block in placement.on(device) if block.memory_on(device) != 0]


def _precedences(placement: Placement, check: Check) -> list[Precedence]:
    """Return what must have given back before a block starts, whatever the order of the others.

    Proof. Each block runs the micro-batches in order, so when micro-batch ``k`` of the block starts, 0 to
    ``k`` have started it and ``k`` itself has run nothing that is after it: ``k`` holds at least `least`.
    Each of the ``k`` earlier ones holds at least `without`, or `returned` less once its giver has started;
    later ones hold nothing below 0. All that must fit in `room`. The givers that have started by then
    are the first so many, and on the same device they have ended.
    """
    device, name = check.device, check.block
    least = bounds.least_held(placement, device, {name}, set(placement.successors[name]))
    found = []
    earlier = _earlier(placement, name)
    for block in holders(placement, device):
        gives = block.memory_on(device) < 0
        if gives and block.name != name and block.name not in earlier:
            without = bounds.least_held(placement, device, {name}, {block.name})
            returned = without - bounds.least_held(placement, device, {name, block.name}, set())
            if returned > 0:
                found.append(Precedence(name, block.name, least, without, returned, check.room))
    return found


def precedence_is_enough(placement: Placement, check: Check) -> bool:
    """Return whether a block that keeps its precedences needs no other check.

    So it is with one block that takes and one that gives it back: what is held is the difference of their
    counts.
    """
    return check.memory > 0 and len(holders(placement, check.device)) == 2


def _earlier(placement: Placement, name: str) -> set[str]:
    """Return the names of the blocks that a block is after, directly or not."""
    found: set[str] = set()
    missing = [name]
    while missing:
        new = set(placement.by_name[missing.pop()].after) - found
        found |= new
        missing += new
    return found
