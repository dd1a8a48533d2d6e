"""Placement shapes: those of Tessel's evaluation (Tessel, Fig. 1 and Fig. 8), the wave and the loop.

Each function's docstring holds the picture of one micro-batch of four devices, one column a tick. The
times default to the paper's: a backward of three forwards, because activations are recomputed
(Tessel, Sec. VI-B). With ``inference=True`` only the forward blocks remain, and hold no memory.

With ``split_backward=True`` a stage's backward is two blocks: ``I``, the gradient of its input, which the
stage before waits for, and ``W``, that of its weights, which nothing waits for; see
`schedsearch.baselines.chains`. A forward block holds `stage_memory`; its whole backward gives it
back, or ``I`` releases `input_release` of it and ``W`` the rest.

V- and X-shape, wave and loop are also made of stages in ms and MiB.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from placements.block import Block, Kind, PlacementError
from placements.pieces import PIPELINES, Piece, blocks_of, pieces_on
from placements.spec import Placement
from placements.stages.stage_chain import place
from placements.stages.stage_file import stages_of


@dataclass(frozen=True)
class StageTicks:
    """Times and memory of every stage of a shape, in ticks and units of memory.

    Attributes:
        forward_time: Ticks of a forward block.
        backward_time: Ticks of a whole backward block; without effect where it is split.
        split_backward: Split each backward block in two, ``I`` and ``W``.
        input_time: Ticks of ``I``; without effect where the backward is whole.
        weight_time: Ticks of ``W``; without effect where the backward is whole.
        stage_memory: Units that a forward block holds.
        input_release: Units of these that ``I`` releases; ``W`` releases the rest.
        inference: Forward blocks only, which hold nothing.

    Raises:
        PlacementError: The memory is negative, or more of it is released than held.
    """

    forward_time: int = 1
    backward_time: int = 3
    split_backward: bool = False
    input_time: int = 1
    weight_time: int = 1
    stage_memory: int = 1
    input_release: int = 0
    inference: bool = False

    def __post_init__(self) -> None:
        """Check the memory."""
        _check_held("stage_memory", self.stage_memory)
        if self.split_backward and not 0 <= self.input_release <= self.stage_memory:
            raise PlacementError(
                f"input_release: {self.input_release} is not at least 0 and at most stage_memory, "
                f"{self.stage_memory}"
            )

    def piece(self, name: str, device: int, _index: int = 0) -> Piece:
        """Return a stage on a device by the name of its forward block."""
        times, memory = [self.forward_time, self.backward_time], [self.stage_memory, -self.stage_memory]
        if self.split_backward:
            times = [self.forward_time, self.input_time, self.weight_time]
            memory = [self.stage_memory, -self.input_release, self.input_release - self.stage_memory]
        return Piece(name, (device,), tuple(times), tuple(memory))


def v_shape(num_devices: int = 4, *ticks: Any, **options: Any) -> Placement:
    """Return one stage per device, forward down the devices and backward up again (Tessel, Fig. 1a).

    ::

        0 | F0 .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .
        2 | .  .  F2 .  .  .  .  B2 B2 B2 .  .  .  .  .  .
        3 | .  .  .  F3 B3 B3 B3 .  .  .  .  .  .  .  .  .

    Args:
        num_devices: Number of devices, and of stages.
        ticks: Those of `StageTicks` in order, where there are no options in ms and MiB.
        options: Those of `StageTicks` by name; or, in ms and MiB, those of
            `placements.stages.stage_file.stages_of`, ``split_backward`` (default: whether input
            gradients are given) and ``num_chunks``.

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

    ::

        0 | F0 .  .  G0 C0 C0 C0 .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 G1 .  .  .  .  C1 C1 C1 B1 B1 B1 .  .  .
        2 | .  G2 F2 .  .  .  .  B2 B2 B2 C2 C2 C2 .  .  .
        3 | G3 .  .  F3 B3 B3 B3 .  .  .  .  .  .  C3 C3 C3

    Args: those of `v_shape`. In ms and MiB, each device holds two stages and the weights of both.
    """
    return _of_stages("x_shape", num_devices, 1, ticks, options)


def wave_shape(num_devices: int = 4, num_chunks: int = 2, *ticks: Any, **options: Any) -> Placement:
    """Return several stages per device, down the devices, up again and so on, as in ZB-V and Hanayo.

    Neighbouring chunks of a device's model turn on it: of 2 chunks on p devices, stages d and 2p - 1 - d
    stand on device d. Times and memory are those of one chunk.

    ::

        0 | F0 .  .  .  .  .  .  F7 B7 B7 B7 .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 .  .  .  .  F6 .  .  .  .  B6 B6 B6 .  .  .  .  .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .
        2 | .  .  F2 .  .  F5 .  .  .  .  .  .  .  .  B5 B5 B5 .  .  .  .  .  .  B2 B2 B2 .  .  .  .  .  .
        3 | .  .  .  F3 F4 .  .  .  .  .  .  .  .  .  .  .  .  B4 B4 B4 B3 B3 B3 .  .  .  .  .  .  .  .  .

    Args: `num_chunks`, stages per device; the others are those of `v_shape`. In ms and MiB, a stage is cut
        where it must be.
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

    Args: those of `wave_shape`.
    """
    return _of_stages("loop_shape", num_devices, num_chunks, ticks, options)


def m_shape(
    num_devices: int = 4,
    forward_time: int = 1,
    backward_time: int = 3,
    embedding_forward_time: int = 1,
    embedding_backward_time: int = 1,
    embedding_memory: int = 0,
    stage_memory: int = 1,
    inference: bool = False,
) -> Placement:
    """Return a V-shape between an embedding's forward and backward on all devices (Tessel, Fig. 1c, 8a).

    ::

        0 | E  F0 .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0 EB
        1 | E  .  F1 .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .  EB
        2 | E  .  .  F2 .  .  .  .  B2 B2 B2 .  .  .  .  .  .  EB
        3 | E  .  .  .  F3 B3 B3 B3 .  .  .  .  .  .  .  .  .  EB

    Args:
        num_devices: Number of devices, and of stages.
        forward_time: Ticks of a stage's forward block.
        backward_time: Ticks of a stage's backward block.
        embedding_forward_time: Ticks of ``E``.
        embedding_backward_time: Ticks of ``EB``.
        embedding_memory: Units that the output of ``E`` holds on the first stage's device; at most
            `stage_memory`. It is that stage's input, which is part of what any stage keeps for its backward:
            ``E`` takes it, ``F0`` only the rest of `stage_memory`, and ``B0`` gives all back. ``EB`` needs no
            more than the gradient. Where it is 0, as in the paper, a schedule may run any number of ``E``
            ahead.
        stage_memory: Units that a stage holds from its forward block, which takes them, until its backward;
            raise it to make `embedding_memory` a fraction of a stage's.
        inference: Forward blocks only, which hold nothing.
    """
    stage = StageTicks(forward_time, backward_time, stage_memory=stage_memory)
    times = embedding_forward_time, embedding_backward_time
    pieces = _with_embeddings({"E": 0}, num_devices, stage, times, embedding_memory)
    return _placement("m_shape", num_devices, blocks_of(pieces), inference)


def nn_shape(
    num_devices: int = 4,
    forward_time: int = 1,
    backward_time: int = 3,
    embedding_forward_time: int = 1,
    embedding_backward_time: int = 1,
    embedding_memory: int = 0,
    stage_memory: int = 1,
    inference: bool = False,
) -> Placement:
    """Return an M-shape with a second embedding in the middle, as in mT5 (Tessel, Fig. 8d).

    The encoder's stages stand on the first half of the devices, the decoder's on the second; the
    embedding of the encoder (``E0``) and of the decoder (``E1``) on all.

    ::

        0 | E0  F0  .   E1  .   .   .   .   .   .   .   .   EB1 .   .   .   B0  B0  B0  EB0
        1 | E0  .   F1  E1  .   .   .   .   .   .   .   .   EB1 B1  B1  B1  .   .   .   EB0
        2 | E0  .   .   E1  F2  .   .   .   .   B2  B2  B2  EB1 .   .   .   .   .   .   EB0
        3 | E0  .   .   E1  .   F3  B3  B3  B3  .   .   .   EB1 .   .   .   .   .   .   EB0

    Args: those of `m_shape`; the output of ``E0`` holds `embedding_memory` on the device of the first
        encoder stage, that of ``E1`` on the device of the first decoder stage.
    """
    stage = StageTicks(forward_time, backward_time, stage_memory=stage_memory)
    times = embedding_forward_time, embedding_backward_time
    embeddings = {"E0": 0, "E1": num_devices // 2}
    pieces = _with_embeddings(embeddings, num_devices, stage, times, embedding_memory)
    return _placement("nn_shape", num_devices, blocks_of(pieces), inference)


def k_shape(
    num_devices: int = 4,
    forward_time: int = 1,
    backward_time: int = 3,
    join_forward_time: int = 1,
    join_backward_time: int = 1,
    inference: bool = False,
) -> Placement:
    """Return two branches on the two halves of the devices, joined on all: Flava (Tessel, Fig. 1d, 8g).

    ::

        0 | F0 .  J  JB .  .  .  B0 B0 B0
        1 | .  F1 J  JB B1 B1 B1 .  .  .
        2 | F2 .  J  JB .  .  .  B2 B2 B2
        3 | .  F3 J  JB B3 B3 B3 .  .  .
    """
    if num_devices < 2:
        raise PlacementError(f"num_devices: a K-shape needs at least 2 devices, not {num_devices}")
    half, stage = num_devices // 2, StageTicks(forward_time, backward_time)
    pieces = [stage.piece(f"F{device}", device) for device in range(num_devices)]
    pieces[half] = replace(pieces[half], after=())
    times, ends = (join_forward_time, join_backward_time), (half - 1, num_devices - 1)
    join = Piece("J", tuple(range(num_devices)), times, (1, -1), after=ends)
    blocks = blocks_of([*pieces, join])
    until_join, second, first = blocks[: num_devices + 2], blocks[num_devices + 2 : -half], blocks[-half:]
    return _placement("k_shape", num_devices, [*until_join, *first, *second], inference)


SHAPES: dict[str, Callable[..., Placement]] = {
    "v_shape": v_shape,
    "x_shape": x_shape,
    "m_shape": m_shape,
    "nn_shape": nn_shape,
    "k_shape": k_shape,
    "wave_shape": wave_shape,
    "loop_shape": loop_shape,
}
"""The shapes by the name that the command line uses."""


def options_of(shape: Callable[..., Placement]) -> dict[str, Any]:
    """Return the options of a shape in ticks, with their defaults."""
    parameters = inspect.signature(shape).parameters.values()
    named = {each.name: each.default for each in parameters if each.default is not each.empty}
    if not any(each.kind is each.VAR_KEYWORD for each in parameters):
        return named
    return named | {each.name: each.default for each in fields(StageTicks)}


def _of_stages(
    shape: str, num_devices: int, num_chunks: int, ticks: tuple[Any, ...], options: dict[str, Any]
) -> Placement:
    """Return a shape of equal stages in ticks, or of the user's in ms and MiB."""
    if num_chunks < 1:
        raise PlacementError(f"num_chunks: {num_chunks} is not at least 1")
    if any(name.endswith(("_ms", "_mib")) for name in options):
        return _in_ms(shape, num_devices, num_chunks, options)
    stage = StageTicks(*ticks, **options)
    pipelines = pieces_on(PIPELINES[shape](num_devices, num_chunks), stage.piece)
    blocks = [
        block
        for pieces in pipelines
        for block in sorted(blocks_of(pieces), key=lambda block: block.kind is Kind.W)
    ]
    return _placement(shape, num_devices, blocks, stage.inference)


def _in_ms(shape: str, num_devices: int, num_chunks: int, options: dict[str, Any]) -> Placement:
    is_split = options.pop("split_backward", "input_gradient_ms" in options)
    num_chunks = options.pop("num_chunks", num_chunks)
    columns = (name for name in options if name not in ("memory_mib", "transfer_ms", "input_gradient_share"))
    are_numbers = all(isinstance(options[name], int | float | str) for name in columns)
    stages = stages_of(num_devices if are_numbers else None, num_devices=num_devices, **options)
    return place(stages, shape, is_split, num_chunks).placement


def _with_embeddings(
    embeddings: dict[str, int], num_devices: int, stage: StageTicks, times: tuple[int, int], units: int
) -> list[Piece]:
    """Return a stage for each device, and before some of them an embedding on all.

    Args:
        embeddings: Names of embeddings, and the device whose stage comes after.
        num_devices: Number of devices, and of stages.
        stage: Each of them.
        times: Ticks of an embedding's forward and backward.
        units: Part of the stage's memory that the embedding before it takes, on the stage's device.
    """
    _check_held("embedding_memory", units)
    if units > stage.stage_memory:
        raise PlacementError(
            f"embedding_memory: {units} is more than stage_memory, {stage.stage_memory}, which includes it; "
            "raise stage_memory"
        )
    everywhere, pieces = tuple(range(num_devices)), []
    for device in everywhere:
        before = [name for name, first in embeddings.items() if first == device]
        held = tuple(units * (each == device) for each in everywhere)
        pieces += [Piece(name, everywhere, times, (held, 0)) for name in before]
        memory = stage.stage_memory - len(before) * units, -stage.stage_memory
        pieces.append(replace(stage.piece(f"F{device}", device), memory=memory))
    return pieces


def _check_held(name: str, units: int) -> None:
    if units < 0:
        raise PlacementError(f"{name}: {units} is negative; give 0 or more")


def _placement(name: str, num_devices: int, blocks: list[Block], inference: bool) -> Placement:
    if num_devices < 1:
        raise PlacementError(f"num_devices: {num_devices} is not at least 1")
    if inference:
        blocks = [replace(block, memory=0) for block in blocks if block.kind is Kind.F]
    return Placement(f"{name}_inference" if inference else name, num_devices, tuple(blocks))
