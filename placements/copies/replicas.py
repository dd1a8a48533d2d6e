"""Copies of devices, of which each micro-batch takes one: data-parallel pipelines as one placement.

A micro-batch that finds its copy of a stage lost, or slow, goes to another copy of the same stage. So which
copy it takes is a mode, chosen for each device of the plain pipeline.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from placements.block import Block, Kind, PlacementError
from placements.modes import Choice, Decision
from placements.spec import Placement


def replicated(placement: Placement, replicas: Sequence[int]) -> Placement:
    """Return a pipeline with copies of its devices, one decision for each device: the copy that is taken.

    The copies of a device are devices of their own, one after the other. Block ``F1`` is ``F1@0``, ``F1@1``
    and so on, on the copies of its device. Choice r of a decision leaves out the blocks of all other copies.
    R pipelines side by side are ``[R] * num_devices``; a micro-batch of pipeline r chooses r everywhere.

    Between devices a block of any copy may follow that of any other. An optimizer block, which each copy has,
    waits for all copies of what it is after, as they add up their gradients.

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
        return [f"{source}@{each}" for each in ([copy] if beside else range(replicas[device[source]]))]

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
        (each, f"{target}@{copy}", ticks)
        for source, target, ticks in placement.transfer
        for copy in range(replicas[device[target]])
        for each in sources(target, copy, source)
    ]
    return replace(
        placement,
        name=f"{placement.name} x {max(replicas)}",
        num_devices=first[-1],
        blocks=tuple(blocks),
        transfer=tuple(transfer),
        decisions=tuple(_which_copy(blocks, range(*ends)) for ends in itertools.pairwise(first)),
        **per_device(placement, [each for each, number in enumerate(replicas) for _ in range(number)]),
    )


def per_device(placement: Placement, sources: Sequence[int]) -> dict[str, Any]:
    """Return what a placement says of its devices, of new ones of which each is as a device of it was."""
    given = {name: getattr(placement, name) for name in ("memory", "static_memory", "num_gpus")}
    return {name: each and tuple(each[source] for source in sources) for name, each in given.items()}


def _which_copy(blocks: Sequence[Block], devices: range) -> Decision:
    """Return the decision on the copy of a device, which leaves out the blocks of all others."""
    left_out = [
        replace(block, time=0, memory=0, transient=0, host_memory=0)
        for block in blocks
        if block.devices[0] in devices and block.kind is not Kind.O
    ]
    return Decision(
        tuple(
            Choice(f"copy {copy}", tuple(block for block in left_out if block.devices != (taken,)))
            for copy, taken in enumerate(devices)
        )
    )


def _check(placement: Placement, replicas: Sequence[int]) -> None:
    if len(replicas) != placement.num_devices or min(replicas) < 1:
        raise PlacementError(
            f"replicas: {list(replicas)} are not the copies of {placement.num_devices} devices; give a "
            "number above 0 for each"
        )
    for block in placement.blocks:
        if len(block.devices) > 1:
            raise PlacementError(
                f"{placement.name} has block {block.name} on devices {list(block.devices)}, of which no "
                "copies can be taken alone; use a placement whose blocks are on one device each"
            )
    if not placement.is_plain or placement.nodes is not None:
        raise PlacementError(
            f"{placement.name} has modes, streams or nodes, which copies of devices cannot have yet; leave "
            "them out"
        )
