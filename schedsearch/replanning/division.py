"""A pipeline's stages divided anew among the devices that it has left, faster ones with more of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from placements import Kind, Placement
from placements.pieces import Piece, blocks_of, transfers_of, updates_of

_KINDS = (Kind.F, Kind.B, Kind.I, Kind.W)


def redivided(pipeline: Placement, slowdown: Sequence[float], parts: int) -> Placement | None:
    """Return a pipeline with its stages, each of equal parts, divided among fewer or slower devices.

    The tick is shorter by the number of parts, and so is the unit of memory: all stays exact. The longest
    load of a device is least.

    Args:
        pipeline: One stage on each device, one after the other.
        slowdown: How many times as long each device that is left takes.
        parts: Parts of each stage, such as its layers.

    Returns:
        The pipeline, with one stage for each of these devices; None where the stages are others, or do not
        fit the memory.

    >>> from placements.shapes import v_shape
    >>> three = redivided(v_shape(4, 2, 4), [1, 1, 1], 3)
    >>> [three.ms(three.by_name[f"F{device}"].time) for device in range(3)]
    [2.6666666666666665, 2.6666666666666665, 2.6666666666666665]
    """
    stages = _stages(pipeline)
    if stages is None or not slowdown:
        return None
    memory, static = pipeline.memory, pipeline.static_memory or (0,) * len(stages)
    cuts = _cuts([sum(stage.times) for stage in stages for _ in range(parts)], slowdown)
    pieces, held = [], []
    for device, (factor, (first, end)) in enumerate(zip(slowdown, itertools.pairwise(cuts), strict=True)):
        own = [stages[part // parts] for part in range(first, end)]
        units = [sum(column) for column in zip(*(stage.memory for stage in own), strict=True)]
        pieces.append(
            Piece(
                f"F{device}",
                (device,),
                tuple(
                    round(factor * sum(column))
                    for column in zip(*(stage.times for stage in own), strict=True)
                ),
                tuple(units),
                transfer=own[0].transfer,
            )
        )
        held.append(sum(static[part // parts] for part in range(first, end)))
    if memory is not None:
        room = min(memory) * parts
        if any(held_here + piece.memory[0] > room for held_here, piece in zip(held, pieces, strict=True)):  # type: ignore[operator]
            return None
    updates = [block.time * parts for block in pipeline.optimizer_blocks]
    links = tuple((a, b, ticks * parts) for a, b, ticks in transfers_of(pieces))
    return replace(
        pipeline,
        name=f"{pipeline.name} on {len(slowdown)} devices",
        num_devices=len(slowdown),
        blocks=(*blocks_of(pieces), *(updates_of(pieces, [max(updates)] * len(pieces)) if updates else ())),
        tick_ms=pipeline.tick_ms / parts,
        transfer=links,
        memory=None if memory is None else (min(memory) * parts,) * len(slowdown),
        static_memory=tuple(held) if pipeline.static_memory else (),
        memory_unit_mib=pipeline.memory_unit_mib and pipeline.memory_unit_mib / parts,
        num_gpus=(),
    )


def _stages(pipeline: Placement) -> list[Piece] | None:
    """Return the stage on each device, in their order; None where they are not a chain of one each."""
    each = pipeline.per_micro_batch
    order = [block for block in each.topological_order if block.kind is Kind.F]
    pieces = []
    for i, forward in enumerate(order):
        here = [block for kind in _KINDS for block in each.on(forward.devices[0]) if block.kind is kind]
        before = (order[i - 1].name,) if i else ()
        if forward.after != before or len({block.kind for block in here}) < len(here):
            return None
        back = order[i - 1].devices[0] if i else None
        gradient = next(
            (b for b in each.blocks if back is not None and b.devices == (back,) and b.kind in _KINDS[1:3]),
            None,
        )
        there = each.transfer_time(before[0], forward.name) if before else 0
        again = (
            each.transfer_time(here[1].name, gradient.name) if gradient is not None and len(here) > 1 else 0
        )
        pieces.append(
            Piece(
                f"F{i}",
                (i,),
                tuple(block.time for block in here),
                tuple(block.memory for block in here),
                transfer=(there, again),
            )
        )
    is_whole = len(order) == each.num_devices and sum(len(piece.times) for piece in pieces) == len(
        each.blocks
    )
    return pieces if is_whole else None


def _cuts(loads: Sequence[int], slowdown: Sequence[float]) -> list[int]:
    """Return where parts in a row are cut for devices so that the longest load is least."""
    sums = [0, *itertools.accumulate(loads)]
    best: list[list[tuple[float, list[int]]]] = [[(0.0, [0])] + [(math.inf, [0])] * len(loads)]
    for factor in slowdown:
        row: list[tuple[float, list[int]]] = [(math.inf, [0])]
        for end in range(1, len(sums)):
            row.append(
                min(
                    (max(best[-1][first][0], factor * (sums[end] - sums[first])), [*best[-1][first][1], end])
                    for first in range(end)
                )
            )
        best.append(row)
    return best[-1][-1][1]
