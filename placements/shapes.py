"""Placement shapes: those of Tessel's evaluation (Tessel, Fig. 1 and Fig. 8), the wave and the loop.

Each function's docstring holds the picture of one micro-batch of four devices, one column a tick. The
times default to the paper's: a backward of three forwards, because activations are recomputed
(Tessel, Sec. VI-B). With ``inference=True`` only the forward blocks remain, and hold no memory.

With ``split_backward=True`` a stage's backward is two blocks: ``I``, the gradient of its input, which the
stage before waits for, and ``W``, that of its weights, which nothing waits for; see
`schedsearch.baselines.zero_bubble`. A forward block holds `stage_memory`; its whole backward gives it
back, or ``I`` releases `input_release` of it and ``W`` the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from placements.spec import Block, Kind, Placement, PlacementError, in_chain


def v_shape(
    num_devices: int = 4,
    forward_time: int = 1,
    backward_time: int = 3,
    split_backward: bool = False,
    input_time: int = 1,
    weight_time: int = 1,
    stage_memory: int = 1,
    input_release: int = 0,
    inference: bool = False,
) -> Placement:
    """Return one stage per device, forward down the devices and backward up again (Tessel, Fig. 1a).

    ::

        0 | F0 .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .
        2 | .  .  F2 .  .  .  .  B2 B2 B2 .  .  .  .  .  .
        3 | .  .  .  F3 B3 B3 B3 .  .  .  .  .  .  .  .  .

    Args:
        num_devices: As many stages.
        forward_time: Ticks of a forward block.
        backward_time: Ticks of a whole backward block; without effect where it is split.
        split_backward: Split each backward block in two, ``I`` and ``W``.
        input_time: Ticks of ``I``; without effect where the backward is whole.
        weight_time: Ticks of ``W``; without effect where the backward is whole.
        stage_memory: Units that a forward block holds.
        input_release: Units of these that ``I`` releases; ``W`` releases the rest.
        inference: Forward blocks only, which hold nothing.
    """
    backward = _Backward(backward_time, split_backward, input_time, weight_time, input_release)
    forward = _stages("F", range(num_devices), forward_time, stage_memory)
    return _placement("v_shape", num_devices, _there_and_back(forward, backward), inference)


def x_shape(
    num_devices: int = 4,
    forward_time: int = 1,
    backward_time: int = 3,
    split_backward: bool = False,
    input_time: int = 1,
    weight_time: int = 1,
    stage_memory: int = 1,
    input_release: int = 0,
    inference: bool = False,
) -> Placement:
    """Return two V-shapes in opposite directions, as in Chimera (Tessel, Fig. 1b).

    A micro-batch of the placement is one micro-batch of each direction: ``F`` and ``B`` (split: ``I`` and
    ``W``) run down the devices, ``G`` and ``C`` (split: ``J`` and ``X``), their forward and backward, up.

    ::

        0 | F0 .  .  G0 C0 C0 C0 .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 G1 .  .  .  .  C1 C1 C1 B1 B1 B1 .  .  .
        2 | .  G2 F2 .  .  .  .  B2 B2 B2 C2 C2 C2 .  .  .
        3 | G3 .  .  F3 B3 B3 B3 .  .  .  .  .  .  C3 C3 C3

    Args: those of `v_shape`.
    """
    backward = _Backward(backward_time, split_backward, input_time, weight_time, input_release)
    down = _stages("F", range(num_devices), forward_time, stage_memory)
    up = _stages("G", range(num_devices - 1, -1, -1), forward_time, stage_memory)
    blocks = _there_and_back(down, backward) + _there_and_back(up, backward)
    return _placement("x_shape", num_devices, blocks, inference)


def wave_shape(
    num_devices: int = 4,
    num_chunks: int = 2,
    forward_time: int = 1,
    backward_time: int = 3,
    split_backward: bool = False,
    input_time: int = 1,
    weight_time: int = 1,
    stage_memory: int = 1,
    input_release: int = 0,
    inference: bool = False,
) -> Placement:
    """Return several stages per device, down the devices, up again and so on, as in ZB-V and Hanayo.

    Neighbouring chunks of a device's model turn on it: of 2 chunks on p devices, stages d and 2p - 1 - d
    stand on device d. Times and memory are those of one chunk.

    ::

        0 | F0 .  .  .  .  .  .  F7 B7 B7 B7 .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 .  .  .  .  F6 .  .  .  .  B6 B6 B6 .  .  .  .  .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .
        2 | .  .  F2 .  .  F5 .  .  .  .  .  .  .  .  B5 B5 B5 .  .  .  .  .  .  B2 B2 B2 .  .  .  .  .  .
        3 | .  .  .  F3 F4 .  .  .  .  .  .  .  .  .  .  .  .  B4 B4 B4 B3 B3 B3 .  .  .  .  .  .  .  .  .

    Args: `num_chunks`, stages per device; the others are those of `v_shape`.
    """
    backward = _Backward(backward_time, split_backward, input_time, weight_time, input_release)
    there = list(range(num_devices))
    devices = [d for chunk in range(num_chunks) for d in (there[::-1] if chunk % 2 else there)]
    forward = _chunks(devices, forward_time, stage_memory, num_chunks)
    return _placement("wave_shape", num_devices, _there_and_back(forward, backward), inference)


def loop_shape(
    num_devices: int = 4,
    num_chunks: int = 2,
    forward_time: int = 1,
    backward_time: int = 3,
    split_backward: bool = False,
    input_time: int = 1,
    weight_time: int = 1,
    stage_memory: int = 1,
    input_release: int = 0,
    inference: bool = False,
) -> Placement:
    """Return several stages per device, each time down the devices: interleaved (dissertation, Sec. 4.2.2).

    Chunk c of device d is stage cp + d, on p devices. Times and memory are those of one chunk.

    ::

        0 | F0 .  .  .  F4 .  .  .  .  .  .  .  .  .  .  .  .  B4 B4 B4 .  .  .  .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 .  .  .  F5 .  .  .  .  .  .  .  .  B5 B5 B5 .  .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .
        2 | .  .  F2 .  .  .  F6 .  .  .  .  B6 B6 B6 .  .  .  .  .  .  .  .  .  B2 B2 B2 .  .  .  .  .  .
        3 | .  .  .  F3 .  .  .  F7 B7 B7 B7 .  .  .  .  .  .  .  .  .  B3 B3 B3 .  .  .  .  .  .  .  .  .

    Args: `num_chunks`, stages per device; the others are those of `v_shape`.
    """
    backward = _Backward(backward_time, split_backward, input_time, weight_time, input_release)
    devices = list(range(num_devices)) * num_chunks
    forward = _chunks(devices, forward_time, stage_memory, num_chunks)
    return _placement("loop_shape", num_devices, _there_and_back(forward, backward), inference)


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
        num_devices: As many stages.
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
    embedding = _embedding("E", num_devices, embedding_forward_time)
    forward = [embedding, *_stages("F", range(num_devices), forward_time, stage_memory)]
    blocks = _there_and_back(forward, _Backward(backward_time), {"E": embedding_backward_time})
    _check_embedding_memory(embedding_memory, stage_memory)
    blocks = _with_input_held_from("E", blocks, "F0", embedding_memory)
    return _placement("m_shape", num_devices, blocks, inference)


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
    stages = _stages("F", range(num_devices), forward_time, stage_memory)
    embeddings = [_embedding(name, num_devices, embedding_forward_time) for name in ("E0", "E1")]
    half = num_devices // 2
    forward = [embeddings[0], *stages[:half], embeddings[1], *stages[half:]]
    backward_times = {"E0": embedding_backward_time, "E1": embedding_backward_time}
    blocks = _there_and_back(forward, _Backward(backward_time), backward_times)
    _check_embedding_memory(embedding_memory, stage_memory)
    blocks = _with_input_held_from("E0", blocks, "F0", embedding_memory)
    blocks = _with_input_held_from("E1", blocks, f"F{half}", embedding_memory)
    return _placement("nn_shape", num_devices, blocks, inference)


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
    half = num_devices // 2
    branches = [
        in_chain(_stages("F", range(half), forward_time, 1)),
        in_chain(_stages("F", range(half, num_devices), forward_time, 1)),
    ]
    everywhere = tuple(range(num_devices))
    ends = tuple(branch[-1].name for branch in branches)
    join = Block("J", Kind.F, everywhere, join_forward_time, 1, ends)
    back = Block("JB", Kind.B, everywhere, join_backward_time, -1, ("J",))
    backward = [
        block
        for branch in branches
        for block in in_chain(_backwards(branch, Kind.B, backward_time), first_after=("JB",))
    ]
    return _placement("k_shape", num_devices, [*branches[0], *branches[1], join, back, *backward], inference)


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

_BACKWARD_LETTERS = {
    Kind.B: {"F": "B", "G": "C", "E": "EB"},
    Kind.I: {"F": "I", "G": "J"},
    Kind.W: {"F": "W", "G": "X"},
}


@dataclass(frozen=True)
class _Backward:
    """What the backward of a stage looks like; see `v_shape`."""

    time: int
    split: bool = False
    input_time: int = 1
    weight_time: int = 1
    input_release: int = 0


def _stages(letter: str, devices: range, time: int, memory: int) -> list[Block]:
    _check_held("stage_memory", memory)
    return [Block(f"{letter}{device}", Kind.F, (device,), time, memory) for device in devices]


def _embedding(name: str, num_devices: int, time: int) -> Block:
    return Block(name, Kind.F, tuple(range(num_devices)), time)


def _check_embedding_memory(units: int, stage_memory: int) -> None:
    _check_held("embedding_memory", units)
    if units > stage_memory:
        raise PlacementError(
            f"embedding_memory: {units} is more than stage_memory, {stage_memory}, which includes it; "
            "raise stage_memory"
        )


def _with_input_held_from(embedding: str, blocks: list[Block], stage: str, units: int) -> list[Block]:
    """Return the blocks with units of a stage's memory taken by the embedding before it, on its device."""
    more = {embedding: units, stage: -units}
    there = {device for block in blocks if block.name == stage for device in block.devices}

    def held(block: Block) -> tuple[int, ...]:
        """Memory by device, with what is taken sooner."""
        change = more.get(block.name, 0)
        return tuple(block.memory_on(device) + change * (device in there) for device in block.devices)

    return [replace(block, memory=held(block)) for block in blocks]


def _chunks(devices: Sequence[int], time: int, memory: int, num_chunks: int) -> list[Block]:
    if num_chunks < 1:
        raise PlacementError(f"num_chunks: {num_chunks} is not at least 1")
    _check_held("stage_memory", memory)
    return [Block(f"F{i}", Kind.F, (device,), time, memory) for i, device in enumerate(devices)]


def _check_held(name: str, units: int) -> None:
    if units < 0:
        raise PlacementError(f"{name}: {units} is negative; give 0 or more")


def _backwards(
    forward: list[Block], kind: Kind, time: int, times: dict[str, int] | None = None
) -> list[Block]:
    """Return a block of that kind for each forward block, last one first, giving back what that one holds."""
    return [
        Block(
            _BACKWARD_LETTERS[kind][block.name[0]] + block.name[1:],
            kind,
            block.devices,
            (times or {}).get(block.name, time),
            tuple(-block.memory_on(device) for device in block.devices),
        )
        for block in reversed(forward)
    ]


def _there_and_back(
    forward: list[Block], backward: _Backward, times: dict[str, int] | None = None
) -> list[Block]:
    """Return the chain of the forward blocks and their backward; `times` are those of single blocks."""
    if not backward.split:
        return in_chain(forward + _backwards(forward, Kind.B, backward.time, times))
    held = min((block.memory_on(device) for block in forward for device in block.devices), default=0)
    if not 0 <= backward.input_release <= held:
        raise PlacementError(
            f"input_release: {backward.input_release} is not at least 0 and at most stage_memory, {held}"
        )
    inputs = [
        replace(block, memory=-backward.input_release)
        for block in _backwards(forward, Kind.I, backward.input_time)
    ]
    weights = [
        replace(
            block,
            memory=tuple(block.memory_on(device) + backward.input_release for device in block.devices),
            after=(half.name,),
        )
        for block, half in zip(_backwards(forward, Kind.W, backward.weight_time), inputs, strict=True)
    ]
    return in_chain(forward + inputs) + weights


def _placement(name: str, num_devices: int, blocks: list[Block], inference: bool) -> Placement:
    if num_devices < 1:
        raise PlacementError(f"num_devices: {num_devices} is not at least 1")
    if inference:
        blocks = [replace(block, memory=0) for block in blocks if block.kind is Kind.F]
    return Placement(f"{name}_inference" if inference else name, num_devices, tuple(blocks))
