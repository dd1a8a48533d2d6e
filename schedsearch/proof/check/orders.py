"""A check that no schedule of some micro-batches is as short as a limit, by trying all orders of starts.

Shares nothing with the searches: blocks are started one after the other, in the order of time, each as soon
as it can. Of orders that have started each block equally often, an order that is in no way ahead of
another one is dropped. Knows nothing of periods.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from placements import Kind, Placement

_MAX_COUNTS = 200_000
"""Most sets of orders, one for each count of started blocks, so that memory is not used up."""

Counts = tuple[int, ...]
"""Number of starts of each block."""

Ends = tuple[int, ...]
"""Ticks: the latest start so far, then of each block the end of its latest run.

An end so early that even a transfer from there has ended by the latest start is set to the latest such tick.
"""


def no_shorter_schedule(
    placement: Placement, num_micro_batches: int, makespan: int, time_limit_s: float
) -> bool | None:
    """Return True if every schedule takes at least `makespan`; None if this is not shown, or not in time.

    Proof. Each block may run the micro-batches in order: give its k-th run to micro-batch k, then starts and
    memory of each device stay, and inputs are there (Tessel, Property IV.1). Sort a schedule's blocks by
    start, and start each as soon as its inputs and devices are free, but not before the one before it: none
    starts later than it did, and each device keeps its order, and so its memory. So it is enough to look at
    such orders. If two have started each block equally often, what can follow the one in which no block
    ends later can follow it no later. Where a block's input has run more often than is needed, that input has
    ended, as it runs once at a time. A transfer of it may not have, but is taken to: a schedule found thus
    says nothing, but where there is none even so, there is none.
    """
    walk = _Walk(placement, num_micro_batches, makespan - 1)
    deadline = time.monotonic() + time_limit_s
    nothing = (0,) * len(walk.blocks)
    orders: dict[Counts, list[Ends]] = {nothing: [(0, *nothing)]}
    for _ in range(sum(walk.runs)):
        longer: dict[Counts, list[Ends]] = {}
        for counts, several in orders.items():
            if len(longer) > _MAX_COUNTS or time.monotonic() > deadline:
                return None
            for after, ends in walk.followers(counts, several):
                others = longer.setdefault(after, [])
                if not any(all(map(int.__le__, old, ends)) for old in others):
                    others[:] = [old for old in others if not all(map(int.__le__, ends, old))]
                    others.append(ends)
        orders = longer
    return True if not orders else None if placement.transfer else False


class _Walk:
    """The walk through all orders that may end within a limit."""

    def __init__(self, placement: Placement, num_micro_batches: int, limit: int) -> None:
        self.limit, self.free = limit, placement.free_memory
        self.blocks = blocks = placement.topological_order
        index = {block.name: i for i, block in enumerate(blocks)}
        self.runs = [1 if block.kind is Kind.O else num_micro_batches for block in blocks]
        self.after = [[(index[a], placement.transfer_time(a, b.name)) for a in b.after] for b in blocks]
        devices = range(placement.num_devices)
        self.on = [[i for i, block in enumerate(blocks) if device in block.devices] for device in devices]
        self.tail, self.longest_transfer = [0] * len(blocks), [0] * len(blocks)
        for i in reversed(range(len(blocks))):
            for j, transfer in self.after[i]:
                self.longest_transfer[j] = max(self.longest_transfer[j], transfer)
                self.tail[j] = max(self.tail[j], transfer + blocks[i].time + self.tail[i])
        self.never_allocates = [
            not block.transient and all(block.memory_on(device) <= 0 for device in block.devices)
            for block in blocks
        ]

    def followers(self, counts: Counts, several: list[Ends]) -> Iterator[tuple[Counts, Ends]]:
        """Yield the orders after one more start, from orders that have started each block equally often.

        No block starts as late as another block could end that never allocates memory: the devices of this
        other block are idle until then, so it may run at once without harm.
        """
        after_of = {
            i: (*counts[:i], counts[i] + 1, *counts[i + 1 :])
            for i in range(len(self.blocks))
            if self._can_start(counts, i)
        }
        for ends in several:
            begins = {i: self._earliest(counts, ends, i) for i in after_of}
            latest = min(
                (begin + self.blocks[i].time for i, begin in begins.items() if self.never_allocates[i]),
                default=self.limit,
            )
            for i, begin in begins.items():
                if begin < latest:
                    past = (begin, *(begin - transfer for transfer in self.longest_transfer))
                    new = list(map(max, ends, past))
                    new[i + 1] = begin + self.blocks[i].time
                    if new[i + 1] + self.tail[i] <= self.limit and self._can_end(after_of[i], new):
                        yield after_of[i], tuple(new)

    def _needed(self, counts: Counts, i: int, j: int) -> int:
        """Return the runs that an input of a block must have had: an optimizer block waits for all runs."""
        return self.runs[j] if self.runs[i] == 1 else counts[i] + 1

    def _can_start(self, counts: Counts, i: int) -> bool:
        """Return whether one more run of a block has its inputs and its memory."""
        block = self.blocks[i]
        if counts[i] == self.runs[i] or any(counts[j] < self._needed(counts, i, j) for j, _ in self.after[i]):
            return False
        return self.free is None or all(
            block.transient
            + sum(self.blocks[j].memory_on(device) * (counts[j] + (j == i)) for j in self.on[device])
            <= self.free[device]
            for device in block.devices
        )

    def _earliest(self, counts: Counts, ends: Ends, i: int) -> int:
        """Return the tick at which a block can start."""
        free = (ends[j + 1] for device in self.blocks[i].devices for j in self.on[device])
        needed = [(j, ticks) for j, ticks in self.after[i] if counts[j] == self._needed(counts, i, j)]
        return max(ends[0], *free, *(ends[j + 1] + ticks for j, ticks in needed))

    def _can_end(self, counts: Counts, ends: list[int]) -> bool:
        """Return whether each device's remaining work, and the least tail after it, end within the limit."""
        for here in self.on:
            left = [i for i in here if counts[i] < self.runs[i]]
            if left:
                free = max(ends[i + 1] for i in here)
                work = sum((self.runs[i] - counts[i]) * self.blocks[i].time for i in left)
                if free + work + min(self.tail[i] for i in left) > self.limit:
                    return False
        return True
