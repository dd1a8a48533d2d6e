"""Objectives other than the period, and properties of real placements: each against brute force."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from modes_and_streams import at_random, offloading, recomputing
from oracles import min_latency, min_period
from strategies import placements as random_placements
from strategies import with_transient

from placements import Block, Kind, Placement
from placements.shapes import m_shape, v_shape, x_shape
from schedsearch.core.answer import Answer, EndedBy, SearchError, SearchProgress, Status
from schedsearch.core.objective import Objective
from schedsearch.device_span import device_spans
from schedsearch.metrics import latency, peak_memory
from schedsearch.proof.load_and_path import critical_path
from schedsearch.proof.makespan import makespan_bound
from schedsearch.searches.search import search
from schedsearch.tessel import time_optimal
from schedsearch.validate import InvalidScheduleError, validate

TINY = with_transient(max_devices=2, max_forward=2, max_time=2, max_transfer=1, training=True)


@settings(max_examples=10, deadline=None)
@given(TINY)
def test_static_and_transient_memory_equal_brute_force(placement: Placement) -> None:
    result = search(placement, 4, micro_batches_per_repetend=1, objectives=["period"])
    expected = min_period(placement, longest=sum(block.time for block in placement.blocks) + 4)
    assert (result.repetend.period if result.repetend else None) == expected
    if result.repetend is not None:
        assert result.status is Status.OPTIMAL
        assert all(held <= c for held, c in zip(peak_memory(result.schedule), placement.memory, strict=True))
        long = validate(result.repetend.at_initiation_interval(3 * result.repetend.in_flight))
        assert peak_memory(long).tolist() == list(result.repetend.peak_memory)


@settings(max_examples=10, deadline=None)
@given(random_placements(max_devices=2, max_forward=3, max_time=3, max_transfer=1, training=False))
def test_latency_first_equals_brute_force(placement: Placement) -> None:
    """The least latency is a single micro-batch's; then comes the least period that keeps it."""
    result = search(placement, 3, micro_batches_per_repetend=1, objectives=["latency", "period"])
    shortest = critical_path(placement) if _runs_alone(placement) else None
    period, expected = min_latency(placement, longest=sum(block.time for block in placement.blocks) + 4)
    assert result.repetend.latency == expected
    assert shortest is None or expected == shortest
    assert result.status is Status.OPTIMAL
    assert result.repetend.period == period == result.period_bound
    assert max(latency(result.repetend.at_initiation_interval(4))) == expected


def _runs_alone(placement: Placement) -> bool:
    """Whether no two blocks that could run at once share a device: a chain."""
    order = placement.topological_order
    return all(b.after == (a.name,) for a, b in itertools.pairwise(order)) and not order[0].after


def test_a_schedule_with_modes_keeps_the_memory_that_was_reached() -> None:
    """It held twice as much: a schedule made by hand was shorter."""
    answer = search(recomputing(), 6, objectives=["memory", "period", "makespan"], work_limit=0.3)
    assert answer.schedule is not None
    assert max(peak_memory(answer.schedule)) <= answer.limits[Objective.MEMORY] == 10


def test_memory_as_an_objective_stops_at_what_the_period_needs() -> None:
    """Zero bubble needs 5 of M; nobody told the search."""
    result = search(m_shape(), 6, objectives=["period", "memory"])
    assert (result.repetend.period, max(result.repetend.peak_memory)) == (6, 5)
    assert max(peak_memory(result.schedule)) <= 5
    assert result.schedule.placement == m_shape()
    first = search(m_shape(), 6, micro_batches_per_repetend=1, objectives=["memory", "period"])
    assert max(first.repetend.peak_memory) == 1
    assert first.status is Status.OPTIMAL
    assert first.repetend.period == 18


def test_the_whole_schedule_keeps_the_objectives_before_the_makespan() -> None:
    """A hand-made V would be shorter, but hold one more; a shorter schedule would have a longer latency."""
    placement = v_shape(4, 1, 2).with_memory(4)
    result = search(placement, 6, objectives=["memory", "period", "makespan"], work_limit=2)
    assert max(peak_memory(result.schedule)) == max(result.repetend.peak_memory) == 1
    assert result.schedule.placement == result.repetend.placement == placement
    assert result.makespan_bound <= 27 < result.schedule.makespan
    quick = search(x_shape(), 4, objectives=["latency", "period", "makespan"], work_limit=2)
    assert quick.schedule.makespan == quick.repetend.unroll(4).makespan


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        (["latncy", "period"], "search.objectives: 'latncy' is not an objective; use period, span"),
        (["latency"], "search.objectives: the period is missing; add period"),
        (["makespan", "period"], "search.objectives: the makespan is not the last"),
        (["period", "period"], "search.objectives: one is there twice"),
    ],
)
def test_wrong_objectives(objectives: list[str], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        search(v_shape(), 4, objectives=objectives)


def with_optimizer_blocks(placement: Placement) -> Placement:
    """Each device steps once everything is done, all together after an all-reduce on device 0."""
    last = tuple(block.name for block in placement.topological_order if not placement.successors[block.name])
    blocks = [Block("R", Kind.O, (0,), 2, 0, last)]
    blocks += [Block(f"O{d}", Kind.O, (d,), 3, 0, ("R",), transient=1) for d in range(placement.num_devices)]
    return replace(placement, blocks=placement.blocks + tuple(blocks), transfer=(("R", "O1", 5),))


@pytest.mark.parametrize("find", [search, time_optimal])
def test_progress_counts_updates_in_the_makespan_and_in_its_bound(find: Callable[..., Answer]) -> None:
    """The makespan was told without updates, below its bound with them."""
    plain = v_shape(2, 1, 2)
    updates = (Block(f"O{d}", Kind.O, (d,), 7, 0, (f"B{d}",)) for d in range(2))
    placement = replace(plain, blocks=(*plain.blocks, *updates))
    seen: list[SearchProgress] = []
    result = find(placement, 4, time_limit_s=60, on_progress=seen.append)
    pairs = [(step.best, step.bound) for step in seen if step.phase == "makespan" and step.best is not None]
    assert pairs and all(value >= bound for value, bound in pairs)
    assert pairs[-1] == (result.schedule.makespan, result.makespan_bound) == (22, 22)


SHOWN = [recomputing(3).with_memory(22), offloading(1.5), *map(at_random, range(3)), v_shape(3, 1, 3)]


@pytest.mark.parametrize("placement", SHOWN, ids=lambda placement: placement.name)
@pytest.mark.parametrize("wanted", [("period", "makespan"), ("period", "span", "device_span")])
def test_no_bound_that_is_shown_is_above_the_answer(placement: Placement, wanted: tuple[str, ...]) -> None:
    """One micro-batch per repetend was shown to need 8 ticks, and two need 7 each; likewise of some modes."""
    progress: list[SearchProgress] = []
    answer = search(placement, 4, objectives=wanted, work_limit=0.1, on_progress=progress.append)
    assert answer.schedule is not None and answer.repetend is not None
    least: dict[str, float] = {
        "period": float(answer.repetend.period_per_micro_batch),
        "span": answer.repetend.span,
        "makespan": answer.schedule.makespan,
        "device_span": int(device_spans(answer.schedule).max()),
    }
    assert progress and all(step.bound <= least[step.phase] for step in progress)


def test_optimizer_blocks_run_once_after_the_last_micro_batch() -> None:
    plain = v_shape().with_memory(4)
    placement = with_optimizer_blocks(plain)
    result = search(placement, 6)
    without = search(plain, 6)
    assert result.repetend == without.repetend
    assert result.schedule.makespan == without.schedule.makespan + 2 + 5 + 3 == result.makespan_bound
    assert [block for _, _, block in result.schedule.blocks].count("O1") == 1
    assert result.schedule.start_of["O1", 5] == without.schedule.makespan + 2 + 5
    assert makespan_bound(placement, 6) <= result.schedule.makespan
    moved = tuple(b._replace(start=b.start - 1) if b.block == "R" else b for b in result.schedule.blocks)
    with pytest.raises(InvalidScheduleError, match="R of micro-batch 5 starts at .*, before B0 ends"):
        validate(replace(result.schedule, blocks=moved))
    with pytest.raises(InvalidScheduleError, match="O1 of micro-batch 0 is not of this placement"):
        validate(replace(result.schedule, blocks=(*result.schedule.blocks, (0, 0, "O1"))))


@pytest.mark.parametrize("find", [search, time_optimal])
def test_a_result_says_what_ended_it(find: Callable[..., Answer]) -> None:
    """A busy machine changes answers where the clock ends a search, and nowhere else."""
    proved = find(v_shape(2), 3, time_limit_s=60)
    assert (proved.ended_by, proved.is_cut, proved.interrupted) == (EndedBy.PROOF, False, False)
    cut = find(m_shape().with_memory(4), 12, time_limit_s=1e-3)
    assert (cut.ended_by, cut.is_cut) == (EndedBy.TIME_LIMIT, True)
    if cut.schedule is not None:
        assert proved.to_frame()["ended_by"].tolist() + cut.to_frame()["ended_by"].tolist() == [
            "proof",
            "time limit",
        ]


def test_a_search_that_has_tried_all_it_can_says_so() -> None:
    """The latency is kept, so no other order is tried, and the makespan stays above its bound."""
    tight = v_shape(4, 1, 2).with_memory(2)
    result = search(tight, 4, objectives=["latency", "period", "makespan"], work_limit=40)
    assert result.schedule.makespan > result.makespan_bound
    assert result.ended_by is EndedBy.NOTHING_LEFT


def test_the_sweep_over_micro_batches_per_repetend() -> None:
    """V with memory 3: annealing finds two and then three, which meet the bound for any number."""
    result = search(v_shape().with_memory(3), 8, objectives=["period"])
    assert [(t.micro_batches, t.period, t.bound, t.refuted) for t in result.tried] == [
        (1, 8, 7, 6),
        (2, 12, 11, None),
        (3, 16, 16, None),
    ]
    assert result.status is Status.OPTIMAL
    assert Fraction(result.repetend.period, result.repetend.micro_batches) == Fraction(16, 3)
    two = search(v_shape().with_memory(3), 8, micro_batches_per_repetend=2, objectives=["period"])
    assert (two.repetend.period, two.period_bound, two.status) == (12, 6, Status.OPTIMAL)
    assert two.gap == 0
