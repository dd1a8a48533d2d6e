"""A pipeline's layers divided anew among its remaining devices, with more on faster devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placements import Kind, Placement
from placements.pieces import Piece, blocks_of, transfers_of, updates_of
from placements.planners.division import divided, spans, windows


def redivided(pipeline: Placement, slowdown: Sequence[float], parts: int) -> Placement | None:
    """Return a pipeline whose stages, of equal parts each, are divided among fewer or slower devices.

    The tick is shorter by the number of parts, and so is the unit of memory: all stays exact. The longest
    load of a device is least.

    Args:
        pipeline: One stage on each device, one after the other.
        slowdown: Factor on the times of each remaining device.
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
    static = pipeline.static_memory or (0,) * len(stages)
    loads = np.repeat([sum(stage.times) for stage in stages], parts)
    sums = np.append(0.0, np.cumsum(loads))
    sizes, _ = divided([windows(factor * sums) for factor in slowdown], np.maximum, longest_last=True)
    pieces, held = [], []
    for factor, (device, first, end) in zip(slowdown, spans(sizes), strict=True):
        here = [stages[part // parts] for part in range(first, end)]
        times = tuple(
            round(factor * sum(column)) for column in zip(*(stage.times for stage in here), strict=True)
        )
        units = tuple(map(sum, zip(*(stage.memory for stage in here), strict=True)))
        pieces.append(Piece(f"F{device}", (device,), times, units, transfer=here[0].transfer))
        held.append(sum(static[part // parts] for part in range(first, end)))
    memory = None if pipeline.memory is None else min(pipeline.memory) * parts
    filled = [weights + piece.memory[0] for weights, piece in zip(held, pieces, strict=True)]  # type: ignore[operator]
    if memory is not None and max(filled) > memory:
        return None
    updates = [block.time * parts for block in pipeline.optimizer_blocks]
    return replace(
        pipeline,
        name=f"{pipeline.name} on {len(slowdown)} devices",
        num_devices=len(slowdown),
        blocks=(*blocks_of(pieces), *(updates_of(pieces, [max(updates)] * len(pieces)) if updates else ())),
        tick_ms=pipeline.tick_ms / parts,
        transfer=tuple((a, b, ticks * parts) for a, b, ticks in transfers_of(pieces)),
        memory=None if memory is None else (memory,) * len(slowdown),
        static_memory=tuple(held) if pipeline.static_memory else (),
        memory_unit_mib=pipeline.memory_unit_mib and pipeline.memory_unit_mib / parts,
        num_gpus=(),
    )


def _stages(pipeline: Placement) -> list[Piece] | None:
    """Return the stages in order; None if the pipeline is not a chain with one stage per device."""
    plain = pipeline.per_micro_batch
    forwards = [block for block in plain.topological_order if block.kind is Kind.F]
    rows = [sorted(plain.on(forward.devices[0]), key=lambda b: "FBIW".index(b.kind)) for forward in forwards]
    befores = [(), *((forward.name,) for forward in forwards)]
    if (
        len(rows) != plain.num_devices
        or sum(map(len, rows)) != len(plain.blocks)
        or any(len({block.kind for block in row}) < len(row) for row in rows)
        or any(forward.after != before for forward, before in zip(forwards, befores, strict=False))
    ):
        return None
    pieces = []
    for i, row in enumerate(rows):
        there = again = 0
        if i:
            before = rows[i - 1]
            there = plain.transfer_time(before[0].name, row[0].name)
            again = plain.transfer_time(row[1].name, before[1].name) if min(len(row), len(before)) > 1 else 0
        times, memory = tuple(block.time for block in row), tuple(block.memory for block in row)
        pieces.append(Piece(f"F{i}", (i,), times, memory, transfer=(there, again)))
    return pieces
