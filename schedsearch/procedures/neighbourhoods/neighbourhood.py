"""Neighbourhoods: blocks of a schedule to be ordered anew, and the schedules made of the new orders.

Outside a neighbourhood every device keeps its order: earlier runs give its blocks release times, later runs
tails, so that a gain inside is a gain of the whole. Knows no solver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from placements import Placement
from schedsearch.core.objective import span_from
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible


class Aim(Enum):
    """The aim in solving a neighbourhood: a shorter schedule, or a bound.

    SHORTEN: the least makespan, and of those with equal ones the earliest ends. SHORTEN_QUICKLY: any shorter
    one, with more guesses than reasoning. PROVE: a bound. PROVE_BY_CONFLICTS: likewise, by learning which
    block of two comes first, from the best starts down; by far the quickest where all blocks have times of
    their own, as in a job shop.
    """

    SHORTEN = "shorten"
    SHORTEN_QUICKLY = "shorten quickly"
    PROVE = "prove"
    PROVE_BY_CONFLICTS = "prove by conflicts"


@dataclass(frozen=True)
class Neighbourhood:
    """Blocks to be ordered anew, with the constraints from the rest of the schedule.

    Attributes:
        placement: What runs where.
        start: Starts as they are, in ticks, of each (block, micro-batch) of it; of each block,
            consecutive micro-batches.
        release: Earliest start of each, given the runs before.
        tail: Least ticks from the end of each to the end of the schedule, given the runs after; less
            the tick at which the clock of the device began that is last by its own clock.
        ran: Number of micro-batches of each block that run before.
        bound: Known lower bound on the makespan, in ticks.
        makespan: Makespan with these starts, by the devices' clocks; to be beaten, or kept.
        devices: Devices whose blocks are ordered anew; those of others keep their order, and only move.
        horizon: Tick by which a whole schedule has ended, in which each device's clock begins with its first
            start; None where the clocks are given.
    """

    placement: Placement
    start: Mapping[Instance, int]
    release: Mapping[Instance, int]
    tail: Mapping[Instance, int]
    ran: Mapping[str, int]
    bound: int
    makespan: int
    devices: frozenset[int]
    horizon: int | None = None


def one_after_another(placement: Placement, blocks: Iterable[str]) -> Schedule:
    """Return the schedule that starts each block as soon as can be, on every device in a given order.

    The k-th time that a name is there, it stands for micro-batch k; of optimizer blocks once, for the last.
    """
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    names = list(blocks)
    number = max(Counter(names).values())
    once = {block.name for block in placement.optimizer_blocks}
    count = {block.name: number - 1 if block.name in once else 0 for block in placement.blocks}
    for name in names:
        for device in placement.by_name[name].devices:
            orders[device].append((name, count[name]))
        count[name] += 1
    return as_soon_as_possible(placement, number, orders)


def in_order(schedule: Schedule) -> Schedule:
    """Return a schedule, never longer, in which each block runs the micro-batches in order."""
    return one_after_another(schedule.placement, (block.block for block in schedule.blocks))


def gathered(schedule: Schedule) -> Schedule:
    """Return the schedule with shared blocks moved to its ends, the others in the same order.

    First come the blocks of several devices that hold no memory on any of them and wait for nothing, last
    those that hold none and that nothing waits for, such as embeddings: spread over the schedule, each makes
    its devices wait for each other. It may be longer or shorter.
    """
    placement = schedule.placement
    successors = placement.per_micro_batch.successors
    shared = [b for b in placement.per_micro_batch.blocks if len(b.devices) > 1 and b.memory == 0]
    rank = {block.name: 3 for block in placement.optimizer_blocks}
    rank |= {block.name: 2 for block in shared if not successors[block.name]}
    rank |= {block.name: 0 for block in shared if not block.after}
    names = [block.block for block in schedule.blocks]
    return one_after_another(placement, sorted(names, key=lambda name: rank.get(name, 1)))


def with_starts(schedule: Schedule, starts: Mapping[Instance, int]) -> Schedule:
    """Return the schedule in which the instances that `between` took out have the order of new starts."""
    names = [b.block for b in schedule.blocks]
    inside = [i for i, b in enumerate(schedule.blocks) if (b.block, b.micro_batch) in starts]
    first, last = inside[0], inside[-1] + 1
    middle = [name for name, _ in sorted(starts, key=lambda instance: starts[instance])]
    return one_after_another(schedule.placement, names[:first] + middle + names[last:])


def by_own_clocks(schedule: Schedule, bound: int, longest: int) -> Neighbourhood:
    """Return a whole schedule to be ordered anew, with the clocks of all devices free.

    The horizon loses nothing: if all devices were idle for longer than any transfer takes, what comes later
    could come sooner. So the times in which some device is between its first start and its last end leave no
    greater gaps, and none of them is longer than the longest span.

    Args:
        schedule: As made by `in_order`.
        bound: Ticks that the longest device span is known to need.
        longest: The longest device span of the schedule.
    """
    num_devices, transfer = schedule.placement.num_devices, schedule.placement.transfer
    horizon = num_devices * (longest + max((ticks for *_, ticks in transfer), default=0))
    whole = between(schedule, 0, schedule.makespan + 1, bound, [0] * num_devices)
    free = dict.fromkeys(whole.start, 0)
    return replace(whole, release=free, tail=free, bound=bound, makespan=longest, horizon=horizon)


def between(
    schedule: Schedule,
    begin: int,
    end: int,
    bound: int,
    clocks: Sequence[int],
    devices: Iterable[int] | None = None,
) -> Neighbourhood:
    """Return the neighbourhood of the blocks that start from one tick on and before another.

    Args:
        schedule: As made by `in_order`.
        begin: Tick.
        end: Tick.
        bound: Ticks that the makespan by the devices' clocks is known to need.
        clocks: The tick at which each device's clock begins; nothing starts there before.
        devices: Devices whose blocks are ordered anew; None for all.
    """
    placement, start = schedule.placement, schedule.start_of
    idle_from = list(clocks)
    ran = {block.name: 0 for block in placement.blocks}
    for ticks, _, name in schedule.blocks:
        if ticks < begin:
            ran[name] += 1
            for device in placement.by_name[name].devices:
                idle_from[device] = ticks + placement.by_name[name].time
                bound = max(bound, idle_from[device] - clocks[device])

    def release(instance: Instance) -> int:
        """Return an instance's earliest start, given the runs before the neighbourhood."""
        name, micro_batch = instance
        block = placement.by_name[name]
        return max(
            [idle_from[device] for device in block.devices]
            + [
                start[a, micro_batch] + placement.by_name[a].time + placement.transfer_time(a, name)
                for a in block.after
                if start[a, micro_batch] < begin
            ]
        )

    tail, needed = _tails(schedule, end, clocks)
    for instance, ticks in needed.items():
        bound = max(bound, release(instance) + ticks)
    inside = [instance for instance in tail if start[instance] >= begin]
    return Neighbourhood(
        placement,
        start={instance: start[instance] for instance in inside},
        release={instance: release(instance) for instance in inside},
        tail={instance: tail[instance] for instance in inside},
        ran=ran,
        bound=bound,
        makespan=span_from(schedule, clocks),
        devices=frozenset(range(placement.num_devices) if devices is None else devices),
    )


def _tails(
    schedule: Schedule, end: int, clocks: Sequence[int]
) -> tuple[dict[Instance, int], dict[Instance, int]]:
    """Return the tail of each instance: the ticks that must follow it, given the runs from tick `end` on.

    Returns:
        For each instance that starts before the tick, the least ticks from its end to the schedule's end;
        for each other one, the least ticks from its start.
    """
    placement = schedule.placement
    needed: dict[Instance, int] = {}
    tail: dict[Instance, int] = {}
    follows = [-began for began in clocks]
    for ticks, micro_batch, name in reversed(schedule.blocks):
        block = placement.by_name[name]
        last = max(
            [follows[device] for device in block.devices]
            + [
                placement.transfer_time(name, f) + needed[f, micro_batch]
                for f in placement.successors[name]
                if (f, micro_batch) in needed
            ]
        )
        if ticks < end:
            tail[name, micro_batch] = last
        else:
            needed[name, micro_batch] = block.time + last
            for device in block.devices:
                follows[device] = block.time + last
    return tail, needed
