"""Placement shapes: Tessel's evaluation shapes (Tessel, Fig. 1 and Fig. 8), the wave and the loop.

Each function's docstring holds the picture of one micro-batch of four devices, one column a tick. The times
default to the paper's: a backward of three forwards, because activations are recomputed (Tessel, Sec. VI-B).
V- and X-shape, wave and loop take the options of `StageTicks`; or, in ms and MiB, those of
`placements.stages.stage_file.stages_of` and ``split_backward`` (default: whether input gradients are given).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any

from placements.block import Block, Kind, PlacementError, check_limits
from placements.forms.meaning import DeclaredField, Meaning, declared_fields
from placements.pieces import PIPELINES, Piece, blocks_of, pieces_on
from placements.spec import Placement
from placements.stages.stage_chain import place
from placements.stages.stage_file import stages_of

_Ticks = Annotated[int, Meaning("ticks")]
_Inference = Annotated[bool, Meaning("true: forward blocks only")]


@dataclass(frozen=True)
class StageTicks:
    """Times and memory of every stage of a shape, in ticks and units of memory.

    Of a split backward the stage before waits for ``I``, and nothing for ``W``. Inference holds nothing.
    """

    forward_time: _Ticks = 1
    backward_time: _Ticks = 3
    split_backward: Annotated[bool, Meaning("true: I (input gradient) and W (weights') instead of B")] = False
    input_time: Annotated[int, Meaning("ticks of I; without effect where the backward is whole")] = 1
    weight_time: Annotated[int, Meaning("ticks of W; without effect where the backward is whole")] = 1
    stage_memory: Annotated[int, Meaning("memory held from a stage's forward until its backward", min=0)] = 1
    input_release: Annotated[int, Meaning("part of stage_memory that I releases; W releases the rest")] = 0
    inference: _Inference = False

    def __post_init__(self) -> None:
        """Check the memory."""
        check_limits(self)
        if self.split_backward and not 0 <= self.input_release <= self.stage_memory:
            limits = f"at least 0 and at most stage_memory, {self.stage_memory}"
            raise PlacementError(f"input_release: {self.input_release} is not {limits}")

    def piece(self, name: str, device: int, _index: int = 0) -> Piece:
        """Return a stage on a device by the name of its forward block."""
        held, released = self.stage_memory, self.input_release
        if self.split_backward:
            times = self.forward_time, self.input_time, self.weight_time
            return Piece(name, (device,), times, (held, -released, released - held))
        return Piece(name, (device,), (self.forward_time, self.backward_time), (held, -held))


@dataclass(frozen=True)
class SharedTicks:
    """Times of stages, which hold a unit of memory each, and of blocks that all devices share, in ticks."""

    forward_time: _Ticks = 1
    backward_time: _Ticks = 3
    shared_forward_time: _Ticks = 1
    shared_backward_time: _Ticks = 1
    inference: _Inference = False

    def stages(self, num_devices: int) -> list[Piece]:
        """Return a stage on each device."""
        stage = StageTicks(self.forward_time, self.backward_time)
        return [stage.piece(f"F{device}", device) for device in range(num_devices)]

    def shared(self, name: str, num_devices: int) -> Piece:
        """Return a piece on all devices, which holds nothing."""
        return Piece(name, tuple(range(num_devices)), (self.shared_forward_time, self.shared_backward_time))


def v_shape(num_devices: int = 4, *ticks: Any, **options: Any) -> Placement:
    """Return one stage per device, forward down the devices and backward up again (Tessel, Fig. 1a).

    ::

        0 | F0 .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .
        2 | .  .  F2 .  .  .  .  B2 B2 B2 .  .  .  .  .  .
        3 | .  .  .  F3 B3 B3 B3 .  .  .  .  .  .  .  .  .

    Raises:
        PlacementError: An option in ticks is wrong.
        StagesError: An option in ms and MiB is wrong.

    >>> placement = v_shape(2, forward_ms=[10, 12.5], backward_ms=25, activation_mib=300, memory_mib=700)
    >>> placement.ms(placement.by_name["F1"].time), placement.mib(placement.memory[0])
    (12.5, 700.0)
    """
    return _of_stages("v_shape", num_devices, 1, ticks, options)


def x_shape(num_devices: int = 4, *ticks: Any, **options: Any) -> Placement:
    """Return two V-shapes in opposite directions, as in Chimera (Tessel, Fig. 1b).

    A micro-batch of the placement is one micro-batch of each direction: ``F`` and ``B`` (split: ``I`` and
    ``W``) run down the devices, ``G`` and ``C`` (split: ``J`` and ``X``), their forward and backward, up.
    In ms and MiB, each device holds two stages and the weights of both.

    ::

        0 | F0 .  .  G0 C0 C0 C0 .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 G1 .  .  .  .  C1 C1 C1 B1 B1 B1 .  .  .
        2 | .  G2 F2 .  .  .  .  B2 B2 B2 C2 C2 C2 .  .  .
        3 | G3 .  .  F3 B3 B3 B3 .  .  .  .  .  .  C3 C3 C3
    """
    return _of_stages("x_shape", num_devices, 1, ticks, options)


def wave_shape(num_devices: int = 4, num_chunks: int = 2, *ticks: Any, **options: Any) -> Placement:
    """Return several stages per device, down the devices, up again and so on, as in ZB-V and Hanayo.

    Neighbouring chunks of a device's model turn on it: of 2 chunks on p devices, stages d and 2p - 1 - d
    stand on device d. Times and memory are those of one chunk; in ms and MiB a stage is cut if needed.

    ::

        0 | F0 .  .  .  .  .  .  F7 B7 B7 B7 .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 .  .  .  .  F6 .  .  .  .  B6 B6 B6 .  .  .  .  .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .
        2 | .  .  F2 .  .  F5 .  .  .  .  .  .  .  .  B5 B5 B5 .  .  .  .  .  .  B2 B2 B2 .  .  .  .  .  .
        3 | .  .  .  F3 F4 .  .  .  .  .  .  .  .  .  .  .  .  B4 B4 B4 B3 B3 B3 .  .  .  .  .  .  .  .  .
    """
    return _of_stages("wave_shape", num_devices, num_chunks, ticks, options)


def loop_shape(num_devices: int = 4, num_chunks: int = 2, *ticks: Any, **options: Any) -> Placement:
    """Return several stages per device, each time down the devices: interleaved (dissertation, Sec. 4.2.2).

    Chunk c of device d is stage cp + d, on p devices. Times and memory are those of one chunk.

    ::

        0 | F0 .  .  .  F4 .  .  .  .  .  .  .  .  .  .  .  .  B4 B4 B4 .  .  .  .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 .  .  .  F5 .  .  .  .  .  .  .  .  B5 B5 B5 .  .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .
        2 | .  .  F2 .  .  .  F6 .  .  .  .  B6 B6 B6 .  .  .  .  .  .  .  .  .  B2 B2 B2 .  .  .  .  .  .
        3 | .  .  .  F3 .  .  .  F7 B7 B7 B7 .  .  .  .  .  .  .  .  .  B3 B3 B3 .  .  .  .  .  .  .  .  .
    """
    return _of_stages("loop_shape", num_devices, num_chunks, ticks, options)


def m_shape(num_devices: int = 4, *ticks: Any, **options: Any) -> Placement:
    """Return a V-shape between an embedding's forward and backward on all devices (Tessel, Fig. 1c, 8a).

    ::

        0 | E  F0 .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0 EB
        1 | E  .  F1 .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .  EB
        2 | E  .  .  F2 .  .  .  .  B2 B2 B2 .  .  .  .  .  .  EB
        3 | E  .  .  .  F3 B3 B3 B3 .  .  .  .  .  .  .  .  .  EB
    """
    times = SharedTicks(*ticks, **options)
    pieces = [times.shared("E", num_devices), *times.stages(num_devices)]
    return _placement("m_shape", num_devices, blocks_of(pieces), times.inference)


def nn_shape(num_devices: int = 4, *ticks: Any, **options: Any) -> Placement:
    """Return an M-shape with a second embedding in the middle, as in mT5 (Tessel, Fig. 8d).

    The encoder's stages stand on the first half of the devices, the decoder's on the second; the
    embedding of the encoder (``E0``) and of the decoder (``E1``) on all.

    ::

        0 | E0  F0  .   E1  .   .   .   .   .   .   .   .   EB1 .   .   .   B0  B0  B0  EB0
        1 | E0  .   F1  E1  .   .   .   .   .   .   .   .   EB1 B1  B1  B1  .   .   .   EB0
        2 | E0  .   .   E1  F2  .   .   .   .   B2  B2  B2  EB1 .   .   .   .   .   .   EB0
        3 | E0  .   .   E1  .   F3  B3  B3  B3  .   .   .   EB1 .   .   .   .   .   .   EB0
    """
    times, half = SharedTicks(*ticks, **options), num_devices // 2
    first, second = (times.shared(name, num_devices) for name in ("E0", "E1"))
    stages = times.stages(num_devices)
    blocks = blocks_of([first, *stages[:half], second, *stages[half:]])
    return _placement("nn_shape", num_devices, blocks, times.inference)


def k_shape(num_devices: int = 4, *ticks: Any, **options: Any) -> Placement:
    """Return two branches on the two halves of the devices, joined on all: Flava (Tessel, Fig. 1d, 8g).

    ::

        0 | F0 .  J  JB .  .  .  B0 B0 B0
        1 | .  F1 J  JB B1 B1 B1 .  .  .
        2 | F2 .  J  JB .  .  .  B2 B2 B2
        3 | .  F3 J  JB B3 B3 B3 .  .  .
    """
    if num_devices < 2:
        raise PlacementError(f"num_devices: a K-shape needs at least 2 devices, not {num_devices}")
    times, half = SharedTicks(*ticks, **options), num_devices // 2
    pieces = times.stages(num_devices)
    pieces[half] = replace(pieces[half], after=())
    join = replace(times.shared("J", num_devices), memory=(1, -1), after=(half - 1, num_devices - 1))
    blocks = blocks_of([*pieces, join])
    until_join, second, first = blocks[: num_devices + 2], blocks[num_devices + 2 : -half], blocks[-half:]
    return _placement("k_shape", num_devices, [*until_join, *first, *second], times.inference)


SHAPES: dict[str, Callable[..., Placement]] = {
    shape.__name__: shape for shape in (v_shape, x_shape, m_shape, nn_shape, k_shape, wave_shape, loop_shape)
}
"""The shapes by the name that the command line uses."""

_TICKS = dict.fromkeys(PIPELINES, StageTicks) | dict.fromkeys(("m_shape", "nn_shape", "k_shape"), SharedTicks)


def shape_options(shape: Callable[..., Placement]) -> dict[str, DeclaredField]:
    """Return the options of a shape: its own arguments, and the fields of its times in ticks."""
    named = inspect.signature(shape).parameters.items()
    arguments = [
        DeclaredField(n, n, type(p.default), None, p.default) for n, p in named if p.default is not p.empty
    ]
    ticks = declared_fields(_TICKS[shape.__name__]) if shape.__name__ in _TICKS else ()
    return {option.name: option for option in (*arguments, *ticks)}


def _of_stages(
    shape: str, num_devices: int, num_chunks: int, ticks: tuple[Any, ...], options: dict[str, Any]
) -> Placement:
    """Return a shape of equal stages in ticks, or of the user's in ms and MiB."""
    if num_chunks < 1:
        raise PlacementError(f"num_chunks: {num_chunks} is not at least 1")
    if any(name.endswith(("_ms", "_mib")) for name in options):
        is_split = options.pop("split_backward", "input_gradient_ms" in options)
        columns = options.keys() - {"memory_mib", "transfer_ms"}
        are_numbers = all(isinstance(options[name], int | float | str) for name in columns)
        stages = stages_of(num_devices if are_numbers else None, num_devices=num_devices, **options)
        return place(stages, shape, is_split, num_chunks).placement
    stage = StageTicks(*ticks, **options)
    pipelines = pieces_on(PIPELINES[shape](num_devices, num_chunks), stage.piece)
    made = (sorted(blocks_of(pieces), key=lambda block: block.kind is Kind.W) for pieces in pipelines)
    return _placement(shape, num_devices, chain.from_iterable(made), stage.inference)


def _placement(name: str, num_devices: int, blocks: Iterable[Block], inference: bool) -> Placement:
    if inference:
        blocks = [replace(block, memory=0) for block in blocks if block.kind is Kind.F]
    return Placement(f"{name}_inference" if inference else name, num_devices, tuple(blocks))
