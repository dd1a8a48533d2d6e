"""Hanayo: any number of waves over the devices, as many micro-batches in flight as devices.

Its authors' generator is not public; here backward blocks go first. The published regime is one of as many
micro-batches as devices: then W waves have about a W-th of the idle time of one.
"""

from __future__ import annotations

from placements import Placement
from schedsearch.baselines.structure import WAVES, in_orders, stages_in
from schedsearch.schedule import Instance, Schedule

_FORWARD, _BACKWARD = 1, 2
"""Ticks that blocks count as; with other times the order is kept."""


def hanayo(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return a wave in which every device runs a backward block if one is ready, else a forward block.

    Of several the one of the earliest micro-batch. On p devices, a micro-batch begins when fewer than p
    others have begun and have more than their last backward block left.

    Raises:
        UnsuitablePlacementError: The placement is not a wave of an even number of chunks with whole backward.
    """
    stages = stages_in(placement, "Hanayo", WAVES)
    down = [(stage.forward, stage.device, _FORWARD) for stage in stages]
    chain = [*down, *((stage.backward, stage.device, _BACKWARD) for stage in reversed(stages))]
    devices = {device for _, device, _ in chain}
    place, ready = [0] * num_micro_batches, [0] * num_micro_batches
    free = dict.fromkeys(devices, 0)
    orders: dict[int, list[Instance]] = {device: [] for device in devices}
    tick = 0
    while num_micro_batches and min(place) < len(chain):
        for device in sorted(devices):
            num_in_flight = sum(0 < at < len(chain) - 1 for at in place)
            can_run = [
                (place[n] < len(stages), n)
                for n in range(num_micro_batches)
                if place[n] < len(chain) and chain[place[n]][1] == device and ready[n] <= tick
                if place[n] > 0 or num_in_flight < len(devices)
            ]
            if can_run and free[device] <= tick:
                _, n = min(can_run)
                name, _, ticks = chain[place[n]]
                orders[device].append((name, n))
                place[n] += 1
                free[device] = ready[n] = tick + ticks
        tick = min((each for each in (*free.values(), *ready) if each > tick), default=tick)
    return in_orders(placement, num_micro_batches, orders)
