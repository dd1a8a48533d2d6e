"""The placement shapes of Tessel's evaluation (Tessel, Fig. 1 and Fig. 8).

Each function's docstring holds the picture of one micro-batch of four devices, one column a tick. The
times default to the paper's: a backward of three forwards, because activations are recomputed
(Tessel, Sec. VI-B). With ``inference=True`` only the forward blocks remain, and hold no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placements.spec import Block, Kind, Placement, PlacementError


def v_shape(
    num_devices: int = 4, forward_time: int = 1, backward_time: int = 3, inference: bool = False
) -> Placement:
    """Return one stage per device, forward down the devices and backward up again (Tessel, Fig. 1a).

    ::

        0 | F0 .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .
        2 | .  .  F2 .  .  .  .  B2 B2 B2 .  .  .  .  .  .
        3 | .  .  .  F3 B3 B3 B3 .  .  .  .  .  .  .  .  .
    """
    forward = _stages("F", range(num_devices), forward_time)
    return _placement("v_shape", num_devices, _there_and_back(forward, backward_time), inference)


def x_shape(
    num_devices: int = 4, forward_time: int = 1, backward_time: int = 3, inference: bool = False
) -> Placement:
    """Return two V-shapes in opposite directions, as in Chimera (Tessel, Fig. 1b).

    A micro-batch of the placement is one micro-batch of each direction: ``F`` and ``B`` run down the
    devices, ``G`` and ``C`` (their forward and backward) up.

    ::

        0 | F0 .  .  G0 C0 C0 C0 .  .  .  .  .  .  B0 B0 B0
        1 | .  F1 G1 .  .  .  .  C1 C1 C1 B1 B1 B1 .  .  .
        2 | .  G2 F2 .  .  .  .  B2 B2 B2 C2 C2 C2 .  .  .
        3 | G3 .  .  F3 B3 B3 B3 .  .  .  .  .  .  C3 C3 C3
    """
    down = _stages("F", range(num_devices), forward_time)
    up = _stages("G", range(num_devices - 1, -1, -1), forward_time)
    blocks = _there_and_back(down, backward_time) + _there_and_back(up, backward_time)
    return _placement("x_shape", num_devices, blocks, inference)


def m_shape(
    num_devices: int = 4,
    forward_time: int = 1,
    backward_time: int = 3,
    embedding_forward_time: int = 1,
    embedding_backward_time: int = 1,
    inference: bool = False,
) -> Placement:
    """Return a V-shape between an embedding's forward and backward on all devices (Tessel, Fig. 1c, 8a).

    ::

        0 | E  F0 .  .  .  .  .  .  .  .  .  .  .  .  B0 B0 B0 EB
        1 | E  .  F1 .  .  .  .  .  .  .  .  B1 B1 B1 .  .  .  EB
        2 | E  .  .  F2 .  .  .  .  B2 B2 B2 .  .  .  .  .  .  EB
        3 | E  .  .  .  F3 B3 B3 B3 .  .  .  .  .  .  .  .  .  EB
    """
    everywhere = tuple(range(num_devices))
    embedding = Block("E", Kind.F, everywhere, embedding_forward_time)
    forward = [embedding, *_stages("F", range(num_devices), forward_time)]
    blocks = _there_and_back(forward, backward_time, {"E": embedding_backward_time})
    return _placement("m_shape", num_devices, blocks, inference)


def nn_shape(
    num_devices: int = 4,
    forward_time: int = 1,
    backward_time: int = 3,
    embedding_forward_time: int = 1,
    embedding_backward_time: int = 1,
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
    """
    everywhere = tuple(range(num_devices))
    stages = _stages("F", range(num_devices), forward_time)
    embeddings = [Block(f"E{i}", Kind.F, everywhere, embedding_forward_time) for i in range(2)]
    half = num_devices // 2
    forward = [embeddings[0], *stages[:half], embeddings[1], *stages[half:]]
    backward_times = {"E0": embedding_backward_time, "E1": embedding_backward_time}
    return _placement(
        "nn_shape", num_devices, _there_and_back(forward, backward_time, backward_times), inference
    )


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
        _chain(_stages("F", range(half), forward_time)),
        _chain(_stages("F", range(half, num_devices), forward_time)),
    ]
    everywhere = tuple(range(num_devices))
    ends = tuple(branch[-1].name for branch in branches)
    join = Block("J", Kind.F, everywhere, join_forward_time, 1, ends)
    back = Block("JB", Kind.B, everywhere, join_backward_time, -1, ("J",))
    backward = [
        block
        for branch in branches
        for block in _chain(_backwards(branch, backward_time), first_after=("JB",))
    ]
    return _placement("k_shape", num_devices, [*branches[0], *branches[1], join, back, *backward], inference)


SHAPES: dict[str, Callable[..., Placement]] = {
    "v_shape": v_shape,
    "x_shape": x_shape,
    "m_shape": m_shape,
    "nn_shape": nn_shape,
    "k_shape": k_shape,
}
"""The shapes by the name that the command line uses."""

_BACKWARD_NAME = {"F": "B", "G": "C", "E": "EB"}


def _stages(letter: str, devices: range, time: int) -> list[Block]:
    return [Block(f"{letter}{device}", Kind.F, (device,), time, memory=1) for device in devices]


def _backwards(forward: list[Block], time: int, times: dict[str, int] | None = None) -> list[Block]:
    """Return the backward of each forward block, last one first, giving back what the forward holds."""
    return [
        Block(
            _BACKWARD_NAME[block.name[0]] + block.name[1:],
            Kind.B,
            block.devices,
            (times or {}).get(block.name, time),
            -block.memory,
        )
        for block in reversed(forward)
    ]


def _chain(blocks: list[Block], first_after: tuple[str, ...] = ()) -> list[Block]:
    """Return the blocks, each after the one before it."""
    afters = [first_after] + [(block.name,) for block in blocks]
    return [replace(block, after=after) for block, after in zip(blocks, afters, strict=False)]


def _there_and_back(forward: list[Block], time: int, times: dict[str, int] | None = None) -> list[Block]:
    return _chain(forward + _backwards(forward, time, times))


def _placement(name: str, num_devices: int, blocks: list[Block], inference: bool) -> Placement:
    if num_devices < 1:
        raise PlacementError(f"num_devices: {num_devices} is not at least 1")
    if inference:
        blocks = [replace(block, memory=0) for block in blocks if block.kind is Kind.F]
    return Placement(f"{name}_inference" if inference else name, num_devices, tuple(blocks))
