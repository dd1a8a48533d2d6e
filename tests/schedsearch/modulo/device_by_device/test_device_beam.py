"""Beam search from device to device: every order keeps its waits, rings close within the capacity."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import with_transfer

from experiments.benchmarks.instances.instance_file import read_instances
from placements import Placement
from placements.shapes import k_shape, loop_shape, v_shape, wave_shape
from schedsearch.bounds.load_and_path import period_bound
from schedsearch.modulo.device_by_device import device_beam as module
from schedsearch.modulo.device_by_device.device_beam import DeviceBeam, DeviceBeams, Ring
from schedsearch.modulo.device_by_device.device_orders import DeviceOrders
from schedsearch.modulo.device_by_device.line_of_devices import LineOfDevices
from schedsearch.modulo.device_by_device.next_device import DeviceBlocks, Prices, next_orders
from schedsearch.modulo.device_by_device.ring_closing import NOT_POSSIBLE, Flows, price_closing
from schedsearch.modulo.result import SearchProgress
from schedsearch.modulo.search import search
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import Interrupts
from schedsearch.validate import validate

BLOCKS = DeviceBlocks(
    forward=np.array([True, True, False, False]),
    ticks=np.array([4, 4, 6, 6]),
    time=np.array([3, 3, 5, 5]),
    weight=np.array([1, 2, 1, 2]),
)


def loop_with_transfers(devices: int, chunks: int, memory: int) -> Placement:
    """Return a loop whose transfers take a tick."""
    return with_transfer(loop_shape(devices, chunks, 7, 12), 1).with_memory(memory)


@pytest.fixture
def few_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Carry on few orders, which small loops need."""
    monkeypatch.setattr(module, "_ORDERS", 100)
    monkeypatch.setattr(module, "_FIRSTS", 100)
    monkeypatch.setattr(module, "_FIRST_BEAM", 500)


def orders_after(
    starts: np.ndarray, period: int, gap: int = 2, max_waits: int = 1 << 40
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return orders of the next device of 4 roles, which each continues, and their hashes."""
    size = starts.shape[-1]
    anchors = np.tile(np.arange(2 * size), (len(starts), 1))
    most = anchors.size * 20
    found = np.empty((most, 4, size), dtype=np.int64)
    before, hashed = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.uint64)
    prices = Prices(1 / period, np.zeros(4), 1.0)
    slack = np.full(starts.shape, np.inf)
    count = next_orders(
        starts, anchors, BLOCKS, period, gap, max_waits, 60, 20, slack, prices, found, before, hashed
    )
    return found[:count], before[:count], hashed[:count]


def waits_of(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return how long each block waits beyond what it must; shape ``(roles, micro-batches)``."""
    gone = np.where(BLOCKS.forward[:, None], after - before, before - after)
    return np.asarray(gone - BLOCKS.ticks[:, None])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(0, 2))
def test_next_orders_keep_all_waits_and_run_one_block_at_a_time(seed: int, size: int, gaps: int) -> None:
    orders = DeviceOrders.random(np.random.default_rng(seed), 4, size, gaps, 3)
    starts, period = orders.starts(BLOCKS.time, 2), size * 16 + 2 * gaps
    max_waits = 2 * period
    found, before, _ = orders_after(starts, period, max_waits=max_waits)
    assert len(found)
    for order, origin in zip(found, before, strict=True):
        waits = waits_of(starts[origin], order)
        assert (waits >= 0).all()
        assert (waits[:2] == 0).any()  # the forward with which it begins
        assert int((waits * BLOCKS.weight[:, None]).sum()) <= max_waits
        begin = np.sort((order % period).ravel())
        time_of = np.repeat(BLOCKS.time, size)[np.argsort((order % period).ravel())]
        assert (np.diff(begin, append=begin[0] + period) >= time_of).all()
        assert (np.diff(order, axis=1) > 0).all()
        assert (order[:, -1] - order[:, 0] < period).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_best_next_order_is_that_of_all_orders(seed: int) -> None:
    """One micro-batch without idle time, where all orders and shifts can be tried."""
    starts = DeviceOrders.random(np.random.default_rng(seed), 4, 1, 0, 1).starts(BLOCKS.time, 2)
    found, _, _ = orders_after(starts, 16)
    reached = min(int((waits_of(starts[0], order) * BLOCKS.weight[:, None]).sum()) for order in found)
    least = []
    for order in itertools.permutations(range(4)):
        begin = dict(
            zip(order, itertools.accumulate([0, *(int(BLOCKS.time[r]) for r in order)]), strict=False)
        )
        for shift in range(16):
            after = np.array([[begin[role] + shift] for role in range(4)])
            waits = waits_of(starts[0], after)
            least.append(int((waits % 16 * BLOCKS.weight[:, None]).sum()))
    assert reached == min(least)


def test_the_same_order_has_the_same_hash_wherever_it_begins() -> None:
    starts = DeviceOrders.random(np.random.default_rng(1), 4, 2, 1, 4).starts(BLOCKS.time, 2)
    found, _, hashed = orders_after(starts, 34)
    words: dict[int, set[tuple[tuple[int, ...], ...]]] = {}
    for order, number in zip(found, hashed, strict=True):
        ticks = (order % 34).ravel()
        rows = np.argsort(ticks)
        pauses = (np.diff(ticks[rows], append=ticks[rows[0]] + 34) - BLOCKS.time[rows // 2]) // 2
        word = [(int(row) // 2, int(pause)) for row, pause in zip(rows, pauses, strict=True)]
        turned = min(tuple(word[i:] + word[:i]) for i in range(len(word)))
        words.setdefault(int(number), set()).add(turned)
    assert len(words) > 10
    assert all(len(same) == 1 for same in words.values())
    assert len({next(iter(same)) for same in words.values()}) == len(words)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 3), st.integers(0, 12))
def test_places_on_the_first_device_are_the_likeliest_within_the_capacity(
    seed: int, devices: int, more: int
) -> None:
    """Against all choices of places."""
    rng = np.random.default_rng(seed)
    orders = DeviceOrders.random(rng, 4, 2, 1, 2)
    starts, period = orders.starts(BLOCKS.time, 2), 34
    flows = Flows(
        from_first=np.array([False, True, False]),
        source=np.array([0, 3, 1]),
        to_first=np.array([True, False, False]),
        target=np.array([1, 2, 3]),
        ticks=np.array([4, 6, 3]),
        ticks_per_device=np.array([4, 6, 10]),
    )
    prices = Prices(0.0, np.array([20.0, 30.0, 20.0, 30.0]), 15.0)
    firsts = starts[:1] - 40 * devices
    min_held, flows_prices = 0.0, []
    for source, target, ticks, weight, role in (
        (starts[1, 0], firsts[0, 1], 4 + 4 * devices, 1, 0),
        (firsts[0, 3], starts[1, 2], 6 + 6 * devices, 1, 2),
        (starts[1, 1], starts[1, 3], 3 + 10 * devices, 2, 1),
    ):

        def left(place: int, n: int, source=source, target=target, ticks=ticks) -> int:  # type: ignore[no-untyped-def]
            later, which = divmod(n + place, 2)
            return int(target[which] + later * period - source[n] - ticks)

        first = next(p for p in itertools.count(-80) if min(left(p, 0), left(p, 1)) >= 0)
        min_held += sum(weight * (left(first, n) + ticks) / period for n in range(2))
        each = []
        for later in range(5):
            shares = [(prices.usual[role] - left(first + later, n)) / prices.spread + 0.5 for n in range(2)]
            each.append((weight * later, sum(weight * max(share, 0.0) ** 2 for share in shares)))
        flows_prices.append(each)
    capacity = float(np.ceil(min_held) + more - 2)
    price, slack = np.empty(1), np.empty((1, 4, 2))
    price_closing(
        starts[1:],
        np.zeros(1),
        np.zeros(1, dtype=np.int64),
        firsts,
        flows,
        devices,
        BLOCKS,
        period,
        capacity,
        prices,
        price,
        slack,
    )
    if capacity < min_held - 1e-6:
        assert price[0] >= NOT_POSSIBLE
        assert np.isinf(slack).all()
        return
    choices = itertools.product(*flows_prices)
    fit = [c for c in choices if sum(units for units, _ in c) <= capacity - min_held + 1e-6]
    assert price[0] == pytest.approx(min(sum(each for _, each in choice) for choice in fit))
    assert (slack >= 0).all()


SMALL_LOOP = loop_with_transfers(8, 2, 18)
"""Two chunks per device at 18 of the 23 activations that interleaved 1F1B holds on the first."""

UNEVEN = (18, 18, 17, 17, 16, 16, 15, 15)


def found_for(
    placement: Placement, known: Fraction, until: Fraction = Fraction(0), sizes: Sequence[int] = (1, 2, 3)
) -> list[Repetend]:
    """Return what is found until a period is short enough, or ten minutes' work is done."""
    found = []
    beams, effort = DeviceBeams(placement, sizes), Effort()
    for repetend in beams.shorter(period_bound(placement), known, effort, until=600.0):
        found.append(repetend)
        if per_micro_batch(repetend) <= until:
            break
    return found


def per_micro_batch(repetend: Repetend) -> Fraction:
    """Return ticks per micro-batch."""
    return Fraction(repetend.period, repetend.micro_batches)


@pytest.mark.usefixtures("few_orders")
def test_rings_close_with_several_micro_batches_that_share_idle_time() -> None:
    """Four chunks, where each period must be shorter than one micro-batch with a round trip has it."""
    placement = loop_with_transfers(4, 4, 18)
    found = found_for(placement, Fraction(78), 76 + Fraction(4, 3))
    rates = [per_micro_batch(repetend) for repetend in found]
    assert rates[-1] <= 76 + Fraction(4, 3)
    assert rates == sorted(rates, reverse=True)
    for repetend in found:
        assert repetend.peak_memory[0] <= 18
        schedule = repetend.unroll(12)
        validate(schedule)
    again = found_for(placement, Fraction(78), 76 + Fraction(4, 3))
    assert [repetend.start for repetend in again] == [repetend.start for repetend in found]


@pytest.mark.usefixtures("few_orders")
def test_nothing_is_found_below_what_can_be_held() -> None:
    assert not found_for(loop_with_transfers(4, 4, 10), Fraction(78))


@pytest.mark.parametrize(
    ("placement", "applies"),
    [
        (loop_with_transfers(4, 2, 7), True),
        (loop_shape(4, 2).with_memory(7), True),
        (wave_shape(4, 2).with_memory(6), False),
        (k_shape(4).with_memory(4), False),
        (v_shape(4, split_backward=True).with_memory(4), False),  # weight halves wait for no other device
    ],
)
def test_rings_are_told_from_other_placements(placement: Placement, applies: bool) -> None:
    line = LineOfDevices(placement)
    assert (line.applies and Ring.of(line) is not None) is applies
    if not applies:
        assert not found_for(placement, Fraction(10**6))


def test_it_ends_at_its_deadline_and_at_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = loop_with_transfers(4, 4, 18)
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    beams = DeviceBeams(placement, (1, 2, 3))
    with pytest.raises(OutOfTimeError):
        next(beams.shorter(Fraction(76), Fraction(78), Effort(1e9)))
    assert not list(beams.shorter(Fraction(76), Fraction(78), Effort(), until=0.0))
    monkeypatch.undo()
    monkeypatch.setattr(Interrupts, "seen", True)
    with pytest.raises(KeyboardInterrupt):
        found_for(placement, Fraction(78))


def test_orders_of_one_micro_batch_hold_less_than_without_idle_time() -> None:
    """Two chunks hold 3 more for a device more without idle time, with one round trip 2."""
    line = LineOfDevices(loop_with_transfers(8, 2, 18))
    ring = Ring.of(line)
    assert ring is not None
    beam = DeviceBeam(ring, 1, 1, 0)
    usual = beam.usual_waits(beam.orders(Effort()), Effort())
    assert usual is not None
    assert (usual >= 0).all()


def test_half_a_round_trip_of_idle_time_is_enough_for_a_loop() -> None:
    """Period 39 per micro-batch, of 38 of work; with one micro-batch per repetend it takes 40."""
    found = found_for(SMALL_LOOP, Fraction(57), Fraction(39))
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


def test_a_measured_loop_comes_near_its_load_at_three_quarters_of_the_memory() -> None:
    name = "loop2_16x48_gpt_14b_three_quarters"
    placement = next(each for each in read_instances() if each.name == name).placement.per_micro_batch
    load = Fraction(placement.load(0))
    found = found_for(placement, load * Fraction(103, 100), load * Fraction(102, 100), sizes=(2, 5))
    assert load < per_micro_batch(found[-1]) <= load * Fraction(102, 100)
    assert placement.memory is not None
    assert max(found[-1].peak_memory) <= placement.memory[0]


def test_uneven_devices_and_memory_are_kept() -> None:
    """The first and the last stage take longer, and the last device may hold less."""
    blocks = (replace(block, time=block.time + (block.devices[0] in (0, 7))) for block in SMALL_LOOP.blocks)
    uneven = replace(SMALL_LOOP, blocks=tuple(blocks)).with_memory(UNEVEN)
    bound = period_bound(uneven)
    found = found_for(uneven, 2 * bound, bound * Fraction(107, 100))
    assert per_micro_batch(found[-1]) <= bound * Fraction(107, 100)
    assert all(np.array(found[-1].peak_memory) <= UNEVEN)
    validate(found[-1].unroll(40))


def test_units_of_memory_do_not_matter() -> None:
    blocks = loop_shape(8, 2, 7, 12, stage_memory=3000).blocks
    in_mib = replace(SMALL_LOOP, blocks=blocks).with_memory(18 * 3000 + 2999)
    units, mib = (
        [(each.micro_batches, each.period) for each in found_for(each_, Fraction(57), Fraction(39))]
        for each_ in (SMALL_LOOP, in_mib)
    )
    assert mib[-1][1] / mib[-1][0] <= 39
    assert units[-1][1] / units[-1][0] <= 39


@pytest.mark.parametrize("sizes", [1, None])
def test_ctrl_c_keeps_what_was_found_before_it(sizes: int | None) -> None:
    seen: list[Fraction] = []

    def interrupt(progress: SearchProgress) -> None:
        if progress.found_by == "orders found from device to device":
            assert progress.best is not None
            seen.append(Fraction(progress.best, progress.micro_batches))
            raise KeyboardInterrupt

    result = search(
        loop_with_transfers(12, 2, 28),
        48,
        micro_batches_per_repetend=sizes,
        work_limit=80,
        without=["annealing", "patterns"],
        on_progress=interrupt,
    )
    assert result.interrupted
    assert result.repetend is not None
    assert result.schedule is not None
    assert result.repetend.period_per_micro_batch == seen[-1]
    validate(result.schedule)
