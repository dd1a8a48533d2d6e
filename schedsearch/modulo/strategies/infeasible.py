"""Why no schedule fits the memory, and what memory would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placements import Placement
from schedsearch.modulo.oracle import Oracle
from schedsearch.solver.effort import OutOfTimeError
from schedsearch.solver.query import Answer, Query
from schedsearch.starts.serial import serial_period

_WORK = 8.0
"""Work of each question on how much memory would do, in units of about a second."""


def why_infeasible(placement: Placement, oracle: Oracle) -> str:
    """Return in one line why a placement has no schedule.

    Args:
        placement: Without optimizer blocks, with capacities; one micro-batch alone does not fit these.
        oracle: Solver to ask.
    """
    try:
        needs = list(_needs(placement, oracle))
    except OutOfTimeError:
        needs = ["raise search.memory"]
    return " ".join(["one micro-batch alone does not fit the memory in any order;", *needs])


def _needs(placement: Placement, oracle: Oracle) -> Iterator[str]:
    """Yield what would make it fit: on one device, where that is enough, or else on all."""
    memory = placement.memory
    assert memory is not None, "without capacities everything fits"
    needed = [
        sum(max(block.memory_on(device), 0) + block.transient for block in placement.on(device))
        for device in range(len(memory))
    ]

    def least_more(high: int, devices: Sequence[int]) -> int | None:
        """Return how much more memory, at most `high`, on devices marked 1 lets one micro-batch fit."""
        low = 0

        def fits(more: int) -> bool:
            capacity = [each + more * mark for each, mark in zip(memory, devices, strict=True)]
            query = Query(placement.with_memory(capacity), 1, serial_period(placement))
            return oracle(query, _WORK)[0] is Answer.YES

        if not fits(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    for device, capacity in enumerate(memory):
        more = least_more(needed[device], [int(other == device) for other in range(len(memory))])
        if more is not None:
            instead = f"{capacity + more} instead of {capacity}"
            yield f"it would with {instead} on device {device}; raise search.memory"
            return
    more = least_more(max(needed), [1] * len(memory))
    yield (f"it would with {more} more on each device; " if more else "") + "raise search.memory"
