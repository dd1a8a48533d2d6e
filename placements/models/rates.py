"""Shares of a data sheet that a GPU is assumed to reach, and the length of a tick."""

from __future__ import annotations

import math

from placements.block import PlacementError

RESERVE_GIB = 4.0
"""Memory kept for the CUDA context, communication buffers, temporaries and fragmentation: assumed."""

COPY_COMPUTE_SHARE = 0.2
"""Share of the time of copies and transfers that depends on the clock: assumed. They are bound by memory and
links, but at the lowest clocks even those slow down."""


def tick_for(shortest_ms: float, tick_ms: float | None) -> float:
    """Return the ms of a tick: as given, or the longest power of ten with 100 ticks in the shortest block.

    Raises:
        PlacementError: `tick_ms` is not above 0, or longer than the shortest block.
    """
    if tick_ms is None:
        return float(f"1e{math.floor(math.log10(shortest_ms / 100))}")
    if not 0 < tick_ms <= shortest_ms:
        fault = f"{tick_ms} is not above 0 and at most the {shortest_ms:.3g} ms of the shortest block"
        raise PlacementError(f"tick_ms: {fault}; give a value in between")
    return tick_ms
