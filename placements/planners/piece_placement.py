"""Pieces of a model, each on one stage, as blocks: a chain of forwards, of backwards in reverse, and updates.

Each stage is a device that stands for all GPUs of the stage, which run the same blocks at the same time. A
stage with several layouts has a piece for each::

    0 | F0 F1 .  .  B1 B1 B0 B0 O0     layers of stage 0 in two layouts
    1 | .  .  F2 B2 B2 O1

The module does not know what a layer is or who planned it, and not in what order blocks run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from placements.models.parallel import Cost
from placements.models.rates import tick_for
from placements.spec import Block, Kind, Placement

_MIB = 2**20


class PieceCost(NamedTuple):
    """What one piece costs each of its GPUs.

    Attributes:
        stage: From 0; ascending.
        cost: For one micro-batch.
        data_parallel: Groups of its GPUs that each have a share of the samples.
        forward_transfer_ms: From the piece before, on another stage; 0 for the first.
        backward_transfer_ms: To it, of the gradient.
    """

    stage: int
    cost: Cost
    data_parallel: int
    forward_transfer_ms: float = 0.0
    backward_transfer_ms: float = 0.0


def piece_placement(
    name: str,
    pieces: Sequence[PieceCost],
    capacities_mib: Sequence[int],
    num_gpus: Sequence[int],
    tick_ms: float | None = None,
) -> Placement:
    """Return the blocks of pieces: F and B of each, and an O for each stage, after its last backward.

    O exchanges the gradients and updates the weights; Galvatron-BMW lets that exchange run beside the last
    backward (Sec. V), which is never longer.

    Args:
        name: Of the placement.
        pieces: In order of the model.
        capacities_mib: What each GPU of a stage has for weights and activations.
        num_gpus: Of each stage.
        tick_ms: Length of a tick; see `placements.models.rates.tick_for`.

    Returns:
        Memory in MiB of one GPU, rounded up; what its states take is static memory.

    Raises:
        PlacementError: An argument is out of its range.
    """
    shortest_ms = min(min(piece.cost.forward.time_ms, piece.cost.backward.time_ms) for piece in pieces)
    tick_ms = tick_for(shortest_ms, tick_ms)
    return Placement(
        name,
        len(num_gpus),
        (*_chain(pieces, num_gpus, tick_ms), *_updates(pieces, len(num_gpus), tick_ms)),
        tick_ms,
        transfer=_transfers(pieces, tick_ms),
        memory=tuple(capacities_mib),
        static_memory=tuple(
            math.ceil(sum(piece.cost.static_bytes for piece in of_stage) / _MIB)
            for of_stage in _by_stage(pieces, len(num_gpus))
        ),
        num_gpus=tuple(num_gpus),
        memory_unit_mib=1.0,
    )


def _chain(pieces: Sequence[PieceCost], num_gpus: Sequence[int], tick_ms: float) -> list[Block]:
    """Return the forwards and, in reverse, the backwards, each after the one before it."""
    forwards = [
        (f"F{i}", Kind.F, piece, piece.cost.forward, _mib(piece.cost.kept_bytes), piece.cost.forward_bytes)
        for i, piece in enumerate(pieces)
    ]
    backwards = [
        (f"B{i}", Kind.B, piece, piece.cost.backward, -_mib(piece.cost.kept_bytes), piece.cost.backward_bytes)
        for i, piece in enumerate(pieces)
    ]
    whole = [*forwards, *reversed(backwards)]
    afters: list[tuple[str, ...]] = [(), *((name,) for name, *_ in whole)]
    return [
        Block(
            name,
            kind,
            (piece.stage,),
            round(part.time_ms / tick_ms),
            memory,
            after,
            _mib(transient),
            piece.data_parallel,
        )
        for (name, kind, piece, part, memory, transient), after in zip(whole, afters, strict=False)
    ]


def _updates(pieces: Sequence[PieceCost], num_stages: int, tick_ms: float) -> list[Block]:
    """Return the optimizer block of each stage, after the last of its backwards: that of its first piece."""
    stages = [piece.stage for piece in pieces]
    return [
        Block(
            f"O{stage}",
            Kind.O,
            (stage,),
            max(1, round(sum(piece.cost.update_ms for piece in of_stage) / tick_ms)),
            after=(f"B{stages.index(stage)}",),
        )
        for stage, of_stage in enumerate(_by_stage(pieces, num_stages))
    ]


def _transfers(pieces: Sequence[PieceCost], tick_ms: float) -> tuple[tuple[str, str, int], ...]:
    """Return what it takes from one stage to the next, and back."""
    found = []
    for i, (before, after) in enumerate(pairwise(pieces)):
        if before.stage != after.stage:
            found.append((f"F{i}", f"F{i + 1}", math.ceil(after.forward_transfer_ms / tick_ms)))
            found.append((f"B{i + 1}", f"B{i}", math.ceil(after.backward_transfer_ms / tick_ms)))
    return tuple(found)


def _by_stage(pieces: Sequence[PieceCost], num_stages: int) -> list[list[PieceCost]]:
    found: list[list[PieceCost]] = [[] for _ in range(num_stages)]
    for piece in pieces:
        found[piece.stage].append(piece)
    return found


def _mib(num_bytes: float) -> int:
    return math.ceil(num_bytes / _MIB)
