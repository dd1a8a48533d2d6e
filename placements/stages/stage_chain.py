"""A model as a chain of stages with times and memory, and the same cut into other pieces, exactly.

The form in which people have a model: milliseconds and MiB of each stage, or of each layer. It is placed on
devices in the shape that a schedule needs. The module does not know schedules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any

from placements.forms.meaning import Meaning
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.pieces import PIPELINES, Piece, blocks_of, pieces_on, transfers_of
from placements.planners.partition import min_largest
from placements.spec import Placement

Number = float | Fraction
"""Milliseconds or MiB: as given, or an exact part or sum of such."""

_FINEST = 6
"""Decimal places that a tick or a unit of memory has at most where all figures are whole multiples of it."""


class StagesError(ValueError):
    """Stages are wrong, or cannot be placed as asked; the message names the field and the remedy."""


@dataclass(frozen=True)
class Stage:
    """Cost of one piece of the model for one micro-batch.

    Attributes:
        forward_ms: Time of its forward block; above 0.
        backward_ms: Time of its whole backward block; above 0.
        input_gradient_ms: The part of `backward_ms` after which the stage before can go on; None where it is
            not known.
        activation_mib: Held from its forward block to the end of its backward.
        weight_mib: Held all the time: weights, gradients and optimizer states.
        recompute_ms: Time of computing the forward again before the backward; None where that is no choice.
        recompute_mib: Held from the forward to the backward where it is computed again.
        offload_ms: Time of the activations to the host, and of their way back; None where that is no choice.
    """

    forward_ms: Number
    backward_ms: Number
    input_gradient_ms: Number | None = None
    activation_mib: Number = 0.0
    weight_mib: Number = 0.0
    recompute_ms: Number | None = None
    recompute_mib: Number = 0.0
    offload_ms: Number | None = None

    @classmethod
    def merged(cls, stages: Sequence[Stage]) -> Stage:
        """Return several in one, exactly; its input gradient is not known where one of theirs is not."""
        return cls(
            _sum(each.forward_ms for each in stages),
            _sum(each.backward_ms for each in stages),
            _sum_of_all([each.input_gradient_ms for each in stages]),
            _sum(each.activation_mib for each in stages),
            _sum(each.weight_mib for each in stages),
            _sum_of_all([each.recompute_ms for each in stages]),
            _sum(each.recompute_mib for each in stages),
            _sum_of_all([each.offload_ms for each in stages]),
        )

    def part_of(self, number: int) -> Stage:
        """Return one of so many equal parts, exactly."""
        parts: dict[str, Any] = {
            each.name: None if (whole := getattr(self, each.name)) is None else exact(whole) / number
            for each in fields(self)
        }
        return Stage(**parts)


@dataclass(frozen=True)
class DevicePower:
    """Power of a device."""

    running: Annotated[float, Meaning("while it computes", "W", min=0)]
    blocking: Annotated[float, Meaning("while it waits", "W", min=0)]


@dataclass(frozen=True)
class SequenceSlices:
    """How sequences are cut into slices."""

    num_slices: Annotated[int, Meaning("slices of each sequence", min=1)]
    attention_share: Annotated[
        float,
        Meaning("part of a stage's time that grows with the square of the length", min=0, max=1),
    ] = 0.0
    kv_share: Annotated[float, Meaning("part of its activations that is keys and values", min=0, max=1)] = 0.0
    partition: Annotated[
        str, Meaning("`even` slices, or slices of `equal_time`", choices=("even", "equal_time"))
    ] = "even"


@dataclass(frozen=True)
class StageChain:
    """A model: pieces of which each hands its output to the next, and the devices for them.

    Attributes:
        pieces: The stages, or the layers of which stages are made.
        num_devices: Number of devices, at least 1.
        memory_mib: Capacity of each device; None for no limit.
        transfer_ms: Time from the end of a block to where its output is on another device.
        input_gradient_share: Part of a backward block that its input gradient takes, where the stages do not
            tell.
        are_layers: The pieces are divided among stages as they are. Otherwise a stage may be cut in parts.
        power_w: Power of each device; None where it is not known.
        host_memory_mib: What each device may hold on its host; None for no limit.
        sequence_slices: How schedules of slices cut a sequence; None where they do not apply.
    """

    pieces: tuple[Stage, ...]
    num_devices: int
    memory_mib: tuple[float, ...] | None = None
    transfer_ms: float = 0.0
    input_gradient_share: float = 0.5
    are_layers: bool = False
    power_w: DevicePower | None = None
    host_memory_mib: float | None = None
    sequence_slices: SequenceSlices | None = None

    @property
    def knows_halves(self) -> bool:
        """Whether every piece tells the time of its input gradient apart from that of its weights."""
        return all(each.input_gradient_ms is not None for each in self.pieces)

    @property
    def note_of_split(self) -> str:
        """Note on the assumption made where the backward is split."""
        if not self.knows_halves:
            return f"input gradient assumed to take {self.input_gradient_share:.0%} of each backward"
        return "split backward"

    def with_known_halves(self, chunk: Stage) -> Stage:
        """Return a chunk with its input gradient, the share of the backward where it is not known."""
        if chunk.input_gradient_ms is not None:
            return chunk
        return replace(chunk, input_gradient_ms=exact(chunk.backward_ms) * exact(self.input_gradient_share))

    def in_chunks(self, number: int) -> tuple[tuple[Stage, ...], str]:
        """Return the model in so many pieces, and how they were made; empty where they are its own.

        Layers are divided such that the longest piece is as short as possible.

        Raises:
            StagesError: There is no way to make so many.
        """
        count = len(self.pieces)
        if number == count:
            return self.pieces, ""
        if self.are_layers and number < count:
            sizes = min_largest([float(each.forward_ms + each.backward_ms) for each in self.pieces], number)
            ends = [sum(sizes[: i + 1]) for i in range(number)]
            merged = [Stage.merged(self.pieces[a:b]) for a, b in pairwise([0, *ends])]
            return tuple(merged), f"layers of each chunk: {','.join(map(str, sizes))}"
        if not self.are_layers and number % count == 0:
            parts = number // count
            return tuple(
                each.part_of(parts) for each in self.pieces for _ in range(parts)
            ), f"each stage cut into {parts} equal parts"
        if not self.are_layers and count % number == 0:
            size = count // number
            pieces = self.pieces
            return tuple(
                Stage.merged(pieces[i : i + size]) for i in range(0, count, size)
            ), f"{size} stages in each chunk"
        what = "layers" if self.are_layers else "stages"
        raise StagesError(f"{what}: {count} cannot be made into {number} chunks; choose another num_devices")


@dataclass(frozen=True)
class PlacedStages:
    """A model on devices.

    Attributes:
        placement: Placement in ticks and whole units of memory, with the devices' capacity and weights.
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
        shape: A key of `placements.pieces.PIPELINES`.
        split_backward: Whether the input gradient and the weight gradient are blocks of their own. The
            activations are then held until the weight gradient.
        num_chunks: Pieces of each device in a loop or wave.

    Raises:
        StagesError: The model does not fit the shape.
    """
    pipelines = PIPELINES[shape](chain.num_devices, num_chunks)
    chunks, note = chain.in_chunks(len(pipelines[0]))
    notes = [note] if note else []
    if split_backward:
        notes.append(chain.note_of_split)
        chunks = tuple(chain.with_known_halves(chunk) for chunk in chunks)
    if len(pipelines) > 1:
        notes.append("each device holds the weights of two stages")
    tick, unit = _unit([*_times(chunks), chain.transfer_ms]), _unit(_memories(chunks, chain))
    hop = math.ceil(exact(chain.transfer_ms) / tick)

    def piece(name: str, device: int, index: int) -> Piece:
        """Return a chunk in ticks and units."""
        chunk = chunks[index]
        held = math.ceil(exact(chunk.activation_mib) / unit)
        forward, backward = _ticks(chunk.forward_ms, tick), _ticks(chunk.backward_ms, tick)
        times, memory = [forward, backward], [held, -held]
        if split_backward:
            assert chunk.input_gradient_ms is not None, "the halves are known where the backward is split"
            half = _ticks(chunk.input_gradient_ms, tick)
            times, memory = [forward, half, max(1, backward - half)], [held, 0, -held]
        return Piece(name, (device,), tuple(times), tuple(memory), transfer=(hop, hop))

    made = pieces_on(pipelines, piece)
    placement = Placement(
        shape,
        chain.num_devices,
        tuple(block for pieces in made for block in blocks_of(pieces)),
        tick_ms=float(tick),
        transfer=tuple(triple for pieces in made for triple in transfers_of(pieces)),
        memory=_capacity(chain, unit),
        static_memory=_weights(chunks, pipelines, chain.num_devices, unit),
        memory_unit_mib=float(unit),
    )
    recompute, offload = {}, {}
    for pieces in made:
        for each, chunk in zip(pieces, chunks, strict=True):
            held = math.ceil(exact(chunk.activation_mib) / unit)
            if chunk.recompute_ms is not None:
                kept = min(held, math.ceil(exact(chunk.recompute_mib) / unit))
                recompute[each.name] = [Recompute(kept, _ticks(chunk.recompute_ms, tick))]
            if chunk.offload_ms is not None:
                offload[each.name] = [Offload(held, _ticks(chunk.offload_ms, tick))]
    if recompute or offload:
        host = chain.host_memory_mib
        on_host = None if host is None else math.floor(exact(host) / unit)
        placement = with_levers(placement, recompute, offload, on_host)
    return PlacedStages(placement, len(pipelines), tuple(notes))


def _times(chunks: Sequence[Stage]) -> list[Number]:
    figures = [
        (each.forward_ms, each.backward_ms, each.input_gradient_ms, each.recompute_ms, each.offload_ms)
        for each in chunks
    ]
    return [each for row in figures for each in row if each is not None]


def _memories(chunks: Sequence[Stage], chain: StageChain) -> list[Number]:
    return [
        *(m for each in chunks for m in (each.activation_mib, each.weight_mib, each.recompute_mib)),
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


def _ticks(ms: Number, tick: Fraction) -> int:
    return max(1, round(exact(ms) / tick))


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


def _sum(numbers: Iterable[Number]) -> Fraction:
    return sum(map(exact, numbers), Fraction(0))


def _sum_of_all(numbers: Sequence[Number | None]) -> Fraction | None:
    """Return the sum where each is known."""
    known = [each for each in numbers if each is not None]
    return _sum(known) if len(known) == len(numbers) else None


def exact(number: Number) -> Fraction:
    """Return a number as the fraction that its decimals are."""
    return number if isinstance(number, Fraction) else Fraction(str(number))
