"""A model as a chain of stages with times and memory, and the chain cut into other pieces, exactly.

A user has the milliseconds and MiB of each stage of a model, or of each layer. It is placed on
devices in the shape that a schedule needs. Sums and parts are those of the decimals. The module does not know
schedules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Annotated, Any

from placements.forms.meaning import Meaning
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.pieces import PIPELINES, Piece, blocks_of, pieces_on, transfers_of
from placements.planners.division import min_largest
from placements.spec import Placement

_FINEST = 6
"""Decimal places that a tick or a unit of memory has at most where all figures are whole multiples of it."""


class StagesError(ValueError):
    """Stages are wrong, or cannot be placed as asked; the message names the field and the remedy."""


@dataclass(frozen=True)
class Stage:
    """Cost of one piece of the model, a stage or layer, for one micro-batch.

    A backward in halves is kept as the whole and the first half. Figures of sums and parts are fractions.

    Raises:
        StagesError: The backward is given neither whole nor in halves.
    """

    forward_ms: Annotated[float, Meaning("its forward", "ms", above=0)]
    backward_ms: Annotated[float, Meaning("its whole backward; 0 beside both halves", "ms", min=0)] = 0.0
    input_gradient_ms: Annotated[float | None, Meaning("until the stage before goes on", "ms", above=0)] = (
        None
    )
    weight_gradient_ms: Annotated[float | None, Meaning("the other half of the backward", "ms", above=0)] = (
        None
    )
    activation_mib: Annotated[float, Meaning("held until the end of its backward", "MiB", min=0)] = 0.0
    weight_mib: Annotated[float, Meaning("always held: weights, gradients, optimizer", "MiB", min=0)] = 0.0
    recompute_ms: Annotated[float | None, Meaning("a mode: its forward again, first", "ms", above=0)] = None
    recompute_mib: Annotated[float, Meaning("held meanwhile in that mode", "MiB", min=0)] = 0.0
    offload_ms: Annotated[float | None, Meaning("a mode: to the host, as long back", "ms", above=0)] = None

    def __post_init__(self) -> None:
        """Put the halves of the backward together."""
        first, second = self.input_gradient_ms, self.weight_gradient_ms
        if bool(self.backward_ms) == (second is not None) or (second is not None and first is None):
            raise StagesError("give either backward_ms, or input_gradient_ms and weight_gradient_ms")
        if first is not None and second is not None:
            object.__setattr__(self, "backward_ms", exact(first) + exact(second))
            object.__setattr__(self, "weight_gradient_ms", None)

    @classmethod
    def merged(cls, stages: Sequence[Stage]) -> Stage:
        """Return several stages merged into one; a figure is None where one of theirs is."""
        figures: dict[str, Any] = {}
        for name in vars(stages[0]):
            known = [getattr(stage, name) for stage in stages]
            figures[name] = None if None in known else sum(map(exact, known))
        return cls(**figures)

    def part_of(self, number: int) -> Stage:
        """Return one of `number` equal parts of the stage."""
        parts: dict[str, Any] = {name: cost and exact(cost) / number for name, cost in vars(self).items()}
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
        float, Meaning("part of the time that grows with the square of the length", min=0, max=1)
    ] = 0.0
    kv_share: Annotated[float, Meaning("part of its activations that is keys and values", min=0, max=1)] = 0.0
    partition: Annotated[str, Meaning("how they are cut", choices=("even", "equal_time"))] = "even"


@dataclass(frozen=True)
class StageChain:
    """A model: stages, or the layers of which stages are made, and the devices for them.

    Each hands its output to the next. `num_devices` is never 0 afterwards, and memory has a number for each
    device.

    Raises:
        StagesError: There are neither stages nor layers, or both, or the devices do not go with them.
    """

    stages: Annotated[tuple[Stage, ...], Meaning("the stages, with the fields below")] = ()
    num_devices: Annotated[
        int, Meaning("0 for as many as stages, which is no choice beside layers", min=0)
    ] = 0
    memory_mib: Annotated[
        float | tuple[float, ...] | None,
        Meaning("of each device: one number or a list; none: no limit", "MiB", min=0),
    ] = None
    transfer_ms: Annotated[
        float, Meaning("from the end of a block to where its output is on another device", "ms", min=0)
    ] = 0.0
    layers: Annotated[
        tuple[Stage, ...], Meaning("instead of stages: a finer chain, cut so that the longest piece is least")
    ] = ()
    power_w: Annotated[
        DevicePower | None, Meaning("`running`, while a device computes, and `blocking`, while it waits", "W")
    ] = None
    host_memory_mib: Annotated[
        float | None, Meaning("what each device may hold on its host; none: no limit", "MiB", min=0)
    ] = None
    sequence_slices: Annotated[
        SequenceSlices | None,
        Meaning(
            "how sequences are cut: `num_slices`, and `attention_share`, `kv_share` (0 to 1, default 0) and "
            "`partition` (`even`, or `equal_time`)"
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check that the chain has either stages or layers, and count its devices."""
        if bool(self.stages) == bool(self.layers):
            raise StagesError("stages: give either 'stages', one for each device, or 'layers', to be divided")
        if self.layers and not self.num_devices:
            raise StagesError("num_devices: has no value beside layers; give the number of devices")
        number = self.num_devices or len(self.stages)
        object.__setattr__(self, "num_devices", number)
        memory = (self.memory_mib,) if isinstance(self.memory_mib, float | int) else self.memory_mib
        if memory is not None:
            memory *= number if len(memory) == 1 else 1
            if len(memory) != number:
                fault = f"has {len(memory)} numbers for {number} devices"
                raise StagesError(f"memory_mib: {fault}; give one each, or one")
            object.__setattr__(self, "memory_mib", memory)

    @property
    def capacities_mib(self) -> tuple[float, ...]:
        """Memory of each device; empty for no limit."""
        return self.memory_mib if isinstance(self.memory_mib, tuple) else ()

    @property
    def pieces(self) -> tuple[Stage, ...]:
        """The stages or layers."""
        return self.stages or self.layers

    @property
    def knows_halves(self) -> bool:
        """Whether every piece has the time of its input gradient apart from its weight gradients."""
        return all(piece.input_gradient_ms is not None for piece in self.pieces)

    def in_chunks(self, number: int) -> tuple[tuple[Stage, ...], str]:
        """Return the model in `number` pieces, and a note on how they were made; "" if they are its own.

        Layers are divided such that the longest piece is as short as possible.

        Raises:
            StagesError: The stages or layers cannot be made into this number of pieces.
        """
        pieces, count = self.pieces, len(self.pieces)
        if number == count:
            return pieces, ""
        if self.stages and number % count == 0:
            parts = number // count
            chunks = tuple(piece.part_of(parts) for piece in pieces for _ in range(parts))
            return chunks, f"each stage cut into {parts} equal parts"
        if self.layers and number < count:
            sizes = min_largest([float(piece.forward_ms + piece.backward_ms) for piece in pieces], number)
            note = f"layers of each chunk: {','.join(map(str, sizes))}"
        elif self.stages and count % number == 0:
            sizes, note = (count // number,) * number, f"{count // number} stages in each chunk"
        else:
            what = "layers" if self.layers else "stages"
            fault = f"{count} cannot be made into {number} chunks"
            raise StagesError(f"{what}: {fault}; choose another num_devices")
        ends = pairwise(accumulate(sizes, initial=0))
        return tuple(Stage.merged(pieces[first:end]) for first, end in ends), note


@dataclass(frozen=True)
class PlacedStages:
    """A model on devices.

    Attributes:
        placement: Placement in ticks and whole units of memory, with the devices' capacity and weights.
        num_samples: Micro-batches of the model that one micro-batch of the placement stands for: 2 where the
            placement has two pipelines.
        notes: Assumptions and cuts made for the placement, one line each.
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
        assumed = "input gradient assumed to take 50% of each backward"
        notes.append("split backward" if chain.knows_halves else assumed)
    if len(pipelines) > 1:
        notes.append("each device holds the weights of two stages")
    halves = [chunk.input_gradient_ms or exact(chunk.backward_ms) / 2 for chunk in chunks if split_backward]
    figures = [(name, figure) for chunk in chunks for name, figure in vars(chunk).items()]
    tick = _unit([chain.transfer_ms, *halves, *(ms for name, ms in figures if name.endswith("_ms"))])
    unit = _unit([*chain.capacities_mib, *(mib for name, mib in figures if name.endswith("_mib"))])
    hop = math.ceil(exact(chain.transfer_ms) / tick)
    weights, recompute, offload = [Fraction(0)] * chain.num_devices, {}, {}

    def ticks(ms: float | Fraction) -> int:
        return max(1, round(exact(ms) / tick))

    def units(mib: float) -> int:
        return math.ceil(exact(mib) / unit)

    def capacity(mib: float) -> int:
        return math.floor(exact(mib) / unit)

    def piece(name: str, device: int, index: int) -> Piece:
        chunk = chunks[index]
        held, backward = units(chunk.activation_mib), ticks(chunk.backward_ms)
        weights[device] += exact(chunk.weight_mib)
        if chunk.recompute_ms is not None:
            kept = min(held, units(chunk.recompute_mib))
            recompute[name] = [Recompute(kept, ticks(chunk.recompute_ms))]
        if chunk.offload_ms is not None:
            offload[name] = [Offload(held, ticks(chunk.offload_ms))]
        times, memory = [ticks(chunk.forward_ms), backward], [held, -held]
        if split_backward:
            half = ticks(halves[index])
            times[1:], memory = [half, max(1, backward - half)], [held, 0, -held]
        return Piece(name, (device,), tuple(times), tuple(memory), transfer=(hop, hop))

    made = pieces_on(pipelines, piece)
    placement = Placement(
        shape,
        chain.num_devices,
        tuple(block for pieces in made for block in blocks_of(pieces)),
        tick_ms=float(tick),
        transfer=tuple(triple for pieces in made for triple in transfers_of(pieces)),
        memory=tuple(map(capacity, chain.capacities_mib)) or None,
        static_memory=tuple(math.ceil(weight / unit) for weight in weights),
        memory_unit_mib=float(unit),
    )
    if recompute or offload:
        on_host = None if chain.host_memory_mib is None else capacity(chain.host_memory_mib)
        placement = with_levers(placement, recompute, offload, on_host)
    return PlacedStages(placement, len(pipelines), tuple(notes))


def _unit(figures: Iterable[float | Fraction | None]) -> Fraction:
    """Return the longest power of ten of which all figures are whole multiples, else a fine one.

    >>> _unit([12.5, 3.0]), _unit([1 / 3, 2.0])
    (Fraction(1, 10), Fraction(1, 1000000))
    """
    given = [exact(figure) for figure in figures if figure]
    for places in range(_FINEST + 1):
        unit = Fraction(1, 10**places)
        if all((figure / unit).denominator == 1 for figure in given):
            return unit
    shortest = math.floor(math.log10(min(given)))
    return Fraction(10) ** (shortest - _FINEST + 1)


def exact(number: float | Fraction) -> Fraction:
    """Return a number as the exact fraction of its decimals."""
    return number if isinstance(number, Fraction) else Fraction(str(number))
