"""The schedules of a loop of stages over the devices: interleaved 1F1B and breadth-first."""

from __future__ import annotations

from placements import Placement
from schedsearch.baselines.structure import UnsuitablePlacementError, loop_stages
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible


def interleaved_one_f_one_b(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return interleaved 1F1B, for v chunks on each of p devices (dissertation, Sec. 4.2.2, Fig. 4.4).

    A device takes p micro-batches through its first chunk, then the same ones through its second, and so
    on, then the next p; backward likewise from its last chunk. Device d first runs 2(p - d - 1) + (v - 1)p
    forward blocks, then one forward and one backward in turn, then the remaining backward blocks.

    Raises:
        UnsuitablePlacementError: The placement is not a loop, or the micro-batches are no multiple of p.
    """
    stages, num_devices = loop_stages(placement, "interleaved 1F1B")
    if num_micro_batches % num_devices:
        raise UnsuitablePlacementError(
            f"schedule: interleaved 1F1B needs a multiple of {num_devices} micro-batches, not "
            f"{num_micro_batches}; change search.num_micro_batches or use schedule=breadth_first"
        )
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for device in range(num_devices):
        chunks = stages[device::num_devices]
        rounds = range(0, num_micro_batches, num_devices)
        forward = [(c.forward, n + i) for n in rounds for c in chunks for i in range(num_devices)]
        backward = [(c.backward, n + i) for n in rounds for c in chunks[::-1] for i in range(num_devices)]
        warmup = min(2 * (num_devices - device - 1) + (len(chunks) - 1) * num_devices, len(forward))
        order = forward[:warmup]
        for i, block in enumerate(backward):
            order += [*forward[warmup + i : warmup + i + 1], block]
        orders[chunks[0].device] = order
    return as_soon_as_possible(placement, num_micro_batches, orders)


def breadth_first(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return the breadth-first order: all micro-batches through a chunk, then through the next.

    Lamy-Poirier's, made for sharded data parallelism, which then gathers each chunk's weights once. The
    backward runs from the last chunk to the first, each for every micro-batch. As short as interleaved
    1F1B, with the memory of GPipe, for any number of micro-batches.

    Raises:
        UnsuitablePlacementError: The placement is not a loop.
    """
    stages, num_devices = loop_stages(placement, "breadth-first")
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for device in range(num_devices):
        chunks = stages[device::num_devices]
        names = [chunk.forward for chunk in chunks] + [chunk.backward for chunk in chunks[::-1]]
        orders[chunks[0].device] = [(name, n) for name in names for n in range(num_micro_batches)]
    return as_soon_as_possible(placement, num_micro_batches, orders)
