"""Shapes from measured times and memory: a chain of stages on its devices, as a schedule needs it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from placements import shapes
from placements.spec import Block, Kind, Placement
from placements.stage_file import stages_of
from placements.stages import Number, Stage, StageChain, exact

_FINEST = 6
"""Decimal places that a tick or a unit of memory has at most where all figures are whole multiples of it."""


@dataclass(frozen=True)
class PlacedStages:
    """A model on devices.

    Attributes:
        placement: In ticks and whole units of memory, with the devices' capacity and weights.
        num_samples: Micro-batches of the model that one micro-batch of the placement stands for: 2 where the
            placement has two pipelines.
        notes: What was assumed or cut to make it.
    """

    placement: Placement
    num_samples: int
    notes: tuple[str, ...]


def place(chain: StageChain, shape: str, split_backward: bool = False, num_chunks: int = 2) -> PlacedStages:
    """Return a model on its devices, in the shape that a schedule needs.

    Args:
        chain: The model.
        shape: A key of `SHAPES_OF_STAGES`.
        split_backward: Whether the input gradient and the weight gradient are blocks of their own. The
            activations are then held until the weight gradient.
        num_chunks: Pieces of each device in a loop or wave.

    Raises:
        StagesError: The model does not fit the shape.
    """
    pipelines = SHAPES_OF_STAGES[shape](chain.num_devices, num_chunks)
    chunks, note = chain.in_chunks(len(pipelines[0]))
    notes = [note] if note else []
    if split_backward:
        notes.append(chain.note_of_split)
        chunks = tuple(chain.with_known_halves(chunk) for chunk in chunks)
    if len(pipelines) > 1:
        notes.append("each device holds the weights of two stages")
    tick, unit = _unit([*_times(chunks), chain.transfer_ms]), _unit(_memories(chunks, chain))
    made = [
        _Pipeline(letters, chunks, devices, tick, unit, split_backward)
        for letters, devices in zip(_LETTERS, pipelines, strict=False)
    ]
    hop = math.ceil(exact(chain.transfer_ms) / tick)
    placement = Placement(
        shape,
        chain.num_devices,
        tuple(block for pipeline in made for block in pipeline.blocks()),
        tick_ms=float(tick),
        transfer=tuple((a, b, hop) for pipeline in made for a, b in pipeline.hops() if hop),
        memory=_capacity(chain, unit),
        static_memory=_weights(chunks, pipelines, chain.num_devices, unit),
        memory_unit_mib=float(unit),
    )
    return PlacedStages(placement, len(pipelines), tuple(notes))


def _times(chunks: Sequence[Stage]) -> list[Number]:
    figures = [(each.forward_ms, each.backward_ms, each.input_gradient_ms) for each in chunks]
    return [each for row in figures for each in row if each is not None]


def _memories(chunks: Sequence[Stage], chain: StageChain) -> list[Number]:
    return [
        *(m for each in chunks for m in (each.activation_mib, each.weight_mib)),
        *(chain.memory_mib or ()),
    ]


def _capacity(chain: StageChain, unit: Fraction) -> tuple[int, ...] | None:
    if chain.memory_mib is None:
        return None
    return tuple(math.floor(exact(each) / unit) for each in chain.memory_mib)


def _weights(
    chunks: Sequence[Stage], pipelines: Sequence[Sequence[int]], num_devices: int, unit: Fraction
) -> tuple[int, ...]:
    """Return what each device holds all the time."""
    held = [Fraction(0)] * num_devices
    for devices in pipelines:
        for chunk, device in zip(chunks, devices, strict=True):
            held[device] += exact(chunk.weight_mib)
    return tuple(math.ceil(each / unit) for each in held)


_LETTERS: Sequence[Mapping[Kind, str]] = (
    {Kind.F: "F", Kind.B: "B", Kind.I: "I", Kind.W: "W"},
    {Kind.F: "G", Kind.B: "C", Kind.I: "J", Kind.W: "X"},
)
"""Letters that names of blocks begin with, as in `placements.shapes`."""


def _down(num_devices: int, _num_chunks: int) -> list[list[int]]:
    return [list(range(num_devices))]


def _loop(num_devices: int, num_chunks: int) -> list[list[int]]:
    return [list(range(num_devices)) * num_chunks]


def _wave(num_devices: int, num_chunks: int) -> list[list[int]]:
    down = list(range(num_devices))
    return [[device for chunk in range(num_chunks) for device in (down[::-1] if chunk % 2 else down)]]


def _both_ways(num_devices: int, _num_chunks: int) -> list[list[int]]:
    down = list(range(num_devices))
    return [down, down[::-1]]


SHAPES_OF_STAGES = {"v_shape": _down, "loop_shape": _loop, "wave_shape": _wave, "x_shape": _both_ways}
"""The device of each chunk of each pipeline, by the name of the shape; see `placements.shapes`."""


@dataclass(frozen=True)
class _Pipeline:
    """The blocks of one pipeline.

    Attributes:
        letters: Of the names, by kind.
        chunks: Of the model; with known halves where the backward is split.
        devices: Of each chunk.
        tick: In milliseconds.
        unit: Of memory, in MiB.
        is_split: Whether the backward is two blocks.
    """

    letters: Mapping[Kind, str]
    chunks: Sequence[Stage]
    devices: Sequence[int]
    tick: Fraction
    unit: Fraction
    is_split: bool

    def blocks(self) -> list[Block]:
        """Return the forward blocks, then the backward ones, last chunk first."""
        made: list[Block] = []
        after: tuple[str, ...] = ()
        for index, chunk in enumerate(self.chunks):
            made.append(self._block(Kind.F, index, self._ticks(chunk.forward_ms), self._held(index), after))
            after = (made[-1].name,)
        for index in reversed(range(len(self.chunks))):
            halves = self._backward(index, after)
            made += halves
            after = (halves[0].name,)
        return made

    def _backward(self, index: int, after: tuple[str, ...]) -> list[Block]:
        chunk = self.chunks[index]
        whole, held = self._ticks(chunk.backward_ms), self._held(index)
        if not self.is_split:
            return [self._block(Kind.B, index, whole, -held, after)]
        assert chunk.input_gradient_ms is not None, "the halves are known where the backward is split"
        first = self._block(Kind.I, index, self._ticks(chunk.input_gradient_ms), 0, after)
        rest = max(1, whole - first.time)
        return [first, self._block(Kind.W, index, rest, -held, (first.name,))]

    def hops(self) -> list[tuple[str, str]]:
        """Return the pairs of blocks of which one hands its result to the other, on another device."""
        blocks = {block.name: block for block in self.blocks()}
        pairs = [(name, block.name) for block in blocks.values() for name in block.after]
        return [(a, b) for a, b in pairs if blocks[a].devices != blocks[b].devices]

    def _block(self, kind: Kind, index: int, ticks: int, memory: int, after: tuple[str, ...]) -> Block:
        device = self.devices[index]
        number = index if self.letters is _LETTERS[0] else device  # as in `placements.shapes.x_shape`
        return Block(f"{self.letters[kind]}{number}", kind, (device,), ticks, memory, after)

    def _ticks(self, ms: Number) -> int:
        return max(1, round(exact(ms) / self.tick))

    def _held(self, index: int) -> int:
        return math.ceil(exact(self.chunks[index].activation_mib) / self.unit)


def _unit(figures: Iterable[Number]) -> Fraction:
    """Return the longest power of ten of which all figures are whole multiples, else a fine one.

    >>> _unit([12.5, 3.0]), _unit([Fraction(1, 3), 2.0])
    (Fraction(1, 10), Fraction(1, 1000000))
    """
    given = [exact(figure) for figure in figures if figure]
    for places in range(_FINEST + 1):
        unit = Fraction(1, 10**places)
        if all((figure / unit).denominator == 1 for figure in given):
            return unit
    shortest = math.floor(math.log10(min(given)))
    return Fraction(10) ** (shortest - _FINEST + 1)


def v_shape(num_devices: int = 4, *ticks: int, **options: Any) -> Placement:
    """Return a V-shape: of stages in ms and MiB, or of equal ones in ticks.

    Args:
        num_devices: As many stages.
        ticks: See `placements.shapes.v_shape`, where there are no options in ms and MiB.
        options: Those of `placements.stage_file.stages_of`, and ``split_backward`` (default: whether the
            input gradient's times are given) and ``num_chunks``; or those of `placements.shapes.v_shape`.

    Raises:
        StagesError: An option is wrong.
        PlacementError: Likewise, in ticks.

    >>> placement = v_shape(2, forward_ms=[10, 12.5], backward_ms=25, activation_mib=300, memory_mib=700)
    >>> placement.ms(placement.by_name["F1"].time), placement.mib(placement.memory[0])
    (12.5, 700.0)
    """
    return _made("v_shape", num_devices, ticks, options)


def x_shape(num_devices: int = 4, *ticks: int, **options: Any) -> Placement:
    """Return an X-shape; see `v_shape`. Each device holds two stages, and their weights."""
    return _made("x_shape", num_devices, ticks, options)


def loop_shape(num_devices: int = 4, *ticks: int, **options: Any) -> Placement:
    """Return a loop of `num_chunks` pieces on each device; see `v_shape`. A stage is cut where it must be."""
    return _made("loop_shape", num_devices, ticks, options)


def wave_shape(num_devices: int = 4, *ticks: int, **options: Any) -> Placement:
    """Return a wave; see `loop_shape`."""
    return _made("wave_shape", num_devices, ticks, options)


def _made(shape: str, num_devices: int, ticks: tuple[int, ...], options: dict[str, Any]) -> Placement:
    if not any(name.endswith(("_ms", "_mib")) for name in options):
        return shapes.SHAPES[shape](num_devices, *ticks, **options)
    is_split = options.pop("split_backward", "input_gradient_ms" in options)
    num_chunks = options.pop("num_chunks", 2)
    columns = (name for name in options if name not in ("memory_mib", "transfer_ms", "input_gradient_share"))
    are_numbers = all(isinstance(options[name], int | float | str) for name in columns)
    stages = stages_of(num_devices if are_numbers else None, num_devices=num_devices, **options)
    return place(stages, shape, is_split, num_chunks).placement
