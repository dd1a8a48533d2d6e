"""A schedule's blocks in an order in which each comes after all that it waits for, and what each sends.

A block whose devices differ from those of a block that waits for it sends it a message. The first link that
carries a pair of their devices carries it; where none does, it waits for no other message.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        devices: Where it runs.
        messages: Messages to all blocks that wait for it.
    """

    instance: Instance
    devices: tuple[int, ...]
    messages: tuple[BlockOutput, ...]


@dataclass(frozen=True)
class IterationSteps:
    """A schedule under conditions, without times of blocks.

    Attributes:
        steps: Blocks in an order in which each comes after all that it waits for.
        num_devices: Devices of the placement.
        num_links: Links of the conditions.
        is_shared: Whether some link has messages of blocks that run on several devices, so that their order
            depends on the times.
    """

    steps: tuple[BlockStep, ...]
    num_devices: int
    num_links: int
    is_shared: bool


def steps_of(schedule: Schedule, conditions: Conditions) -> IterationSteps:
    """Return a schedule's blocks in order with what they send.

    Args:
        schedule: Valid.
        conditions: Conditions that fit its placement.
    """
    placement = schedule.placement
    instances = [(name, micro_batch) for _, micro_batch, name in schedule.blocks]
    position = {instance: i for i, instance in enumerate(instances)}
    link_of = {pair: i for i, link in enumerate(conditions.links) for pair in link.pairs}
    sent: list[list[BlockOutput]] = [[] for _ in instances]
    senders: list[set[tuple[int, ...]]] = [set() for _ in conditions.links]
    for earlier, later, ticks in dependencies(placement, schedule.num_micro_batches):
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
        BlockStep(instance, placement.by_name[instance[0]].devices, tuple(sorted(messages, key=_by_target)))
        for instance, messages in zip(instances, sent, strict=True)
    )
    is_shared = any(len(each) > 1 for each in senders)
    return IterationSteps(steps, placement.num_devices, len(conditions.links), is_shared)


def _by_target(message: BlockOutput) -> int:
    return message.target
