"""Greedy modulo scheduling: valid for any placement, and close to the bound where memory is tight."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements as random_placements

from placements import Placement
from placements.shapes import k_shape, loop_shape, nn_shape, v_shape
from schedsearch.proof.load_and_path import load_bound, period_bound
from schedsearch.repetend import Repetend
from schedsearch.starts.greedy_repetends import greedy_repetend, greedy_repetends
from schedsearch.validate import validate


def shortest(placement: Placement, bound: Fraction) -> Repetend | None:
    """Return the greedy repetend of the shortest period that fits in memory."""
    return next((each for each in greedy_repetends(placement, bound) if each is not None), None)


@settings(max_examples=30, deadline=None)
@given(random_placements(max_time=4), st.integers(0, 6), st.booleans())
def test_a_greedy_repetend_keeps_the_rules(placement: Placement, longer: int, backwards: bool) -> None:
    placement = placement.with_memory(None)
    period = math.ceil(load_bound(placement)) + longer
    repetend = greedy_repetend(placement, period, backwards)
    if repetend is not None:
        assert repetend.period == period
        validate(repetend.at_initiation_interval(3 * repetend.in_flight))


@pytest.mark.parametrize(
    ("placement", "memory"),
    [
        (loop_shape(32, 4), 4),
        (v_shape(32, split_backward=True), 8),
        (k_shape(32), 8),
        (nn_shape(32), 8),
    ],
)
def test_no_memory_is_a_cliff(placement: Placement, memory: int) -> None:
    """Once, all that was known of the first of these was one micro-batch after another."""
    tight = placement.with_memory(memory)
    bound = period_bound(tight)
    repetend = shortest(tight, bound)
    assert repetend is not None
    assert repetend.period < 1.75 * bound
