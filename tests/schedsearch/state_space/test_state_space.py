"""The search over states: equal to brute force and to solvers, and to every proof that is known."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import min_makespan as brute_force
from strategies import placements as random_placements
from strategies import small_problems, tight

from placements import Placement
from placements.shapes import k_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from schedsearch.core.answer import Status
from schedsearch.proof.check.states import MinCycleRatio
from schedsearch.searches.search import search
from schedsearch.state_space import min_makespan, min_period
from schedsearch.state_space.model import model_of
from schedsearch.validate import validate

AMPLE = Fraction(10**6)


def no_shorter_period(
    placement: Placement,
    devices: tuple[int, ...],
    cut_out: tuple[str, ...],
    period: Fraction,
    time_limit_s: float,
) -> bool | None:
    return MinCycleRatio(period, devices, cut_out).is_shown(placement, time_limit_s)


def upper_bound(placement: Placement, n: int) -> int:
    return n * (sum(block.time for block in placement.blocks) + sum(t for _, _, t in placement.transfer))


@settings(max_examples=40, deadline=None)
@given(small_problems())
def test_makespan_equals_brute_force(problem: tuple[Placement, int]) -> None:
    placement, n = problem
    assume(model_of(placement) is not None)
    least = brute_force(placement, n)
    result = min_makespan(placement, n, at_most=upper_bound(placement, n))
    assert result is not None
    if least is None:
        assert result.schedule is None
    else:
        assert result.schedule is not None
        assert validate(result.schedule).makespan == result.bound == least
        below = min_makespan(placement, n, at_most=least - 1)
        assert below.schedule is None
        assert below.bound == least


X = x_shape(4, split_backward=True)
WAVE = wave_shape(4, 2, split_backward=True)

KNOWN = [
    (v_shape(4, 1, 2).with_memory(3), 16, 72),
    (v_shape(4, split_backward=True).with_memory(4), 16, 51),
    (X.with_memory(3), 3, 21),
    (m_shape().with_memory(4), 16, 108),
    (nn_shape().with_memory(6), 16, 140),
    (k_shape().with_memory(2), 16, 130),
    (WAVE.with_memory(4), 16, 107),
]
"""Placement, micro-batches, and the least makespan; a micro-batch of an X-shape is one of each direction."""


@pytest.mark.parametrize(("placement", "n", "least"), KNOWN)
def test_known_makespans(placement: Placement, n: int, least: int) -> None:
    bounds: list[int] = []
    result = min_makespan(placement, n, at_most=2 * least, on_progress=bounds.append, time_limit_s=600.0)
    assert result.schedule is not None
    assert validate(result.schedule).makespan == result.bound == least
    assert bounds == sorted(set(bounds))
    assert all(bound <= least for bound in bounds)


@pytest.mark.parametrize(
    ("placement", "period"),
    [
        (v_shape().with_memory(3), Fraction(16, 3)),
        (m_shape().with_memory(3), Fraction(22, 3)),
        (nn_shape().with_memory(3), Fraction(21, 2)),
        (x_shape(4, 1, 2).with_memory(2), Fraction(9)),
    ],
)
def test_known_periods(placement: Placement, period: Fraction) -> None:
    """And all of them are shown again, state by state; a little more is not."""
    cycle = min_period(placement, known=AMPLE, time_limit_s=600.0)
    assert cycle.ticks == period
    assert no_shorter_period(placement, cycle.devices, cycle.cut_out, period, 600.0) is True
    assert no_shorter_period(placement, cycle.devices, cycle.cut_out, period + Fraction(1, 7), 600.0) is False


def test_a_branch_bounds_what_has_too_many_states() -> None:
    placement = k_shape(8).with_memory(2)
    assert min_period(placement, known=AMPLE, max_states=1_000).devices == (0, 1, 2, 3)
    cycle = min_period(placement, known=AMPLE)
    assert cycle.ticks == search(placement, 2, objectives=["period"]).repetend.period_per_micro_batch
    uneven = replace(
        placement, blocks=tuple(replace(b, time=b.time + (b.name in ("F6", "B6"))) for b in placement.blocks)
    )
    cycle = min_period(uneven, known=AMPLE, max_states=1_000)
    assert cycle.devices == (4, 5, 6, 7)
    assert no_shorter_period(uneven, cycle.devices, cycle.cut_out, cycle.ticks, 60.0) is True
    assert no_shorter_period(uneven, cycle.devices, cycle.cut_out, cycle.ticks + 1, 60.0) is False


@settings(max_examples=8, deadline=None)
@given(
    random_placements(max_time=3, training=True) | random_placements(max_time=3, by_device=True),
    st.integers(0, 1),
)
def test_no_repetend_beats_the_cycles(placement: Placement, spare: int) -> None:
    placement = tight(placement, spare)
    cycle = min_period(placement, known=AMPLE, max_states=2_000)
    assume(cycle is not None and cycle.micro_batches is not None)
    assert no_shorter_period(placement, cycle.devices, cycle.cut_out, cycle.ticks, 60.0) is not False
    for micro_batches in (1, 2):
        result = search(
            placement, 2, micro_batches_per_repetend=micro_batches, work_limit=1, objectives=["period"]
        )
        if result.repetend is not None:
            assert result.repetend.period >= cycle.ticks * result.repetend.micro_batches
    model = model_of(placement)
    whole = len(cycle.devices) == placement.num_devices and not cycle.cut_out
    if model is not None and len(model.components) == 1 and whole and cycle.micro_batches <= 3:
        best = search(
            placement,
            2,
            micro_batches_per_repetend=int(cycle.micro_batches),
            work_limit=1,
            objectives=["period"],
        )
        assert best.period_bound <= cycle.ticks  # a cycle is a repetend, so no solver refutes it


def test_a_search_proves_for_any_number_of_micro_batches_per_repetend() -> None:
    """NN with memory 3: the bound of memory occupancy is 28/3, and no solver is asked to refute more."""
    result = search(nn_shape().with_memory(3), 6, objectives=["period"])
    assert result.status is Status.OPTIMAL
    assert result.repetend.period_per_micro_batch == result.period_bound == 10.5
    assert result.min_period.ticks == Fraction(21, 2)
    assert result.universal_bound == 10.5
    assert search(v_shape().with_memory(3), 6, micro_batches_per_repetend=2).universal_bound < 6


def test_a_transfer_delays_and_a_longer_one_is_not_expressed() -> None:
    placement = v_shape(2, 2, 3).with_memory(2)
    without = min_makespan(placement, 3, at_most=100).bound
    delayed = replace(placement, transfer=(("F0", "F1", 2), ("B1", "B0", 1)))
    result = min_makespan(delayed, 3, at_most=100)
    assert result.bound == validate(result.schedule).makespan == brute_force(delayed, 3) > without
    assert min_makespan(replace(placement, transfer=(("F0", "F1", 3),)), 3, at_most=100) is None
    assert min_period(replace(placement, transfer=(("F0", "F1", 3),)), known=AMPLE) is None


def test_out_of_time_or_states_it_keeps_the_bound() -> None:
    placement, least = WAVE.with_memory(4), 107
    for budget in ({"time_limit_s": 0.0}, {"max_states": 10}, {"max_states": 40_000}):
        result = min_makespan(placement, 16, at_most=200, **budget)
        assert result.schedule is None
        assert 96 < result.bound <= least
    assert min_period(placement, known=AMPLE, max_states=1000) is None
    assert min_period(placement, known=AMPLE, time_limit_s=0.0) is None
    assert min_period(v_shape(), known=AMPLE) is None  # without capacities


@pytest.mark.parametrize("longest", [255, 65_535, 209_999])
def test_the_longest_ticks_of_so_many_bits(longest: int) -> None:
    """They were refused with an OverflowError, as a tick more did not fit."""
    placement = v_shape(2, 1, longest).with_memory(1)
    assert min_makespan(placement, 3, at_most=10**7).bound == 6 * (longest + 1)
    assert min_period(placement, known=AMPLE).ticks == 2 * (longest + 1)
    assert search(placement, 2, objectives=["period"]).period_bound == 2 * (longest + 1)


def test_ticks_that_do_not_fit_are_refused() -> None:
    """The states kept 32 bits of the ticks still to run, and so took some for the same: 6 was proved here."""

    def scaled(times: int) -> Placement:
        blocks = (replace(block, time=times * block.time) for block in m_shape().blocks)
        return replace(m_shape().with_memory(3), blocks=tuple(blocks))

    assert min_period(scaled(2**28), known=Fraction(20 * 2**28)).ticks / 2**28 == Fraction(22, 3)
    for times in (2**32, 2**33):
        assert min_period(scaled(times), known=Fraction(20 * times)) is None
        assert min_makespan(scaled(times), 1, at_most=0) is None
    too_fine = (20 + Fraction(1, 10**9 + 7)) * 2**28  # lengths of paths do not fit either
    assert min_period(scaled(2**28), known=too_fine) is None
