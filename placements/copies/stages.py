"""Copies of devices as stages again, whose groups take micro-batches in turn; and stages as copies.

A schedule knows the copies of a stage as blocks of their own (`placements.copies.replicas`), a model as one
block on several devices (`placements.Block.in_turns`): it has the stage's parameters once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from placements.block import Block, PlacementError
from placements.copies.replicas import replicated
from placements.modes import Chosen
from placements.spec import Placement


class StageCopy(NamedTuple):
    """What a block of a copy is.

    Attributes:
        stage: Name of the block of which it is a copy.
        number: Number of the copy, which is also that of the choice which takes it.
    """

    stage: str
    number: int


def copies_in(placement: Placement) -> Mapping[str, StageCopy]:
    """Map the name of each block that is a copy to what it is; empty where a placement has no copies.

    >>> from placements.shapes import v_shape
    >>> dict(copies_in(replicated(v_shape(1), [2])))["B0@1"]
    StageCopy(stage='B0', number=1)
    """
    decisions = placement.decisions
    if not decisions or any(each.names != _names(len(each.names)) for each in decisions):
        return {}
    found = {block.name: block.name.rpartition("@") for block in placement.blocks}
    return {name: StageCopy(stage, int(number)) for name, (stage, _, number) in found.items()}


def not_taken(placement: Placement, chosen: Chosen) -> frozenset[str]:
    """Return the blocks of copies that a micro-batch does not take."""
    return frozenset(
        block.name
        for decision, number in zip(placement.decisions, chosen, strict=True)
        for block in decision.choices[number].blocks
        if not block.time
    )


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
    blocks = tuple(_stage(name, blocks, copies) for name, blocks in blocks_of.items())
    transfer = {(copies[a].stage, copies[b].stage): ticks for a, b, ticks in placement.transfer}
    return replace(
        placement,
        blocks=blocks,
        transfer=tuple((a, b, ticks) for (a, b), ticks in transfer.items()),
        decisions=(),
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
    for block in placement.blocks:
        if block.data_parallel != len(block.devices) or block.in_turns != (len(block.devices) > 1):
            raise PlacementError(
                f"blocks ({block.name}).in_turns: each of its {len(block.devices)} devices has to be a "
                f"group of its own; give data_parallel: {len(block.devices)}, and in_turns: true"
            )
    number = {team: stage for stage, team in enumerate(teams)}

    def first(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[team[0]] for team in teams)

    plain = replace(
        placement,
        num_devices=len(teams),
        blocks=tuple(
            replace(
                block,
                devices=(number[block.devices],),
                memory=block.memory_on(block.devices[0]),
                data_parallel=1,
                in_turns=False,
            )
            for block in placement.blocks
        ),
        memory=None if placement.memory is None else first(placement.memory),
        static_memory=first(placement.static_memory) if placement.static_memory else (),
        num_gpus=first(placement.num_gpus) if placement.num_gpus else (),
    )
    return replace(replicated(plain, [len(team) for team in teams]), name=placement.name)


def _stage(name: str, blocks: list[Block], copies: Mapping[str, StageCopy]) -> Block:
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
    after: Iterable[str] = (copies[each].stage for block in blocks for each in block.after)
    return replace(
        blocks[0],
        name=name,
        devices=tuple(devices),
        memory=tuple(block.memory_on(device) for block in blocks for device in block.devices),
        after=tuple(dict.fromkeys(after)),
        data_parallel=len(teams),
        in_turns=len(teams) > 1,
    )


def _names(count: int) -> tuple[str, ...]:
    """Return the names of the choices of a decision on copies."""
    return tuple(f"copy {number}" for number in range(count))
