"""A schedule's orders, and the times of many draws of many scenarios, as arrays for compiled annealing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.robust.scenarios import Scenario, weights_of
from schedsearch.schedule import Instance, Schedule
from schedsearch.simulation.drawn_times import drawn_times
from schedsearch.simulation.messages import steps_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class DrawnOrders(NamedTuple):
    """Orders and drawn times as arrays: nodes are blocks of micro-batches, places run through all devices.

    A block on several devices has a place on each. `order` and `place_of` change while orders are annealed.

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
        memory: Units that each node holds on each device from its start on; shape ``(nodes, devices)``.
        transient: Units that each node holds on its devices while it runs.
        free: Free memory of each device; a negative number for no limit.
        movable: Whether the node is on one device, on which no other stream moves memory.
    """

    times: Floats
    weights: Floats
    sends: Ints
    receivers: Ints
    delays: Floats
    order: Ints
    places: Ints
    place_of: Ints
    device: Ints
    memory: Ints
    transient: Ints
    free: Ints
    movable: NDArray[np.bool_]


def current_orders(drawn: DrawnOrders, schedule: Schedule) -> list[list[Instance]]:
    """Return the current orders of all devices, read from the arrays made of a schedule."""
    instances = [(name, micro_batch) for _, micro_batch, name in schedule.blocks]
    orders: list[list[Instance]] = [[] for _ in drawn.free]
    for device, node in zip(drawn.device, drawn.order, strict=True):
        orders[device].append(instances[node])
    return orders


def drawn_orders(schedule: Schedule, scenarios: Sequence[Scenario], draws: int, seed: int) -> DrawnOrders:
    """Return a schedule's orders as arrays, with the times of `draws` draws of each scenario.

    A scenario in which nothing varies has one draw, which has its whole weight.

    Nodes are in the order of the schedule's blocks.

    Args:
        schedule: Valid, of a placement without streams.
        scenarios: At least one; they fit the placement.
        draws: Draws of each scenario.
        seed: Seed of all draws; equal for every schedule of a placement.
    """
    placement, devices = schedule.placement, range(schedule.placement.num_devices)
    columns, weights, delays = [], [], []
    for scenario, weight in zip(scenarios, weights_of(scenarios), strict=True):
        conditions = scenario.conditions
        count = draws if conditions.jitter or conditions.measured_ms else 1
        drawn = drawn_times(placement, schedule.num_micro_batches, conditions, count, seed)
        steps = steps_of(schedule, conditions).steps
        columns.append(np.array([drawn[step.instance] for step in steps]))
        sent = [message.occupied + message.latency for step in steps for message in step.messages]
        delays.append(np.repeat(np.array(sent)[:, None], count, axis=1))
        weights += [weight / count] * count
    node = {step.instance: i for i, step in enumerate(steps)}
    blocks = [schedule.block(*instance) for instance in node]
    order = np.array([node[instance] for d in devices for instance in schedule.order(d)], dtype=np.int64)
    return DrawnOrders(
        times=np.ascontiguousarray(np.concatenate(columns, axis=1)),
        weights=np.array(weights),
        sends=np.cumsum([0, *(len(step.messages) for step in steps)], dtype=np.int64),
        receivers=np.array([message.target for step in steps for message in step.messages], dtype=np.int64),
        delays=np.ascontiguousarray(np.concatenate(delays, axis=1)),
        order=order,
        places=np.cumsum([0, *np.bincount(order, minlength=len(node))], dtype=np.int64),
        place_of=np.argsort(order, kind="stable"),
        device=np.repeat(np.array(devices), [len(schedule.order(device)) for device in devices]),
        memory=np.array(
            [[block.memory_on(device) for device in devices] for block in blocks], dtype=np.int64
        ),
        transient=np.array([block.transient for block in blocks], dtype=np.int64),
        free=np.array(placement.free_memory or (-1,) * len(devices), dtype=np.int64),
        movable=np.array([len(block.devices) == 1 for block in blocks], dtype=np.bool_),
    )
