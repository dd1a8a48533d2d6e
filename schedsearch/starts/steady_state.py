"""The steady state of a schedule: the repetend that its middle repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements import Placement
from schedsearch.repetend import Cycle, Repetend
from schedsearch.schedule import Instance, Schedule, memory_needed
from schedsearch.starts.serial import serial_period


def steady_state(schedule: Schedule, max_micro_batches: int) -> Repetend | None:
    """Return the repetend that the middle of a schedule repeats, with the least period of its order.

    Only orders count: on every device, what runs between one micro-batch of a block and the one so many
    later must run again right after it, so many micro-batches on.

    Args:
        schedule: Schedule of a placement without optimizer blocks, with each block's micro-batches in order.
        max_micro_batches: Per repetend; the fewest that repeat are taken.

    Returns:
        The repetend; None where there is none, or where it holds more than a device's capacity.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    orders = [schedule.order(device) for device in range(placement.num_devices)]
    num_blocks = [len(placement.on(device)) for device in range(placement.num_devices)]
    position = [{instance: i for i, instance in enumerate(order)} for order in orders]
    for several in range(1, min(max_micro_batches, number // 2) + 1):
        first = (number - several) // 2
        cycles = [
            _cycle(order, where, first, several, blocks)
            for order, where, blocks in zip(orders, position, num_blocks, strict=True)
        ]
        repeating = [cycle for cycle in cycles if cycle is not None]
        if len(repeating) == len(cycles):
            if not all(_has_room(placement, device, order, first) for device, order in enumerate(orders)):
                return None
            longest = several * serial_period(placement)
            repetend = Repetend.of_min_period(placement, several, repeating, 1, longest)
            if repetend is not None and fits(repetend):
                return repetend
    return None


def _has_room(placement: Placement, device: int, order: Sequence[Instance], micro_batch: int) -> bool:
    """Return whether a device has the memory for its blocks of a micro-batch, in the middle of its order."""
    if placement.free_memory is None:
        return True
    needed = zip(order, memory_needed(placement, device, order), strict=True)
    return all(units <= placement.free_memory[device] for (_, n), units in needed if n == micro_batch)


def fits(repetend: Repetend) -> bool:
    """Return whether no device holds more than its capacity."""
    memory = repetend.placement.memory
    return memory is None or all(
        held <= most for held, most in zip(repetend.peak_memory, memory, strict=True)
    )


def _cycle(
    order: tuple[Instance, ...], position: Mapping[Instance, int], first: int, several: int, blocks: int
) -> Cycle | None:
    """Return a device's cycle from a micro-batch on, after which its order repeats; None if it does not."""
    if not order:
        return []
    anchor = order[0][0]
    begin, end = position[anchor, first], position.get((anchor, first + several), len(order))
    cycle = order[begin:end]
    again = order[end : end + len(cycle)]
    if len(cycle) != several * blocks or [(name, n + several) for name, n in cycle] != list(again):
        return None
    rounds = [(n - first) // several for _, n in cycle]
    return [((name, (n - first) % several), round_) for (name, n), round_ in zip(cycle, rounds, strict=True)]
