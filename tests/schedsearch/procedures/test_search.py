from collections.abc import Iterator
from itertools import pairwise
from signal import SIGINT, raise_signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import min_period, min_span
from strategies import crossed, tight
from strategies import placements as random_placements

from experiments.benchmarks.inputs.random_placements import random_placement
from placements import Block, Kind, Placement
from placements.shapes import SHAPES, m_shape, v_shape, wave_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.core.answer import SearchError, SearchProgress, Status
from schedsearch.proof.load_and_path import critical_path, period_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.memory_need import CapacityError
from schedsearch.searches.search import search
from schedsearch.solver.portfolio import SOLVERS
from schedsearch.solver.query import Query, Verdict
from schedsearch.solver.smt import decide
from schedsearch.validate import validate

TESSEL_MEMORY = {"v_shape": 4, "x_shape": 4, "m_shape": 6, "nn_shape": 6, "k_shape": 6}


@pytest.mark.parametrize(
    ("shape", "period", "makespan"),
    [("v_shape", 4, 36), ("x_shape", 8, 57), ("m_shape", 6, 48), ("nn_shape", 8, 60), ("k_shape", 6, 40)],
)
def test_the_papers_shapes_have_no_steady_bubble(shape: str, period: int, makespan: int) -> None:
    """Tessel, Table II, and the makespans of the proven optimum or the best known for six micro-batches."""
    result = search(SHAPES[shape]().with_memory(TESSEL_MEMORY[shape]), 6)
    assert result.status is Status.OPTIMAL
    assert result.repetend.period == period == result.period_bound
    assert result.repetend.bubble_rate == 0
    assert result.schedule.makespan <= makespan


@pytest.mark.parametrize(
    ("shape", "memory", "period"),
    [("v_shape", 3, 8), ("x_shape", 3, 9), ("m_shape", 4, 7), ("nn_shape", 5, 9)],
)
def test_tight_memory_has_the_proven_period(shape: str, memory: int, period: int) -> None:
    """Values proved by another solver; Tessel's search, N_R from memory, stops at 7 for M with memory 5."""
    placement = SHAPES[shape]().with_memory(memory)
    result = search(placement, 4, micro_batches_per_repetend=1, objectives=["period"])
    assert (result.status, result.repetend.period) == (Status.OPTIMAL, period)


@pytest.mark.parametrize("shape", SHAPES)
def test_inference_shapes_have_no_steady_bubble(shape: str) -> None:
    result = search(SHAPES[shape](inference=True), 6, objectives=["period"])
    assert result.status is Status.OPTIMAL
    assert result.repetend.bubble_rate == 0


@settings(max_examples=15, deadline=None)
@given(random_placements(max_devices=2, max_forward=2, max_time=2, max_transfer=1), st.integers(0, 2))
def test_period_equals_brute_force(placement: Placement, spare: int) -> None:
    placement = tight(placement, spare)
    result = search(placement, 3, micro_batches_per_repetend=1, objectives=["period"])
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    expected = min_period(placement, longest=sum(block.time for block in placement.blocks) + 4)
    assert (result.repetend.period if result.repetend else None) == expected


@settings(max_examples=15, deadline=None)
@given(
    random_placements() | random_placements(by_device=True),
    st.integers(1, 3),
    st.integers(1, 7),
    st.integers(0, 3),
)
def test_every_answer_is_valid_and_above_the_bounds(
    placement: Placement, micro_batches: int, number: int, spare: int
) -> None:
    placement = tight(placement, spare)
    result = search(
        placement, number, micro_batches_per_repetend=micro_batches, work_limit=2, objectives=["period"]
    )
    if result.status is Status.INFEASIBLE:
        return
    repetend = result.repetend
    assert repetend.period_per_micro_batch >= period_bound(placement) * (1 - 1e-9)
    for n in (1, number, 2 * micro_batches + 3):
        unrolled = validate(repetend.unroll(n))
        assert (
            makespan_bound(placement, n)
            <= unrolled.makespan
            <= validate(repetend.at_initiation_interval(n)).makespan
        )


@settings(max_examples=15, deadline=None)
@given(random_placements(max_devices=2, max_forward=3, max_time=3, max_transfer=1, training=False))
def test_span_equals_brute_force(placement: Placement) -> None:
    result = search(placement, 2, micro_batches_per_repetend=1)
    assert result.status is Status.OPTIMAL
    assert result.span_bound == min_span(placement, result.repetend.period, longest=40)


def test_the_span_counts_from_whichever_source_comes_first() -> None:
    """The block that comes first in the list is not the one that starts first; once 10 was 'proved' here."""
    blocks = (
        Block("A", Kind.F, (0,), 1),
        Block("P", Kind.F, (1,), 2),
        Block("Q", Kind.F, (0,), 3, 0, ("P",)),
        Block("R", Kind.F, (1,), 2, 0, ("Q", "A")),
    )
    placement = Placement("two sources", 2, blocks)
    assert min_span(placement, 4, 12) == 8
    result = search(placement, 1)
    assert (result.repetend.period, result.span_bound) == (4, 8)
    assert decide(Query(placement, 1, 4, span=8))[0] is Verdict.YES
    assert decide(Query(placement, 1, 4, span=7))[0] is Verdict.NO


def test_a_block_that_gives_back_before_another_takes_is_refused() -> None:
    blocks = (
        Block("A", Kind.F, (0,), 1, -1),
        Block("P", Kind.F, (1,), 1, 2, ("A",)),
        Block("Q", Kind.B, (1,), 1, -2, ("P",)),
        Block("R", Kind.B, (0,), 1, 1, ("P",)),
    )
    with pytest.raises(CapacityError, match="blocks: one micro-batch may release 1 of memory on device 0"):
        search(Placement("negative", 2, blocks, memory=(1, 2)), 4)


def test_capacity_too_small_for_one_micro_batch_names_device_and_need() -> None:
    with pytest.raises(CapacityError, match=r"memory\[0\]: 0 is too small .* needs 1 on device 0; give each"):
        search(v_shape().with_memory(0), 4)


@pytest.fixture
def gives_up() -> Iterator[str]:
    """A solver that never knows."""

    SOLVERS["gives_up"] = lambda: lambda query, budget: (Verdict.UNKNOWN, None)
    yield "gives_up"
    del SOLVERS["gives_up"]


def test_a_solver_that_gives_up_is_unknown_not_infeasible(gives_up: str) -> None:
    result = search(crossed(), 2, solver=gives_up)
    assert result.status is Status.UNKNOWN
    assert "search.time_limit_s" in result.reason


def test_out_of_work_returns_the_best_so_far_with_its_bound(gives_up: str) -> None:
    """Of a wave with uneven times, whose bound no annealing meets, and with too many states."""
    placement = random_placement("waves", 3)
    result = search(placement, 4, solver=gives_up, work_limit=1)
    assert result.status is Status.FEASIBLE
    assert period_bound(placement) <= result.period_bound < result.repetend.period_per_micro_batch
    assert result.span_bound == critical_path(result.schedule.placement)
    validate(result.schedule)


@pytest.mark.parametrize("phase", ["period", "span", "makespan"])
def test_ctrl_c_keeps_the_best_so_far(phase: str) -> None:
    """In every phase; the label is FEASIBLE even when the period is proved already."""
    seen: list[SearchProgress] = []

    def interrupt(progress: SearchProgress) -> None:
        seen.append(progress)
        if progress.phase == phase and [p.phase for p in seen].count(phase) == 2:
            raise_signal(SIGINT)

    placement = m_shape(4, 40, 97, 13, 11).with_memory(4)
    result = search(placement, 6, micro_batches_per_repetend=1, on_progress=interrupt)
    assert result.interrupted
    assert result.status is Status.FEASIBLE
    best = {p.phase: p.best for p in seen}
    assert result.repetend.period == best["period"]
    assert phase != "span" or result.repetend.span == best["span"]
    assert phase != "makespan" or result.schedule.makespan <= best["makespan"]
    validate(result.schedule)


def test_a_search_without_time_is_no_longer_than_by_hand() -> None:
    placement = v_shape(8, 7, 13).with_memory(8)
    answer = search(placement, 200, time_limit_s=1e-3)
    assert answer.is_cut and answer.schedule.makespan <= one_f_one_b(placement, 200).makespan


def test_progress_says_what_found_the_best() -> None:
    """The steady state of ZB-V cannot be beaten, so its finder stays the same; its makespan can be.

    The search ends when the makespan is proved, long before its limit.
    """
    seen: list[SearchProgress] = []
    placement = wave_shape(8, 2, split_backward=True).with_memory(16)
    search(placement, 16, work_limit=160, on_progress=seen.append)
    found_by = {phase: [step for step in seen if step.phase == phase] for phase in ("period", "makespan")}
    assert {step.found_by for step in found_by["period"]} == {"zb_v"}
    names = [step.found_by for step in found_by["makespan"]]
    assert names[0] in ("sample of the repetend", "the repetend unrolled") and len(set(names)) > 1
    for before, after in pairwise(found_by["makespan"]):
        assert (before.found_by == after.found_by) or after.best < before.best


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"solver": "cplex"}, "search.solver: 'cplex' is not a solver; use portfolio or z3 or cpsat"),
        ({"time_limit_s": 0}, "search.time_limit_s: 0 is not"),
        ({"micro_batches_per_repetend": 0}, "search.micro_batches_per_repetend: 0 is not"),
    ],
)
def test_wrong_arguments(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        search(v_shape(), 4, **wrong)
