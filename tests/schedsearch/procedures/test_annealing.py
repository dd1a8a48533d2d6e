"""Annealing of orders: valid, never longer, the same for the same seed; blocks on several devices."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import budget, state_of
from strategies import placements as random_placements
from strategies import tight

from experiments.benchmarks.inputs.random_placements import random_placement
from placements import Placement
from placements.shapes import k_shape, nn_shape
from schedsearch.procedures.annealing import Annealing
from schedsearch.proof.load_and_path import period_bound
from schedsearch.repetend import Repetend
from schedsearch.starts.serial import serial_repetend
from schedsearch.validate import validate


def all_annealed(placement: Placement, sizes: tuple[int, ...] = (1,), work: float = 60.0) -> list[Repetend]:
    """Return the serial repetend and annealing's repetends from it; none if the serial one does not fit."""
    first = serial_repetend(placement)
    if first is None:
        return []
    first = first.with_min_period()
    starts = Annealing().run(state_of(placement, first, sizes), budget(work))
    return [first, *(start.repetend for start in starts)]


@settings(max_examples=20, deadline=None)
@given(random_placements(max_time=3, training=True, by_device=True), st.integers(0, 2))
def test_each_is_better_than_the_one_before_and_valid(placement: Placement, spare: int) -> None:
    """Memory differs by device, even in sign, and blocks are on several devices."""
    placement = tight(placement, spare)
    last: dict[int, Repetend] = {}
    for repetend in all_annealed(placement, (1, 2), work=0.3):
        size = repetend.micro_batches
        assert repetend.period_per_micro_batch >= period_bound(placement)
        assert size not in last or repetend.period < last[size].period
        validate(repetend.unroll(3 * size * repetend.in_flight))
        last[size] = repetend


@pytest.mark.parametrize(
    ("placement", "most"), [(nn_shape(4).with_memory(6), 10), (k_shape(4).with_memory(6), 6)]
)
def test_blocks_on_all_devices_change_places_on_all(placement: Placement, most: int) -> None:
    """From one block after another; the least are 8 and 6 ticks, but with the NN-shape it may get stuck."""
    first, *_, last = all_annealed(placement)
    assert period_bound(placement) <= last.period <= most < first.period


def test_the_same_seed_gives_the_same_repetends() -> None:
    placement = random_placement("waves", 0)
    first = serial_repetend(placement)
    assert first is not None
    state = state_of(placement, first, bound=Fraction(0), seed=3)
    one, again = (list(Annealing().run(state, budget(600.0))) for _ in range(2))
    assert one == again and one
