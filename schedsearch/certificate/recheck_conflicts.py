"""Shows once more how much of some weighed sets of devices can be in use at once.

Shares nothing with the search.
"""

from __future__ import annotations

import time
from collections.abc import Mapping


def weighs_at_most(weight: Mapping[tuple[int, ...], int], limit: int, time_limit_s: float) -> bool | None:
    """Return whether sets of which no two have a device in common weigh no more; None if it takes too long.

    All choices are tried, one set after the other, and given up where all that is left would be too light.

    Args:
        weight: Weight of each set of devices.
        limit: In the same units.
        time_limit_s: Seconds.
    """
    deadline = time.monotonic() + time_limit_s
    sets = sorted(weight, key=lambda devices: -weight[devices])
    chosen = [
        (0, 0, frozenset[int]())
    ]  # what is weighed so far, the next set, and the devices that are taken
    left = [sum(weight[devices] for devices in sets[i:]) for i in range(len(sets) + 1)]
    while chosen:
        total, i, taken = chosen.pop()
        if total > limit:
            return False
        if total + left[i] <= limit:
            continue
        if time.monotonic() > deadline:
            return None
        chosen.append((total, i + 1, taken))
        if taken.isdisjoint(sets[i]):
            chosen.append((total + weight[sets[i]], i + 1, taken.union(sets[i])))
    return True
