"""Placements from seeds: directed acyclic graphs, and families of shapes in tight to ample memory.

The same seed gives the same placement in any version of Python: only ``random()`` is drawn from, which Python
keeps as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from placements import Block, Kind, Placement
from placements.shapes import k_shape, loop_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from schedsearch.proof.memory_need import minimum_memory


def random_dag(
    num_devices: int, num_blocks: int, seed: int, max_inputs: int = 2, shared_percent: int = 0
) -> Placement:
    """Return forward blocks after random earlier ones, on random devices, and their backward in reverse.

    Each device has a block before any has two more than it. A forward takes 500 to 1500 ticks, its backward
    1.5 to 2.5 times as long, and it holds 1 to 4 units until then.

    Args:
        num_devices: Devices.
        num_blocks: Forward blocks; at least as many as devices.
        seed: Seed of the random choices.
        max_inputs: Most inputs of a block, among the four before it; with 1 each is after the one before
            it: a chain.
        shared_percent: How many of 100 blocks run on two devices together.
    """
    draws = random.Random(seed)

    def below(number: int) -> int:
        return int(draws.random() * number)

    blocks: list[Block] = []
    devices: list[int] = []
    for i in range(num_blocks):
        if not devices:
            devices = list(range(num_devices))
        here = {devices.pop(below(len(devices)))}
        if below(100) < shared_percent:
            here.add(below(num_devices))
        near = range(max(0, i - 4), i)
        inputs = {i - 1} if max_inputs == 1 else {near[below(len(near))] for _ in range(max_inputs) if near}
        after = tuple(f"F{j}" for j in sorted(inputs) if j >= 0)
        blocks.append(Block(f"F{i}", Kind.F, tuple(here), 500 + below(1001), 1 + below(4), after))
    for i in reversed(range(num_blocks)):
        forward = blocks[i]
        ticks = forward.time * (150 + below(101)) // 100
        after = (f"F{i}", *(f"B{j}" for j in range(num_blocks) if f"F{i}" in blocks[j].after))
        memory = -forward.memory_on(forward.devices[0])
        blocks.append(Block(f"B{i}", Kind.B, forward.devices, ticks, memory, after))
    return Placement("random_dag", num_devices, tuple(blocks))


FAMILIES: dict[str, Callable[[int, int], Placement]] = {
    "chains": lambda devices, seed: random_dag(devices, devices * (1 + seed % 4), seed, max_inputs=1),
    "graphs": lambda devices, seed: random_dag(devices, devices * (1 + seed % 2), seed, shared_percent=10),
    "V": lambda devices, seed: v_shape(devices, split_backward=seed % 2 == 1),
    "X": lambda devices, seed: x_shape(devices - devices % 2, split_backward=seed % 2 == 1),
    "M and NN": lambda devices, seed: (m_shape if seed % 2 else nn_shape)(devices - devices % 2),
    "K": lambda devices, seed: k_shape(devices - devices % 2),
    "waves": lambda devices, seed: wave_shape(devices, split_backward=seed % 2 == 1),
    "loops": lambda devices, seed: loop_shape(devices, 2 + seed % 2, split_backward=seed % 4 == 0),
}
"""Makers of placements from a number of devices and a seed, by name."""


def random_placement(family: str, number: int) -> Placement:
    """Return a placement of a family on 4 to 16 devices; times and memory are drawn too, with a seed.

    Each block of a shape takes 60 to 140 ticks for each tick of it. The memory is between what one
    micro-batch needs and what one for each device does, each factor between them as likely.
    """
    draws = random.Random(f"{family} {number}")
    placement = FAMILIES[family](4 + int(draws.random() * 13), number)
    if family not in ("chains", "graphs"):
        times = [block.time * (60 + int(draws.random() * 81)) for block in placement.blocks]
        blocks = [replace(block, time=ticks) for block, ticks in zip(placement.blocks, times, strict=True)]
        placement = replace(placement, blocks=tuple(blocks))
    least = max(minimum_memory(placement, device) for device in range(placement.num_devices))
    return placement.with_memory(round(least * placement.num_devices ** draws.random()))
