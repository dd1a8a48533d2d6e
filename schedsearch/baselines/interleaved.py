"""Interleaved 1F1B, on a loop of stages over the devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, takewhile

from placements import Placement
from schedsearch.baselines.structure import (
    LOOP,
    Given,
    Orders,
    UnsuitablePlacementError,
    by_hand,
    in_orders,
    in_turns,
)
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, memory_needed

_TITLE = "interleaved 1F1B"

_AHEAD = (Fraction(2), Fraction(3, 2), Fraction(5, 4), Fraction(1))
"""Forward blocks ahead for each later device, in the order in which they are tried; frameworks use 2."""


@by_hand(_TITLE, LOOP)
def interleaved_one_f_one_b(given: Given, num_micro_batches: int, group: int | None = None) -> Orders:
    """Return interleaved 1F1B, for v chunks on each of p devices (dissertation, Sec. 4.2.2, Fig. 4.4).

    A device takes g micro-batches through its first chunk, then the same ones through its second, and so on,
    then the next group; backward likewise from its last chunk. Device d first runs 2(p - d - 1) + (v - 1)g
    forward blocks, then one forward and one backward in turn, then the remaining backward blocks.

    Args:
        given: A loop.
        num_micro_batches: p or more; with a group of one's own, a multiple of it, or p or more above one.
        group: g, from p on (Megatron-LM's micro-batch group size); with more, a chunk's output is needed
            later, and a device holds more. By default p; where that does not divide the micro-batches, there
            are as many groups of p or more as can be, and they differ by one micro-batch at most.
    """
    num_devices = len(given.by_device)
    if group is None:
        given.check_number(num_devices, num_micro_batches)
        return dict(_orders(given, _even(num_micro_batches, num_devices)))
    sizes = _in_groups(num_micro_batches, group)
    if min(group, *sizes) < num_devices:
        raise UnsuitablePlacementError(
            f"schedule: {_TITLE} in groups of {group} of {num_micro_batches} micro-batches needs at least "
            f"{num_devices} in each, as there are devices, not {min(group, *sizes)}",
            "change group or the micro-batches",
        )
    return dict(_orders(given, sizes))


def interleavings(placement: Placement, num_micro_batches: int) -> Iterator[Schedule]:
    """Yield interleaved 1F1B made to fit the placement's memory, for any number of micro-batches.

    Larger groups hide transfers. With groups of fewer than p micro-batches, a chunk's next group comes
    sooner, and with fewer forward blocks ahead of the first backward a device holds less. For each of some
    numbers ahead the groups closest to p that fit are taken.

    Raises:
        UnsuitablePlacementError: The placement is not a loop.
    """
    given = Given(_TITLE, placement, LOOP.chains(placement, _TITLE))
    num_devices, number = len(given.by_device), num_micro_batches
    smaller = [_in_groups(number, group) for group in range(num_devices - 1, num_devices // 3, -1)]
    choices = [(ahead, [_even(number, num_devices), *smaller]) for ahead in _AHEAD]
    if placement.transfer:
        larger = [3 * num_devices // 2, *(num_devices << i for i in range(1, number.bit_length()))]
        choices += [(_AHEAD[0], [_even(number, size)]) for size in larger if size <= number]
    for ahead, groups in choices:
        for sizes in groups:
            orders = dict(takewhile(lambda item: _fits(placement, *item), _orders(given, sizes, ahead)))
            if len(orders) == num_devices:
                with contextlib.suppress(CyclicOrderError):
                    yield in_orders(placement, number, orders)
                break


def _even(num_micro_batches: int, at_least: int) -> list[int]:
    """Return equal group sizes (up to 1): as many groups as have `at_least` micro-batches each, or one."""
    number = max(num_micro_batches // at_least, 1)
    size, more = divmod(num_micro_batches, number)
    return [size + 1] * more + [size] * (number - more)


def _in_groups(num_micro_batches: int, group: int) -> list[int]:
    """Return the sizes of groups of `group` micro-batches each; the last group may be smaller."""
    return [min(group, num_micro_batches - first) for first in range(0, num_micro_batches, group)]


def _orders(
    given: Given, sizes: Sequence[int], ahead: Fraction = _AHEAD[0]
) -> Iterator[tuple[int, list[Instance]]]:
    """Yield each device and its order, for groups of some sizes, the largest first."""
    groups = [range(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    for place, (device, chunks) in enumerate(given.by_device.items()):
        visits = [(chunk, n) for numbers in groups for chunk in chunks for n in numbers]
        back = [(chunk, n) for numbers in groups for chunk in reversed(chunks) for n in numbers]
        more = round(ahead * (len(given.by_device) - place - 1))
        yield device, in_turns(visits, back, min(more + (len(chunks) - 1) * sizes[0], len(visits)))


def _fits(placement: Placement, device: int, order: Sequence[Instance]) -> bool:
    """Return whether an order of blocks fits in the free memory of its device."""
    if placement.free_memory is None:
        return True
    return all(units <= placement.free_memory[device] for units in memory_needed(placement, device, order))
