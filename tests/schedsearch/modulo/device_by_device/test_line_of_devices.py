"""Placements as lines of devices, and the orders of their blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements import Placement
from placements.shapes import k_shape, loop_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from schedsearch.modulo.device_by_device.device_orders import DeviceOrders, whole_rounds
from schedsearch.modulo.device_by_device.line_of_devices import LineOfDevices
from tests.schedsearch.modulo.device_by_device.test_device_beam import loop_with_transfers


@pytest.mark.parametrize(
    ("placement", "applies"),
    [
        (v_shape(4).with_memory(3), True),
        (loop_shape(4, 2).with_memory(5), True),
        (loop_shape(4, 2), False),  # nothing to keep within
        (v_shape(2).with_memory(1), False),  # a question that a solver answers at once
        (v_shape(4, inference=True).with_memory(3), False),  # nothing is held
        (v_shape(4, stage_memory=1 << 20).with_memory(3 << 20), True),  # memory in bytes
        (loop_shape(4, 2, stage_memory=3000).with_memory(15000), True),
        (wave_shape(4, 2).with_memory(6), False),  # no device holds most of each micro-batch
        (x_shape(4).with_memory(4), False),
        (k_shape(4).with_memory(4), False),
        (m_shape(4).with_memory(4), False),
        (nn_shape(4).with_memory(4), False),
    ],
)
def test_lines_are_told_from_other_placements(placement: Placement, applies: bool) -> None:
    assert LineOfDevices(placement).applies is applies


def test_a_loop_is_a_ring_and_its_later_chunks_weigh_more() -> None:
    """What delays the second chunk by a round holds an activation of both chunks on the first device."""
    line = LineOfDevices(loop_with_transfers(8, 2, 18))
    assert (line.fullest, line.load, line.round_trip) == (0, 38, 2)
    assert {(step.forward, step.ticks, step.weight) for step in line.hops[0]} == {
        (True, 8, 1),
        (True, 8, 2),
        (False, 13, 2),
        (False, 13, 1),
    }
    assert sorted((step.forward, step.weight) for step in line.closing) == [(False, 1), (True, 1)]
    assert [len(steps) for steps in line.inside] == [0, 0, 0, 0, 0, 0, 0, 1]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 9), st.integers(1, 3))
def test_rounds_later_are_those_of_a_search_by_hand(source: int, target: int, ticks: int, size: int) -> None:
    period = 40
    sources, targets = (np.sort((np.arange(size) * 11 + each) % period) for each in (source, target))
    later = next(
        k
        for k in range(-20, 20)
        if all(targets[(n + k) % size] + (n + k) // size * period >= sources[n] + ticks for n in range(size))
    )
    assert whole_rounds(sources, targets, ticks, period) == later


def test_orders_that_are_turned_are_one() -> None:
    orders = DeviceOrders(
        np.array([[0, 1, 2, 3], [2, 3, 0, 1], [0, 1, 3, 2]], dtype=np.int8),
        np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]], dtype=np.int8),
    )
    assert len(orders.without_repeats()) == 2


def test_orders_of_more_micro_batches_have_the_idle_time_that_is_asked_for() -> None:
    rng = np.random.default_rng(3)
    orders = DeviceOrders.random(rng, 4, 1, 2, 20)
    for gaps in (0, 1, 4, 7):
        twice = orders.repeated(2).with_gaps(rng, gaps)
        assert (twice.gaps.sum(axis=1) == gaps).all()
        assert (twice.gaps >= 0).all()
        assert (np.sort(twice.roles, axis=1) == np.repeat(np.arange(4), 2)).all()
