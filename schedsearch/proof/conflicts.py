"""Conflicts, which cannot run at once: blocks that share a device, also where no device is in all of them.

Of five blocks on the pairs of neighbours in a ring of five devices, two run at once at most: each device
works for two of them, but all five take two and a half. A linear program finds which blocks to weigh, the
dual of a fractional colouring.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from placements import Block, Placement
from schedsearch.proof.bound import Amount, Bound, in_whole_numbers, repeated

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
class Conflicts(Bound):
    """Blocks that run at once share no device.

    Attributes:
        weights: Sets of devices, in ascending order, and the weight of the blocks that run on each.
        at_once: The most that sets weigh together of which no two have a device in common; 1 or more.
    """

    name: ClassVar[str] = "conflicts"
    weights: tuple[tuple[Devices, Amount], ...]
    at_once: int

    def weight_of(self, block: Block) -> int:
        """Return a block's weight."""
        return dict(self.weights).get(tuple(sorted(block.devices)), 0)

    def value(self, placement: Placement) -> Fraction:
        """Add up each block's weight times its ticks.

        Proof. Those that run at any time weigh `at_once` together at most. So the sum of each block's weight
        times its ticks, over some micro-batches, is at most `at_once` times the ticks in which they run.
        """
        if self.at_once < 1:
            raise ValueError("what fits at once is not 1 or more")
        blocks = repeated(placement).blocks
        return Fraction(sum(self.weight_of(block) * block.time for block in blocks), self.at_once)

    def is_shown(self, placement: Placement, time_limit_s: float) -> bool | None:
        """Try all choices of sets, and give each up where all that is left would be too light."""
        deadline = time.monotonic() + time_limit_s
        sets = sorted(self.weights, key=lambda pair: -pair[1])
        left = [sum(weight for _, weight in sets[i:]) for i in range(len(sets) + 1)]
        chosen = [(0, 0, frozenset[int]())]  # what is weighed, the next set, and the devices that are taken
        while chosen:
            total, i, taken = chosen.pop()
            if total > self.at_once:
                return False
            if total + left[i] <= self.at_once:
                continue
            if time.monotonic() > deadline:
                return None
            devices, weight = sets[i]
            chosen.append((total, i + 1, taken))
            if taken.isdisjoint(devices):
                chosen.append((total + weight, i + 1, taken.union(devices)))
        return True


@lru_cache(maxsize=8)
def conflicts(placement: Placement) -> Conflicts | None:
    """Return the best bound that is found; None where it would prove no more than each device's load."""
    from scipy.optimize import linprog

    times: Counter[Devices] = Counter()
    for block in repeated(placement).blocks:
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
    weight = dict(zip(sets, in_whole_numbers(weights).tolist(), strict=True))
    heaviest = _heaviest(weight)
    if heaviest is None:
        return None
    return Conflicts(tuple((devices, each) for devices, each in weight.items() if each), int(heaviest[0]))


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
