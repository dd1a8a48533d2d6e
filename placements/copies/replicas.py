"""Copies of devices, of which each micro-batch takes one: data-parallel pipelines as one placement.

A micro-batch that finds its copy of a stage lost, or slow, goes to another copy of the same stage. So which
copy it takes is a mode, chosen for each device of the plain pipeline.

A schedule knows the copies of a stage as blocks of their own, a model as one block on several devices
(`placements.Block.in_turns`): it has the stage's parameters once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from placements.block import Block, Kind, PlacementError
from placements.modes import Choice, Chosen, Decision
from placements.spec import Placement


def replicated(placement: Placement, replicas: Sequence[int]) -> Placement:
    """Return a pipeline with copies of its devices, one decision for each device: the copy that is taken.

    The copies of a device are devices of their own, one after the other. Block ``F1`` is ``F1@0``, ``F1@1``
    and so on, on the copies of its device. Choice r of a decision leaves out the blocks of all other copies.
    R pipelines side by side are ``[R] * num_devices``; a micro-batch of pipeline r chooses r everywhere.

    Between devices a block of any copy may follow that of any other. An optimizer block, which each copy has,
    waits for all copies of its predecessors, as they add up their gradients.

    Args:
        placement: Each block is on one device; has no modes and one stream.
        replicas: Copies of each device, at least 1.

    Raises:
        PlacementError: The placement is another, or there are not as many numbers as devices.

    >>> from placements.shapes import v_shape
    >>> two = replicated(v_shape(2), [2, 1])
    >>> [(block.name, block.devices) for block in two.blocks]
    [('F0@0', (0,)), ('F0@1', (1,)), ('F1@0', (2,)), ('B1@0', (2,)), ('B0@0', (0,)), ('B0@1', (1,))]
    >>> [(block.name, block.after) for block in two.as_run((1, 0)).blocks]
    [('F0@1', ()), ('F1@0', ('F0@1',)), ('B1@0', ('F1@0',)), ('B0@1', ('B1@0',))]
    """
    _check(placement, replicas)
    first = [0, *itertools.accumulate(replicas)]
    device = {block.name: block.devices[0] for block in placement.blocks}
    optimizer = {block.name for block in placement.optimizer_blocks}

    def sources(target: str, copy: int, source: str) -> list[str]:
        beside = device[source] == device[target] and (target not in optimizer or source in optimizer)
        return [f"{source}@{number}" for number in ([copy] if beside else range(replicas[device[source]]))]

    blocks = [
        replace(
            block,
            name=f"{block.name}@{copy}",
            devices=(first[block.devices[0]] + copy,),
            after=tuple(itertools.chain(*(sources(block.name, copy, name) for name in block.after))),
        )
        for block in placement.topological_order
        for copy in range(replicas[block.devices[0]])
    ]
    transfer = [
        (name, f"{target}@{copy}", ticks)
        for source, target, ticks in placement.transfer
        for copy in range(replicas[device[target]])
        for name in sources(target, copy, source)
    ]
    idle = [replace(block, time=0, memory=0, transient=0) for block in blocks if block.kind is not Kind.O]

    def taken(copies: range, copy: int) -> Choice:
        others = {*copies} - {copies[copy]}
        return Choice(f"copy {copy}", tuple(block for block in idle if block.devices[0] in others))

    return placement.on_devices(
        [owner for owner, number in enumerate(replicas) for _ in range(number)],
        blocks,
        name=f"{placement.name} x {max(replicas)}",
        transfer=tuple(transfer),
        decisions=tuple(
            Decision(tuple(taken(copies, copy) for copy in range(len(copies))))
            for copies in itertools.starmap(range, itertools.pairwise(first))
        ),
    )


def _check(placement: Placement, replicas: Sequence[int]) -> None:
    if len(replicas) != placement.num_devices or min(replicas) < 1:
        fault = f"{list(replicas)} are not the copies of {placement.num_devices} devices"
        raise PlacementError(f"replicas: {fault}; give a number above 0 for each")
    if shared := [block for block in placement.blocks if len(block.devices) > 1]:
        raise PlacementError(
            f"{placement.name} has block {shared[0].name} on devices {list(shared[0].devices)}, of which no "
            "copies can be taken alone; use a placement whose blocks are on one device each"
        )
    if not placement.is_plain or placement.nodes is not None:
        fault = f"{placement.name} has modes, streams or nodes, which copies of devices cannot have yet"
        raise PlacementError(f"{fault}; leave them out")


class StageCopy(NamedTuple):
    """Identity of a copy's block: its stage's block, and the number of the copy and of its choice."""

    stage: str
    number: int


def copies_in(placement: Placement) -> Mapping[str, StageCopy]:
    """Map the name of each copy's block to its stage's block and copy number; empty for a plain placement.

    >>> from placements.shapes import v_shape
    >>> dict(copies_in(replicated(v_shape(1), [2])))["B0@1"]
    StageCopy(stage='B0', number=1)
    """
    names = [name for decision in placement.decisions for name in enumerate(decision.names)]
    if not names or any(name != f"copy {number}" for number, name in names):
        return {}
    parts = {block.name: block.name.rpartition("@") for block in placement.blocks}
    return {name: StageCopy(stage, int(number)) for name, (stage, _, number) in parts.items()}


def not_taken(placement: Placement, chosen: Chosen) -> frozenset[str]:
    """Return the blocks of copies that a micro-batch does not take."""
    taken = [decision.choices[n] for decision, n in zip(placement.decisions, chosen, strict=True)]
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

    def stage(name: str, blocks: Sequence[Block]) -> Block:
        teams = [block.devices for block in sorted(blocks, key=lambda block: copies[block.name].number)]
        devices = list(itertools.chain(*teams))
        if len({len(team) for team in teams}) > 1 or devices != sorted(devices):
            fault = f"blocks ({name}).devices: its copies are on {', '.join(map(str, teams))}"
            raise PlacementError(f"{fault}; let each have as many, numbered one copy after the other")
        if any(block.data_parallel > 1 for block in blocks):
            fault = "a copy that takes whole micro-batches cannot cut them too"
            raise PlacementError(f"blocks ({name}).data_parallel: {fault}; give 1")
        return replace(
            blocks[0],
            name=name,
            devices=tuple(devices),
            memory=tuple(units for block in blocks for units in block.units.values()),
            after=tuple(dict.fromkeys(copies[name].stage for block in blocks for name in block.after)),
            data_parallel=len(teams),
            in_turns=len(teams) > 1,
        )

    transfer = {(copies[a].stage, copies[b].stage): ticks for a, b, ticks in placement.transfer}
    return replace(
        placement,
        blocks=tuple(itertools.starmap(stage, blocks_of.items())),
        transfer=tuple((*ends, ticks) for ends, ticks in transfer.items()),
        decisions=(),
    )


def as_copies(placement: Placement) -> Placement:
    """Return a placement of copies for a placement some of whose blocks take micro-batches in turn.

    Any other placement is returned as it is.

    Raises:
        PlacementError: Its blocks are not on the devices of stages, each with as many copies for all blocks.
    """
    if not any(block.in_turns for block in placement.blocks):
        return placement
    teams = sorted({block.devices for block in placement.blocks})
    if [*itertools.chain(*teams)] != [*range(placement.num_devices)]:
        fault = "has blocks in turns, and others on some of their devices"
        remedy = "let each device be of one stage, and number the devices of a stage in a row"
        raise PlacementError(f"{placement.name}: {fault}; {remedy}")
    blocks = []
    for block in placement.blocks:
        number = len(block.devices)
        if block.data_parallel != number or block.in_turns != (number > 1):
            fault = f"each of its {number} devices has to be a group of its own"
            remedy = f"give data_parallel: {number}, and in_turns: true"
            raise PlacementError(f"blocks ({block.name}).in_turns: {fault}; {remedy}")
        memory, devices = block.memory_on(block.devices[0]), (teams.index(block.devices),)
        blocks.append(replace(block, devices=devices, memory=memory, data_parallel=1, in_turns=False))
    plain = placement.on_devices([team[0] for team in teams], blocks)
    return replace(replicated(plain, [len(team) for team in teams]), name=placement.name)
