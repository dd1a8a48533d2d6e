"""Devices in a line or a ring, each with as many blocks: which waits for which, and what weighs on memory.

V-shapes, waves and loops of chunks are such lines. Of the order of blocks on one device only its two
neighbours know, so that the best orders can be found from device to device (`device_beam`).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements import Placement
from schedsearch.modulo.strategies.shifted_model import ShiftedPattern


class LineStep(NamedTuple):
    """A block that waits for another.

    Attributes:
        source: The role of the other.
        target: Its own role.
        forward: Whether the other is on the first of the two devices; always so on one device.
        ticks: Ticks from the other's start to its own, at least.
        weight: Units of memory that a micro-batch's delay of one whole round holds on the fullest device.
    """

    source: int
    target: int
    forward: bool
    ticks: int
    weight: int


class LineOfDevices:
    """A placement as a line of devices.

    Attributes:
        placement: What runs where, without optimizer blocks.
        on: For each device its blocks, by role (see `ShiftedPattern`).
        time: Ticks of each device's roles; shape ``(devices, roles)``.
        fullest: The device whose memory the steps' weights count, where micro-batches stay longest.
        inside: For each device the steps between its own blocks.
        hops: For each device but the last the steps between it and the next.
        closing: Steps between the last device and the first, of a ring.
        round_trip: Ticks of a transfer to a neighbour and one back, at least.
    """

    def __init__(self, placement: Placement) -> None:
        """Sort the steps; see `applies`."""
        pattern = ShiftedPattern(placement, 1)
        self.placement = placement
        self.on = pattern.on
        self.applies = (
            pattern.applies
            and placement.num_devices > 2
            and placement.free_memory is not None
            and all(len(block.after) <= 1 for block in placement.blocks)
        )
        if not self.applies:
            return
        last = placement.num_devices - 1
        self.time: NDArray[np.int64] = np.array([[block.time for block in blocks] for blocks in self.on])
        self.inside: list[list[LineStep]] = [[] for _ in self.on]
        self.hops: list[list[LineStep]] = [[] for _ in range(last)]
        self.closing: list[LineStep] = []
        self.fullest, weights = self._fullest()
        self.applies = bool(weights)
        transfers = [0]
        for block in placement.blocks:
            for name in block.after:
                (one, _, source), (other, _, target) = pattern.place[name], pattern.place[block.name]
                transfer = placement.transfer_time(name, block.name)
                ticks = placement.by_name[name].time + transfer
                step = LineStep(source, target, one <= other, ticks, weights[block.name])
                if one == other:
                    self.inside[one].append(step)
                elif abs(one - other) == 1:
                    self.hops[min(one, other)].append(step)
                    transfers.append(transfer)
                else:
                    self.closing.append(step._replace(forward=one == last))
                    self.applies &= {one, other} == {0, last}
        self.applies &= all(any(step.weight for step in steps) for steps in self.hops)
        self.round_trip = 2 * min(transfers[1:], default=0)

    @property
    def load(self) -> int:
        """Ticks that the busiest device needs for one micro-batch."""
        return int(self.time.sum(axis=1).max())

    def _fullest(self) -> tuple[int, Counter[str]]:
        """Return the device on which activations stay longest, and each block's weight there.

        A block's weight is what the device holds until that block has run, less what it holds no more. No
        weights are returned where another device has a block that weighs more, as in a wave: what is held
        there would not follow from the fullest.
        """
        weights = []
        for device, blocks in enumerate(self.on):
            weight: Counter[str] = Counter()
            for block in blocks:
                name: str | None = block.name
                while name is not None:
                    weight[name] -= block.memory_on(device)
                    name = next(iter(self.placement.by_name[name].after), None)
            weights.append(weight)
        fullest = max(range(len(weights)), key=lambda device: weights[device].total())
        most = weights[fullest]
        dominates = all(units <= most[name] for weight in weights for name, units in weight.items())
        return fullest, most if dominates else Counter()
