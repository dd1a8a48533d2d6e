"""Hypothesis strategies for the domain: random placements; and one that is awkward."""

from __future__ import annotations

from hypothesis import strategies as st

from placements import Block, Kind, Placement


@st.composite
def placements(
    draw: st.DrawFn,
    max_devices: int = 3,
    max_forward: int = 4,
    max_time: int = 4,
    max_transfer: int = 2,
    training: bool | None = None,
) -> Placement:
    """A random DAG of forward blocks, with or without the mirrored backward blocks that give memory back."""
    num_devices = draw(st.integers(1, max_devices))
    names = [f"F{i}" for i in range(draw(st.integers(1, max_forward)))]
    times = st.integers(1, max_time)
    device_sets = st.sets(st.integers(0, num_devices - 1), min_size=1, max_size=num_devices).map(
        lambda devices: tuple(sorted(devices))
    )
    train = draw(st.booleans()) if training is None else training
    forward: list[Block] = []
    for i, name in enumerate(names):
        after = draw(st.sets(st.sampled_from(names[:i]), max_size=2)) if i else set()
        memory = draw(st.integers(0, 2)) if train else 0
        forward.append(Block(name, Kind.F, draw(device_sets), draw(times), memory, tuple(sorted(after))))
    blocks = forward + (_mirrored(forward, [draw(times) for _ in forward]) if train else [])
    edges = [(name, block.name) for block in blocks for name in block.after]
    transfer = (
        tuple((a, b, draw(st.integers(0, max_transfer))) for a, b in edges) if draw(st.booleans()) else ()
    )
    return Placement("random", num_devices, tuple(blocks), transfer=transfer)


def _mirrored(forward: list[Block], times: list[int]) -> list[Block]:
    """The backward of each forward block, after it and after the backward of those that use its output."""
    users: dict[str, list[str]] = {block.name: [] for block in forward}
    for block in forward:
        for name in block.after:
            users[name].append(block.name)
    return [
        Block(
            block.name.replace("F", "B"),
            Kind.B,
            block.devices,
            time,
            -block.memory,
            tuple(user.replace("F", "B") for user in users[block.name]) + (block.name,),
        )
        for block, time in zip(reversed(forward), times, strict=True)
    ]


def crossed() -> Placement:
    """Each device alone could do it, but whichever starts holds what the other waits for."""
    blocks = (
        Block("F0", Kind.F, (0,), 1, 1),
        Block("F1", Kind.F, (1,), 1, 1),
        Block("G0", Kind.F, (0,), 1, 1, ("F1",)),
        Block("G1", Kind.F, (1,), 1, 1, ("F0",)),
        Block("B0", Kind.B, (0,), 1, -1, ("F0", "G1")),
        Block("B1", Kind.B, (1,), 1, -1, ("F1", "G0")),
        Block("C0", Kind.B, (0,), 1, -1, ("G0", "G1")),
        Block("C1", Kind.B, (1,), 1, -1, ("G0", "G1")),
    )
    return Placement("crossed", 2, blocks, memory=(1, 1))
