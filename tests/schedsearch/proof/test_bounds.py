import itertools
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements as random_placements

from placements import Block, Kind, Placement
from placements.shapes import m_shape, nn_shape, v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.proof.load_and_path import critical_path, load_bound, period_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.memory_need import minimum_memory, require_capacity
from schedsearch.proof.memory_occupancy import memory_occupancy
from schedsearch.state_space import min_period


def memory_occupancy_bound(placement: Placement) -> Fraction:
    occupancy = memory_occupancy(placement)
    return occupancy.value(placement) if occupancy is not None else Fraction(0)


def test_memory_occupancy_by_hand() -> None:
    """On device 0 a micro-batch is held from F0 to the end of B0: 4 forwards and 4 backwards of 3 ticks."""
    assert memory_occupancy_bound(v_shape().with_memory(3)) == pytest.approx(16 / 3)
    assert memory_occupancy_bound(v_shape().with_memory(4)) == pytest.approx(4)
    assert memory_occupancy_bound(v_shape()) == 0
    assert period_bound(v_shape().with_memory(8)) == load_bound(v_shape()) == 4


def test_memory_occupancy_beside_blocks_on_all_devices() -> None:
    """While an embedding runs on all devices no micro-batch gets on: its time comes on top."""
    assert memory_occupancy_bound(m_shape().with_memory(3)) == 2 + Fraction(16, 3)
    assert memory_occupancy_bound(nn_shape().with_memory(2)) == 4 + Fraction(16, 2)
    assert memory_occupancy_bound(m_shape().with_memory(1)) == critical_path(m_shape()) == 18


def held_twice(units: tuple[int, int], capacity: int) -> Placement:
    """Two forwards on device 0, of some units each until their backward, and between them one elsewhere."""
    blocks = (
        Block("F0", Kind.F, (0,), 10, units[0]),
        Block("G", Kind.F, (1,), 7, 0, ("F0",)),
        Block("F1", Kind.F, (0,), 10, units[1], ("G",)),
        Block("B", Kind.B, (0,), 10, -sum(units), ("F1",)),
    )
    return Placement("held_twice", 2, blocks, memory=(capacity, 0))


@pytest.mark.parametrize(
    ("units", "capacity", "bound"),
    [
        ((2, 2), 4, 37),  # a second F0 would take what the F1 of both is to have: one at a time
        ((3, 1), 6, 37),
        ((3, 0), 5, 37),  # what is left beside one F0 is of no use
        ((2, 2), 6, 30),  # the load
    ],
)
def test_memory_that_cannot_be_used(units: tuple[int, int], capacity: int, bound: int) -> None:
    placement = held_twice(units, capacity)
    assert period_bound(placement) == bound
    exact = min_period(placement, known=Fraction(1000))
    assert exact.ticks == bound


@settings(max_examples=15, deadline=None)
@given(random_placements(max_devices=3, max_forward=3, training=True), st.data())
def test_no_cycle_of_states_beats_the_bound(placement: Placement, data: st.DataObject) -> None:
    """Of the states of all devices at once, for any number of micro-batches per repetend."""
    spare = [data.draw(st.integers(0, 2)) for _ in range(placement.num_devices)]
    needed = [minimum_memory(placement, device) for device in range(placement.num_devices)]
    placement = placement.with_memory(a + b for a, b in zip(needed, spare, strict=True))
    exact = min_period(placement, known=Fraction(1000), max_states=3000)
    if exact is None:
        return
    if len(exact.devices) == placement.num_devices and is_connected(placement, exact.cut_out):
        assert period_bound(placement) <= exact.ticks


def is_connected(placement: Placement, cut_out: Sequence[str]) -> bool:
    """Whether all blocks but some wait for each other, directly or not through these."""
    blocks = {b.name: set(b.after).difference(cut_out) for b in placement.blocks if b.name not in cut_out}
    reached = {next(iter(blocks), "")}
    for _ in blocks:
        for name, after in blocks.items():
            if reached & {name, *after}:
                reached |= {name, *after}
    return len(reached) >= len(blocks)


@pytest.mark.parametrize(("devices", "number"), [(2, 16), (4, 1), (8, 4)])
def test_one_f_one_b_meets_the_makespan_bound(devices: int, number: int) -> None:
    placement = v_shape(devices, 1, 2)
    assert one_f_one_b(placement, number).makespan == makespan_bound(placement, number)


@settings(max_examples=25, deadline=None)
@given(random_placements(max_devices=2, max_forward=3, training=True))
def test_minimum_memory_is_what_some_order_of_the_device_needs(placement: Placement) -> None:
    """Never above the least peak over all orders of one micro-batch, found by trying them all."""
    blocks = placement.blocks
    orders = [
        order
        for order in itertools.permutations(blocks)
        if all(set(block.after) <= {earlier.name for earlier in order[:i]} for i, block in enumerate(order))
    ]
    for device in range(placement.num_devices):
        peaks = [
            max(itertools.accumulate([b.memory_on(device) for b in order], initial=0)) for order in orders
        ]
        assert minimum_memory(placement, device) <= min(peaks)


def test_minimum_memory_lets_free_blocks_release_first() -> None:
    """G needs no more than its own 3, because B can release F's 2 before."""
    blocks = (
        Block("F", Kind.F, (0,), 1, 2),
        Block("G", Kind.F, (0,), 1, 3, ("F",)),
        Block("B", Kind.B, (0,), 1, -2, ("F",)),
        Block("C", Kind.B, (0,), 1, -3, ("G",)),
    )
    placement = Placement("free", 1, blocks)
    assert minimum_memory(placement, 0) == 3
    require_capacity(placement.with_memory(3))


def test_memory_occupancy_and_makespan_bounds_by_hand() -> None:
    """With transfers of 2 each way F0's activation is held 2 + 2 + 4 * 4 ticks, and memory 1 holds one."""
    blocks = v_shape().blocks
    there_and_back = Placement("t", 4, blocks, transfer=(("F0", "F1", 2), ("B1", "B0", 2)))
    assert memory_occupancy_bound(there_and_back.with_memory(1)) == pytest.approx(20)
    assert makespan_bound(there_and_back.with_memory(1), 5) == 100
    assert makespan_bound(there_and_back, 5) == 5 * 4 + 4 * 3 + 4
    assert critical_path(Placement("t", 4, m_shape().blocks, transfer=(("F0", "F1", 5),))) == 18 + 5


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
