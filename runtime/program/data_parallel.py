"""Which device has which share of a block's tensors, where blocks run in data-parallel groups.

Each group of a block computes its share of the samples, or takes whole micro-batches in turn. From a block to
another of as many groups, group by group hands its share to its like; otherwise the producer's groups
exchange their shares, and all of its devices have the whole tensor, of which the consumer's groups take
theirs.

A group of several devices may get what it takes in parts: each device one, from one that has the whole, and
then they gather them (Narayanan's dissertation, Sec. 4.4.1, where both teams are of the same size).
The module knows placements of which each device is one GPU, and no torch.
"""

from __future__ import annotations

from typing import NamedTuple

from placements import Block, Placement

Part = tuple[int, int]
"""(index, count): one of so many equal parts of a tensor, in the order of its elements."""


class Coordinate(NamedTuple):
    """Where a device stands in a block.

    Attributes:
        group: Index of its data-parallel group.
        shard: Its index in that group.
        team: The devices of the group: tensor parallel.
        peers: The devices that hold the same shard, one of each group, in order; where groups take
            micro-batches in turn the device alone.
    """

    group: int
    shard: int
    team: tuple[int, ...]
    peers: tuple[int, ...]


def coordinate(block: Block, device: int) -> Coordinate:
    """Return where one of a block's devices stands in it.

    >>> from placements import Kind
    >>> coordinate(Block("F0", Kind.F, (0, 1, 4, 5), 1, data_parallel=2), 5)
    Coordinate(group=1, shard=1, team=(4, 5), peers=(1, 5))
    """
    groups = block.groups
    group, shard = divmod(block.devices.index(device), len(groups[0]))
    if block.in_turns:
        return Coordinate(0, shard, groups[group], (device,))
    return Coordinate(group, shard, groups[group], tuple(team[shard] for team in groups))


def in_shares(producer: Block, consumer: Block) -> bool:
    """Tell whether each group hands its share to its like, rather than all of the tensor to all.

    Besides equal numbers of groups this needs that a device of both blocks is in the same group of both.
    """
    if producer.data_parallel != consumer.data_parallel or producer.in_turns or consumer.in_turns:
        return False
    pairs = zip(producer.groups, consumer.groups, strict=True)
    return all(set(theirs).issuperset(set(ours).intersection(producer.devices)) for theirs, ours in pairs)


def holders(producer: Block, consumer: Block, target: int) -> tuple[int, ...]:
    """Return the producer's devices that have the input of a device of the consumer."""
    if in_shares(producer, consumer):
        return producer.groups[coordinate(consumer, target).group]
    return producer.devices


def part_for(producer: Block, consumer: Block, target: int) -> Part | None:
    """Return the part of a tensor that a device of the consumer can be sent, to gather it with its group.

    None where it takes the whole: it is alone in its group, or one of the group has the tensor already.
    """
    here = coordinate(consumer, target)
    if len(here.team) == 1 or set(here.team) & set(producer.devices):
        return None
    return here.shard, len(here.team)


def crosses_nodes(placement: Placement, sources: tuple[int, ...], team: tuple[int, ...]) -> bool:
    """Tell whether a team that is in one node gets something from another node."""
    nodes = placement.nodes or (0,) * placement.num_devices
    there = {nodes[device] for device in team}
    return len(there) == 1 and not there.issuperset(nodes[device] for device in sources)
