"""Copies of devices as stages again, whose groups take micro-batches in turn; and stages as copies.

A schedule knows the copies of a stage as blocks of their own (`placements.copies.replicas`), a model as one
block on several devices (`placements.Block.in_turns`): it has the stage's parameters once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from placements.block import Block, PlacementError
from placements.copies.replicas import per_device, replicated
from placements.modes import Chosen
from placements.spec import Placement


class StageCopy(NamedTuple):
    """Identity of a copy's block: name of the stage's block, and number of the copy and of its choice."""

    stage: str
    number: int


def copies_in(placement: Placement) -> Mapping[str, StageCopy]:
    """Map the name of each block that is a copy to what it is; empty where a placement has no copies.

    >>> from placements.shapes import v_shape
    >>> dict(copies_in(replicated(v_shape(1), [2])))["B0@1"]
    StageCopy(stage='B0', number=1)
    """
    names = [name for each in placement.decisions for name in enumerate(each.names)]
    if not names or any(name != f"copy {number}" for number, name in names):
        return {}
    found = {block.name: block.name.rpartition("@") for block in placement.blocks}
    return {name: StageCopy(stage, int(number)) for name, (stage, _, number) in found.items()}


def not_taken(placement: Placement, chosen: Chosen) -> frozenset[str]:
    """Return the blocks of copies that a micro-batch does not take."""
    taken = [each.choices[n] for each, n in zip(placement.decisions, chosen, strict=True)]
    return frozenset(block.name for choice in taken for block in choice.blocks if not block.time)


def orders_of_stages(
    placement: Placement, orders: Sequence[Sequence[tuple[str, int]]]
) -> list[list[tuple[str, int]]]:
    """Return the (block, micro-batch) pairs that each device runs, blocks of copies named as their stages."""
    copies = copies_in(placement)
    return [[(copies[name].stage if copies else name, n) for name, n in order] for order in orders]


def as_stages(placement: Placement) -> Placement:
    """Return a placement of copies as its stages: each block once, on the devices of all of its copies.

    Any other placement is returned as it is.

    Raises:
        PlacementError: Copies of a block are unequal groups of devices, or cut samples into shares.

    >>> from placements.shapes import v_shape
    >>> [(block.name, block.groups) for block in as_stages(replicated(v_shape(2), [2, 1])).blocks[:2]]
    [('F0', ((0,), (1,))), ('F1', ((2,),))]
    """
    copies = copies_in(placement)
    if not copies:
        return placement
    blocks_of: dict[str, list[Block]] = {}
    for block in placement.blocks:
        blocks_of.setdefault(copies[block.name].stage, []).append(block)
    transfer = {(copies[a].stage, copies[b].stage): ticks for a, b, ticks in placement.transfer}
    return replace(
        placement,
        blocks=tuple(_stage(name, blocks, copies) for name, blocks in blocks_of.items()),
        transfer=tuple((*ends, ticks) for ends, ticks in transfer.items()),
        decisions=(),
    )


def _stage(name: str, blocks: Sequence[Block], copies: Mapping[str, StageCopy]) -> Block:
    """Return a stage's block of its copies."""
    teams = [block.devices for block in sorted(blocks, key=lambda block: copies[block.name].number)]
    devices = [device for team in teams for device in team]
    if len({len(team) for team in teams}) > 1 or devices != sorted(devices):
        raise PlacementError(
            f"blocks ({name}).devices: its copies are on {', '.join(map(str, teams))}; let each have as "
            "many, numbered one copy after the other"
        )
    if any(block.data_parallel > 1 for block in blocks):
        raise PlacementError(
            f"blocks ({name}).data_parallel: a copy that takes whole micro-batches cannot cut them too; "
            "give 1"
        )
    return replace(
        blocks[0],
        name=name,
        devices=tuple(devices),
        memory=tuple(block.memory_on(device) for block in blocks for device in block.devices),
        after=tuple(dict.fromkeys(copies[each].stage for block in blocks for each in block.after)),
        data_parallel=len(teams),
        in_turns=len(teams) > 1,
    )


def as_copies(placement: Placement) -> Placement:
    """Return a placement some of whose blocks take micro-batches in turn as one of copies.

    Any other placement is returned as it is.

    Raises:
        PlacementError: Its blocks are not on the devices of stages, each with as many copies for all blocks.
    """
    if not any(block.in_turns for block in placement.blocks):
        return placement
    teams = sorted({block.devices for block in placement.blocks})
    if [device for team in teams for device in team] != list(range(placement.num_devices)):
        raise PlacementError(
            f"{placement.name}: has blocks in turns, and others on some of their devices; let each device "
            "be of one stage, and number those of a stage in a row"
        )
    blocks = []
    for block in placement.blocks:
        number = len(block.devices)
        if block.data_parallel != number or block.in_turns != (number > 1):
            raise PlacementError(
                f"blocks ({block.name}).in_turns: each of its {number} devices has to be a group of its own; "
                f"give data_parallel: {number}, and in_turns: true"
            )
        memory, devices = block.memory_on(block.devices[0]), (teams.index(block.devices),)
        blocks.append(replace(block, devices=devices, memory=memory, data_parallel=1, in_turns=False))
    one_each = per_device(placement, [team[0] for team in teams])
    plain = replace(placement, num_devices=len(teams), blocks=tuple(blocks), **one_each)
    return replace(replicated(plain, [len(team) for team in teams]), name=placement.name)
