"""Tessel's own search: its results on the paper's shapes, and that it ends as it should."""

import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupting import interrupted
from oracles import min_period
from strategies import crossed, tight
from strategies import placements as random_placements

from placements import Placement
from placements.shapes import k_shape, m_shape, nn_shape, v_shape, x_shape
from schedsearch.core.answer import Answer, InFlightPeriod, SearchError, Status
from schedsearch.proof.load_and_path import load_bound
from schedsearch.searches.search import search
from schedsearch.tessel import tessel, time_optimal
from schedsearch.validate import validate


@pytest.mark.parametrize(
    ("placement", "most", "period", "in_flight", "bubble_rates"),
    [
        (v_shape().with_memory(3), None, 8, 2, [0.75, 0.5, 0.5]),
        (k_shape().with_memory(3), 3, 6, 3, [0.4, 1 / 7, 0]),
    ],
)
def test_the_papers_shapes(placement, most, period, in_flight, bubble_rates) -> None:
    """The periods that the authors' released code finds too."""
    result = tessel(placement, 8, max_in_flight=most, time_limit_s=600)
    assert result.repetend.period == period
    assert next(row.in_flight for row in result.by_in_flight if period_of(row) == period) == in_flight
    assert [row.in_flight for row in result.by_in_flight] == list(range(1, len(bubble_rates) + 1))
    assert [row.repetend.bubble_rate for row in result.by_in_flight] == pytest.approx(bubble_rates)
    assert all(is_decided(row) for row in result.by_in_flight)
    check(result)


def period_of(row: InFlightPeriod) -> int:
    return row.repetend.period


def is_decided(row: InFlightPeriod) -> bool:
    return period_of(row) <= row.bound


def check(result: Answer) -> None:
    """The schedule and the repetend are valid, and the status is true."""
    placement = result.schedule.placement
    validate(result.schedule)
    validate(result.repetend.unroll(2 * result.repetend.in_flight))
    assert load_bound(placement) <= result.period_bound <= result.repetend.period
    is_least = result.repetend.period == result.period_bound
    assert (result.status is Status.OPTIMAL) == (is_least and not result.interrupted)
    assert result.reason == ""


@settings(max_examples=12, deadline=None)
@given(
    random_placements(max_devices=2, max_forward=2, max_time=2, max_transfer=1)
    | random_placements(max_devices=2, max_forward=2, max_time=2, max_transfer=1, by_device=True),
    st.integers(0, 2),
)
def test_the_period_equals_brute_force(placement: Placement, spare: int) -> None:
    """With as many micro-batches in the repetend as any of these placements can use."""
    placement = tight(placement, spare)
    result = tessel(placement, 4, max_in_flight=4)
    expected = min_period(placement, longest=sum(block.time for block in placement.blocks) + 4)
    if expected is None:
        assert result.status is Status.INFEASIBLE
    else:
        assert result.repetend.period == expected
        check(result)


@settings(max_examples=10, deadline=None)
@given(random_placements(max_forward=3), st.integers(0, 2), st.integers(1, 3))
def test_every_answer_is_valid_and_no_better_than_proved(placement, spare, number) -> None:
    """Our search has the least period, and the time-optimal search the least makespan."""
    placement = tight(placement, spare)
    result = tessel(placement, number, time_limit_s=60)
    ours = search(placement, number, objectives=["period"])
    if ours.status is Status.INFEASIBLE:
        assert result.status in (Status.INFEASIBLE, Status.UNKNOWN)
        return
    check(result)
    assert result.repetend.period >= ours.period_bound
    optimal = time_optimal(placement, number, time_limit_s=1)
    assert optimal.makespan_bound <= result.schedule.makespan
    assert optimal.schedule is None or optimal.makespan_bound <= optimal.schedule.makespan
    if optimal.status is Status.OPTIMAL:
        assert optimal.schedule.makespan == optimal.makespan_bound


@pytest.mark.parametrize(
    ("placement", "number", "makespan"),
    [
        (v_shape(3, 1, 2).with_memory(3), 3, 15),
        (v_shape(2, 1, 2).with_memory(1), 2, 12),
        (x_shape(2, 1, 1), 1, 4),
    ],
)
def test_time_optimal(placement: Placement, number: int, makespan: int) -> None:
    """1F1B's makespan; one micro-batch after the other; both directions at once."""
    seen = []
    result = time_optimal(placement, number, on_progress=seen.append)
    assert result.status is Status.OPTIMAL
    assert validate(result.schedule).makespan == result.makespan_bound == makespan
    assert [progress.queries for progress in seen] == list(range(1, result.queries + 1))
    assert (seen[-1].best, seen[-1].bound) == (makespan, makespan)


def test_memory_that_no_order_respects_is_infeasible() -> None:
    for result in (tessel(crossed(), 2), time_optimal(crossed(), 2)):
        assert (result.status, result.schedule) == (Status.INFEASIBLE, None)
        assert "does not fit" in result.reason


def test_out_of_time_while_a_query_is_written_down() -> None:
    """The time line has ten million ticks, each a constraint on every device."""
    fine = m_shape(4, 500_000, 1_500_000).with_memory(4)
    for result in (tessel(fine, 4, time_limit_s=0.1), time_optimal(fine, 4, time_limit_s=0.1)):
        assert (result.status, result.schedule, result.queries) == (Status.UNKNOWN, None, 0)
        assert "raise search.time_limit_s" in result.reason


def test_ctrl_c_keeps_the_best_so_far() -> None:
    seen = []

    def interrupt(progress) -> None:
        seen.append(progress)
        if progress.phase == "repetend of 3 micro-batches:":
            signal.raise_signal(signal.SIGINT)

    result = tessel(v_shape().with_memory(4), 6, on_progress=interrupt)
    assert result.interrupted
    assert result.repetend.period == seen[-1].best == 8
    assert [is_decided(row) for row in result.by_in_flight] == [True, True, False]
    check(result)
    optimal = time_optimal(v_shape(), 2, on_progress=lambda _: signal.raise_signal(signal.SIGINT))
    assert (optimal.status, optimal.interrupted, optimal.queries) == (Status.FEASIBLE, True, 1)
    validate(optimal.schedule)


def test_ctrl_c_ends_a_question_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedsearch.tessel.queries.interruptible", interrupted)
    result = time_optimal(nn_shape().with_memory(6), 5, time_limit_s=60)
    assert result.interrupted
    assert result.status is not Status.OPTIMAL


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_micro_batches": 0}, "search.num_micro_batches: 0 is not at least 1"),
        ({"time_limit_s": 0}, "search.time_limit_s: 0 is not a positive number"),
        ({"max_in_flight": 0}, "tessel.max_in_flight: 0 is not at least 1 and at most .*=4; change one"),
    ],
)
def test_wrong_arguments(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        tessel(v_shape(), **{"num_micro_batches": 4, **arguments})
    if "max_in_flight" not in arguments:
        with pytest.raises(SearchError, match=message):
            time_optimal(v_shape(), **{"num_micro_batches": 4, **arguments})
