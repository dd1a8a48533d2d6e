"""Precedences that a device's memory forces on its blocks, if each runs the micro-batches in order.

Knows no solver and no times.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from placements import Placement
from schedsearch.proof.memory_need import DeviceMemory


class Precedence(NamedTuple):
    """Micro-batch ``k`` of a block waits for micro-batch ``waits_for(k)`` of one that releases memory.

    Attributes:
        releasing: Name of the block that it waits for.
        room: Most that the earlier micro-batches may have in use when the block starts.
        without: Least memory of an earlier micro-batch whose `releasing` block has not started.
        released: Least decrease of this memory once `releasing` has started.
    """

    releasing: str
    room: int
    without: int
    released: int

    def waits_for(self, micro_batch: int) -> int:
        """Return the micro-batch of `releasing` that this one of the block waits for; below 0 for none."""
        return -((self.room - self.without * micro_batch) // self.released) - 1


def checked_rooms(placement: Placement, device: int) -> dict[str, int]:
    """Map each block that allocates or needs memory on a device to the most memory in use at its start.

    Returns:
        Most units in use once the block has started, without its transient memory.
    """
    if placement.free_memory is None:
        return {}
    free, here = placement.free_memory[device], placement.on(device)
    return {b.name: free - b.transient for b in here if b.memory_on(device) > 0 or b.transient > 0}


@functools.lru_cache(maxsize=512)
def precedences(placement: Placement, device: int, name: str, room: int) -> list[Precedence]:
    """Return the blocks that must have released memory before a block starts, in any order of the others.

    Proof. Each block runs the micro-batches in order, so when micro-batch ``k`` of the block starts, 0 to
    ``k`` have started it and ``k`` itself has run nothing that is after it: ``k`` uses at least the `least`.
    Each of the ``k`` earlier ones uses at least `without`, or `released` less once its releasing block has
    started; later ones use no less than 0. The sum must fit in the room. The releasing blocks that have
    started by then belong to the first micro-batches, and on the same device they have ended.
    """
    later = set(placement.successors[name])
    memory = DeviceMemory(placement, device, {name, *later})
    least = memory.min_in_use({name}, later)
    earlier, missing = set[str](), [name]
    while missing:
        new = set(placement.by_name[missing.pop()].after) - earlier
        earlier |= new
        missing += new
    conditions = []
    for block in placement.on(device):
        if block.memory_on(device) < 0 and block.name != name and block.name not in earlier:
            without = memory.min_in_use({name}, {block.name})
            released = without - memory.min_in_use({name, block.name}, set())
            if released > 0:
                conditions.append(Precedence(block.name, room - least, without, released))
    return conditions


def precedence_is_enough(placement: Placement, device: int, name: str) -> bool:
    """Return whether a block's precedences alone ensure that memory suffices at its start.

    This holds with one block that allocates and one that releases: the memory in use is the difference of
    their counts times the amount.
    """
    with_memory = [block for block in placement.on(device) if block.memory_on(device)]
    return len(with_memory) == 2 and placement.by_name[name].memory_on(device) > 0


def is_shared_in_turns(placement: Placement, device: int) -> bool:
    """Return whether precedences are enough for all of a device's memory."""
    rooms = checked_rooms(placement, device)
    return bool(rooms) and all(precedence_is_enough(placement, device, name) for name in rooms)
