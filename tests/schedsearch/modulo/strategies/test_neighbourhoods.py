"""Neighbourhoods of a repetend: valid, never longer, the same for the same seed; memory counted anew."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import oracle, state_of
from strategies import placements as random_placements

from experiments.benchmarks.instances.instance_file import read_instances
from placements import Placement
from placements.shapes import loop_shape, v_shape
from schedsearch.baselines import one_f_one_b, v_min
from schedsearch.bounds.load_and_path import load_bound
from schedsearch.bounds.memory_need import minimum_memory
from schedsearch.modulo.strategies.neighbourhoods import Neighbourhoods
from schedsearch.modulo.strategies.segments import Segment, Segments
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort
from schedsearch.solver.interrupts import Interrupts
from schedsearch.starts.first_repetends import simulated_repetends
from schedsearch.starts.serial import serial_repetend
from schedsearch.starts.steady_state import steady_state
from schedsearch.validate import validate


def shortened(repetend: Repetend, work: float = 60.0, most: int = 5, seed: int = 0) -> list[Repetend]:
    """Return the first repetends that neighbourhoods give."""
    state = state_of(repetend.placement, repetend, (repetend.micro_batches,), seed=seed)
    found = Neighbourhoods().run(state, oracle(), until=work)
    return [start.repetend for start in itertools.islice(found, most)]


def best_simulated(placement: Placement, *sizes: int) -> Repetend | None:
    """Return the simulated repetend of least period of the first of some sizes that has one."""
    found = [start.repetend for start in simulated_repetends(placement, sizes, Fraction(0), Effort())]
    return min(found, key=lambda each: (sizes.index(each.micro_batches), each.period), default=None)


@settings(max_examples=15, deadline=None)
@given(random_placements(max_time=3, training=True), st.integers(0, 2), st.integers(1, 2))
def test_each_is_shorter_than_the_one_before_and_valid(placement: Placement, spare: int, size: int) -> None:
    placement = placement.with_memory(
        [minimum_memory(placement, device) + spare for device in range(placement.num_devices)]
    )
    first = serial_repetend(placement)
    if first is None:
        return
    first = first.with_least_period().repeated(size)
    periods = [first.period]
    for repetend in shortened(first, work=5.0):
        assert repetend.micro_batches == size
        assert repetend.period_per_micro_batch >= load_bound(placement)
        validate(repetend.unroll(3 * size * repetend.in_flight))
        periods.append(repetend.period)
    assert periods == sorted(set(periods), reverse=True)


def test_one_block_after_another_becomes_a_pipeline() -> None:
    """Nothing but neighbourhoods leads from the serial order to half its period."""
    placement = v_shape(4).with_memory(4)
    first = serial_repetend(placement)
    assert first is not None and first.period == 16
    assert shortened(first, most=100)[-1].period <= 8


def test_the_same_seed_gives_the_same_repetends() -> None:
    placement = loop_shape(6, 2, 7, 13).with_memory(8)
    start = best_simulated(placement, 2)
    assert start is not None
    one, again = (shortened(start, most=3, seed=3) for _ in range(2))
    assert one == again and one


def test_the_period_of_v_min_becomes_shorter() -> None:
    """With measured times and its own memory, under which no query finds a shorter one in a minute."""
    instance = next(each for each in read_instances() if each.name == "wave_16x48_gpt_6b_min")
    made = steady_state(v_min(instance.placement.per_micro_batch, 64), 1)
    assert made is not None
    shorter = shortened(made, most=1)[0]
    assert shorter.period < made.period
    validate(shorter.unroll(48))


def test_nothing_is_shorter_than_the_bound() -> None:
    made = steady_state(one_f_one_b(v_shape(4), 16), 1)
    assert made is not None and made.period == 4
    assert shortened(made) == []


def test_a_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = serial_repetend(v_shape(4).with_memory(4))
    assert first is not None
    monkeypatch.setattr(Interrupts, "seen", True)
    with pytest.raises(KeyboardInterrupt):
        shortened(first)


@pytest.mark.parametrize(
    ("segment", "low", "high", "grown"),
    [
        (Segment(3, 2), 5, 6, Segment(3, 4)),
        (Segment(8, 2), 0, 1, Segment(8, 4)),
        (Segment(0, 2), 9, 10, Segment(9, 3)),
        (Segment(2, 3), -1, 0, Segment(9, 6)),
        (Segment(0, 10), 4, 5, Segment(0, 10)),
    ],
)
def test_a_segment_grows_around_the_cycle(segment: Segment, low: int, high: int, grown: Segment) -> None:
    assert segment.with_positions(low, high, 10) == grown


@settings(max_examples=25, deadline=None)
@given(random_placements(max_time=3, training=True), st.data())
def test_what_is_held_before_a_segment(placement: Placement, data: st.DataObject) -> None:
    """Added up over a schedule that has long reached its steady state."""
    made = best_simulated(placement, 1, 2)
    if made is None:
        return
    segments = Segments(made)
    device = data.draw(st.sampled_from([d for d, cycle in enumerate(segments.cycles) if cycle]))
    first = data.draw(st.integers(0, len(segments.cycles[device]) - 1))
    segments.include(device, first, first)
    rounds = 3 * made.in_flight
    steady = made.at_initiation_interval(rounds * made.micro_batches)
    (name, n), _ = segments.around(device)[0]
    at = (name, n + (rounds // 2) * made.micro_batches)
    order = steady.order(device)
    earlier = order[: order.index(at)]
    assert segments.held_before(device) == sum(placement.by_name[b].memory_on(device) for b, _ in earlier)
