"""Clocks of ranks that differ, aligned by the messages between them.

A block begins after the end of the block on another rank whose output it takes. Forwards go one way and
backwards the other, so the difference of two clocks lies between two limits. It is 0 where 0 lies between
them, and their middle elsewhere: messages then take as long in both directions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from schedsearch.schedule import Instance

Times = Mapping[Instance, Mapping[int, tuple[float, float]]]
"""Start and end of each block of each micro-batch in ms, by rank."""


class ClockFit(NamedTuple):
    """The correction of each rank's clock in one iteration of one replica.

    Attributes:
        offset_ms: Added to the times of each rank; 0 for ranks that are not named.
        uncertain_ms: Largest distance of a correction from its limits; below 0 where messages of a pair of
            ranks would go back in time with any.
    """

    offset_ms: Mapping[int, float]
    uncertain_ms: float


def clock_offsets(times: Times, inputs: Mapping[str, str]) -> ClockFit:
    """Return the corrections in one iteration, beside the clock of the first rank.

    Ranks are tied to each other by the pair whose limits are closest.

    Args:
        times: The blocks of all ranks of a replica.
        inputs: Block whose output each block takes.
    """
    least: dict[tuple[int, int], float] = defaultdict(lambda: -math.inf)
    for (name, number), takers in times.items():
        givers = times.get((inputs.get(name, ""), number), {})
        for (source, (_, sent)), (target, (start, _)) in zip(givers.items(), takers.items(), strict=False):
            if source != target:
                least[source, target] = max(least[source, target], sent - start)
    ranks = list(dict.fromkeys(chain.from_iterable(times.values())))
    offset, uncertain = {ranks[0]: 0.0}, math.inf
    for _ in ranks[1:]:
        width, known, rank = min(
            (-least[rank, known] - least[known, rank], known, rank)
            for known in offset
            for rank in ranks
            if rank not in offset
        )
        low, high = least[known, rank], -least[rank, known]
        middle = (low + high) / 2 if math.isfinite(width) else low if math.isfinite(low) else min(high, 0.0)
        offset[rank] = offset[known] + (0.0 if low <= 0 <= high else middle)
        uncertain = min(uncertain, width / 2) if width < 0 or uncertain < 0 else width / 2
    return ClockFit(offset, uncertain if math.isfinite(uncertain) else 0.0)


def fit_in_words(fits: Sequence[ClockFit]) -> list[str]:
    """Return the shift of the clocks and its uncertainty as one line; no line where all clocks agree."""
    moved = max((abs(ms) for fit in fits for ms in fit.offset_ms.values()), default=0.0)
    if not moved:
        return []
    begin = f"clocks of ranks were moved by up to {moved:,.6g} ms"
    worst = min(fit.uncertain_ms for fit in fits)
    if worst < 0:
        return [f"{begin}; messages still disagree by {-2 * worst:.3g} ms"]
    known = max(fit.uncertain_ms for fit in fits)
    return [f"{begin}, known to within {known:.2g} ms"]
