"""Checks of the arguments of Tessel's two searches, and their words when there is no schedule."""

from __future__ import annotations

from placements import Placement
from schedsearch.core.answer import SearchError
from schedsearch.proof.memory_need import require_capacity

LONGEST_S = 4e6
"""Longest time limit: the solver counts milliseconds in 32 bits."""

DOES_NOT_FIT = "one micro-batch alone does not fit the devices' memory in any order; raise search.memory"
OUT_OF_TIME = "no schedule was found in the time given; raise search.time_limit_s"


def check_arguments(method: str, placement: Placement, num_micro_batches: int, time_limit_s: float) -> None:
    """Check what both searches are given.

    Args:
        method: What the search is called.
        placement: What runs where.
        num_micro_batches: Micro-batches of the schedule.
        time_limit_s: Time limit of the search.

    Raises:
        SearchError: A number is not positive, or the placement has transient memory.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    if num_micro_batches < 1:
        raise SearchError(f"search.num_micro_batches: {num_micro_batches} is not at least 1")
    if not time_limit_s > 0:
        raise SearchError(f"search.time_limit_s: {time_limit_s} is not a positive number of seconds")
    transient = next((block.name for block in placement.per_micro_batch.blocks if block.transient), None)
    if transient is not None:
        raise SearchError(
            f"search.method: {method} does not know transient memory, which block {transient} has; "
            "use search.method=modulo"
        )
    require_capacity(placement)


def check_most_in_flight(max_in_flight: int | None, num_micro_batches: int) -> None:
    """Check that a schedule of so many micro-batches can hold such a repetend.

    Raises:
        SearchError: It cannot.
    """
    if max_in_flight is not None and not 1 <= max_in_flight <= num_micro_batches:
        raise SearchError(
            f"tessel.max_in_flight: {max_in_flight} is not at least 1 and at most "
            f"search.num_micro_batches={num_micro_batches}; change one of them"
        )
