"""Bounds by what runs one after the other: beside all orders, and by hand."""

from __future__ import annotations

import itertools
import random

import pytest
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.sequences import Work, one_device, two_devices

from placements import Block, Kind, Placement


def in_order(pieces: tuple[Work, ...]) -> int:
    now = end = 0
    for head, ticks, tail in pieces:
        now = max(now, head) + ticks
        end = max(end, now + tail)
    return end


@pytest.mark.parametrize("seed", range(5))
def test_no_order_of_a_device_beats_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [(rng.randint(0, 9), rng.randint(1, 5), rng.randint(0, 9)) for _ in range(5)]
    best = min(in_order(order) for order in itertools.permutations(pieces))
    load = min(p[0] for p in pieces) + sum(p[1] for p in pieces) + min(p[2] for p in pieces)
    assert load <= one_device(pieces) <= best


def test_an_interrupted_block_ends_later() -> None:
    """The block with the long tail interrupts the other: 0 to 2, 2 to 5 with 6 after it, 5 to 7."""
    assert one_device([(0, 4, 1), (2, 3, 6)]) == 11


@pytest.mark.parametrize("seed", range(4))
def test_two_devices_are_as_all_orders_say(seed: int) -> None:
    rng = random.Random(seed)
    pairs = [(rng.randint(1, 9), rng.randint(1, 9)) for _ in range(5)]

    def run(order: tuple[tuple[int, int], ...]) -> int:
        first = second = 0
        for one, other in order:
            first += one
            second = max(first, second) + other
        return second

    assert two_devices(pairs) == min(map(run, itertools.permutations(pairs)))


def test_blocks_with_their_own_heads_and_tails_raise_the_bound() -> None:
    """Two blocks of device 0 come between 10 ticks before and 10 after; its third block fits beside these."""
    blocks = [Block("third", Kind.F, (0,), 1)]
    for i in (1, 2):
        blocks += [
            Block(f"before {i}", Kind.F, (i,), 10),
            Block(f"own {i}", Kind.F, (0,), 5, after=(f"before {i}",)),
            Block(f"after {i}", Kind.F, (2 + i,), 10, after=(f"own {i}",)),
        ]
    assert makespan_bound(Placement("in between", 5, tuple(blocks)), 1) == 30
