"""A schedule's orders, and the times of many draws of many scenarios, as arrays for compiled annealing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.robust.scenarios import Scenario, weights_of
from schedsearch.schedule import Instance, Schedule
from schedsearch.simulation.drawn_times import drawn_times
from schedsearch.simulation.messages import steps_of


class DrawnOrders(NamedTuple):
    """Nodes are the blocks of all micro-batches; places are those in the orders of all devices in a row.

    A block on several devices has a place on each.

    Attributes:
        times: Ticks of each node in each draw; shape ``(nodes, draws)``.
        weights: Weight of each draw; they sum to 1.
        sends: For each node the first of its messages, and one entry more; shape ``(nodes + 1,)``.
        receivers: The node that waits for each message.
        delays: Ticks of each message in each draw; shape ``(messages, draws)``.
        order: The node at each place.
        places: For each node the first of its places in `place_of`, and one entry more.
        place_of: The places of each node, one node after another.
        device: The device of each place.
        memory: What the node at each place holds on its device from its start on; changes with `order`.
        transient: Likewise while it runs.
        free: What each device can hold; a negative number for no limit.
        movable: Whether the node is on one device, on which no other stream moves memory.
    """

    times: NDArray[np.float64]
    weights: NDArray[np.float64]
    sends: NDArray[np.int64]
    receivers: NDArray[np.int64]
    delays: NDArray[np.float64]
    order: NDArray[np.int64]
    places: NDArray[np.int64]
    place_of: NDArray[np.int64]
    device: NDArray[np.int64]
    memory: NDArray[np.int64]
    transient: NDArray[np.int64]
    free: NDArray[np.int64]
    movable: NDArray[np.bool_]


def orders_of(drawn: DrawnOrders, schedule: Schedule) -> list[list[Instance]]:
    """Return the orders of all devices as they are now in the arrays of a schedule."""
    instances = [(name, micro_batch) for _, micro_batch, name in schedule.blocks]
    found: list[list[Instance]] = [[] for _ in drawn.free]
    for device, node in zip(drawn.device, drawn.order, strict=True):
        found[device].append(instances[node])
    return found


def drawn_orders(schedule: Schedule, scenarios: Sequence[Scenario], draws: int, seed: int) -> DrawnOrders:
    """Return a schedule's orders with the times of so many draws of each scenario.

    A scenario in which nothing varies has one draw, which has its whole weight.

    Nodes are in the order of the schedule's blocks.

    Args:
        schedule: Valid, of a placement without streams.
        scenarios: At least one; they fit the placement.
        draws: Of each scenario.
        seed: Seed of all draws; equal for every schedule of a placement.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    columns, weights, delays = [], [], []
    for scenario, weight in zip(scenarios, weights_of(scenarios), strict=True):
        conditions = scenario.conditions
        count = draws if conditions.jitter or conditions.measured_ms else 1
        drawn = drawn_times(placement, number, conditions, count, seed)
        steps = steps_of(schedule, conditions).steps
        columns.append(np.array([drawn[step.instance] for step in steps]))
        sent = np.array([each.occupied + each.latency for step in steps for each in step.messages])
        delays.append(np.repeat(sent[:, None], count, axis=1))
        weights += [weight / count] * count
    instances = tuple(step.instance for step in steps)
    node = {instance: i for i, instance in enumerate(instances)}
    sends = np.cumsum([0, *(len(step.messages) for step in steps)])
    receivers = np.array([each.target for step in steps for each in step.messages], dtype=np.int64)
    order = [
        (node[each], device) for device in range(placement.num_devices) for each in schedule.order(device)
    ]
    place_of: list[list[int]] = [[] for _ in instances]
    for place, (own, _) in enumerate(order):
        place_of[own].append(place)
    blocks = [schedule.block(*instance) for instance in instances]
    return DrawnOrders(
        np.ascontiguousarray(np.concatenate(columns, axis=1)),
        np.array(weights),
        sends.astype(np.int64),
        receivers,
        np.ascontiguousarray(np.concatenate(delays, axis=1)).reshape(len(receivers), -1),
        np.array([own for own, _ in order], dtype=np.int64),
        np.cumsum([0, *map(len, place_of)]).astype(np.int64),
        np.array(list(itertools.chain.from_iterable(place_of)), dtype=np.int64),
        np.array([device for _, device in order], dtype=np.int64),
        np.array([blocks[own].memory_on(device) for own, device in order], dtype=np.int64),
        np.array([blocks[own].transient for own, _ in order], dtype=np.int64),
        np.array(placement.free_memory or (-1,) * placement.num_devices, dtype=np.int64),
        np.array([len(block.devices) == 1 for block in blocks], dtype=np.bool_),
    )
