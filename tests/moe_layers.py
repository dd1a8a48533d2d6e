"""Stages of the model with experts: attention, dispatch, experts and combine, on two streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placements import Block, Kind, Placement
from schedsearch.schedule import Schedule, as_soon_as_possible

COMMUNICATION = "communication"

SMALL_MOE = {"name": "moe", "hidden_size": 8, "sequence_length": 6, "micro_batch_size": 2, "num_heads": 2}

_PARTS = (("attention", 4), ("dispatch", 6), ("experts", 4), ("combine", 8))


def moe_stages(stages: Sequence[tuple[int, ...]], with_head: bool = False) -> Placement:
    """Return a layer on each of some sets of devices; dispatch and combine are on a stream of their own."""
    forward: list[Block] = []
    for number, devices in enumerate(stages):
        for part, time in _PARTS:
            stream = COMMUNICATION if part in ("dispatch", "combine") else "compute"
            after = (forward[-1].name,) if forward else ()
            forward.append(Block(f"{part}_F{number}", Kind.F, devices, time, 0, after, stream=stream))
    if with_head:
        forward.append(Block("head_F", Kind.F, stages[-1], 2, 0, (forward[-1].name,)))
    backward: list[Block] = []
    for block in reversed(forward):
        before = backward[-1].name if backward else block.name
        after = tuple(dict.fromkeys((before, block.name)))
        backward.append(replace(block, name=block.name.replace("_F", "_B"), kind=Kind.B, after=after))
    return Placement("moe", 1 + max(max(stage) for stage in stages), (*forward, *backward))


def moe_schedule(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return a schedule in which forward blocks run two micro-batches ahead of backward blocks."""
    place = {block.name: i for i, block in enumerate(placement.topological_order)}

    def rank(instance: tuple[str, int]) -> tuple[int, bool, int]:
        name, n = instance
        is_backward = placement.by_name[name].kind is not Kind.F
        return n + 2 * is_backward, not is_backward, place[name]

    numbers = range(num_micro_batches)
    orders = [
        sorted(((b.name, n) for b in placement.on(device) if b.stream == stream for n in numbers), key=rank)
        for device, stream in placement.lanes
    ]
    return as_soon_as_possible(placement, num_micro_batches, orders)
