"""Orders found from device to device: the lightest, within all capacities, shorter than what solvers find."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.benchmarks.instances.instance_file import read_instances
from placements import Placement
from placements.shapes import k_shape, loop_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from schedsearch.bounds.load_and_path import period_bound
from schedsearch.modulo.many_blocks.device_by_device import device_by_device
from schedsearch.modulo.many_blocks.device_orders import (
    DeviceOrders,
    least_weights,
    most_held,
    shifts,
    whole_rounds,
)
from schedsearch.modulo.many_blocks.line_of_devices import LineOfDevices, Step
from schedsearch.modulo.many_blocks.order_paths import OrderPaths
from schedsearch.modulo.search import search
from schedsearch.repetend import Repetend
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.validate import validate


def small_loop(devices: int, memory: int) -> Placement:
    """Return a loop of two chunks whose transfers take a tick."""
    loop = loop_shape(devices, 2, 7, 12)
    transfer = [
        (name, block.name, 1)
        for block in loop.blocks
        for name in block.after
        if loop.by_name[name].devices != block.devices
    ]
    return dataclasses.replace(loop, transfer=tuple(transfer)).with_memory(memory)


SMALL_LOOP = small_loop(8, 18)
"""Two chunks per device at 18 of the 23 activations that interleaved 1F1B holds on the first."""


UNEVEN = (18, 18, 17, 17, 16, 16, 15, 15)


def found_for(
    placement: Placement, known: Fraction, until: Fraction, sizes: Sequence[int] = (1, 2, 3), seed: int = 0
) -> list[Repetend]:
    """Return what is found until a period is short enough, or two minutes are over."""
    found = []
    deadline = time.monotonic() + 120
    for repetend in device_by_device(placement, sizes, period_bound(placement), known, deadline, seed):
        found.append(repetend)
        if Fraction(repetend.period, repetend.micro_batches) <= until:
            break
    return found


def per_micro_batch(repetend: Repetend) -> Fraction:
    """Return ticks per micro-batch."""
    return Fraction(repetend.period, repetend.micro_batches)


@pytest.mark.parametrize(
    ("placement", "applies"),
    [
        (v_shape(4).with_memory(3), True),
        (loop_shape(4, 2).with_memory(5), True),
        (loop_shape(4, 2), False),  # nothing to keep within
        (v_shape(2).with_memory(1), False),  # a question that a solver answers at once
        (v_shape(4, inference=True).with_memory(3), False),  # nothing is held
        (v_shape(4, stage_memory=1 << 20).with_memory(3 << 20), False),  # memory in bytes
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
    if not applies:
        assert not list(device_by_device(placement, (1,), Fraction(1), 10**6, time.monotonic() + 60))


def test_a_loop_is_a_ring_and_its_later_chunks_weigh_more() -> None:
    """What delays the second chunk by a round holds an activation of both chunks on the first device."""
    line = LineOfDevices(SMALL_LOOP)
    assert (line.fullest, line.load, line.round_trip) == (0, 38, 2)
    assert {(step.forward, step.ticks, step.weight) for step in line.hops[0]} == {
        (True, 8, 1),
        (True, 8, 2),
        (False, 13, 2),
        (False, 13, 1),
    }
    assert sorted((step.forward, step.weight) for step in line.closing) == [(False, 1), (True, 1)]
    assert [len(steps) for steps in line.inside] == [0, 0, 0, 0, 0, 0, 0, 1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(0, 2))
def test_the_least_weight_is_that_of_the_best_of_all_shifts(seed: int, size: int, gaps: int) -> None:
    rng = np.random.default_rng(seed)
    time_of = rng.integers(1, 6, size=4)
    steps = [
        Step(0, 0, True, int(time_of[0]) + 1, 1),
        Step(1, 1, True, int(time_of[1]), 2),
        Step(2, 2, False, int(time_of[2]) + 2, 3),
        Step(3, 3, False, int(time_of[3]), 0),
    ]
    before, after = (
        DeviceOrders.random(rng, 4, size, gaps, 3).starts(time_of.astype(np.int64), 2) for _ in range(2)
    )
    period = int(size * time_of.sum() + 2 * gaps)

    def weighs(one: int, other: int, shift: int) -> int:
        total = 0
        for step in steps:
            if step.forward:
                source, target = before[one, step.source], after[other, step.target] + shift
            else:
                source, target = after[other, step.source] + shift, before[one, step.target]
            total += step.weight * int(whole_rounds(source, target, step.ticks, period))
        return total

    least = least_weights(before, after, steps, period)
    by, given_ = shifts(before, after, steps, period)
    for one, other in itertools.product(range(3), repeat=2):
        assert least[one, other] == min(weighs(one, other, shift) for shift in range(period))
        for shift, weight in zip(by[one, other], given_[one, other], strict=True):
            assert weighs(one, other, int(shift)) <= weight


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
    assert len(orders.without_repeats().without(orders.take(np.array([0])))) == 1


def test_orders_of_more_micro_batches_have_the_idle_time_that_is_asked_for() -> None:
    rng = np.random.default_rng(3)
    orders = DeviceOrders.random(rng, 4, 1, 2, 20)
    for gaps in (0, 1, 4, 7):
        twice = orders.repeated(2).with_gaps(rng, gaps)
        assert (twice.gaps.sum(axis=1) == gaps).all()
        assert (twice.gaps >= 0).all()
        assert (np.sort(twice.roles, axis=1) == np.repeat(np.arange(4), 2)).all()
    changed = orders.changed(rng)
    assert (changed.gaps.sum(axis=1) == 2).all()
    assert (np.sort(changed.roles, axis=1) == np.arange(4)).all()
    assert (changed.roles != orders.roles).any(axis=1).sum() > 10


def test_what_is_held_is_counted_at_each_start() -> None:
    starts = DeviceOrders(np.array([[0, 0, 1, 1]], dtype=np.int8), np.zeros((1, 4), dtype=np.int8)).starts(
        np.array([2, 3]), 1
    )
    assert most_held(starts, [5, -5]).tolist() == [10]
    assert most_held(starts, [-5, 5]).tolist() == [0]


@pytest.mark.parametrize("seed", [0, 1])
def test_half_a_round_trip_of_idle_time_is_enough_for_a_loop(seed: int) -> None:
    """Period 39 per micro-batch, of 38 of work; with one micro-batch per repetend it takes 40."""
    found = found_for(SMALL_LOOP, Fraction(57), Fraction(39), seed=seed)
    assert per_micro_batch(found[-1]) <= 39
    assert found[-1].micro_batches > 1
    periods = [per_micro_batch(repetend) for repetend in found]
    assert periods == sorted(set(periods), reverse=True)
    for repetend in found:
        assert max(repetend.peak_memory) <= 18
        validate(repetend.unroll(3 * repetend.in_flight * repetend.micro_batches))


def test_sizes_are_those_asked_for() -> None:
    found = found_for(SMALL_LOOP, Fraction(57), Fraction(40), sizes=(1,))
    assert {repetend.micro_batches for repetend in found} == {1}
    assert per_micro_batch(found[-1]) == 40


@pytest.mark.parametrize(
    ("name", "percent"),
    [("loop2_16x48_gpt_14b_three_quarters", 102), ("loop4_32x96_gpt_14b_three_quarters", 103)],
)
def test_measured_loops_come_near_their_load_at_three_quarters_of_the_memory(name: str, percent: int) -> None:
    placement = next(each for each in read_instances() if each.name == name).placement.per_micro_batch
    load = Fraction(placement.load(0))
    found = found_for(placement, load * Fraction(109, 100), load * Fraction(percent, 100))
    assert load < per_micro_batch(found[-1]) <= load * Fraction(percent, 100)
    assert placement.memory is not None
    assert max(found[-1].peak_memory) <= placement.memory[0]


def test_uneven_devices_and_memory_are_kept() -> None:
    """The first and the last stage take longer, and the last device may hold less."""
    blocks = [
        dataclasses.replace(block, time=block.time + (block.devices[0] in (0, 7)))
        for block in SMALL_LOOP.blocks
    ]
    uneven = dataclasses.replace(SMALL_LOOP, blocks=tuple(blocks)).with_memory(
        (18, 18, 17, 17, 16, 16, 15, 15)
    )
    bound = period_bound(uneven)
    found = found_for(uneven, 2 * bound, bound * Fraction(107, 100))
    assert per_micro_batch(found[-1]) <= bound * Fraction(107, 100)
    assert all(np.array(found[-1].peak_memory) <= UNEVEN)
    validate(found[-1].unroll(40))


def test_units_of_memory_do_not_matter() -> None:
    blocks = loop_shape(8, 2, 7, 12, stage_memory=3000).blocks
    in_mib = dataclasses.replace(SMALL_LOOP, blocks=blocks).with_memory(18 * 3000 + 2999)
    units, mib = (
        [(each.micro_batches, each.period) for each in found_for(each_, Fraction(57), Fraction(39))]
        for each_ in (SMALL_LOOP, in_mib)
    )
    assert mib[-1][1] / mib[-1][0] <= 39
    assert units[-1][1] / units[-1][0] <= 39


def test_a_search_takes_it() -> None:
    placement = small_loop(12, 28)
    told = []
    result = search(
        placement, 48, time_limit_s=12, polish_time_limit_s=1, on_progress=lambda p: told.append(p.found_by)
    )
    assert result.repetend is not None
    assert result.schedule is not None
    assert result.repetend.period_per_micro_batch <= 40
    assert "orders found from device to device" in told
    validate(result.schedule)


class EnoughAskedError(Exception):
    """Raised to end a search that would never."""


def test_all_questions_get_about_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round of a pool of two micro-batches per repetend is as much as four of one."""
    rounds: Counter[tuple[int, int]] = Counter()

    def never_fits(paths: OrderPaths) -> int:
        rounds[paths.micro_batches, paths.gaps] += 1
        if rounds.total() > 2000:
            raise EnoughAskedError
        return 1000

    monkeypatch.setattr(OrderPaths, "improve", never_fits)
    with pytest.raises(EnoughAskedError):
        list(device_by_device(SMALL_LOOP, (1, 2), Fraction(38), Fraction(42), time.monotonic() + 300))
    work = [size**2 * number for (size, _), number in rounds.items()]
    assert {size for size, _ in rounds} == {1, 2}
    assert max(work) - min(work) <= 2 * 13 * 2**2  # once more or less at most, of 13 rounds


def test_it_ends_at_its_deadline_and_at_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    long = device_by_device(SMALL_LOOP, (1, 2, 3), Fraction(1), Fraction(57), time.monotonic() - 1)
    assert not list(long)
    monkeypatch.setattr(INTERRUPTS, "_seen", True)
    with pytest.raises(KeyboardInterrupt):
        list(device_by_device(SMALL_LOOP, (1,), Fraction(1), Fraction(57), time.monotonic() + 60))


def test_whole_paths_end_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 320 devices and four chunks they take a minute."""
    paths = OrderPaths(LineOfDevices(SMALL_LOOP), 1, 1, 0)
    while paths.improve() > 18:
        pass
    assert next(paths.repetends(57, time.monotonic() + 60), None) is not None
    assert not list(paths.repetends(57, time.monotonic() - 1))
    monkeypatch.setattr(INTERRUPTS, "_seen", True)
    with pytest.raises(KeyboardInterrupt):
        list(paths.repetends(57, time.monotonic() + 60))
