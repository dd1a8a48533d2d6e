"""The orders of a schedule's devices as short text.

All micro-batches are alike, so the n-th run of a block can be said to be that of micro-batch n: every start
stays, what a block waits for is still before it, and memory does not know micro-batches. A device's order is
then a letter for each run, that of the block among those of the device.
"""

from __future__ import annotations

import string
from collections import Counter
from dataclasses import replace

from placements import Placement
from schedsearch.schedule import Instance, Schedule, ScheduledBlock, as_soon_as_possible
from schedsearch.validate import validate

LETTERS = string.ascii_letters
"""Of a device's blocks, in the order in which the placement has them."""


def in_turn(schedule: Schedule) -> Schedule:
    """Return the schedule with the same starts in which every block runs its micro-batches in turn."""
    runs = Counter[str]()
    blocks = []
    for start, _, name in schedule.blocks:
        blocks.append(ScheduledBlock(start, runs[name], name))
        runs[name] += 1
    return replace(schedule, blocks=tuple(blocks))


def orders_to_text(schedule: Schedule) -> list[str]:
    """Return each device's order of a schedule without optimizer blocks."""
    placement, turns = schedule.placement, in_turn(schedule)
    texts = []
    for device in range(placement.num_devices):
        letters = _letters(placement, device)
        texts.append("".join(letters[name] for name, _ in turns.order(device)))
    return texts


def schedule_from_text(placement: Placement, num_micro_batches: int, texts: list[str]) -> Schedule:
    """Return the schedule of such orders, every block as soon as it can; validated.

    Raises:
        CyclicOrderError: The orders and the dependencies make a cycle.
        InvalidScheduleError: A rule is broken.
    """
    orders = []
    for device, text in enumerate(texts):
        names = {letter: name for name, letter in _letters(placement, device).items()}
        runs = Counter[str]()
        order: list[Instance] = []
        for letter in text:
            order.append((names[letter], runs[letter]))
            runs[letter] += 1
        orders.append(order)
    return validate(as_soon_as_possible(placement, num_micro_batches, orders))


def _letters(placement: Placement, device: int) -> dict[str, str]:
    names = [block.name for block in placement.blocks if device in block.devices]
    return dict(zip(names, LETTERS, strict=False))
