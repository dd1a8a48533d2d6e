"""Streams of a device that run side by side, and what that costs each of them."""

from __future__ import annotations

from dataclasses import dataclass

from placements.block import PlacementError


@dataclass(frozen=True)
class Slowdown:
    """Two streams that slow each other down while both run a block on a device.

    Attributes:
        streams: Their names.
        factors: How many times as long each of the two then takes for its work, at least 1.
    """

    streams: tuple[str, str]
    factors: tuple[float, float]


def check_slowdown(slowdown: tuple[Slowdown, ...]) -> None:
    """Check the rules of side-by-side streams.

    Raises:
        PlacementError: One is broken; the message names the entry.
    """
    seen: set[frozenset[str]] = set()
    for i, each in enumerate(slowdown):
        pair = frozenset(each.streams)
        if len(pair) < 2:
            raise PlacementError(f"slowdown[{i}].streams: {list(each.streams)} names one stream; give two")
        if pair in seen:
            raise PlacementError(f"slowdown[{i}].streams: {list(each.streams)} are there twice; give one")
        seen.add(pair)
        for factor in each.factors:
            if not 1 <= factor < 1000:
                raise PlacementError(f"slowdown[{i}].factors: {factor} is not at least 1 and below 1000")
