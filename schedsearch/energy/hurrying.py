"""A good plan that is a little late, made to keep the deadline by the cheapest steps on its critical path.

The relaxed plan for a deadline mostly has one instance between two options that may be far apart. Rounding
gives up what is left of it, where several small steps of others, at nearly its price, would cost less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from schedsearch.energy.candidates import Envelope
from schedsearch.energy.graph import Floats, InstanceGraph, Ints
from schedsearch.energy.rounding import TOLERANCE, OptionTable

MOST_STEPS = 16
"""Steps after which a plan that is still late is given up."""

SLOWER_PLANS = 4
"""Plans of the envelope from which each deadline is approached."""

LARGEST_STEPS = (np.inf, 1 / 3)
"""Shares of what a plan is late beyond which a step is only taken if there is no other."""

_LAST_RESORT = 1e9
"""Times the price of a step that is too large."""

_AT_ONCE = 256
"""Deadlines in one go; bounds the memory."""


def hurried(
    graph: InstanceGraph, table: OptionTable, envelope: Envelope, deadline_ms: Floats
) -> Iterator[Ints]:
    """Yield plans for the deadlines, made from slower plans of the envelope; some may be late.

    Args:
        graph: Who waits for whom.
        table: Options of the graph's instances.
        envelope: The plans to start from.
        deadline_ms: Shape ``(deadlines,)``.

    Yields:
        Columns of `table`; shape ``(instances, some of the deadlines)``.
    """
    for first in range(0, len(deadline_ms), _AT_ONCE):
        part = deadline_ms[first : first + _AT_ONCE]
        slower = np.searchsorted(envelope.time_ms, part, side="right")
        for further in range(SLOWER_PLANS):
            start = np.minimum(slower + further, len(envelope.time_ms) - 1)
            for steps in (_hull_steps, _all_steps):
                for largest in LARGEST_STEPS:
                    yield _hurried(graph, table, envelope.choice[:, start], part, largest, steps)


Steps = Callable[[OptionTable, Ints, Floats], Iterator[Ints]]
"""Yields options to step to from chosen ones, the last argument being times that would be enough."""


def _hurried(
    graph: InstanceGraph,
    table: OptionTable,
    choice: Ints,
    deadline_ms: Floats,
    largest: float,
    steps: Steps,
) -> Ints:
    """Return the plans with steps taken; the choice is changed in place."""
    row = table.row[:, None]
    for _ in range(MOST_STEPS):
        time = table.times(choice)
        start = graph.earliest_start(time)
        makespan = (start + time).max(axis=0)
        late = makespan - deadline_ms
        hurry = np.flatnonzero(late > TOLERANCE * deadline_ms)
        if not len(hurry):
            break
        some, now, late = choice[:, hurry], time[:, hurry], late[hurry]
        slack = graph.latest_end(now, makespan[hurry]) - start[:, hurry] - now
        on_path = (slack <= TOLERANCE * makespan[hurry]) & (some > 0)
        least = np.full(len(hurry), np.inf)
        best, option = np.zeros((2, len(hurry)), dtype=np.int64)
        for faster in steps(table, some, now - late):
            shorter = now - table.times(faster)
            # What is faster by more than is needed is paid for in full.
            useful = np.minimum(shorter, late)
            with np.errstate(divide="ignore", invalid="ignore"):
                price = (table.energy_mj[row, faster] - table.energy_mj[row, some]) / useful
            price[~on_path | (faster == some)] = np.inf
            price[shorter > largest * late] *= _LAST_RESORT
            cheapest = price.argmin(axis=0)
            column = np.arange(len(hurry))
            better = price[cheapest, column] < least
            least = np.where(better, price[cheapest, column], least)
            best = np.where(better, cheapest, best)
            option = np.where(better, faster[cheapest, column], option)
        ends = np.isfinite(least)
        choice[best[ends], hurry[ends]] = option[ends]
        if not ends.any():
            break
    return choice


def _hull_steps(table: OptionTable, choice: Ints, enough_ms: Floats) -> Iterator[Ints]:
    """Yield the next faster options on the hull."""
    yield table.last_on_hull[table.row[:, None], np.maximum(choice - 1, 0)]


def _all_steps(table: OptionTable, choice: Ints, enough_ms: Floats) -> Iterator[Ints]:
    """Yield the next faster options on the hull, the next at all, and the slowest that are enough."""
    yield from _hull_steps(table, choice, enough_ms)
    yield np.maximum(choice - 1, 0)
    yield np.minimum(table.slowest_within(np.arange(len(choice)), enough_ms), choice)
