"""A model as a chain of stages with times and memory, cut and placed on devices as a schedule needs it.

The form in which people have a model: milliseconds and MiB of each stage, or of each layer. It does not know
schedules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from placements.placement_file import read_yaml
from placements.plain_data import Field, in_file
from placements.planners.partition import least_largest
from placements.spec import Block, Kind, Placement

Number = float | Fraction
"""Milliseconds or MiB: as given, or an exact part or sum of such."""

_FINEST = 6
"""Decimal places that a tick or a unit of memory has at most where all figures are whole multiples of it."""

_LARGEST = 1e9
"""Milliseconds or MiB beyond which a figure is a mistake."""


class StagesError(ValueError):
    """Stages are wrong, or cannot be placed as asked; the message names the field and the remedy."""


@dataclass(frozen=True)
class Stage:
    """What one piece of the model costs for one micro-batch.

    Attributes:
        forward_ms: Time of its forward block; above 0.
        backward_ms: Time of its whole backward block; above 0.
        input_gradient_ms: The part of `backward_ms` after which the stage before can go on; None where it is
            not known.
        activation_mib: Held from its forward block to the end of its backward.
        weight_mib: Held all the time: weights, gradients and optimizer states.
    """

    forward_ms: Number
    backward_ms: Number
    input_gradient_ms: Number | None = None
    activation_mib: Number = 0.0
    weight_mib: Number = 0.0

    @classmethod
    def merged(cls, stages: Sequence[Stage]) -> Stage:
        """Return several in one, exactly; its input gradient is not known where one of theirs is not."""
        inputs = [each.input_gradient_ms for each in stages if each.input_gradient_ms is not None]
        return cls(
            _sum(each.forward_ms for each in stages),
            _sum(each.backward_ms for each in stages),
            _sum(inputs) if len(inputs) == len(stages) else None,
            _sum(each.activation_mib for each in stages),
            _sum(each.weight_mib for each in stages),
        )

    def part_of(self, number: int) -> Stage:
        """Return one of so many equal parts, exactly."""
        return Stage(
            _exact(self.forward_ms) / number,
            _exact(self.backward_ms) / number,
            None if self.input_gradient_ms is None else _exact(self.input_gradient_ms) / number,
            _exact(self.activation_mib) / number,
            _exact(self.weight_mib) / number,
        )


@dataclass(frozen=True)
class StageChain:
    """A model: pieces of which each hands its output to the next, and the devices for them.

    Attributes:
        pieces: The stages, or the layers of which stages are made.
        num_devices: At least 1.
        memory_mib: Capacity of each device; None for no limit.
        transfer_ms: Time from the end of a block to where its output is on another device.
        input_gradient_share: Part of a backward block that its input gradient takes, where the stages do not
            tell.
        are_layers: The pieces are divided among stages as they are. Otherwise a stage may be cut in parts.
    """

    pieces: tuple[Stage, ...]
    num_devices: int
    memory_mib: tuple[float, ...] | None = None
    transfer_ms: float = 0.0
    input_gradient_share: float = 0.5
    are_layers: bool = False

    @property
    def note_of_split(self) -> str:
        """What is assumed where the backward is split."""
        if any(each.input_gradient_ms is None for each in self.pieces):
            return f"input gradient assumed to take {self.input_gradient_share:.0%} of each backward"
        return "split backward"

    def with_known_halves(self, chunk: Stage) -> Stage:
        """Return a chunk with its input gradient, the share of the backward where it is not known."""
        if chunk.input_gradient_ms is not None:
            return chunk
        return replace(chunk, input_gradient_ms=_exact(chunk.backward_ms) * _exact(self.input_gradient_share))

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
            sizes = least_largest([float(each.forward_ms + each.backward_ms) for each in self.pieces], number)
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
        placement: In ticks and whole units of memory, with the devices' capacity and weights.
        num_samples: Micro-batches of the model that one micro-batch of the placement stands for: 2 where the
            placement has two pipelines.
        notes: What was assumed or cut to make it.
    """

    placement: Placement
    num_samples: int
    notes: tuple[str, ...]


def read_stages(path: str | Path) -> StageChain:
    """Read a model's stages from a YAML or JSON file; see `stages_from_dict`.

    Raises:
        StagesError: The file cannot be read or is wrong; the message begins with its path.
    """
    data = read_yaml(path, StagesError)
    with in_file(path, StagesError):
        return stages_from_dict(data)


def stages_from_dict(data: object) -> StageChain:
    """Build a model from plain data.

    The fields are ``stages`` or ``layers``, a list of mappings with ``forward_ms``, with ``backward_ms`` or
    ``input_gradient_ms`` and ``weight_gradient_ms``, and optionally with ``activation_mib`` and
    ``weight_mib``; and optionally ``memory_mib`` (one number, or one for each device), ``transfer_ms``,
    ``num_devices`` (default: as many as stages) and ``input_gradient_share``.

    Raises:
        StagesError: A field is missing, unknown or wrong.
    """
    optional = ("memory_mib", "transfer_ms", "num_devices", "input_gradient_share")
    top = Field(data, "", StagesError)
    given = top.mapping("a mapping with 'stages' or 'layers'")
    if ("stages" in given) == ("layers" in given):
        raise StagesError("stages: give either 'stages', one for each device, or 'layers', to be divided")
    name = "layers" if "layers" in given else "stages"
    top.only((name,), optional)
    pieces = tuple(map(_read_stage, top[name].items(f"a list of {name}")))
    if not pieces:
        raise top[name].wrong(f"a list of at least one of the {name}")
    if name == "layers" and top.get("num_devices").value is None:
        raise StagesError("num_devices: has no value beside layers; give the number of devices")
    number = top.get("num_devices", len(pieces)).whole("a whole number from 1 on", least=1)
    share = top.get("input_gradient_share", 0.5)
    if not 0 < share.number("a share between 0 and 1", least=0, most=1) < 1:
        raise share.wrong("a share between 0 and 1")
    transfer_ms = _figure(top.get("transfer_ms", 0.0))
    return StageChain(
        pieces,
        number,
        _read_memory(top.get("memory_mib"), number),
        transfer_ms,
        share.value,
        name == "layers",
    )


def _read_stage(field: Field) -> Stage:
    halves = ("input_gradient_ms", "weight_gradient_ms")
    optional = ("backward_ms", *halves, "activation_mib", "weight_mib")
    given = field.only(("forward_ms",), optional).value
    if ("backward_ms" in given) == any(half in given for half in halves):
        raise StagesError(f"{field.where}: give either backward_ms, or {' and '.join(halves)}")
    if "backward_ms" in given:
        whole: Number = _time(field["backward_ms"])
        first = None
    else:
        first = _time(field[halves[0]])
        whole = _exact(first) + _exact(_time(field[halves[1]]))
    activation, weight = (_figure(field.get(name, 0.0)) for name in ("activation_mib", "weight_mib"))
    return Stage(_time(field["forward_ms"]), whole, first, activation, weight)


def _time(field: Field) -> float:
    if not field.number("a time above 0", "give milliseconds", 0.0, _LARGEST) > 0:
        raise field.wrong("a time above 0", "give milliseconds")
    return float(field.value)


def _figure(field: Field) -> float:
    return float(field.number("a number of 0 or more", least=0.0, most=_LARGEST))


def _read_memory(field: Field, num_devices: int) -> tuple[float, ...] | None:
    if field.value is None:
        return None
    if not isinstance(field.value, list):
        return (_figure(field),) * num_devices
    if len(field.value) != num_devices:
        raise StagesError(
            f"{field.where}: has {len(field.value)} numbers for {num_devices} devices; give one each, or one"
        )
    return tuple(map(_figure, field.items()))


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
    hop = math.ceil(_exact(chain.transfer_ms) / tick)
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
    return tuple(math.floor(_exact(each) / unit) for each in chain.memory_mib)


def _weights(
    chunks: Sequence[Stage], pipelines: Sequence[Sequence[int]], num_devices: int, unit: Fraction
) -> tuple[int, ...]:
    """Return what each device holds all the time."""
    held = [Fraction(0)] * num_devices
    for devices in pipelines:
        for chunk, device in zip(chunks, devices, strict=True):
            held[device] += _exact(chunk.weight_mib)
    return tuple(math.ceil(each / unit) for each in held)


_LETTERS: Sequence[Mapping[Kind, str]] = (
    {Kind.F: "F", Kind.B: "B", Kind.I: "I", Kind.W: "W"},
    {Kind.F: "G", Kind.B: "C", Kind.I: "J", Kind.W: "X"},
)
"""Of the names of blocks, as in `placements.shapes`."""


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
        return max(1, round(_exact(ms) / self.tick))

    def _held(self, index: int) -> int:
        return math.ceil(_exact(self.chunks[index].activation_mib) / self.unit)


def _sum(numbers: Iterable[Number]) -> Fraction:
    return sum(map(_exact, numbers), Fraction(0))


def _exact(number: Number) -> Fraction:
    return number if isinstance(number, Fraction) else Fraction(str(number))


def _unit(figures: Iterable[Number]) -> Fraction:
    """Return the longest power of ten of which all figures are whole multiples, else a fine one.

    >>> _unit([12.5, 3.0]), _unit([Fraction(1, 3), 2.0])
    (Fraction(1, 10), Fraction(1, 1000000))
    """
    exact = [_exact(figure) for figure in figures if figure]
    for places in range(_FINEST + 1):
        unit = Fraction(1, 10**places)
        if all((figure / unit).denominator == 1 for figure in exact):
            return unit
    shortest = math.floor(math.log10(min(exact)))
    return Fraction(10) ** (shortest - _FINEST + 1)


def stages_of(
    num_stages: int | None = None,
    *,
    memory_mib: float | Sequence[float] | None = None,
    transfer_ms: float = 0.0,
    num_devices: int | None = None,
    input_gradient_share: float = 0.5,
    **columns: float | Iterable[float],
) -> StageChain:
    """Build a model from columns; see `stages_from_dict` for their names.

    Args:
        num_stages: Needed where no column is a list.
        memory_mib: Of each device, or of all.
        transfer_ms: See `StageChain`, as for the rest.
        num_devices: Default: as many as stages.
        input_gradient_share: Likewise.
        columns: One number for all stages, or one for each: lists, arrays, or columns of a DataFrame.

    Raises:
        StagesError: A column is unknown, wrong, or of another length than the others.

    >>> stages_of(forward_ms=[10, 12], backward_ms=20, memory_mib=4096).pieces[1].forward_ms
    12.0
    """
    given = {name: each if isinstance(each, (int, float)) else list(each) for name, each in columns.items()}
    lengths = {name: len(each) for name, each in given.items() if isinstance(each, list)}
    count = num_stages if num_stages is not None else max(lengths.values(), default=0)
    for name, length in lengths.items():
        if length != count:
            raise StagesError(f"{name}: has {length} numbers for {count} stages; give one each, or one")
    rows = [
        {name: float(each[i] if isinstance(each, list) else each) for name, each in given.items()}
        for i in range(count)
    ]
    memory = memory_mib if memory_mib is None or isinstance(memory_mib, (int, float)) else [*memory_mib]
    data = {"stages": rows, "memory_mib": memory, "transfer_ms": transfer_ms}
    number = {} if num_devices is None else {"num_devices": num_devices}
    return stages_from_dict(data | number | {"input_gradient_share": input_gradient_share})
