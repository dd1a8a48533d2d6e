"""A schedule's blocks in an order in which each comes after all that it waits for, and what each sends.

Blocks run in the modes that the schedule has chosen for them, each stream of a device one at a time.

A block whose devices differ from those of a block that waits for it sends it a message. The first link that
carries a pair of their devices carries it; where none does, it waits for no other message.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from schedsearch.memory_order import no_sooner
from schedsearch.schedule import Instance, Schedule, dependencies
from schedsearch.simulation.conditions import Conditions

NO_LINK = -1
"""The link of a message that waits for no other."""


@dataclass(frozen=True)
class BlockOutput:
    """A block's output on its way to another, or that this one waits for it.

    Attributes:
        target: Position of the other block.
        link: Link that carries it; `NO_LINK` for none.
        occupied: Ticks for which it occupies the link, not whole.
        latency: Ticks after that until it is there.
    """

    target: int
    link: int
    occupied: float
    latency: float


@dataclass(frozen=True)
class BlockStep:
    """A block of one micro-batch.

    Attributes:
        instance: Block and micro-batch.
        lanes: Where it runs: numbers of `Placement.lanes`.
        messages: Messages to all blocks that wait for it.
        held_up: Positions of blocks that start no sooner than it: they allocate what it releases.
    """

    instance: Instance
    lanes: tuple[int, ...]
    messages: tuple[BlockOutput, ...]
    held_up: tuple[int, ...] = ()


@dataclass(frozen=True)
class IterationSteps:
    """A schedule under conditions, without times of blocks.

    Attributes:
        steps: Blocks in an order in which each comes after all that it waits for.
        groups: The positions of all blocks, in order: those that start together, as they swap memory, or one.
        num_lanes: Streams of all devices.
        num_links: Links of the conditions.
        is_shared: Whether some link has messages of blocks that run on several devices, so that their order
            depends on the times.
    """

    steps: tuple[BlockStep, ...]
    groups: tuple[tuple[int, ...], ...]
    num_lanes: int
    num_links: int
    is_shared: bool


def steps_of(schedule: Schedule, conditions: Conditions) -> IterationSteps:
    """Return a schedule's blocks in order with what they send.

    Args:
        schedule: Valid.
        conditions: Conditions that fit its placement.
    """
    placement = schedule.placement
    waits = list(schedule.memory_waits)
    groups = list(_groups(schedule, no_sooner(waits)))
    instances = [each for group in groups for each in group]
    position = {instance: i for i, instance in enumerate(instances)}
    link_of = {pair: i for i, link in enumerate(conditions.links) for pair in link.pairs}
    sent: list[list[BlockOutput]] = [[] for _ in instances]
    senders: list[set[tuple[int, ...]]] = [set() for _ in conditions.links]
    held_up: list[list[int]] = [[] for _ in instances]
    for earlier, later, ticks in waits:
        if ticks:
            sent[position[earlier]].append(BlockOutput(position[later], NO_LINK, 0.0, 0.0))
        else:
            held_up[position[earlier]].append(position[later])
    for earlier, later, ticks in dependencies(placement, schedule.num_micro_batches, schedule.chosen):
        sources, targets = placement.by_name[earlier[0]].devices, placement.by_name[later[0]].devices
        pairs = [(a, b) for a in sources for b in targets if a != b] if sources != targets else []
        factor = max((conditions.slow_pairs.get(pair, 1.0) for pair in pairs), default=1.0)
        link = next((link_of[pair] for pair in pairs if pair in link_of), NO_LINK)
        occupied, latency = ticks * factor, 0.0
        if link != NO_LINK:
            carrier, tick_ms = conditions.links[link], placement.tick_ms
            if carrier.bandwidth_gb_s is not None:
                occupied = carrier.occupied_ms(0.0) / tick_ms * factor
            latency = carrier.latency_ms / tick_ms
            senders[link].add(sources)
        sent[position[earlier]].append(BlockOutput(position[later], link, occupied, latency))
    steps = tuple(
        BlockStep(
            instance,
            placement.lanes_of(placement.by_name[instance[0]]),
            tuple(sorted(messages, key=_by_target)),
            tuple(others),
        )
        for instance, messages, others in zip(instances, sent, held_up, strict=True)
    )
    is_shared = any(len(each) > 1 for each in senders)
    numbers = tuple(tuple(position[each] for each in group) for group in groups)
    return IterationSteps(steps, numbers, len(placement.lanes), len(conditions.links), is_shared)


def _groups(schedule: Schedule, waits: Mapping[Instance, set[Instance]]) -> Iterator[tuple[Instance, ...]]:
    """Yield the blocks in the order in which they start; together, those that swap memory.

    These must start no sooner than each other.

    Args:
        schedule: Valid.
        waits: For each block those that it must start no sooner than.
    """
    for _, started in itertools.groupby(schedule.blocks, key=lambda each: each.start):
        here = [(name, n) for _, n, name in started]
        if waits:  # what waits for more comes later; what swaps waits for the same
            here.sort(key=lambda each: len(waits.get(each, ())))
        left = dict.fromkeys(here)
        while left:
            first = next(iter(left))
            own = [first, *(each for each in left if each != first and _swap(waits, first, each))]
            for each in own:
                del left[each]
            yield tuple(own)


def _swap(waits: Mapping[Instance, set[Instance]], one: Instance, other: Instance) -> bool:
    return other in waits.get(one, ()) and one in waits.get(other, ())


def _by_target(message: BlockOutput) -> int:
    return message.target
