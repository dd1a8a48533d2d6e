"""Bounds on a makespan from blocks that run one after the other: on one device, and on two in a row.

Both hold for blocks of any times, which differ between micro-batches. Know no memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

Work = tuple[int, int, int]
"""A piece of work: ticks before its start (head), of the work itself, and after its end (tail)."""


def one_device(pieces: Iterable[Work]) -> int:
    """Return a lower bound on the end of all pieces of work of one device, with their tails, in ticks.

    Proof. Let the device interrupt its work whenever it likes, which can only help. Then it is best at any
    time to do what has the longest tail of what may run: if it does something else first, exchange the two
    (Jackson's preemptive schedule).
    """
    coming = sorted(pieces)
    waiting: list[tuple[int, int]] = []  # negative tails, ticks that are left
    now = bound = 0
    for i, (head, ticks, tail) in enumerate(coming):
        now = max(now, head)
        heapq.heappush(waiting, (-tail, ticks))
        until = coming[i + 1][0] if i + 1 < len(coming) else None
        while waiting and (until is None or now < until):
            negative, left = heapq.heappop(waiting)
            done = left if until is None else min(left, until - now)
            now += done
            if done < left:
                heapq.heappush(waiting, (negative, left - done))
            else:
                bound = max(bound, now - negative)
    return bound


def two_devices(pairs: Iterable[tuple[int, int]]) -> int:
    """Return the least ticks for pairs of jobs: the first on one device, then the second on another one.

    Proof: Johnson's rule. First come pairs whose first job is the shorter one, by ascending first job, then
    the others, by descending second job.
    """
    first = second = 0
    for one, other in sorted(pairs, key=lambda pair: (0, pair[0]) if pair[0] <= pair[1] else (1, -pair[1])):
        first += one
        second = max(first, second) + other
    return second
