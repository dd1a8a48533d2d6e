"""Least idle time of a device at both ends of a schedule, where its memory limits the work that it can do.

Before the first of some later blocks can start on a device (say, the first backward), a whole micro-batch
must have come there, and in the meantime the device can do no more than its memory holds. Likewise, with time
running backwards, after the last of its earlier blocks has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from placements import Kind, Placement
from schedsearch.proof.sequences import one_device
from schedsearch.proof.timeline import Timeline, timelines
from schedsearch.schedule import micro_batches_of

_MAX_STATES = 500
"""States of a micro-batch on one device beyond which only its head and its tail are counted."""

Names = frozenset[str]


class _State(NamedTuple):
    """Progress of a micro-batch on a device, seen from one end.

    Attributes:
        held: Memory that it holds.
        work: Ticks of its blocks that lie between that end and now.
        done: Names of these.
    """

    held: int
    work: int
    done: Names


def ends_bound(timeline: Timeline, num_micro_batches: int) -> int:
    """Return a lower bound on the makespan in ticks: a device's work plus its idle time at both ends.

    Proof. Let X be all of a device's blocks with a head of at least so many ticks. Before the first of them
    starts, at x, there are ``heads[x]`` ticks, and the device has done no more than `_max_work` says of
    micro-batches none of which has begun a block of X. Likewise for the blocks Y with a tail of at least so
    many ticks, after the last of them has ended. The device is idle for what is left, at the begin and at the
    end. These are apart unless all of Y can be through before X begins, with every micro-batch in between:
    where memory does not let it, both count. Blocks with heads and tails of their own may leave a device idle
    in between too (`one_device`).
    """
    heads, tails = timeline.heads, timeline.tails
    bound = max(start + timeline.length[name] for name, start in heads.items())
    for device in range(timeline.placement.num_devices):
        ends = _Ends(timeline, device, num_micro_batches)
        in_a_row = one_device((heads[name], ticks, tails[name]) for name, ticks in ends.work.items())
        bound = max(bound, ends.bound(heads, tails), in_a_row)
    return bound + num_micro_batches * timeline.shared_time


def device_span_bound(placement: Placement, num_micro_batches: int) -> int:
    """Return a lower bound on the longest time from a device's own first start to its own last end, in ticks.

    Proof: that of `ends_bound`, with heads counted from the first start on the device, on which all that a
    block waits for there comes at or after it, and tails to the last end.
    """
    bound = 0
    placement = placement.relaxed
    for timeline in timelines(placement):
        for device in timeline.devices or range(placement.num_devices):
            here = {block.name for block in placement.on(device)}
            heads, tails = (timeline.ticks_from(here, backwards=backwards) for backwards in (False, True))
            least = _Ends(timeline, device, num_micro_batches).bound(heads, tails)
            bound = max(bound, least + num_micro_batches * timeline.shared_time)
    return bound


class _Ends:
    """The work that one device can do at the ends; see `ends_bound`."""

    def __init__(self, timeline: Timeline, device: int, num_micro_batches: int) -> None:
        placement = timeline.placement
        self.number, length = num_micro_batches, timeline.length
        self.capacity = None if placement.free_memory is None else placement.free_memory[device]
        here = placement.on(device)
        counted = [block for block in here if block not in timeline.shared]
        runs = {b.name: len(micro_batches_of(placement, b.name, num_micro_batches)) for b in counted}
        self.work = {name: number * length[name] for name, number in runs.items()}
        self.once = {block.name: length[block.name] for block in counted if block.kind is Kind.O}
        names = frozenset(block.name for block in here if block.kind is not Kind.O)
        self.before = {b.name: timeline.ancestors[b.name] & names for b in here}
        self.after = {a: frozenset(b for b in names if a in self.before[b]) for a in names}
        memory = {block.name: block.memory_on(device) for block in here}
        self.needs = {b.name: max(0, memory[b.name] + b.transient) for b in here}
        self.needs_to_end = {b.name: max(b.transient, -memory[b.name]) for b in here}
        closed = _closed_sets([b.name for b in here if b.name in names], self.before)
        self.knows_all = closed is not None

        def state(done: Names, started: Names) -> _State:
            work = sum(length[name] for name in done if name in self.work)
            return _State(sum(memory[name] for name in started), work, done)

        self.started = [state(done, done) for done in closed or (Names(), names)]
        self.left = [state(names - done, done) for done in closed or (Names(), names)]

    def bound(self, heads: Mapping[str, int], tails: Mapping[str, int]) -> int:
        """Return the device's work and idle time at its ends, by heads and tails of its blocks in ticks."""
        firsts = {name: heads[name] for name in self.work}
        lasts = {name: tails[name] for name in self.work if name not in self.once}
        first = self._idle(firsts, self.before, self.started, self.needs)
        last = self._idle(lasts, self.after, self.left, self.needs_to_end)
        idle = max([0, *first.values(), *last.values()])
        for later, at_begin in first.items():
            for earlier, at_end in last.items():
                if at_begin + at_end > idle and self._are_apart(later, earlier):
                    idle = at_begin + at_end
        return sum(self.work.values()) + idle

    def _idle(
        self,
        distance: Mapping[str, int],
        before: Mapping[str, Names],
        states: Sequence[_State],
        needs: Mapping[str, int],
    ) -> dict[Names, int]:
        """Map each set of blocks at least some distance from an end to the device's idle ticks before them.

        If not all states are known, only the least distance is used. All blocks have at least this one, so
        that before them a micro-batch is in one of the two known states.

        Args:
            distance: Ticks of each block from the end.
            before: Blocks of the device that come between the end and each.
            states: States of a micro-batch seen from the end.
            needs: Units of memory that must be free for each block to come next.
        """
        idle_before: dict[Names, int] = {}
        for least in sorted(set(distance.values()))[: None if self.knows_all else 1]:
            far = frozenset(name for name, ticks in distance.items() if ticks >= least)
            near = [state for state in states if not state.done & far]
            of_near, idle = _worthy(near), list[int]()
            for name in far:
                ready = [state for state in near if before[name] <= state.done]
                if ready:  # else it cannot be the first
                    of_ready = of_near if len(ready) == len(near) else _worthy(ready)
                    room = None if self.capacity is None else self.capacity - needs[name]
                    idle.append(distance[name] - _max_work(of_ready, of_near, self.number, room))
            if idle:
                once = sum(ticks for name, ticks in self.once.items() if name not in far)
                idle_before[far] = max(0, min(idle) - once)
        return idle_before

    def _are_apart(self, later: Names, earlier: Names) -> bool:
        """Return whether the last of some blocks cannot end before the first of others starts."""
        between = [s.held for s in self.started if earlier <= s.done and not s.done & later]
        if later & earlier or not between:
            return True
        return self.capacity is not None and self.number * min(between) > self.capacity


Points = tuple[tuple[int, int], ...]
"""(Memory, ticks of work) of the states worth most at some price of memory; those with most work first."""


def _worthy(states: Iterable[_State]) -> Points:
    """Return the points of the states that are worth most at some price, by decreasing work."""
    points = {state[:2] for state in states}
    held, work = max(points, key=lambda point: (point[1], -point[0]), default=(0, 0))
    hull = [(held, work)]
    while lighter := [(Fraction(work - w, held - h), h, w) for h, w in points if h < held]:
        _, held, work = min(lighter)
        hull.append((held, work))
    return tuple(hull)


@lru_cache(maxsize=1024)
def _max_work(single: Points, others: Points, number: int, room: int | None) -> int:
    """Return an upper bound on the ticks of work of `number` micro-batches whose memory fits in the room.

    Proof. For any price of a unit of memory, from 0 on, the work is at most the price of the room, and of
    each micro-batch the most that its work is worth above the price of what it holds. The least such sum is
    at a price at which two states are worth the same, or at 0.

    Args:
        single: Points of the states that one of the micro-batches may be in.
        others: Points of the states that the others may be in.
        number: Number of micro-batches.
        room: Units that they may hold; None for any number.
    """

    def worth(points: Points, price: Fraction) -> Fraction:
        return max(work - price * held for held, work in points)

    prices = [Fraction(0)]
    for points in (single, others) if room is not None else ():
        prices += [Fraction(a[1] - b[1], a[0] - b[0]) for a, b in pairwise(points)]
    return int(min(p * (room or 0) + worth(single, p) + (number - 1) * worth(others, p) for p in prices))


def _closed_sets(names: Sequence[str], before: Mapping[str, Names]) -> set[Names] | None:
    """Return the sets of blocks closed under predecessors; None if they are too many."""
    sets = {Names()}
    for name in names:  # in topological order
        sets |= {started | {name} for started in sets if before[name] <= started}
        if len(sets) > _MAX_STATES:
            return None
    return sets
