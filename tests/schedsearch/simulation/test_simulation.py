"""Iterations under conditions: exact without any, by hand and by brute force with some."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements as random_placements
from strategies import with_transfer

import schedsearch
from placements import Block, Kind, Placement
from placements.shapes import v_shape, x_shape
from schedsearch.baselines import applicable, chimera, gpipe, one_f_one_b
from schedsearch.metrics import bubble_rate
from schedsearch.schedule import as_soon_as_possible
from schedsearch.simulation.conditions import MIB_PER_MS_OF_GB_S, Conditions, ConditionsError, Link
from schedsearch.simulation.drawn_times import drawn_times
from schedsearch.simulation.iterations import simulate
from schedsearch.simulation.messages import steps_of
from schedsearch.simulation.timing import ends_by_events, ends_together


@settings(max_examples=40, deadline=None)
@given(random_placements(), st.integers(1, 5))
def test_without_conditions_it_is_the_makespan(placement: Placement, number: int) -> None:
    """Exactly, with the placement's transfers; its bubble too."""
    for schedule in applicable(placement, number).values():
        simulation = simulate(schedule, iterations=2)
        assert simulation.iteration_ms.tolist() == [placement.ms(schedule.makespan)] * 2
        assert simulation.bubble_rate == pytest.approx(bubble_rate(schedule))


@pytest.mark.parametrize("ticks", [0, 1, 5])
def test_constant_transfers_are_those_of_the_placement(ticks: int) -> None:
    """A link for each pair, wide enough for one message at a time, is as good as none."""
    placement = with_transfer(v_shape(4, 7, 14), ticks)
    schedule = one_f_one_b(placement, 8)
    pairs = [(a, a + 1) for a in range(3)] + [(a + 1, a) for a in range(3)]
    links = tuple(Link((pair,)) for pair in pairs)
    assert simulate(schedule, Conditions(links=links), 1).mean_ms == schedule.makespan
    far = tuple(Link((pair,), latency_ms=3) for pair in pairs)
    later = as_soon_as_possible(with_transfer(placement, ticks + 3), 8, schedule.per_micro_batch.lane_orders)
    assert simulate(schedule, Conditions(links=far), 1).mean_ms == later.makespan


@settings(max_examples=40, deadline=None)
@given(random_placements(max_devices=3), st.integers(1, 4), st.integers(0, 3))
def test_both_ways_give_the_same_ends(placement: Placement, number: int, seed: int) -> None:
    """Event by event, and all iterations at once, where each link has one sender."""
    schedule = gpipe(with_transfer(placement, 2), number)
    devices = range(placement.num_devices)
    links = tuple(Link(((a, b),), 0.5) for a, b in itertools.permutations(devices, 2))
    conditions = Conditions(jitter=0.3, links=links)
    steps = steps_of(schedule, conditions)
    drawn = drawn_times(schedule.placement, number, conditions, 3, seed)
    times = np.array([drawn[step.instance] for step in steps.steps])
    if not steps.is_shared:
        np.testing.assert_allclose(ends_by_events(steps, times), ends_together(steps, times))


def test_two_senders_share_a_network_card_by_hand() -> None:
    """Devices 0 and 1 send at 4 and 5 to 2, 10 ticks each: there at 14 and 24."""
    blocks = (
        Block("A", Kind.F, (0,), 4),
        Block("B", Kind.F, (1,), 5),
        Block("C", Kind.F, (2,), 1, 0, ("A", "B")),
    )
    placement = Placement("join", 3, blocks, transfer=(("A", "C", 10), ("B", "C", 10)))
    schedule = gpipe(placement, 1)
    assert simulate(schedule, iterations=1).mean_ms == 16
    shared = Conditions(links=(Link(((0, 2), (1, 2))),))
    assert simulate(schedule, shared, 1).mean_ms == 25
    wide = Link(((0, 2), (1, 2)), bandwidth_gb_s=1.0, message_mib=2 * MIB_PER_MS_OF_GB_S)
    assert simulate(schedule, Conditions(links=(wide,)), 1).mean_ms == pytest.approx(9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.floats(0.01, 0.5), st.sampled_from(["lognormal", "normal"]))
def test_iterations_grow_with_everything(seed: int, jitter: float, distribution: str) -> None:
    """Times x 3 give iterations x 3; a slow device, a slow or a shared link never make one shorter."""
    placement = with_transfer(x_shape(4, 2, 4), 1)
    schedule = chimera(placement, 4)
    base = Conditions(jitter=jitter, distribution=distribution)
    base_ms = simulate(schedule, base, 20, seed).iteration_ms
    longer = replace(
        placement,
        blocks=tuple(replace(block, time=3 * block.time) for block in placement.blocks),
        transfer=tuple((a, b, 3 * ticks) for a, b, ticks in placement.transfer),
    )
    tripled = as_soon_as_possible(longer, 4, schedule.per_micro_batch.lane_orders)
    np.testing.assert_allclose(simulate(tripled, base, 20, seed).iteration_ms, 3 * base_ms)
    worse = [
        replace(base, slow_devices={1: 1.5}),
        replace(base, slow_pairs={(0, 1): 3.0}),
        replace(base, links=(Link(((0, 1), (1, 0), (2, 1)), latency_ms=1),)),
    ]
    for conditions in worse:
        assert (simulate(schedule, conditions, 20, seed).iteration_ms >= base_ms - 1e-9).all()


def test_draws_have_their_mean_and_deviation_and_follow_the_seed() -> None:
    placement = v_shape(1, 10, 20)
    for distribution in ("lognormal", "normal"):
        conditions = Conditions(jitter=0.2, distribution=distribution)
        drawn = drawn_times(placement, 1, conditions, 40_000, 7)["F0", 0]
        assert drawn.mean() == pytest.approx(10, rel=0.01)
        assert drawn.std() == pytest.approx(2, rel=0.02)
        again = drawn_times(placement, 1, conditions, 40_000, 7)["F0", 0]
        assert (drawn == again).all()
    repeats = Conditions(jitter=0.5, measured_ms={"F0": [9.0, 12.0]}, slow_devices={0: 2.0})
    assert set(drawn_times(placement, 1, repeats, 100, 0)["F0", 0]) == {18.0, 24.0}


def test_iterations_show_themselves() -> None:
    schedule = one_f_one_b(with_transfer(v_shape(4, 10, 20), 1), 8)
    row = simulate(schedule, iterations=3).to_frame().iloc[0]
    assert row["mean_ms"] == row["p99_ms"] == schedule.makespan
    assert simulate(schedule, Conditions(jitter=0.1), 30).plot().axes
    assert schedsearch.simulate is simulate


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Conditions(distribution="flat"), "distribution: 'flat' is not known; use lognormal or"),
        (lambda: Conditions(slow_devices={0: 0}), r"slow_devices\[0\]: 0 is not a factor above 0"),
        (lambda: Conditions(slow_pairs={(1, 1): 2}), r"slow_pairs: \(1, 1\) is one device"),
        (lambda: Link(((0, 1),), bandwidth_gb_s=0), "links.bandwidth_gb_s: 0 is not a number of GB/s"),
        (lambda: Conditions(links=(Link(((0, 1),)), Link(((0, 1),)))), r"links: \(0, 1\) is there twice"),
        (lambda: simulated(measured_ms={"Z": [1]}), "measured_ms: there is no block 'Z'; the blocks are B0"),
        (lambda: simulate(gpipe(v_shape(2), 1), None, 0), "iterations: 0 is not a whole number of 1 or more"),
    ],
)
def test_wrong_conditions_are_named(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ConditionsError, match=f"^{message}"):
        make()


def simulated(**conditions: object) -> object:
    """Simulate a small schedule under conditions that may not fit it."""
    return simulate(gpipe(v_shape(2), 1), Conditions(**conditions), 1)  # type: ignore[arg-type]
