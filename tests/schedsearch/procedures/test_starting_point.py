"""Searches that begin with a schedule, or with another search's answer."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from one_line_errors import raises_line

from experiments.benchmarks.inputs.random_placements import random_placement
from placements import Block, Kind, Placement
from placements.shapes import v_shape
from schedsearch.baselines import HAND_MADE
from schedsearch.core.answer import Answer, SearchError, SearchProgress
from schedsearch.device_span import device_spans
from schedsearch.schedule import Schedule, as_soon_as_possible
from schedsearch.searches.search import search
from schedsearch.validate import validate

TIGHT = v_shape(num_devices=4).with_memory(3)
"""Takes 8 ticks per micro-batch with one per repetend, 6 with two and 16/3 with three."""


def _rate(result: Answer) -> Fraction:
    return Fraction(result.repetend.period, result.repetend.micro_batches)


def _no_time(placement: Placement, number: int, begin_with: object, **options: object) -> Answer:
    """Search as long as it takes to see that there is no time."""
    return search(placement, number, time_limit_s=1e-6, begin_with=begin_with, **options)


@pytest.fixture(scope="module")
def tight() -> Answer:
    return search(TIGHT, 8, work_limit=5)


def test_nothing_is_lost_without_time(tight: Answer) -> None:
    assert _rate(search(TIGHT, 8, time_limit_s=1e-6)) > _rate(tight) == Fraction(16, 3)
    again = _no_time(TIGHT, 8, tight)
    assert _rate(again) == Fraction(16, 3)
    assert again.schedule.makespan == tight.schedule.makespan
    assert again.schedule == validate(again.schedule)


@pytest.mark.parametrize(
    ("family", "objectives"),
    [
        *((family, ("period", "makespan")) for family in ("chains", "K")),
        ("waves", ("period", "device_span")),
        ("graphs", ("device_span",)),
    ],
)
def test_what_follows_is_never_worse(family: str, objectives: tuple[str, ...]) -> None:
    placement, number = random_placement(family, 5003), 6
    before = search(placement, number, objectives=objectives, work_limit=0.25)
    after = _no_time(placement, number, before, objectives=objectives)
    assert before.schedule is not None
    if "period" in objectives:
        assert _rate(after) <= _rate(before)
    if "makespan" in objectives:
        assert after.schedule.makespan <= before.schedule.makespan
    else:
        assert device_spans(after.schedule).max() <= device_spans(before.schedule).max()


def test_of_a_schedule_the_steady_state_is_taken(tight: Answer) -> None:
    schedule = tight.repetend.unroll(24)
    assert _rate(_no_time(TIGHT, 24, schedule, objectives=["period"])) == Fraction(16, 3)
    assert _rate(search(TIGHT, 24, objectives=["period"], time_limit_s=1e-6)) > Fraction(16, 3)


def test_another_number_of_micro_batches_keeps_the_repetend(tight: Answer) -> None:
    begun = _no_time(TIGHT, 50, tight)
    assert _rate(begun) == Fraction(16, 3)
    assert begun.schedule.num_micro_batches == 50


def test_other_times_keep_the_orders() -> None:
    placement = v_shape(num_devices=4).with_memory(4)
    answer = search(placement, 8, work_limit=20)
    slow = replace(
        placement, blocks=tuple(replace(block, time=10 * block.time + 1) for block in placement.blocks)
    )
    begun = _no_time(slow, 8, answer)
    assert begun.repetend.period == 10 * 4 + 2 == begun.period_bound
    orders = [answer.schedule.order(device) for device in range(4)]
    assert begun.schedule.makespan <= as_soon_as_possible(slow, 8, orders).makespan


@pytest.mark.parametrize(("size", "rate"), [(2, 6), (6, Fraction(16, 3))])
def test_the_repetend_counts_where_its_size_is_asked_for(size: int, rate: Fraction, tight: Answer) -> None:
    begun = search(TIGHT, 8, micro_batches_per_repetend=size, work_limit=5, begin_with=tight)
    assert begun.repetend.micro_batches == size
    assert _rate(begun) == rate


def test_an_interruption_keeps_it(tight: Answer) -> None:
    def interrupt(progress: SearchProgress) -> None:
        raise KeyboardInterrupt

    begun = search(TIGHT, 8, micro_batches_per_repetend=3, begin_with=tight, on_progress=interrupt)
    assert begun.interrupted
    assert _rate(begun) == Fraction(16, 3)
    assert begun.schedule.makespan == tight.schedule.makespan


def test_what_does_not_fit_the_memory_is_refused() -> None:
    """Its first device runs four forwards early: with less memory nothing of it can be run."""
    placement = v_shape(num_devices=2)
    orders = [list(HAND_MADE["one_f_one_b"](placement, 12).order(device)) for device in range(2)]
    early = [instance for instance in orders[0] if instance[0] == "F0"][:4]
    orders[0] = early + [instance for instance in orders[0] if instance not in early]
    much = as_soon_as_possible(placement, 12, orders)
    small = placement.with_memory(2)
    with pytest.raises(SearchError, match=r"does not run on v_shape: .*memory"):
        search(small, 12, begin_with=much)
    answer = search(placement, 12, work_limit=10, begin_with=much)
    assert answer.schedule.makespan <= much.makespan


def _deadlocked() -> tuple[Placement, Schedule]:
    """Return a placement, and a schedule of the same blocks whose inputs are the other way round."""
    here = Placement("chain", 1, (Block("A", Kind.F, (0,), 1), Block("B", Kind.F, (0,), 1, 0, ("A",))))
    there = Placement("chain", 1, (Block("A", Kind.F, (0,), 1, 0, ("B",)), Block("B", Kind.F, (0,), 1)))
    return here, HAND_MADE["gpipe"](there, 2)


@pytest.mark.parametrize(
    ("placement", "begin_with", "message"),
    [
        (TIGHT, "1f1b", "there is no schedule in it; give a schedule of this placement, or leave it out"),
        (
            v_shape(num_devices=4),
            HAND_MADE["one_f_one_b"](v_shape(num_devices=3), 4),
            "F3 is on no device there, and on device 3 in v_shape",
        ),
        (
            v_shape(num_devices=4).with_memory(1),
            HAND_MADE["one_f_one_b"](v_shape(num_devices=4), 4),
            "does not run on v_shape",
        ),
        (*_deadlocked(), "does not run on chain"),
    ],
)
def test_what_is_not_for_the_placement_is_one_line(
    placement: Placement, begin_with: object, message: str
) -> None:
    with raises_line(SearchError, "search.begin_with: ", has=message):
        search(placement, 4, begin_with=begin_with)


def test_no_steady_state_of_another_number_of_micro_batches() -> None:
    placement = v_shape(num_devices=4).with_memory(4)
    few = HAND_MADE["one_f_one_b"](placement, 2)
    assert search(placement, 2, work_limit=2.5, begin_with=few).schedule.num_micro_batches == 2
    with pytest.raises(SearchError, match="it has 2 micro-batches, and no steady state"):
        search(placement, 3, begin_with=few)


def test_a_repetend_of_other_blocks_is_refused(tight: Answer) -> None:
    start = dict(tight.repetend.start)
    del start["F0"]
    wrong = replace(tight, repetend=replace(tight.repetend, start=start))
    with pytest.raises(SearchError, match="its repetend is not of its own blocks"):
        search(TIGHT, 8, begin_with=wrong)
