"""Greedy modulo scheduling: valid for any placement, and close to the bound where memory is tight."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedsearch.procedures.beginnings import greedy_starts
from schedsearch.procedures.search import search
from schedsearch.proof.load_and_path import load_bound, period_bound
from strategies import placements as random_placements
from strategies import tight

from placements import Placement
from placements.shapes import k_shape, loop_shape, nn_shape, v_shape
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.starts.greedy_repetends import greedy_repetend, greedy_repetends
from schedsearch.starts.serial import serial_period
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


@settings(max_examples=20, deadline=None)
@given(random_placements(max_time=3, training=True), st.integers(0, 3))
def test_the_shortest_greedy_repetend_fits_in_memory(placement: Placement, spare: int) -> None:
    placement = tight(placement, spare)
    bound = period_bound(placement)
    repetend = shortest(placement, bound)
    if repetend is not None:
        assert bound <= repetend.period < serial_period(placement)
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


def test_each_try_is_counted_as_work() -> None:
    placement = v_shape(4).with_memory(2)
    tries = list(greedy_repetends(placement, Fraction(4)))
    assert len(tries) > 1 and tries[-1] is not None and not any(tries[:-1])
    effort = Effort()
    (start,) = greedy_starts(placement, Fraction(4), effort)
    assert start.repetend == tries[-1]
    after_one = Effort()
    with pytest.raises(OutOfTimeError):
        next(greedy_starts(placement, Fraction(4), Effort(time.monotonic())))
    for _ in greedy_starts(placement.with_memory(4), Fraction(4), after_one):
        pass
    assert effort.spent == pytest.approx(len(tries) * after_one.spent)


def test_a_search_of_many_blocks_begins_with_a_greedy_repetend() -> None:
    """A loop whose memory interleaved 1F1B does not fit."""
    placement = loop_shape(24, 4).with_memory(24)
    moves: list[str] = []
    result = search(
        placement,
        4,
        work_limit=2.5,
        objectives=["period"],
        on_progress=lambda progress: moves.append(progress.found_by),
    )
    assert result.repetend is not None
    assert result.repetend.period <= 1.5 * result.period_bound
    assert moves[0] == "greedy modulo scheduling"
