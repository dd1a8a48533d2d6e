"""The schedules of chains: GPipe, and 1F1B for a V-shape."""

from __future__ import annotations

from placements import Kind, Placement
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible


class UnsuitablePlacementError(ValueError):
    """The hand-made schedule is not defined for this placement."""


def gpipe(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return GPipe: all forward blocks of every micro-batch, then all the others.

    Defined for any placement: within each half a device takes its blocks in topological order, each for
    every micro-batch before the next block.
    """
    orders = []
    for device in range(placement.num_devices):
        blocks = placement.on(device)
        forward = [block.name for block in blocks if block.kind is Kind.F]
        other = [block.name for block in blocks if block.kind is not Kind.F]
        orders.append(
            [(name, n) for name in forward for n in range(num_micro_batches)]
            + [(name, n) for name in other for n in range(num_micro_batches)]
        )
    return as_soon_as_possible(placement, num_micro_batches, orders)


def one_f_one_b(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B with flush, for one forward and one backward block per device (dissertation, Sec. 2.3).

    A device with k stages from its own to the last runs k - 1 forward blocks first, then one forward and
    one backward in turn, then the remaining backward blocks.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape.
    """
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    stages = _v_shape_stages(placement)
    for position, (device, forward, backward) in enumerate(stages):
        warmup = min(len(stages) - position - 1, num_micro_batches)
        order = [(forward, n) for n in range(warmup)]
        for n in range(num_micro_batches - warmup):
            order += [(forward, warmup + n), (backward, n)]
        order += [(backward, n) for n in range(num_micro_batches - warmup, num_micro_batches)]
        orders[device] = order
    return as_soon_as_possible(placement, num_micro_batches, orders)


def _v_shape_stages(placement: Placement) -> list[tuple[int, str, str]]:
    """Return (device, forward block, backward block) of each stage, first stage first."""
    chain = list(placement.topological_order)
    half = len(chain) // 2
    is_chain = all(
        set(block.after) <= {before.name for before in chain[:i]}
        and (i == 0 or chain[i - 1].name in block.after)
        for i, block in enumerate(chain)
    )
    forward, backward = chain[:half], chain[half:][::-1]
    mirrored = all(
        f.kind is Kind.F and b.kind is Kind.B and f.devices == b.devices and len(f.devices) == 1
        for f, b in zip(forward, backward, strict=False)
    )
    devices = [f.devices[0] for f in forward] if mirrored else []
    if not (is_chain and mirrored and len(chain) == 2 * half and len(set(devices)) == half):
        raise UnsuitablePlacementError(
            "schedule: 1F1B needs a V-shape (a chain of forward and mirrored backward blocks, one of each "
            f"on a device), which {placement.name} is not; use schedule=searched or schedule=gpipe"
        )
    return [(f.devices[0], f.name, b.name) for f, b in zip(forward, backward, strict=True)]
