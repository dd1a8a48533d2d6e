"""The schedules of two pipelines in opposite directions, each with whole backwards: Chimera and GEMS.

A micro-batch of an X-shape is one micro-batch of each direction, so that the papers' N micro-batches are
N / 2 here. D, the papers' symbol, is the number of devices.
"""

from __future__ import annotations

from collections.abc import Callable

from placements import Placement
from schedsearch.baselines.structure import x_shape_pipelines
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible

_Slot = Callable[[int, int], int]
"""From a stage's position in its pipeline and a micro-batch, to the slot in which a block runs."""


def chimera(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return Chimera with direct concatenation, in units of D micro-batches (Chimera; Tessel, Sec. VI-A).

    A unit has D / 2 micro-batches of each direction. Micro-batch j of it is forward at stage s in slot
    2j + s, and backward in slot D + 2j + D - 1 - s; the next unit begins 2D slots later. No two blocks of
    a device share a slot, and only their order is kept. An incomplete last unit lacks its last micro-batches.

    Raises:
        UnsuitablePlacementError: The placement is not an X-shape of an even number of devices.
    """
    down, _ = x_shape_pipelines(placement, "Chimera")
    depth = len(down)
    return _by_slot(
        placement,
        num_micro_batches,
        "Chimera",
        forward=lambda s, n: _first_slot(n, depth // 2, 2 * depth) + s,
        backward=lambda s, n: _first_slot(n, depth // 2, 2 * depth) + 2 * depth - 1 - s,
    )


def chimera_doubling(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return Chimera with forward doubling: no bubble in the steady state, twice the activations.

    A slot is as long as two forward blocks or one backward. A unit has D micro-batches of each direction:
    micro-batches 2q and 2q + 1 are forward at stage s in slot 2q + s, micro-batch j is backward in slot
    D + 2j + D - 1 - s, and the next unit begins 3D slots later.

    Raises:
        UnsuitablePlacementError: The placement is not an X-shape of an even number of devices.
    """
    down, _ = x_shape_pipelines(placement, "Chimera with forward doubling")
    depth = len(down)
    return _by_slot(
        placement,
        num_micro_batches,
        "Chimera with forward doubling",
        forward=lambda s, n: _first_slot(n // 2, depth // 2, 3 * depth) + s,
        backward=lambda s, n: _first_slot(n, depth, 3 * depth) + 2 * depth - 1 - s,
    )


def gems(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return GEMS: one micro-batch of each direction at a time, for the least memory.

    Every device runs forward and backward of one direction, then of the other; so it holds one activation.

    Raises:
        UnsuitablePlacementError: The placement is not an X-shape of an even number of devices.
    """
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    both = x_shape_pipelines(placement, "GEMS")
    for n in range(num_micro_batches):
        for stage in (stage for pipeline in both for stage in pipeline):
            orders[stage.device] += [(stage.forward, n), (stage.backward, n)]
    return as_soon_as_possible(placement, num_micro_batches, orders)


def _first_slot(index: int, unit: int, unit_slots: int) -> int:
    """Return where a unit of so many slots begins, and two slots later for each index in it."""
    return index // unit * unit_slots + 2 * (index % unit)


def _by_slot(
    placement: Placement, num_micro_batches: int, schedule: str, forward: _Slot, backward: _Slot
) -> Schedule:
    """Return the schedule in which every device runs its blocks in the order of their slots."""
    slots: list[list[tuple[int, int, str]]] = [[] for _ in range(placement.num_devices)]
    for pipeline in x_shape_pipelines(placement, schedule):
        for position, stage in enumerate(pipeline):
            for n in range(num_micro_batches):
                slots[stage.device].append((forward(position, n), n, stage.forward))
                slots[stage.device].append((backward(position, n), n, stage.backward))
    orders = [[(name, n) for _, n, name in sorted(on_device)] for on_device in slots]
    return as_soon_as_possible(placement, num_micro_batches, orders)
