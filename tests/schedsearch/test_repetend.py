import pytest

from placements import Block, Kind, Placement
from placements.shapes import m_shape, v_shape
from schedsearch.repetend import Repetend
from schedsearch.schedule import CyclicOrderError, as_soon_as_possible
from schedsearch.validate import validate

ONE_F_ONE_B = {("F0", 0): 0, ("F1", 0): 1, ("B1", 0): 2, ("B0", 0): 5}


def test_the_repetend_of_one_f_one_b() -> None:
    repetend = Repetend.from_first_starts(v_shape(2), 1, 4, ONE_F_ONE_B)
    assert repetend.start == {"F0": (0,), "F1": (1,), "B1": (2,), "B0": (1,)}
    assert repetend.modulo_stage == {"F0": (1,), "F1": (1,), "B1": (1,), "B0": (0,)}
    assert (repetend.in_flight, repetend.span, repetend.bubble_rate) == (2, 8, 0)
    for n in range(1, 6):
        assert validate(repetend.unroll(n)).makespan == 4 * n + 4


def test_compacting_finds_the_shortest_period_of_the_order() -> None:
    loose = Repetend.from_first_starts(
        v_shape(2), 1, 40, {("F0", 0): 3, ("F1", 0): 11, ("B1", 0): 19, ("B0", 0): 45}
    )
    assert loose.with_min_period().period == 4
    one_by_one = Repetend.from_first_starts(
        v_shape(2), 1, 40, {("F0", 0): 0, ("F1", 0): 9, ("B1", 0): 19, ("B0", 0): 30}
    )
    assert one_by_one.with_min_period().period == 8
    assert one_by_one.with_min_period(shortest=11).period == 11


def test_unrolling_fewer_micro_batches_than_the_repetend_holds() -> None:
    first = {(name, lane): start + 4 * lane for (name, _), start in ONE_F_ONE_B.items() for lane in range(3)}
    repetend = Repetend.from_first_starts(v_shape(2), 3, 12, first)
    for n in range(1, 8):
        schedule = validate(repetend.unroll(n))
        assert schedule.num_micro_batches == n
        assert schedule.makespan == 4 * n + 4


def test_orders_that_contradict_the_dependencies() -> None:
    placement = m_shape(1)
    order = [(block.name, 0) for block in placement.blocks]
    with pytest.raises(CyclicOrderError, match="make a cycle"):
        as_soon_as_possible(placement, 1, [order[::-1]])


def test_memory_that_a_block_needs_while_another_stream_begins_counts() -> None:
    blocks = (
        Block("F0", Kind.F, (0,), 4, 1, transient=10),
        Block("S0", Kind.F, (0,), 1, 1, stream="copy_in"),
        Block("B0", Kind.B, (0,), 1, -2, ("F0", "S0")),
    )
    starts = {("F0", 0): 0, ("S0", 0): 2, ("B0", 0): 5}
    repetend = Repetend.from_first_starts(Placement("beside", 1, blocks), 1, 6, starts)
    assert repetend.peak_memory == (1 + 1 + 10,)
