"""What the memory of a device says about the order of its blocks, when each runs micro-batches in order.

Knows no solver and no times.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from placements import Block, Placement
from schedsearch.proof.memory_need import min_in_use


@dataclass(frozen=True)
class MemoryCheck:
    """A block at whose start a device's memory must be checked.

    Attributes:
        device: Device whose memory it is.
        block: Name of the block.
        memory: What it allocates there; 0 or less where it only needs some while it runs.
        room: Most that may be in use there once the block has started, without what it needs while it runs.
    """

    device: int
    block: str
    memory: int
    room: int


@dataclass(frozen=True)
class Precedence:
    """Micro-batch ``k`` of a block waits for micro-batch ``waits_for(k)`` of one that releases memory.

    Attributes:
        block: Name of the block that waits.
        releasing: Name of the block that it waits for.
        least: Least memory of micro-batch ``k`` itself when its block starts.
        without: Least memory of an earlier micro-batch whose `releasing` block has not started.
        released: How much less it is, at least, once that has.
        room: See `MemoryCheck`.
    """

    block: str
    releasing: str
    least: int
    without: int
    released: int
    room: int

    def waits_for(self, micro_batch: int) -> int:
        """Return which micro-batch of `releasing` this one of the block waits for; below 0 for none."""
        return -((self.room - self.least - self.without * micro_batch) // self.released) - 1


def checks(placement: Placement, device: int) -> list[MemoryCheck]:
    """Return where a device's memory must be checked: where a block allocates or needs some."""
    if placement.free_memory is None:
        return []
    return [
        MemoryCheck(
            device, block.name, block.memory_on(device), placement.free_memory[device] - block.transient
        )
        for block in placement.on(device)
        if block.memory_on(device) > 0 or block.transient > 0
    ]


def blocks_with_memory(placement: Placement, device: int) -> list[Block]:
    """Return the blocks that change a device's memory."""
    return [block for block in placement.on(device) if block.memory_on(device) != 0]


@functools.lru_cache(maxsize=512)
def precedences(placement: Placement, check: MemoryCheck) -> list[Precedence]:
    """Return what must have released memory before a block starts, whatever the order of the others.

    Proof. Each block runs the micro-batches in order, so when micro-batch ``k`` of the block starts, 0 to
    ``k`` have started it and ``k`` itself has run nothing that is after it: ``k`` uses at least `least`.
    Each of the ``k`` earlier ones uses at least `without`, or `released` less once its releasing block has
    started; later ones use no less than 0. All that must fit in `room`. The releasing blocks that have
    started by then are those of the first so many, and on the same device they have ended.
    """
    device, name = check.device, check.block
    least = min_in_use(placement, device, {name}, set(placement.successors[name]))
    found = []
    earlier = _earlier(placement, name)
    for block in blocks_with_memory(placement, device):
        releases = block.memory_on(device) < 0
        if releases and block.name != name and block.name not in earlier:
            without = min_in_use(placement, device, {name}, {block.name})
            released = without - min_in_use(placement, device, {name, block.name}, set())
            if released > 0:
                found.append(Precedence(name, block.name, least, without, released, check.room))
    return found


def precedence_is_enough(placement: Placement, check: MemoryCheck) -> bool:
    """Return whether a block that keeps its precedences needs no other check.

    So it is with one block that allocates and one that releases: in use is the difference of their counts,
    times the amount.
    """
    return check.memory > 0 and len(blocks_with_memory(placement, check.device)) == 2


def is_shared_in_turns(placement: Placement, device: int) -> bool:
    """Return whether precedences are enough for all of a device's memory."""
    found = checks(placement, device)
    return bool(found) and all(precedence_is_enough(placement, check) for check in found)


def _earlier(placement: Placement, name: str) -> set[str]:
    """Return the names of the blocks that a block is after, directly or not."""
    found: set[str] = set()
    missing = [name]
    while missing:
        new = set(placement.by_name[missing.pop()].after) - found
        found |= new
        missing += new
    return found
