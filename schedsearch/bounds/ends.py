"""How long a device must be idle at both ends of a schedule, as its memory lets it do only so much there.

Before the first of some later blocks can start on a device (say, the first backward), a whole micro-batch
must have come there, and in the meantime the device can do no more than its memory holds; likewise after the
last of its earlier blocks has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from placements import Block, Kind, Placement
from schedsearch.proof.sequences import one_device
from schedsearch.proof.timeline import Timeline, timelines
from schedsearch.schedule import micro_batches_of

_MAX_STATES = 500
"""States of a micro-batch on one device beyond which only its head and its tail are counted."""


@dataclass(frozen=True)
class _State:
    """How far a micro-batch is on a device: a set of its blocks there that is closed under dependencies.

    Attributes:
        started: Names of the blocks that have started.
        done: Ticks of these.
        left: Ticks of the others.
        held: Memory that they hold.
    """

    started: frozenset[str]
    done: int
    left: int
    held: int


@dataclass(frozen=True)
class _End:
    """One end of a device's course: before the first start of some blocks, or after the last end of some.

    Attributes:
        blocks: Their names.
        idle: Ticks that the device is idle there, at least.
    """

    blocks: frozenset[str]
    idle: int


def ends_bound(timeline: Timeline, num_micro_batches: int) -> int:
    """Return a lower bound on the makespan in ticks: a device's work, and what it is idle at both ends.

    Proof. Let X be all of a device's blocks with a head of at least so many ticks. Before the first of them
    starts, at x, there are ``heads[x]`` ticks, and the device has done no more than `_max_work` says of
    micro-batches none of which has begun a block of X. Likewise for the blocks Y with a tail of at least so
    many ticks, after the last of them has ended. The device is idle for what is left, at the begin and at the
    end. These are apart unless all of Y can be through before X begins, with every micro-batch in between:
    where memory does not let it, both count. Blocks with heads and tails of their own may leave a device idle
    in between too (`one_device`).
    """
    bound = max(start + timeline.length[name] for name, start in timeline.heads.items())
    for device in range(timeline.placement.num_devices):
        ends = _Ends(timeline, device, num_micro_batches)
        bound = max(bound, ends.bound(timeline.heads, timeline.tails), ends.one_after_another())
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
            ends = _Ends(timeline, device, num_micro_batches)
            heads, tails = (_own_ticks(timeline, device, until_end=each) for each in (False, True))
            bound = max(bound, ends.bound(heads, tails) + num_micro_batches * timeline.shared_time)
    return bound


class _Ends:
    """The work that one device can do at the ends; see `ends_bound`."""

    def __init__(self, timeline: Timeline, device: int, num_micro_batches: int) -> None:
        self.timeline = timeline
        self.number = num_micro_batches
        placement = timeline.placement
        self.capacity = None if placement.free_memory is None else placement.free_memory[device]
        shared = {block.name for block in timeline.shared}
        self.blocks = [block for block in placement.on(device) if block.name not in shared]
        self.once = [block for block in self.blocks if block.kind is Kind.O]
        self.runs = {b.name: len(micro_batches_of(placement, b.name, num_micro_batches)) for b in self.blocks}
        self.work = sum(self.runs[block.name] * timeline.length[block.name] for block in self.blocks)
        here = [block for block in placement.on(device) if block.kind is not Kind.O]
        self.device = device
        self.states, self.knows_all = _states(timeline, device, here)

    def one_after_another(self) -> int:
        """Return the ticks of the device's work, each block between its head and its tail."""
        ticks, heads, tails = self.timeline.length, self.timeline.heads, self.timeline.tails
        return one_device(
            (heads[b.name], self.runs[b.name] * ticks[b.name], tails[b.name]) for b in self.blocks
        )

    def bound(self, heads: Mapping[str, int], tails: Mapping[str, int]) -> int:
        """Return the device's work and idle time at its ends, by heads and tails of its blocks in ticks."""
        if not self.blocks:
            return 0
        firsts = list(self._firsts(heads))
        lasts = list(self._lasts(tails))
        idle = max(end.idle for end in (*firsts, *lasts, _End(frozenset(), 0)))
        for first in firsts:
            for last in lasts:
                if first.idle + last.idle > idle and self._are_apart(first, last):
                    idle = first.idle + last.idle
        return self.work + idle

    def _firsts(self, heads: Mapping[str, int]) -> Iterator[_End]:
        """Yield what is idle before the first start of the blocks of each head or more."""
        for least in self._thresholds(heads[block.name] for block in self.blocks):
            later = frozenset(block.name for block in self.blocks if heads[block.name] >= least)
            states = [state for state in self.states if not state.started & later]
            idle = []
            for block in self.blocks:
                if block.name in later:
                    room = self._room(max(0, block.memory_on(self.device) + block.transient))
                    own = [state for state in states if self._is_ready(block, state)]
                    if own:  # else it cannot be the first
                        most = _max_work(own, states, self.number, room, lambda state: state.done)
                        idle.append(heads[block.name] - most - self._once_before(later))
            if idle:
                yield _End(later, max(0, min(idle)))

    def _thresholds(self, ticks: Iterable[int]) -> set[int]:
        """Return the heads or tails to look at: the least alone where not all states are known.

        All blocks have that, so that before or after them a micro-batch is in one of the two known states.
        """
        found = set(ticks)
        return found if self.knows_all or not found else {min(found)}

    def _lasts(self, tails: Mapping[str, int]) -> Iterator[_End]:
        """Yield what is idle after the last end of the blocks of each tail or more."""
        once = sum(self.timeline.length[block.name] for block in self.once)
        names = [block for block in self.blocks if block.kind is not Kind.O]
        for least in self._thresholds(tails[block.name] for block in names):
            earlier = frozenset(block.name for block in names if tails[block.name] >= least)
            states = [state for state in self.states if earlier <= state.started]
            idle = []
            for block in names:
                if block.name in earlier:
                    room = self._room(max(block.transient, -block.memory_on(self.device)))
                    after = self._after(block)
                    own = [state for state in states if not state.started & after]
                    if own:  # else it cannot be the last
                        most = _max_work(own, states, self.number, room, lambda state: state.left)
                        idle.append(tails[block.name] - most - once)
            if idle:
                yield _End(earlier, max(0, min(idle)))

    def _are_apart(self, first: _End, last: _End) -> bool:
        """Return whether the last of some blocks cannot end before the first of others starts."""
        if first.blocks & last.blocks:
            return True
        between = [s.held for s in self.states if last.blocks <= s.started and not s.started & first.blocks]
        if not between:
            return True
        return self.capacity is not None and self.number * min(between) > self.capacity

    def _room(self, needed: int) -> int | None:
        return None if self.capacity is None else self.capacity - needed

    def _once_before(self, later: frozenset[str]) -> int:
        """Ticks of the optimizer blocks that need not wait for any of some blocks."""
        return sum(self.timeline.length[block.name] for block in self.once if block.name not in later)

    def _is_ready(self, block: Block, state: _State) -> bool:
        """Return whether a micro-batch in a state may be the one that starts a block."""
        here = {each.name for each in self.blocks}
        before = {name for name in self.timeline.ancestors[block.name] if name in here}
        return before <= state.started

    def _after(self, block: Block) -> frozenset[str]:
        return frozenset(
            other.name for other in self.blocks if block.name in self.timeline.ancestors[other.name]
        )


def _max_work(
    own: Iterable[_State],
    states: Iterable[_State],
    number: int,
    room: int | None,
    work: Callable[[_State], int],
) -> int:
    """Return an upper bound on the ticks of work of some micro-batches whose memory fits, one of them given.

    Proof. For any price of a unit of memory, from 0 on, the work is at most the price of the room, and of
    each micro-batch the most that its work is worth above the price of what it holds. The least such sum is
    at a price at which two states are worth the same, or at 0.

    Args:
        own: States that one of the micro-batches may be in.
        states: Those that the others may be in.
        number: Number of micro-batches.
        room: Units that they may hold; None for any number.
        work: Work of a state, in ticks.
    """
    first, others = _worthwhile(own, work), _worthwhile(states, work)
    if room is None:
        return first[-1][1] + (number - 1) * others[-1][1]
    prices = {Fraction(0)} | {
        Fraction(b[1] - a[1], b[0] - a[0]) for points in (first, others) for a, b in pairwise(points)
    }

    def worth(price: Fraction) -> Fraction:
        """Return the most work that can be done, at a price."""
        most = [max(ticks - price * held for held, ticks in points) for points in (first, others)]
        return price * room + most[0] + (number - 1) * most[1]

    return int(min(worth(price) for price in prices))


def _worthwhile(states: Iterable[_State], work: Callable[[_State], int]) -> list[tuple[int, int]]:
    """Return (memory, ticks of work) of the states that are worth most at some price of memory, ascending."""
    hull: list[tuple[int, int]] = []
    for held, ticks in sorted((state.held, work(state)) for state in states):
        if hull and ticks <= hull[-1][1]:
            continue
        if hull and hull[-1][0] == held:
            hull.pop()
        while len(hull) > 1 and _is_below(hull[-2], hull[-1], (held, ticks)):
            hull.pop()
        hull.append((held, ticks))
    return hull


def _is_below(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Return whether b is not above the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])


def _states(timeline: Timeline, device: int, here: list[Block]) -> tuple[list[_State], bool]:
    """Return how far a micro-batch can be on a device; nothing, everything and False if too much."""
    names = [block.name for block in here]
    before = {name: timeline.ancestors[name] & set(names) for name in names}
    found = {frozenset[str]()}
    for name in names:  # in topological order
        found |= {started | {name} for started in found if before[name] <= started}
        if len(found) > _MAX_STATES:
            break
    knows_all = len(found) <= _MAX_STATES
    shared = {block.name for block in timeline.shared}
    length = {name: 0 if name in shared else timeline.length[name] for name in names}
    memory = {block.name: block.memory_on(device) for block in here}
    total = sum(length.values())
    states = []
    for started in found if knows_all else (frozenset[str](), frozenset(names)):
        done = sum(length[name] for name in started)
        states.append(_State(started, done, total - done, sum(memory[name] for name in started)))
    return states, knows_all


def _own_ticks(timeline: Timeline, device: int, *, until_end: bool) -> dict[str, int]:
    """Return for each block of a device the ticks from the first start there to its own, at least.

    Args:
        timeline: Timeline of the placement.
        device: Which one.
        until_end: Return those from its end to the last end there instead.
    """
    placement, found = timeline.placement, dict[str, int]()
    order = placement.topological_order
    for block in reversed(order) if until_end else order:
        near = placement.successors[block.name] if until_end else block.after
        apart = [
            found[name]
            + timeline.length[name]
            + timeline.transfer_time(*((block.name, name) if until_end else (name, block.name)))
            for name in near
            if name in found
        ]
        if apart or device in block.devices:
            found[block.name] = max(apart, default=0)
    return found
