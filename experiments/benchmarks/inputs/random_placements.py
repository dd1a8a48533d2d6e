"""Placements from seeds: 4 to 16 devices, blocks of hundreds of ticks, tight to ample memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from schedsearch.proof.memory_need import minimum_memory

from experiments.benchmarks.instances.random_dag import random_dag
from placements import Placement
from placements.shapes import k_shape, loop_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape

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
    """Return a placement of a family: its devices, times and memory are drawn; the number is the seed.

    Each block of a shape takes 60 to 140 ticks for each tick of it. The memory is between what one
    micro-batch needs and what one for each device does, each factor between them as likely.
    """
    draws = random.Random(f"{family} {number}")
    placement = FAMILIES[family](4 + int(draws.random() * 13), number)
    if family not in ("chains", "graphs"):
        placement = replace(
            placement,
            blocks=tuple(
                replace(block, time=block.time * (60 + int(draws.random() * 81)))
                for block in placement.blocks
            ),
        )
    least = max(minimum_memory(placement, device) for device in range(placement.num_devices))
    return placement.with_memory(round(least * placement.num_devices ** draws.random()))
