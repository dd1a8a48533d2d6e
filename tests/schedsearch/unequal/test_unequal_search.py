"""The search for one batch: optima by brute force and by Johnson's rule, given orders, more work."""

from __future__ import annotations

import random

import pytest
from oracles import min_makespan_of_modes

from experiments.benchmarks.inputs.shops import published_shop
from placements import Block, Kind, Placement
from placements.shapes import v_shape
from schedsearch.core.answer import SearchError, Status
from schedsearch.core.problem import Problem
from schedsearch.device_span import device_spans
from schedsearch.searches.search import search
from schedsearch.unequal.micro_batches import MicroBatchRow, unequal_batch
from schedsearch.validate import validate

FLOW = Placement("flow", 2, (Block("F0", Kind.F, (0,), 1), Block("F1", Kind.F, (1,), 1, after=("F0",))))


def small_batch(number: int, devices: int, seed: int, memory: int | None = None) -> Problem:
    rng = random.Random(seed)
    placement = v_shape(devices, 1, 2).with_memory(memory)
    table = []
    for n in range(number):
        length = rng.randint(1, 9)
        for block in placement.blocks:
            time = length * (1 if block.kind is Kind.F else 2) + rng.randint(0, 2)
            table.append(MicroBatchRow(n, block.name, float(time)))
    return unequal_batch(placement, table)


@pytest.mark.parametrize("seed", range(2))
def test_tiny_batches_are_as_brute_force_says(seed: int) -> None:
    batch = small_batch(2, 2, seed)
    answer = search(batch, work_limit=4)
    assert answer.schedule is not None and answer.status is Status.OPTIMAL
    assert answer.schedule.makespan == min_makespan_of_modes(batch.placement, batch.chosen)


def test_memory_is_not_full_while_it_fills_and_empties() -> None:
    """Memory times the time for which it is held is 590 ticks."""
    stages = v_shape(8, 1, 2).with_memory(20)
    rows = [
        MicroBatchRow(n, b.name, float(b.time * length), float(b.memory_on(b.devices[0]) * length))
        for n, length in enumerate([1, 4, 9] * 5)
        for b in stages.blocks
    ]
    assert search(unequal_batch(stages, rows), work_limit=0.01).makespan_bound == 598


def test_a_flow_shop_whose_machines_both_wait_is_proved_by_johnsons_rule() -> None:
    """For each device alone the bound is 25."""
    pairs = [(2, 3), (6, 6), (4, 4), (8, 7), (2, 3)]
    batch = unequal_batch(
        FLOW, [MicroBatchRow(n, f"F{i}", float(pair[i])) for n, pair in enumerate(pairs) for i in (0, 1)]
    )
    answer = search(batch, work_limit=0.1)
    assert answer.status is Status.OPTIMAL and answer.makespan_bound == 29


@pytest.mark.parametrize(("name", "optimum"), [("car1", 7038), ("la05", 593)])
def test_published_shops_are_proved(name: str, optimum: int) -> None:
    answer = search(published_shop(name), work_limit=4)
    assert answer.schedule is not None and answer.status is Status.OPTIMAL
    assert answer.schedule.makespan == optimum


def test_taillards_times_are_those_of_his_seed() -> None:
    batch = published_shop("ta001")
    first = batch.placement.as_run(batch.chosen[0])
    assert [block.time for block in first.blocks] == [54, 79, 16, 66, 58]


def test_memory_is_kept_and_more_work_is_never_worse() -> None:
    batch = small_batch(8, 3, 7, memory=2)
    ends = []
    for work in (0.2, 1):
        answer = search(batch, work_limit=work)
        validate(answer.schedule)
        assert answer.schedule.makespan >= answer.makespan_bound
        ends.append(answer.schedule.makespan)
    assert ends == sorted(ends, reverse=True)


def test_blocks_may_be_absent_on_a_whole_device() -> None:
    table = [MicroBatchRow(1, "F0", 0.0), MicroBatchRow(1, "B0", 0.0), MicroBatchRow(3, "F1", 4.0)]
    batch = unequal_batch(v_shape(3, 1, 2).with_memory(3), table)
    answer = search(batch, work_limit=3)
    assert answer.schedule is not None and answer.status is Status.OPTIMAL
    assert "F0" not in {name for _, n, name in answer.schedule.blocks if n == 1}


def test_the_device_span_may_be_the_objective() -> None:
    batch = unequal_batch(v_shape(3, 1, 2).with_memory(3), [MicroBatchRow(3, "F1", 4.0)])
    answer = search(batch, objectives=["device_span"], work_limit=3)
    assert answer.schedule is not None and answer.status is Status.OPTIMAL
    assert max(device_spans(answer.schedule)) == answer.device_span_bound
    with pytest.raises(SearchError, match=r"search\.objectives: 'period' is not for micro-batches"):
        search(batch, objectives=["period"])


def test_equal_micro_batches_have_the_answer_of_any_search() -> None:
    placement = v_shape(3, 1, 2).with_memory(3)
    alike = unequal_batch(placement, [MicroBatchRow(n, "F1", 2.0) for n in range(5)])
    ours = search(alike, work_limit=3)
    other = search(alike.placement, 5, objectives=["makespan"], work_limit=3)
    assert ours.schedule.blocks == other.schedule.blocks


def test_it_is_no_worse_than_what_it_begins_with() -> None:
    batch = small_batch(5, 3, 2)
    good = search(batch, work_limit=4).schedule
    again = search(batch, work_limit=0.1, begin_with=good).schedule
    assert again is not None and again.makespan <= good.makespan
    with pytest.raises(SearchError, match="is a schedule of other micro-batches"):
        search(small_batch(5, 3, 3), begin_with=good)
