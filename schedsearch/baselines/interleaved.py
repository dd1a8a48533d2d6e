"""The schedules of a loop of stages over the devices: interleaved 1F1B and breadth-first."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from placements import Placement
from schedsearch.baselines.structure import (
    LOOP,
    BaselineStage,
    TooFewMicroBatchesError,
    UnsuitablePlacementError,
    in_orders,
    stages_in,
)
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, memory_needed

_AHEAD = (Fraction(2), Fraction(3, 2), Fraction(5, 4), Fraction(1))
"""Forward blocks ahead for each device that follows, as they are tried; the usual is 2."""


def _loop(placement: Placement, schedule: str) -> tuple[list[BaselineStage], int]:
    """Return the stages of a loop, and on how many devices they stand."""
    stages = stages_in(placement, schedule, LOOP)
    return stages, len({stage.devices for stage in stages})


def interleaved_one_f_one_b(
    placement: Placement, num_micro_batches: int, group: int | None = None
) -> Schedule:
    """Return interleaved 1F1B, for v chunks on each of p devices (dissertation, Sec. 4.2.2, Fig. 4.4).

    A device takes g micro-batches through its first chunk, then the same ones through its second, and so on,
    then the next group; backward likewise from its last chunk. Device d first runs 2(p - d - 1) + (v - 1)g
    forward blocks, then one forward and one backward in turn, then the remaining backward blocks.

    Args:
        placement: A loop.
        num_micro_batches: p or more; with a group of one's own, a multiple of it, or p or more above one.
        group: g, from p on (Megatron-LM's micro-batch group size); with more, a chunk's output is needed
            later, and a device holds more. By default p; where that does not divide the micro-batches, there
            are as many groups of p or more as can be, and they differ by one micro-batch at most.

    Raises:
        UnsuitablePlacementError: The placement is not a loop, the group is smaller than p, or the number of
            micro-batches does not go with it.
    """
    _, num_devices = _loop(placement, "interleaved 1F1B")
    if group is None:
        if num_micro_batches < num_devices:
            raise TooFewMicroBatchesError("interleaved 1F1B", num_devices, num_micro_batches)
        sizes = _even(num_micro_batches, num_devices)
    elif group < num_devices:
        raise UnsuitablePlacementError(
            f"schedule: interleaved 1F1B needs groups of at least {num_devices} micro-batches, not {group}",
            "raise group",
        )
    else:
        sizes = _in_groups(num_micro_batches, group)
    if min(sizes, default=num_devices) < num_devices:
        raise UnsuitablePlacementError(
            f"schedule: interleaved 1F1B in groups of {group} leaves a last one of {sizes[-1]} of "
            f"{num_micro_batches} micro-batches, fewer than the {num_devices} devices",
            "change either",
        )
    return in_orders(placement, num_micro_batches, dict(_orders(placement, sizes, Fraction(2))))


def interleavings(placement: Placement, num_micro_batches: int) -> Iterator[Schedule]:
    """Yield interleaved 1F1B made to fit the placement's memory, for any number of micro-batches.

    Larger groups hide transfers. With groups of fewer than p micro-batches, a chunk's next group comes
    sooner, and with fewer forward blocks ahead of the first backward a device holds less. For each of some
    numbers ahead the groups closest to p that fit are taken.

    Raises:
        UnsuitablePlacementError: The placement is not a loop.
    """
    _, num_devices = _loop(placement, "interleaved 1F1B")
    usual = _even(num_micro_batches, num_devices)
    smaller = [_in_groups(num_micro_batches, group) for group in range(num_devices - 1, num_devices // 3, -1)]
    choices = [(ahead, [usual, *smaller]) for ahead in _AHEAD]
    if placement.transfer:
        larger = [3 * num_devices // 2, *(num_devices << i for i in range(1, num_micro_batches.bit_length()))]
        choices += [
            (_AHEAD[0], [_even(num_micro_batches, size)]) for size in larger if size <= num_micro_batches
        ]
    for ahead, groups in choices:
        for sizes in groups:
            orders = dict(
                itertools.takewhile(lambda each: _fits(placement, *each), _orders(placement, sizes, ahead))
            )
            if len(orders) == num_devices:
                with contextlib.suppress(CyclicOrderError):
                    yield in_orders(placement, num_micro_batches, orders)
                break


def _even(num_micro_batches: int, at_least: int) -> list[int]:
    """Return the sizes of as many groups of so many or more as can be, or of one; larger ones come first."""
    number = max(num_micro_batches // at_least, 1)
    size, more = divmod(num_micro_batches, number)
    return [size + 1] * more + [size] * (number - more)


def _in_groups(num_micro_batches: int, group: int) -> list[int]:
    """Return the sizes of groups of so many, of which the last may be smaller."""
    return [min(group, num_micro_batches - first) for first in range(0, num_micro_batches, group)]


def _orders(
    placement: Placement, sizes: Sequence[int], ahead: Fraction
) -> Iterator[tuple[int, list[Instance]]]:
    """Yield each device that has stages, and its order.

    Args:
        placement: A loop.
        sizes: Micro-batches of each group, which a device takes through a chunk before the next chunk; the
            largest come first.
        ahead: Forward blocks before the first backward for each device that follows, besides whole groups.
    """
    stages, num_devices = _loop(placement, "interleaved 1F1B")
    groups = [range(end - size, end) for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)]
    for device in range(num_devices):
        chunks = stages[device::num_devices]
        forward = [(chunk.forward, n) for numbers in groups for chunk in chunks for n in numbers]
        backward = [(chunk.backward, n) for numbers in groups for chunk in chunks[::-1] for n in numbers]
        warmup = min(round(ahead * (num_devices - device - 1)) + (len(chunks) - 1) * sizes[0], len(forward))
        order = forward[:warmup]
        for i, block in enumerate(backward):
            order += [*forward[warmup + i : warmup + i + 1], block]
        yield chunks[0].device, order


def _fits(placement: Placement, device: int, order: Iterable[Instance]) -> bool:
    """Return whether what a device holds in an order fits in its memory."""
    if placement.free_memory is None:
        return True
    return all(units <= placement.free_memory[device] for units in memory_needed(placement, device, order))


def breadth_first(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return the breadth-first order: all micro-batches through a chunk, then through the next.

    Lamy-Poirier's, made for sharded data parallelism, which then gathers each chunk's weights once. The
    backward runs from the last chunk to the first, each for every micro-batch. As short as interleaved
    1F1B, with the memory of GPipe, for any number of micro-batches.

    Raises:
        UnsuitablePlacementError: The placement is not a loop.
    """
    stages, num_devices = _loop(placement, "breadth-first")
    orders: dict[int, list[Instance]] = {}
    for device in range(num_devices):
        chunks = stages[device::num_devices]
        names = [chunk.forward for chunk in chunks] + [chunk.backward for chunk in chunks[::-1]]
        orders[chunks[0].device] = [(name, n) for name in names for n in range(num_micro_batches)]
    return in_orders(placement, num_micro_batches, orders)
