"""The state of a search: findings make another one, and nothing changes the one before."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from searching import oracle, state_of

from placements.shapes import v_shape
from schedsearch.modulo.knowledge import Knowledge
from schedsearch.modulo.result import Objective, Status
from schedsearch.modulo.state import NoRepetend, SearchState
from schedsearch.modulo.strategies.bisection import Bisection
from schedsearch.repetend import Repetend
from schedsearch.starts.first_repetends import Start, hand_made_repetends
from schedsearch.starts.serial import serial_repetend
from schedsearch.state_space import MinPeriod

PLACEMENT = v_shape(4).with_memory(3)
"""Its serial period is 16; one micro-batch per repetend reaches 8, two reach 12, three 16."""


def serial() -> Repetend:
    found = serial_repetend(PLACEMENT)
    assert found is not None
    return found


def bisected(state: SearchState, size: int) -> SearchState:
    """Return the state after all questions about a number of micro-batches."""
    for known in Bisection(oracle()).minimise(state.to_beat(size), Objective.PERIOD, until=20.0):
        state = state.taking(known)
    return state


def test_a_finding_makes_another_state() -> None:
    before = state_of(PLACEMENT)
    after = before.taking(Start(serial(), "serial"))
    assert before.best is None and before.repetends == {} and before.rate == 16
    assert after.best is not None and after.rate == serial().period == 16
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.round = 2


def test_what_is_no_better_leaves_the_state_as_it_is() -> None:
    state = state_of(PLACEMENT, serial())
    assert state.taking(Start(serial(), "again")) is state


def test_several_sizes_count_where_several_are_asked_for() -> None:
    found = bisected(bisected(state_of(PLACEMENT, serial(), (1, 2, 3)), 1), 3)
    assert found.best is not None
    assert (found.best.micro_batches, found.rate) == (3, Fraction(16, 3))
    assert found.is_proved and found.is_done
    assert {each.micro_batches: each.period for each in found.tried} == {1: 8, 3: 16}


def test_one_number_alone_takes_what_it_is_a_multiple_of() -> None:
    state = bisected(state_of(PLACEMENT, serial(), (2,)), 1)
    assert state.best is not None
    assert (state.best.micro_batches, state.best.repetend and state.best.repetend.period) == (2, 16)
    assert [each.micro_batches for each in state.tried] == [2]
    larger = next(iter(hand_made_repetends(v_shape(4), Fraction(0), oracle().effort)))
    assert state.taking(larger).best is not None


def test_a_larger_number_is_asked_only_for_what_beats_the_best() -> None:
    state = bisected(state_of(PLACEMENT, serial(), (1, 2, 3)), 1)
    known = state.to_beat(2)
    assert known.repetend is None and known.cutoff == 16
    refuted = state.taking(known.with_refuted(Objective.PERIOD, 11))
    assert refuted.of_size[2].bound[Objective.PERIOD] == 12 and refuted.rate == state.rate
    assert refuted.to_beat(2).bound[Objective.PERIOD] == 12, "proofs are kept"


def test_a_bound_raises_that_of_every_size() -> None:
    state = state_of(PLACEMENT, serial(), (1, 2, 3)).taking(MinPeriod(Fraction(16, 3), None, (), 9, (0,)))
    assert state.period_bound == Fraction(16, 3)
    assert state.of_size[1].bound[Objective.PERIOD] == 6
    assert state.known_of(2).bound[Objective.PERIOD] == 11
    lower = state.taking(MinPeriod(Fraction(1), None, (), 9, (0,)))
    assert lower.period_bound == Fraction(16, 3)


def test_why_there_is_none_is_kept() -> None:
    assert state_of(PLACEMENT).failure.status is Status.UNKNOWN
    failure = NoRepetend(Status.INFEASIBLE, "too little memory")
    assert state_of(PLACEMENT).taking(failure).failure == failure


def test_limits_of_earlier_objectives_hold_for_every_size() -> None:
    state = dataclasses.replace(state_of(PLACEMENT, serial(), (1, 2)), before=(Objective.MEMORY,))
    known = state.of_size[1].with_limit(Objective.MEMORY)
    state = state.taking(known)
    assert state.limits == {Objective.MEMORY: 1}
    assert state.known_of(2).limit == {Objective.MEMORY: 1}
    assert isinstance(state.to_beat(2), Knowledge) and not state.to_beat(2).keeps_limits(
        next(
            each.repetend
            for each in hand_made_repetends(v_shape(4), Fraction(0), oracle().effort)
            if max(each.repetend.peak_memory) > 1
        )
    )
