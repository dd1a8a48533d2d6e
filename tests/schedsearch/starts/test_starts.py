"""Warm starts of a search: schedules that keep the rules, and repetends that keep their orders."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import budget, state_of
from strategies import placements as random_placements
from strategies import tight

from placements import Placement
from placements.shapes import k_shape, loop_shape, nn_shape, v_shape, wave_shape
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b, zb_v
from schedsearch.metrics import peak_memory
from schedsearch.procedures.beginnings import Greedy, HandMade, hand_made
from schedsearch.proof.load_and_path import load_bound, period_bound
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort
from schedsearch.starts.event_simulation import RULES, Rule, list_schedule
from schedsearch.starts.greedy_repetends import greedy_repetends
from schedsearch.starts.steady_state import steady_state
from schedsearch.validate import validate


@settings(max_examples=40, deadline=None)
@given(random_placements(), st.integers(1, 5), st.integers(0, 3), st.sampled_from(RULES))
def test_a_simulated_schedule_keeps_the_rules(
    placement: Placement, number: int, spare: int, rule: Rule
) -> None:
    """Under the memory that one micro-batch needs, and some spare; it may come to a standstill."""
    placement = tight(placement, spare)
    schedule = list_schedule(placement, number, rule)
    if schedule is not None:
        validate(schedule)


@pytest.mark.parametrize(
    ("schedule", "micro_batches", "period"),
    [
        (one_f_one_b(v_shape(4), 16), 1, 4),
        (zb_v(wave_shape(4, 2, split_backward=True), 24), 1, 6),
        (interleaved_one_f_one_b(loop_shape(4, 2), 24), 4, 32),
    ],
)
def test_the_steady_state_of_hand_made_schedules(schedule: Schedule, micro_batches: int, period: int) -> None:
    repetend = steady_state(schedule, 4)
    assert (repetend.micro_batches, repetend.period) == (micro_batches, period)
    assert repetend.unroll(schedule.num_micro_batches).makespan >= schedule.makespan
    validate(repetend.unroll(schedule.num_micro_batches))


@settings(max_examples=25, deadline=None)
@given(random_placements(max_time=3, training=True), st.integers(1, 3))
def test_repetends_without_a_solver_are_valid(placement: Placement, spare: int) -> None:
    placement = tight(placement, spare)
    known = state_of(placement, bound=Fraction(0))
    starts = [start for made in (HandMade(), Greedy()) for start in made.run(known, budget())]
    for repetend, made_by in starts:
        assert made_by
        size = repetend.micro_batches
        assert repetend.period_per_micro_batch >= load_bound(placement)
        validate(repetend.at_initiation_interval(3 * size * repetend.in_flight))


def test_interleavings_fit_less_memory_than_interleaved_one_f_one_b() -> None:
    placement = loop_shape(8, 2, 10, 20)
    usual = interleaved_one_f_one_b(placement, 32)
    less = placement.with_memory(int(max(peak_memory(usual)) * 0.75))
    fitting = [validate(made.schedule).makespan for made in hand_made(less, 32, Effort())]
    assert min(fitting) < 1.1 * usual.makespan


@pytest.mark.parametrize(
    ("placement", "memory"),
    [(loop_shape(32, 4), 4), (v_shape(32, split_backward=True), 8), (k_shape(32), 8), (nn_shape(32), 8)],
)
def test_no_memory_is_a_cliff(placement: Placement, memory: int) -> None:
    """Once, all that was known of the first of these was one micro-batch after another."""
    tight = placement.with_memory(memory)
    bound = period_bound(tight)
    shortest = next(repetend for repetend in greedy_repetends(tight, bound) if repetend is not None)
    assert shortest.period < 1.75 * bound
