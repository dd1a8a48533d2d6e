"""Hypothesis strategies for the domain: random placements; and one that is awkward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from placements import Block, Kind, Placement
from runtime.program.tensor_flow import UnrunnablePlacementError, pair_backward
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible


@st.composite
def placements(
    draw: st.DrawFn,
    max_devices: int = 3,
    max_forward: int = 4,
    max_time: int = 4,
    max_transfer: int = 2,
    training: bool | None = None,
    by_device: bool = False,
) -> Placement:
    """A random DAG of forward blocks, with or without the mirrored backward blocks that give memory back.

    The last forward blocks may come after backward blocks, also on one device. Memory may differ by device,
    even in sign; `by_device` makes that likely.
    """
    num_devices = draw(st.integers(1 + by_device, max_devices))
    names = [f"F{i}" for i in range(draw(st.integers(1, max_forward)))]
    times = st.integers(1, max_time)
    everywhere = tuple(range(num_devices))
    some = st.sets(st.sampled_from(everywhere), min_size=1).map(lambda devices: tuple(sorted(devices)))
    device_sets = st.just(everywhere) | some if by_device else some
    if training is None:
        training = by_device or draw(st.booleans())
    first_late = draw(st.integers(1, len(names))) if training else len(names)
    early = [f"B{i}" for i in range(first_late)]
    forward: list[Block] = []
    for i, name in enumerate(names):
        inputs = names[:i] if i < first_late else early + names[first_late:i]
        after = draw(st.sets(st.sampled_from(inputs), max_size=2)) if inputs else set()
        devices = draw(device_sets)
        units = st.integers(0, 2)
        uneven = st.tuples(*(units for _ in devices))
        memory = draw(uneven if by_device else uneven | units) if training else 0
        forward.append(Block(name, Kind.F, devices, draw(times), memory, tuple(sorted(after))))
    blocks = forward
    if training:
        halves = forward[:first_late], forward[first_late:]
        blocks = [block for half in halves for block in half + _mirrored(half, [draw(times) for _ in half])]
    if training and num_devices > 1:
        blocks = _taken_sooner(draw, blocks)
    edges = [(name, block.name) for block in blocks for name in block.after]
    transfer = (
        tuple((a, b, draw(st.integers(0, max_transfer))) for a, b in edges) if draw(st.booleans()) else ()
    )
    return Placement("random", num_devices, tuple(blocks), transfer=transfer)


def tight(placement: Placement, spare: int) -> Placement:
    """The placement with just the memory that one micro-batch needs, and some spare."""
    return placement.with_memory(
        [minimum_memory(placement, device) + spare for device in range(placement.num_devices)]
    )


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[Placement, int]:
    """A placement and micro-batches for brute force: up to 9 blocks in all, with memory limits or without."""
    two = placements(max_devices=2, max_forward=2, max_time=3)
    placement = draw(two | placements(max_devices=3, max_forward=2, max_time=3, by_device=True))
    number = draw(st.integers(1, 3))
    assume(len(placement.blocks) * number <= 9)
    first, *rest = placement.blocks
    placement = replace(placement, blocks=(replace(first, transient=draw(st.integers(0, 2))), *rest))
    return (tight(placement, draw(st.integers(0, 3))) if draw(st.booleans()) else placement), number


def with_transfer(placement: Placement, ticks: int) -> Placement:
    """The placement with a transfer of `ticks` between blocks on different devices."""
    on = {block.name: block.devices for block in placement.blocks}
    hops = [(a, b.name, ticks) for b in placement.blocks for a in b.after if on[a] != b.devices]
    return replace(placement, transfer=tuple(hops))


@st.composite
def with_transient(draw: st.DrawFn, **options: Any) -> Placement:
    """A random placement with memory needed only while a block runs, static memory, and tight capacities."""
    placement = draw(placements(**options))
    needs = st.integers(0, 2)
    blocks = tuple(replace(block, transient=draw(needs)) for block in placement.blocks)
    placement = replace(placement, blocks=blocks)
    static = tuple(draw(needs) for _ in range(placement.num_devices))
    capacity = [
        minimum_memory(placement, d) + held + draw(st.integers(0, 2)) for d, held in enumerate(static)
    ]
    return replace(placement, static_memory=static).with_memory(capacity)


def _mirrored(forward: list[Block], times: list[int]) -> list[Block]:
    """The backward of each forward block, after it and after the backward of its output's users."""
    users = {block.name: [user.name for user in forward if block.name in user.after] for block in forward}
    return [
        Block(
            block.name.replace("F", "B"),
            Kind.B,
            block.devices,
            time,
            tuple(-block.memory_on(device) for device in block.devices),
            tuple(user.replace("F", "B") for user in users[block.name]) + (block.name,),
        )
        for block, time in zip(reversed(forward), times, strict=True)
    ]


def _taken_sooner(draw: st.DrawFn, blocks: list[Block]) -> list[Block]:
    """The blocks with some memory of each taken by one that it waits for, perhaps on just one device."""
    change = {(block.name, device): 0 for block in blocks for device in block.devices}
    for block in blocks:
        for name in block.after:
            for device in block.devices:
                if (name, device) in change:
                    units = draw(st.integers(0, 2))
                    change[name, device] += units
                    change[block.name, device] -= units
    return [
        replace(
            block,
            memory=tuple(block.memory_on(device) + change[block.name, device] for device in block.devices),
        )
        for block in blocks
    ]


def in_groups(draw: st.DrawFn, placement: Placement) -> Placement:
    """The placement with random data-parallel groups: each forward block's, and its backward's likewise."""
    pairs = pair_backward(placement)
    degrees = {
        block.name: draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
        for block in placement.blocks
        for count in [len(block.devices)]
        if block.kind is Kind.F
    }
    return replace(
        placement,
        blocks=tuple(
            replace(block, data_parallel=degrees[pairs.get(block.name, block.name)])
            for block in placement.blocks
        ),
    )


@st.composite
def any_schedules(draw: st.DrawFn, max_devices: int = 3, single_devices: bool = False) -> Schedule:
    """A random placement, split backwards and groups among them, and a random order of its blocks.

    With `single_devices` no block is on several devices.
    """
    placement = replace(draw(placements(max_devices, max_forward=4)), memory=None)
    if single_devices:
        placement = replace(placement, blocks=tuple(map(_on_its_first_device, placement.blocks)))
    if draw(st.booleans()):
        placement = _split(placement)
    try:
        placement = in_groups(draw, placement)
    except UnrunnablePlacementError:
        assume(False)
    number = draw(st.integers(1, 3))
    left = {(block.name, n): len(block.after) for block in placement.blocks for n in range(number)}
    order: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    while left:
        ready = [instance for instance, waits in left.items() if waits == 0]
        name, n = ready[draw(st.integers(0, len(ready) - 1))]
        del left[name, n]
        for device in placement.by_name[name].devices:
            order[device].append((name, n))
        for other in placement.successors[name]:
            left[other, n] -= 1
    return as_soon_as_possible(placement, number, order)


def _on_its_first_device(block: Block) -> Block:
    return replace(block, devices=block.devices[:1], memory=0)


def _split(placement: Placement) -> Placement:
    """Return a placement with every backward cut into its two halves."""
    blocks = []
    for block in placement.blocks:
        if block.kind is Kind.B:
            halves = (
                replace(block, kind=Kind.I, memory=0),
                replace(block, name=block.name.replace("B", "W"), kind=Kind.W, after=(block.name,)),
            )
            blocks += halves
        else:
            blocks.append(block)
    return replace(placement, blocks=tuple(blocks))


def crossed() -> Placement:
    """Each device alone could do it, but the first to start holds the memory that the other needs."""
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
