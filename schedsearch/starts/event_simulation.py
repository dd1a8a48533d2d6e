"""Event simulation (greedy list scheduling): an idle device runs the ready block that a rule prefers.

Works for any placement. A rule decides how far ahead a device may run blocks that allocate memory, and when
it runs fillers: blocks that no other block waits for, such as weight halves.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from placements import Block, Placement
from schedsearch.proof.timeline import Timeline
from schedsearch.schedule import Schedule, ScheduledBlock
from schedsearch.solver.interrupts import INTERRUPTS


@dataclass(frozen=True)
class Rule:
    """A rule by which an idle device chooses among its ready blocks.

    Attributes:
        ahead: Most micro-batches by which a block that allocates memory may be ahead of its return (its
            micro-batch's last block on the device that is no filler): `ahead` times the blocks on the way
            there and back, divided by the blocks on the device. None for no limit but memory.
        less: Micro-batches to subtract from this limit.
        patience: A filler is not begun if it would delay a known coming block by more than this share of the
            filler's time.
        eager: Whether fillers come before blocks that allocate memory.
    """

    ahead: Fraction | None
    less: int = 0
    patience: Fraction = Fraction(1)
    eager: bool = False


RULES = (
    Rule(Fraction(3, 2)),
    Rule(Fraction(1), less=1, patience=Fraction(1, 2)),
    Rule(None, patience=Fraction(1, 2)),
    Rule(Fraction(3), less=1),
    Rule(Fraction(3)),
    Rule(Fraction(3, 2), less=1, patience=Fraction(1, 2)),
    Rule(Fraction(2), patience=Fraction(1, 2)),
    Rule(Fraction(3, 2), patience=Fraction(1, 2)),
    Rule(Fraction(3), eager=True),
    Rule(Fraction(1), eager=True),
    Rule(Fraction(2), less=1, patience=Fraction(1, 2)),
    Rule(Fraction(3), less=1, patience=Fraction(1, 2)),
    Rule(Fraction(1)),
    Rule(Fraction(3), patience=Fraction(1, 2)),
)
"""The rules to try, the most useful first: the best of 27 on 180 placements, see `docs/tried.md`."""


def list_schedule(
    placement: Placement,
    num_micro_batches: int,
    rule: Rule,
    deadline: float = math.inf,
    ranks: Mapping[str, int] | None = None,
) -> Schedule | None:
    """Return the schedule that a rule makes; None if it deadlocks or takes too long.

    Args:
        placement: What runs where, without optimizer blocks.
        num_micro_batches: Number of micro-batches, at least 1.
        rule: The rule of idle devices.
        deadline: When to give up, in seconds of `time.monotonic`. A million blocks take about ten seconds.
        ranks: Rank of each block; of ready blocks of one kind the lower rank comes first. None to prefer the
            block with less to come after it.

    Returns:
        A schedule that keeps each device's memory, and runs each block's micro-batches in order.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C.
    """
    return _Simulation(placement, num_micro_batches, rule, ranks).run(deadline)


class _Simulation:
    """The state of all devices at one tick."""

    def __init__(
        self, placement: Placement, num_micro_batches: int, rule: Rule, ranks: Mapping[str, int] | None = None
    ) -> None:
        self.placement = placement
        self.number = num_micro_batches
        self.rule = rule
        self.blocks = placement.topological_order
        self.on = [placement.on(device) for device in range(placement.num_devices)]
        self.fillers = {
            block.name for block in self.blocks if block.after and not placement.successors[block.name]
        }
        self.limits = self._limits()
        self.idle_from = [0] * placement.num_devices
        self.held = [0] * placement.num_devices
        # For each block the micro-batch that it runs next; and for each of its micro-batches, the number of
        # inputs of which it is not yet known when they are there, and the tick at which the known ones are
        self.next = {block.name: 0 for block in self.blocks}
        self.missing = {block.name: [len(block.after)] * num_micro_batches for block in self.blocks}
        self.ready = {block.name: [0] * num_micro_batches for block in self.blocks}
        self.rank = Timeline(placement, frozenset()).tails if ranks is None else ranks
        self.scheduled: list[ScheduledBlock] = []

    def run(self, deadline: float) -> Schedule | None:
        """Process events until all blocks have run, no block can run, or the deadline has passed."""
        events = [(0, device) for device in range(self.placement.num_devices)]
        total = len(self.blocks) * self.number
        while events and len(self.scheduled) < total:
            INTERRUPTS.raise_if_seen()
            if time.monotonic() >= deadline:
                return None
            tick = events[0][0]
            devices = set()
            while events and events[0][0] == tick:
                devices.add(heapq.heappop(events)[1])
            for device in sorted(devices):
                if self.idle_from[device] <= tick and (block := self._choose(device, tick)) is not None:
                    for event in self._start(block, tick):
                        heapq.heappush(events, event)
        if len(self.scheduled) < total:
            return None
        return Schedule(self.placement, self.number, tuple(self.scheduled))

    def _choose(self, device: int, tick: int) -> Block | None:
        """Return the block that a device should run now; None if it should wait."""
        best: tuple[tuple[int, int, int], Block] | None = None
        comes: int | None = None
        for block in self.on[device]:
            name, micro_batch = block.name, self.next[block.name]
            if micro_batch == self.number or self.missing[name][micro_batch]:
                continue
            ready = self.ready[name][micro_batch]
            if ready > tick:
                if name not in self.fillers and self._may_run(block, micro_batch):
                    comes = ready if comes is None else min(comes, ready)
            elif all(self.idle_from[device] <= tick for device in block.devices) and self._may_run(
                block, micro_batch
            ):
                holds = block.memory_on(device) > 0
                kind = (1 if self.rule.eager else 3) if name in self.fillers else 2 if holds else 0
                rank = kind, self.rank[name], micro_batch
                if best is None or rank < best[0]:
                    best = rank, block
        if best is None:
            return None
        block = best[1]
        would_wait = 0 if comes is None else tick + block.time - comes
        if block.name in self.fillers and would_wait > block.time * self.rule.patience:
            return None
        return block

    def _may_run(self, block: Block, micro_batch: int) -> bool:
        """Return whether a block may run: it is not too far ahead of its return, and its memory fits."""
        if block.name in self.limits:
            back, most = self.limits[block.name]
            if micro_batch - self.next[back] >= most:
                return False
        free = self.placement.free_memory
        if free is None:
            return True
        for device in block.devices:
            needed = block.memory_on(device)
            if needed > 0 or block.transient:
                room = free[device] - self.held[device] - needed
                if room < block.transient or room < self._reserve(device, micro_batch):
                    return False
        return True

    def _reserve(self, device: int, micro_batch: int) -> int:
        """Return the memory that the oldest micro-batch in flight still needs to finish on a device."""
        oldest = min(self.next[block.name] for block in self.on[device])
        if oldest == micro_batch:
            return 0
        needed = most = 0
        for block in self.on[device]:
            if self.next[block.name] <= oldest:
                needed += block.memory_on(device)
                most = max(most, needed + block.transient)
        return most

    def _start(self, block: Block, tick: int) -> list[tuple[int, int]]:
        """Run a block; return (tick, device) events at which devices have new blocks to choose from."""
        name, micro_batch = block.name, self.next[block.name]
        self.next[name] += 1
        self.scheduled.append(ScheduledBlock(tick, micro_batch, name))
        end = tick + block.time
        events = [(end, device) for device in block.devices]
        for device in block.devices:
            self.idle_from[device] = end
            self.held[device] += block.memory_on(device)
        for follower in self.placement.successors[name]:
            there = end + self.placement.transfer_time(name, follower)
            self.missing[follower][micro_batch] -= 1
            self.ready[follower][micro_batch] = max(self.ready[follower][micro_batch], there)
            events += [(there, device) for device in self.placement.by_name[follower].devices]
        return events

    def _limits(self) -> Mapping[str, tuple[str, int]]:
        """Return for each block that allocates memory its return, and its limit of micro-batches ahead."""
        limits: dict[str, tuple[str, int]] = {}
        if self.rule.ahead is None:
            return limits
        ancestors = Timeline(self.placement, frozenset()).ancestors
        depth: dict[str, int] = {}
        for block in self.blocks:
            depth[block.name] = 1 + max((depth[name] for name in block.after), default=0)
        for block in self.blocks:
            device = block.devices[0]
            later = [
                other.name
                for other in self.on[device]
                if block.name in ancestors[other.name] and other.name not in self.fillers
            ]
            if later and block.memory_on(device) > 0:
                way = max(depth[name] for name in later) - depth[block.name] + 1
                most = self.rule.ahead * way / len(self.on[device])
                limits[block.name] = later[-1], max(1, round(most) - self.rule.less)
        return limits
