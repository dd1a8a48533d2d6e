"""Conflicts, which cannot run at once: blocks that share a device, also where no device is in all of them.

Of five blocks on the pairs of neighbours in a ring of five devices, two run at once at most: each device
works for two of them, but all five take two and a half. A linear program finds which blocks to weigh, the
dual of a fractional colouring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from placements import Block, Placement
from schedsearch.proof.memory_occupancy import in_whole_numbers

Devices = tuple[int, ...]

_MAX_SETS = 200
"""Sets of devices beyond which no weights are sought."""

_MAX_STATES = 20_000
"""Sets of free devices to look at for one heaviest packing; beyond them none is found."""

_MAX_PACKINGS = 200
"""Limits of the linear program."""

_EXCESS = 1e-7
"""Excess that a packing may have above the limit of the linear program."""


@dataclass(frozen=True)
class Conflicts:
    """A proof that no period per micro-batch is below a value, as blocks that run at once share no device.

    Attributes:
        weight: Weight of the blocks that run on each set of devices, in ascending order; more than 0.
        at_once: The most that sets weigh together of which no two have a device in common.
    """

    weight: Mapping[Devices, int]
    at_once: int

    def weight_of(self, block: Block) -> int:
        """Return a block's weight."""
        return self.weight.get(tuple(sorted(block.devices)), 0)

    def bound(self, placement: Placement) -> Fraction:
        """Return the ticks per micro-batch that it proves, if `at_once` is true.

        Proof. Those that run at any time weigh `at_once` together at most. So the sum of each block's weight
        times its ticks, over some micro-batches, is at most `at_once` times the ticks in which they run.
        """
        blocks = placement.per_micro_batch.blocks
        return Fraction(sum(self.weight_of(block) * block.time for block in blocks), self.at_once)


@lru_cache(maxsize=8)
def conflicts(placement: Placement) -> Conflicts | None:
    """Return the best proof that is found; None where it would prove no more than each device's load."""
    from scipy.optimize import linprog

    times: Counter[Devices] = Counter()
    for block in placement.per_micro_batch.blocks:
        times[tuple(sorted(block.devices))] += block.time
    if len(times) > _MAX_SETS or sum(len(devices) > 1 for devices in times) < 3:
        return None  # of two sets the load says as much
    sets = list(times)
    rows = np.eye(len(sets))
    for _ in range(_MAX_PACKINGS):
        ticks = -np.array([times[devices] for devices in sets], dtype=float)
        weights = linprog(ticks, A_ub=rows, b_ub=np.ones(len(rows)), bounds=(0, None), method="highs").x
        packing = _heaviest(dict(zip(sets, weights.tolist(), strict=True)))
        if packing is None:
            return None
        if packing[0] <= 1 + _EXCESS:
            break
        rows = np.vstack([rows, [devices in packing[1] for devices in sets]])
    whole = dict(zip(sets, in_whole_numbers(weights).tolist(), strict=True))
    weight = {devices: amount for devices, amount in whole.items() if amount}
    heaviest = _heaviest(weight)
    if heaviest is None:
        return None
    found = Conflicts(weight, int(heaviest[0]))
    load = max(placement.load(device) for device in range(placement.num_devices))
    return found if found.bound(placement) > load else None


def _heaviest(weight: Mapping[Devices, float]) -> tuple[float, tuple[Devices, ...]] | None:
    """Return the greatest weight of sets without a common device, and these; None if that takes too long."""
    by_first: dict[int, list[tuple[int, Devices]]] = {}
    everywhere = 0
    for devices in weight:
        mask = sum(1 << device for device in devices)
        by_first.setdefault(devices[0], []).append((mask, devices))
        everywhere |= mask
    best: dict[int, tuple[float, tuple[Devices, ...]]] = {0: (0, ())}  # by the devices that are free
    stack = [everywhere]
    while stack and len(best) <= _MAX_STATES:
        free = stack[-1]
        first = (free & -free).bit_length() - 1
        ways = [(free & ~mask, devices) for mask, devices in by_first.get(first, ()) if mask & free == mask]
        rest = free & (free - 1)  # where no set takes the first of the free devices
        unknown = {left for left, _ in [*ways, (rest, ())] if left not in best}
        if unknown:
            stack += unknown
            continue
        taken = [(best[left][0] + weight[devices], (*best[left][1], devices)) for left, devices in ways]
        best[stack.pop()] = max([best[rest], *taken], key=lambda way: way[0])
    return best.get(everywhere)
