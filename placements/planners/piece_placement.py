"""Pieces of a model on devices as blocks: a chain of forwards, of backwards in reverse, and updates.

Each device stands for the GPUs of a stage, which run the same blocks at the same time. A device with several
layouts, or with several parts of the model, has a piece for each; a piece may be on several devices::

    0 | F0 F1 .  .  B1 B1 B0 B0 O0     layers of stage 0 in two layouts
    1 | .  .  F2 B2 B2 O1

The module does not know what a layer is or who planned it, and not in what order blocks run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from placements.models.parallel import Cost
from placements.models.rates import tick_for
from placements.spec import Block, Kind, Placement

_MIB = 2**20


class PieceCost(NamedTuple):
    """What one piece costs each of its GPUs.

    Attributes:
        devices: That run it together; mostly one.
        cost: For one micro-batch.
        data_parallel: Groups of its GPUs that each have a share of the samples.
        forward_transfer_ms: From the piece before, on other devices; 0 for the first.
        backward_transfer_ms: To it, of the gradient.
        after: The pieces whose output it takes, by their indices; None for the one before.
    """

    devices: tuple[int, ...]
    cost: Cost
    data_parallel: int
    forward_transfer_ms: float = 0.0
    backward_transfer_ms: float = 0.0
    after: tuple[int, ...] | None = None


def piece_placement(
    name: str,
    pieces: Sequence[PieceCost],
    capacities_mib: Sequence[int],
    num_gpus: Sequence[int],
    tick_ms: float | None = None,
    nodes: Sequence[int] | None = None,
) -> Placement:
    """Return the blocks of pieces: F and B of each, and an O for each device, after its last backward.

    O exchanges the gradients and updates the weights; Galvatron-BMW lets that exchange run beside the last
    backward (Sec. V), which is never longer.

    Args:
        name: Of the placement.
        pieces: In order of the model: each later than those whose output it takes.
        capacities_mib: What each GPU of a device has for weights and activations.
        num_gpus: Of each device.
        tick_ms: Length of a tick; see `placements.models.rates.tick_for`.
        nodes: Of each GPU, as `placements.cluster.Cluster.node_of` numbers them; None for one.

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
        (*_passes(pieces, tick_ms), *_updates(pieces, len(num_gpus), tick_ms)),
        tick_ms,
        transfer=_transfers(pieces, tick_ms),
        memory=tuple(capacities_mib),
        static_memory=tuple(
            math.ceil(sum(piece.cost.static_bytes for piece in own) / _MIB)
            for own in _by_device(pieces, len(num_gpus))
        ),
        num_gpus=tuple(num_gpus),
        memory_unit_mib=1.0,
        nodes=None if nodes is None else tuple(nodes),
    )


def _passes(pieces: Sequence[PieceCost], tick_ms: float) -> list[Block]:
    """Return the forwards and, in reverse, the backwards, each after those of the pieces it is linked to."""
    links = list(_links(pieces))
    blocks = []
    for i, piece in enumerate(pieces):
        after = tuple(f"F{source}" for source, target in links if target == i)
        cost = piece.cost
        blocks.append(
            _block(f"F{i}", Kind.F, piece, cost.forward.time_ms / tick_ms, 1, after, cost.forward_bytes)
        )
    for i, piece in reversed(list(enumerate(pieces))):
        after = tuple(f"B{target}" for source, target in links if source == i) or (f"F{i}",)
        cost = piece.cost
        blocks.append(
            _block(f"B{i}", Kind.B, piece, cost.backward.time_ms / tick_ms, -1, after, cost.backward_bytes)
        )
    return blocks


def _block(
    name: str, kind: Kind, piece: PieceCost, ticks: float, sign: int, after: tuple[str, ...], transient: float
) -> Block:
    memory = sign * _mib(piece.cost.kept_bytes)
    return Block(name, kind, piece.devices, round(ticks), memory, after, _mib(transient), piece.data_parallel)


def _links(pieces: Sequence[PieceCost]) -> Iterator[tuple[int, int]]:
    """Yield each pair of a piece and one that takes its output."""
    for i, piece in enumerate(pieces):
        before = (i - 1,) * (i > 0) if piece.after is None else piece.after
        yield from ((source, i) for source in before)


def _updates(pieces: Sequence[PieceCost], num_devices: int, tick_ms: float) -> list[Block]:
    """Return the optimizer block of each device, after the last of its backwards: that of its first piece."""
    return [
        Block(
            f"O{device}",
            Kind.O,
            (device,),
            max(1, round(sum(piece.cost.update_ms for piece in own) / tick_ms)),
            after=(f"B{next(i for i, piece in enumerate(pieces) if device in piece.devices)}",),
        )
        for device, own in enumerate(_by_device(pieces, num_devices))
    ]


def _transfers(pieces: Sequence[PieceCost], tick_ms: float) -> tuple[tuple[str, str, int], ...]:
    """Return what it takes from one device to the next, and back."""
    found = []
    for i, j in _links(pieces):
        after = pieces[j]
        if pieces[i].devices != after.devices:
            found.append((f"F{i}", f"F{j}", math.ceil(after.forward_transfer_ms / tick_ms)))
            found.append((f"B{j}", f"B{i}", math.ceil(after.backward_transfer_ms / tick_ms)))
    return tuple(found)


def _by_device(pieces: Sequence[PieceCost], num_devices: int) -> list[list[PieceCost]]:
    return [[piece for piece in pieces if device in piece.devices] for device in range(num_devices)]


def _mib(num_bytes: float) -> int:
    return math.ceil(num_bytes / _MIB)
