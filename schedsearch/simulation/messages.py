"""A schedule's blocks in an order that keeps all waits, with the messages and waits of each block.

Blocks run in the modes that the schedule has chosen, one at a time on each stream of a device.

A block sends a message to each block that waits for it on other devices. The first link that carries a
pair of their devices carries the message; without a link, it waits for no other message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from typing import NamedTuple

from schedsearch.memory_order import no_sooner
from schedsearch.schedule import Instance, Schedule, dependencies
from schedsearch.simulation.conditions import MIB_PER_MS_OF_GB_S, Conditions

NO_LINK = -1
"""The link of a message that waits for no other."""


class BlockOutput(NamedTuple):
    """A message from a block to another one, or a wait of the other one without a message.

    Attributes:
        target: Position of the other block.
        link: Link that carries it; `NO_LINK` for none.
        occupied: Ticks for which it occupies the link, not whole.
        latency: Ticks after that until it is there.
        from_start: Whether the other block waits for the start of this one alone, not for its end.
    """

    target: int
    link: int = NO_LINK
    occupied: float = 0.0
    latency: float = 0.0
    from_start: bool = False


class BlockStep(NamedTuple):
    """A block of one micro-batch, with its outgoing messages and waits.

    Attributes:
        instance: Block and micro-batch.
        lanes: Where it runs: numbers of `Placement.lanes`.
        messages: Messages to all blocks that take its output.
        waits: Other waits for it: by the next block on each lane, and by blocks that need memory it releases.
    """

    instance: Instance
    lanes: tuple[int, ...]
    messages: tuple[BlockOutput, ...]
    waits: tuple[BlockOutput, ...]


class IterationSteps(NamedTuple):
    """A schedule's blocks and messages under conditions, without times of blocks.

    Attributes:
        steps: Blocks in an order in which each comes after all blocks that it waits for.
        groups: Positions of blocks, in order: one block a group, or several that start together to swap.
        num_links: Links of the conditions.
        is_shared: Whether some link has messages of blocks that run on several devices, so that their order
            depends on the times.
    """

    steps: tuple[BlockStep, ...]
    groups: tuple[tuple[int, ...], ...]
    num_links: int
    is_shared: bool


def steps_of(schedule: Schedule, conditions: Conditions) -> IterationSteps:
    """Return the blocks of a valid schedule in order, with their messages, under conditions that fit it."""
    placement = schedule.placement
    memory_waits = list(schedule.memory_waits)
    groups = list(_groups(schedule, no_sooner(memory_waits)))
    instances = [instance for group in groups for instance in group]
    position = {instance: i for i, instance in enumerate(instances)}
    numbers = tuple(tuple(position[instance] for instance in group) for group in groups)
    group_of = {instance: group for group in groups for instance in group}
    waits: list[list[BlockOutput]] = [[] for _ in instances]
    for order in schedule.lane_orders:
        for earlier, later in pairwise(order):
            waits[position[earlier]].append(BlockOutput(position[later]))
    for earlier, later, ticks in memory_waits:
        if group_of[earlier] is not group_of[later]:
            waits[position[earlier]].append(BlockOutput(position[later], from_start=not ticks))
    link_of = {pair: i for i, link in enumerate(conditions.links) for pair in link.pairs}
    sent: list[list[BlockOutput]] = [[] for _ in instances]
    senders: list[set[tuple[int, ...]]] = [set() for _ in conditions.links]
    for earlier, later, ticks in dependencies(placement, schedule.num_micro_batches, schedule.chosen):
        sources, targets = placement.by_name[earlier[0]].devices, placement.by_name[later[0]].devices
        pairs = [(a, b) for a in sources for b in targets if a != b] if sources != targets else []
        factor = max((conditions.slow_pairs.get(pair, 1.0) for pair in pairs), default=1.0)
        link = next((link_of[pair] for pair in pairs if pair in link_of), NO_LINK)
        occupied, latency = ticks * factor, 0.0
        if link != NO_LINK:
            carrier, tick_ms = conditions.links[link], placement.tick_ms
            if carrier.bandwidth_gb_s is not None:
                mib_per_ms = carrier.bandwidth_gb_s * MIB_PER_MS_OF_GB_S
                occupied = carrier.message_mib / mib_per_ms / tick_ms * factor
            latency = carrier.latency_ms / tick_ms
            senders[link].add(sources)
        sent[position[earlier]].append(BlockOutput(position[later], link, occupied, latency))
    lanes = [placement.lanes_of(placement.by_name[name]) for name, _ in instances]
    steps = tuple(
        BlockStep(instance, on, tuple(sorted(messages, key=lambda message: message.target)), tuple(others))
        for instance, on, messages, others in zip(instances, lanes, sent, waits, strict=True)
    )
    return IterationSteps(steps, numbers, len(conditions.links), any(len(sources) > 1 for sources in senders))


def _groups(schedule: Schedule, waits: Mapping[Instance, set[Instance]]) -> Iterator[tuple[Instance, ...]]:
    """Yield groups of blocks in the order of their starts; a group's blocks wait for each other's start."""
    for _, started in groupby(schedule.blocks, key=lambda run: run.start):
        left = [(name, n) for _, n, name in started]
        if waits:  # what waits for more comes later; what swaps waits for the same
            left.sort(key=lambda instance: len(waits.get(instance, ())))
        while left:
            first = left[0]
            swap = {other for other in waits.get(first, ()) if first in waits.get(other, ())} | {first}
            yield (first, *(instance for instance in left[1:] if instance in swap))
            left = [instance for instance in left if instance not in swap]
