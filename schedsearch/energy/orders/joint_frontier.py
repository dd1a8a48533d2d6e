"""Modes, order and clocks together at several deadlines, beside clocks of a schedule chosen before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from placements import Profile
from schedsearch.energy.orders.ordering import Keeps, OrderChoice, best_order
from schedsearch.schedule import Schedule


def joint_frontier(
    candidates: Sequence[Schedule],
    profile: Profile,
    deadline_ms: Sequence[float],
    *,
    max_swaps: int = 0,
    work_limit: float = math.inf,
    keeps: Keeps = lambda _: True,
    on_deadline: Callable[[int], None] = lambda _: None,
) -> tuple[OrderChoice, ...]:
    """Return for each deadline the schedule and clocks of least energy that were found; see `best_order`.

    The first candidate is what was chosen before clocks were: `OrderChoice.loss` bounds what that costs. What
    is best at a deadline is a candidate for the next.

    Args:
        candidates: Schedules of one placement and number of micro-batches.
        profile: Cost of each block in each mode at each clock.
        deadline_ms: Deadlines that some candidate keeps, ascending.
        max_swaps: For each deadline, as of `best_order`.
        work_limit: Likewise.
        keeps: Likewise.
        on_deadline: Told how many deadlines are done.

    Raises:
        ProfileError: The profile lacks a block.
        EnergyError: No candidate keeps a deadline.
        InvalidScheduleError: A candidate is not valid.
    """
    found: list[OrderChoice] = []
    known = list(candidates)
    for deadline in deadline_ms:
        choice = best_order(known, profile, deadline, max_swaps=max_swaps, work_limit=work_limit, keeps=keeps)
        found.append(choice)
        on_deadline(len(found))
        if choice.schedule not in known:
            known.append(choice.schedule)
        if choice.interrupted:
            break
    return tuple(found)
