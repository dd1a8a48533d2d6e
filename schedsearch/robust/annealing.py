"""Annealing of orders in rounds of counted work."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schedsearch.robust.drawn_orders import DrawnOrders

_HEAT = 0.002
"""Share of the value by which a step may be worse at first, on average."""

_WORK_OF_CELL = 1.2e-9
"""Units of work, about a second each, to compute the start of one block in one draw."""

_WORK_OF_ENTRY = 1.0e-8
"""Units of work for one block or message in a step, however few the draws."""

PART = 0.5
"""Units of work between two looks for a Ctrl-C, and of the first round."""


def value_now(orders: DrawnOrders, quantile: float) -> float:
    """Return the ticks that are made less, of orders as they are; see `schedsearch.robust.swaps.value_of`."""
    from schedsearch.robust.swaps import starts_of, value_of  # loads numba, which is slow

    begins, nodes = np.zeros_like(orders.times), len(orders.times)
    starts_of(orders, begins, np.zeros(nodes, np.int64), np.zeros(nodes, np.int64))
    return value_of(orders, begins, quantile)


NO_TWINS: NDArray[np.int64] = np.zeros((0, 0), np.int64)
"""No nodes that may change places in groups."""


def anneal_part(
    orders: DrawnOrders,
    quantile: float,
    work: float,
    part: int,
    parts: int,
    seed: int,
    twins: NDArray[np.int64] = NO_TWINS,
    share: float = 0.0,
) -> float:
    """Make orders better, and return the units of work that it took.

    A round has twice as many parts as the one before, and begins with the best orders of that. So more work
    goes the same course and further, and is never worse; between two parts a Ctrl-C is seen and loses none.

    Args:
        orders: Changed.
        quantile: As of `value_now`.
        work: Units that it may take at most.
        part: Which part of the round, from 0 on; after the last it goes on without steps to what is worse.
        parts: Parts of the round.
        seed: Seed of all choices.
        twins: As of `schedsearch.robust.swaps.anneal`.
        share: Likewise.
    """
    from schedsearch.robust.swaps import anneal

    cells = orders.times.size + orders.delays.size + orders.times.shape[1] * len(orders.order)
    work_of_step = cells * max(_WORK_OF_CELL, _WORK_OF_ENTRY / orders.times.shape[1])
    full = max(1, int(PART / work_of_step))
    steps = min(full, max(1, int(work / work_of_step)))
    heat = _HEAT * max(0.0, 1 - part / parts)
    anneal(orders, quantile, steps, heat, _HEAT / (parts * full), seed + parts + part, twins, share)
    return float(steps * work_of_step)
