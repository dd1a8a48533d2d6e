"""The bounds on makespan and span, shown again: equal to brute force, or said not to be rechecked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from oracles import min_makespan
from strategies import small_problems

from placements import Block, Kind, Placement
from placements.shapes import k_shape, m_shape, v_shape
from schedsearch.proof.check.certificate import CertificateError
from schedsearch.proof.check.claims import check_makespan_bound, check_span_bound
from schedsearch.proof.check.orders import no_shorter_schedule
from schedsearch.searches.certificate import certificate_of
from schedsearch.searches.search import search


@settings(max_examples=30, deadline=None)
@given(small_problems())
def test_all_orders_show_just_the_least_makespan(problem: tuple[Placement, int]) -> None:
    """All orders prove that it is no less, not that it is more; with transfers neither must be proved."""
    placement, n = problem
    least = min_makespan(placement, n)
    if least is not None:
        shown = [no_shorter_schedule(placement, n, ticks, 60) for ticks in (least, least + 1)]
        assert shown == [True, False] or (placement.transfer and shown in ([True, None], [None, None]))


def test_a_transfer_goes_on_while_other_blocks_run() -> None:
    """F1, F0 and B0 run during the transfer from F1 to B1; it used to begin anew with each of them."""
    blocks = (
        Block("F0", Kind.F, (0,), 1),
        Block("B0", Kind.B, (0,), 1, 0, ("F0",)),
        Block("F1", Kind.F, (0,), 1),
        Block("B1", Kind.B, (0,), 1, 0, ("F1",)),
    )
    placement = Placement("transfer", 1, blocks, transfer=(("F1", "B1", 2),))
    assert no_shorter_schedule(placement, 1, 4, 60) is True
    assert no_shorter_schedule(placement, 1, 5, 60) is None


def test_an_optimizer_block_waits_for_all_micro_batches() -> None:
    placement = v_shape(2, 1, 2)
    step = Block("O", Kind.O, (1,), 5, 0, ("B1",))
    placement = replace(placement, blocks=(*placement.blocks, step))
    assert no_shorter_schedule(placement, 3, 15, 60) is True  # F0, three rounds of 3 on device 1, and the 5
    assert no_shorter_schedule(placement, 3, 16, 60) is False


def test_makespan_bounds_that_the_states_proved() -> None:
    placement, n, least = v_shape(4, 1, 2).with_memory(3), 16, 72
    schedule = search(placement, n, objectives=["period"]).schedule
    holds = check_makespan_bound(schedule, least, 60)
    assert holds.holds
    assert holds.text.endswith("; by all orders of their starts")
    assert check_makespan_bound(schedule, 50, 0).text.endswith("; by adding up")
    unknown = check_makespan_bound(schedule, least, 0)
    assert str(unknown).startswith(
        "not rechecked: makespan_bound: no schedule of as many micro-batches takes"
    )
    assert not check_makespan_bound(schedule, least, 1e-9).holds
    with pytest.raises(CertificateError, match="is above the makespan"):
        check_makespan_bound(schedule, schedule.makespan + 1, 60)
    if schedule.makespan > least:
        with pytest.raises(CertificateError, match="makespan_bound: .*, but there is one that does"):
            check_makespan_bound(schedule, least + 1, 60)


def test_span_bounds() -> None:
    placement = k_shape()
    result = search(placement, 3, micro_batches_per_repetend=1, objectives=["period", "span"])
    certificate = certificate_of(placement, result)
    assert check_span_bound(certificate, 10, 0).text.endswith("; by adding up")
    assert check_span_bound(certificate, result.span_bound, 60).holds
    assert not check_span_bound(certificate, result.span_bound, 0).holds
    with pytest.raises(CertificateError, match="span_bound: .* below 17 ms, but there is one"):
        check_span_bound(certificate, result.span_bound + 1, 60)


def test_a_span_that_only_more_memory_makes_less() -> None:
    """In 10 ticks the M-shape has a span of 30 with memory 2, as if that was made least before; 26 with 3."""
    result = search(m_shape().with_memory(2), 3, micro_batches_per_repetend=1, objectives=["period", "span"])
    certificate = certificate_of(m_shape().with_memory(3), result)
    assert (result.repetend.period, result.span_bound) == (10, 30)
    assert str(check_span_bound(certificate, 26, 60)).startswith("holds:")
    claim = str(check_span_bound(certificate, 30, 60))
    assert claim.startswith("holds:") and claim.endswith(", with as little memory and latency")
