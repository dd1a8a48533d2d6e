"""Pieces of a model as blocks: forwards down the model, backwards up again, and the optimizer after them.

Each piece is a forward and its backward on the same devices. The module knows the devices of a
shape's pieces, not their costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from placements.block import Block, Kind

_LETTERS = {
    "F": {Kind.B: "B", Kind.I: "I", Kind.W: "W"},
    "G": {Kind.B: "C", Kind.I: "J", Kind.W: "X"},
    "A": {Kind.B: "G"},
}
"""Letters of a piece's backward blocks, by the letter of its forward. Of other pieces a B is added to it."""


def _names(forward: str) -> dict[Kind, str]:
    """Return the possible names of a piece's blocks by kind, from the name of its forward."""
    letter, number = forward[0], forward[1:]
    backwards = _LETTERS.get(letter, {Kind.B: f"{letter}B"})
    return {Kind.F: forward, **{kind: backward + number for kind, backward in backwards.items()}}


def backwards_of(forward: str) -> tuple[str, ...]:
    """Return the possible names of a forward's backward: the whole one, then its halves in order.

    >>> backwards_of("F0"), backwards_of("E")
    (('B0', 'I0', 'W0'), ('EB',))
    """
    return tuple(_names(forward).values())[1:]


@dataclass(frozen=True)
class Piece:
    """A part of the model on its devices.

    Attributes:
        name: Name of its forward block, such as ``F0``, from which follow ``B0``, or ``I0`` and ``W0``.
        devices: Devices that run it together.
        times: Ticks of its blocks: forward and backward; forward, gradient of the input and gradient of the
            weights; or forward alone.
        memory: Units that each of these blocks takes, negative where it gives back; empty for none.
        transient: More units while the forward runs, and while the backward does.
        data_parallel: Data-parallel groups of each block.
        after: The pieces whose output it takes, by their indices; None for the one before it.
        transfer: Ticks until its input is there from other devices, and its gradient back.
    """

    name: str
    devices: tuple[int, ...]
    times: tuple[int, ...]
    memory: tuple[int | tuple[int, ...], ...] = ()
    transient: tuple[int, int] = (0, 0)
    data_parallel: int = 1
    after: tuple[int, ...] | None = None
    transfer: tuple[int, int] = (0, 0)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The piece's forward, then its backward, without predecessors yet."""
        names = _names(self.name)
        kinds = (Kind.F, Kind.B) if len(self.times) == 2 else (Kind.F, Kind.I, Kind.W)[: len(self.times)]
        held = self.memory or (0,) * len(kinds)
        return tuple(
            Block(names[kind], kind, self.devices, time, units, (), self.transient[i > 0], self.data_parallel)
            for i, (kind, time, units) in enumerate(zip(kinds, self.times, held, strict=True))
        )


def blocks_of(pieces: Sequence[Piece]) -> list[Block]:
    """Return the forwards of pieces in order, then their backwards in reverse.

    A forward is after those of the pieces whose output it takes. A backward is after those of the pieces that
    take its own piece's output, or after its own forward where none does; the gradient of the weights is
    after that of the input.

    Args:
        pieces: Pieces in the order of the model: each later than those whose output it takes.

    >>> pieces = [Piece(f"F{device}", (device,), (1, 2)) for device in range(2)]
    >>> [(block.name, block.after) for block in blocks_of(pieces)]
    [('F0', ()), ('F1', ('F0',)), ('B1', ('F1',)), ('B0', ('B1',))]
    """
    inputs, takers = ({piece.name: list[str]() for piece in pieces} for _ in range(2))
    for one, other in _links(pieces):
        inputs[other.name].append(one.name)
        takers[one.name] += [block.name for block in other.blocks[1:2]]
    blocks = [replace(piece.blocks[0], after=tuple(inputs[piece.name])) for piece in pieces]
    for piece in reversed(pieces):
        after = tuple(takers[piece.name]) or (piece.name,)
        for block in piece.blocks[1:]:
            blocks.append(replace(block, after=after))
            after = (block.name,)
    return blocks


def transfers_of(pieces: Sequence[Piece]) -> tuple[tuple[str, str, int], ...]:
    """Return the transfers between pieces on different devices, for `placements.spec.Placement`."""
    links = [(one, other) for one, other in _links(pieces) if one.devices != other.devices]
    there = [(one.name, other.name, other.transfer[0]) for one, other in links if other.transfer[0]]
    back = [(one, other, other.transfer[1]) for one, other in reversed(links) if other.transfer[1]]
    return (*there, *((other.blocks[1].name, one.blocks[1].name, ticks) for one, other, ticks in back))


def updates_of(pieces: Sequence[Piece], times: Sequence[int]) -> list[Block]:
    """Return the optimizer block of each device, given its ticks, after the last of its backwards."""
    last = {device: piece.blocks[-1].name for piece in reversed(pieces) for device in piece.devices}
    return [Block(f"O{d}", Kind.O, (d,), time, after=(last[d],)) for d, time in enumerate(times)]


def _links(pieces: Sequence[Piece]) -> list[tuple[Piece, Piece]]:
    """Return each piece whose output another takes, with that other."""
    inputs = ((i - 1,) * (i > 0) if piece.after is None else piece.after for i, piece in enumerate(pieces))
    return [(pieces[i], piece) for piece, sources in zip(pieces, inputs, strict=True) for i in sources]


Pipelines = list[list[int]]
"""The device of each chunk of the model, for each pipeline."""

PIPELINES: Mapping[str, Callable[[int, int], Pipelines]] = {
    "v_shape": lambda p, _: [list(range(p))],
    "loop_shape": lambda p, chunks: [list(range(p)) * chunks],
    "wave_shape": lambda p, chunks: [[(d, p - 1 - d)[c % 2] for c in range(chunks) for d in range(p)]],
    "x_shape": lambda p, _: [list(range(p)), list(range(p))[::-1]],
}
"""Pipelines of p devices with v chunks on each, by the name of the shape; see `placements.shapes`."""


def pieces_on(pipelines: Pipelines, piece: Callable[[str, int, int], Piece]) -> list[list[Piece]]:
    """Return the pieces of each pipeline.

    Args:
        pipelines: Made by one of `PIPELINES`.
        piece: Returns a piece by the name of its forward, its device and its index. Those of a second
            pipeline are ``G`` and the number of the device.
    """
    return [
        [piece(f"G{device}" if number else f"F{i}", device, i) for i, device in enumerate(devices)]
        for number, devices in enumerate(pipelines)
    ]
