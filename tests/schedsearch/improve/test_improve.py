"""Improving whole schedules: never worse, exact on tiny cases, bounds that hold, ends when told to."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import min_makespan
from schedsearch.core.objective import MAKESPAN
from schedsearch.procedures.neighbourhoods import neighbourhood
from schedsearch.procedures.neighbourhoods.improvement import improve
from schedsearch.procedures.search import search
from schedsearch.proof.makespan import makespan_bound
from strategies import placements as random_placements
from strategies import tight

from placements import Block, Kind, Placement
from placements.shapes import SHAPES, m_shape, v_shape, x_shape
from schedsearch import state_space
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.improve import improve as improve_module
from schedsearch.improve import neighbourhood_model
from schedsearch.schedule import Schedule
from schedsearch.solver import effort as effort_module
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.effort import Effort
from schedsearch.validate import validate

ENOUGH = 120.0
"""Units of work within which all that is proved here is proved."""


def work(limit: float) -> Effort:
    """So many units of work, whatever else the machine does."""
    return Effort(limit=limit)


def one_by_one(placement: Placement, num_micro_batches: int) -> Schedule | None:
    """One micro-batch after the other, each as the search begins with it."""
    result = search(
        placement, num_micro_batches, work_limit=1, objectives=["period"], micro_batches_per_repetend=1
    )
    return result.schedule


@settings(max_examples=12, deadline=None)
@given(random_placements(), st.integers(1, 6), st.integers(0, 2), st.integers(0, 1))
def test_never_worse_and_valid(placement: Placement, n: int, spare: int, seed: int) -> None:
    placement = tight(placement, spare)
    schedule = one_by_one(placement, n)
    assume(schedule is not None)
    better = improve(schedule, work(0.3), seed=seed)
    assert validate(better.schedule).num_micro_batches == n
    assert better.bound <= better.schedule.makespan <= schedule.makespan
    assert not better.interrupted


def with_updates(placement: Placement, times: list[int]) -> Placement:
    """Each device's update waits for the blocks on it that nothing waits for, or for all such blocks."""
    ends = [block for block in placement.blocks if not placement.successors[block.name]]
    updates = (
        Block(f"O{d}", Kind.O, (d,), time, 0, tuple(b.name for b in ends if d in b.devices or time % 2))
        for d, time in enumerate(times[: placement.num_devices])
    )
    return replace(placement, blocks=(*placement.blocks, *updates))


@settings(max_examples=12, deadline=None)
@given(
    random_placements(max_devices=2, max_forward=2, max_time=3),
    st.integers(1, 3),
    st.lists(st.integers(1, 9), min_size=2, max_size=2),
)
def test_updates_count_in_value_and_bound(placement: Placement, n: int, times: list[int]) -> None:
    placement = with_updates(tight(placement, 1), times)
    schedule = one_by_one(placement, n)
    assume(schedule is not None and len(schedule.blocks) <= 10)
    seen: list[tuple[int, int]] = []
    better = improve(schedule, work(ENOUGH), on_progress=lambda *now: seen.append(now[:2]))
    assert validate(better.schedule).makespan == better.bound == seen[-1][0]
    assert all(bound <= value for value, bound in seen)
    assert better.bound == min_makespan(placement, n)


@settings(max_examples=12, deadline=None)
@given(
    random_placements(max_devices=2, max_forward=2, max_time=3)
    | random_placements(max_devices=2, max_forward=2, max_time=3, by_device=True),
    st.integers(1, 3),
    st.integers(0, 1),
)
def test_tiny_cases_are_exact(placement: Placement, n: int, spare: int) -> None:
    placement = tight(placement, spare)
    schedule = one_by_one(placement, n)
    assume(schedule is not None and len(schedule.blocks) <= 10)
    least = min_makespan(placement, n)
    assert makespan_bound(placement, n) <= least
    better = improve(schedule, work(ENOUGH))
    assert better.proved
    assert better.schedule.makespan == better.bound == least


@pytest.mark.parametrize(("capacity", "least"), [(2, 12), (3, 11), (4, 10)])
def test_a_shared_block_that_holds_memory_on_one_device_alone(capacity: int, least: int) -> None:
    """E's output is held on device 1: with 3 it may run ahead, with 4 F too."""
    blocks = (
        Block("E", Kind.F, (0, 1), 1, (0, 1)),
        Block("G", Kind.F, (0,), 3, 0, ("E",)),
        Block("F", Kind.F, (1,), 2, 1, ("E",)),
        Block("B", Kind.B, (1,), 2, -2, ("F", "G")),
    )
    placement = Placement("one", 2, blocks, memory=(0, capacity))
    better = improve(one_by_one(placement, 2), work(ENOUGH))
    assert validate(better.schedule).makespan == better.bound == min_makespan(placement, 2) == least


@pytest.mark.parametrize(
    ("placement", "n", "least"),
    [
        (x_shape(4, 1, 2).with_memory(4), 3, 22),
        (m_shape().with_memory(6), 6, 48),
        (SHAPES["k_shape"]().with_memory(2), 6, 50),
    ],
)
def test_optima_of_the_shapes(placement: Placement, n: int, least: int) -> None:
    """The proven optima of the reference notes."""
    schedule = search(placement, n, objectives=["period"], micro_batches_per_repetend=1).schedule
    better = improve(schedule, work(ENOUGH))
    assert better.proved
    assert better.schedule.makespan == least


@pytest.mark.parametrize(
    ("placement", "n", "least"),
    [
        (m_shape(), 6, 48),  # an embedding on all devices fills no bubble: head, work and tail alone gave 36
        (m_shape(), 16, 108),
        (v_shape(4, 1, 2).with_memory(3), 16, 67),  # 16 x 12 / 3, and 3 while memory fills and empties
        (v_shape(1, 1, 1).with_memory(4), 1, 2),  # which it cannot do in full
    ],
)
def test_what_the_bound_of_the_makespan_sees(placement: Placement, n: int, least: int) -> None:
    assert makespan_bound(placement, n) == least


def test_neighbourhoods_improve_what_is_too_large_to_solve_as_a_whole() -> None:
    placement = v_shape(4, 1, 2).with_memory(3)
    repetend = search(placement, 60, objectives=["period"], micro_batches_per_repetend=1).repetend
    schedule = repetend.unroll(60)
    assert schedule.makespan >= 360
    better = improve(schedule, work(ENOUGH), bound=260)  # more than is proved, so that it ends soon
    assert len(schedule.blocks) > 420
    assert better.schedule.makespan <= 300


def test_an_embedding_without_memory_goes_to_the_ends() -> None:
    """So the V-shape inside the M-shape runs alone, without the memory that overlapping them takes."""
    schedule = search(
        m_shape().with_memory(4), 128, objectives=["period"], micro_batches_per_repetend=1
    ).schedule
    better = improve(schedule, work(ENOUGH))
    assert better.proved
    assert better.schedule.makespan == 780


def test_hardly_any_time() -> None:
    schedule = search(
        x_shape().with_memory(3), 8, objectives=["period"], micro_batches_per_repetend=1
    ).schedule
    better = improve(schedule, Effort(time.monotonic()))
    assert better.schedule.makespan <= schedule.makespan
    assert better.bound == makespan_bound(schedule.placement, 8)
    assert not better.proved


def test_a_bound_that_is_known_ends_it_at_once() -> None:
    schedule = search(x_shape(4, 1, 2).with_memory(4), 3, micro_batches_per_repetend=1).schedule
    better = improve(schedule, work(ENOUGH), bound=schedule.makespan)
    assert better.proved
    assert better.bound == schedule.makespan


def test_progress_only_gets_better() -> None:
    seen: list[tuple[int, int, str]] = []
    schedule = search(
        x_shape(4, 1, 3).with_memory(3), 3, objectives=["period"], micro_batches_per_repetend=1
    ).schedule
    better = improve(schedule, work(ENOUGH), on_progress=lambda *now: seen.append(now))
    assert seen[-1][:2] == (better.schedule.makespan, better.bound)
    assert seen[0][2] == "start" and {move for _, _, move in seen} & {"states", "all blocks anew"}
    assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in pairwise(seen))


def test_interrupted_it_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = gpipe(x_shape(4), 4)

    def interrupted(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return state_space.min_makespan(*arguments, **options)

    monkeypatch.setattr("schedsearch.procedures.neighbourhoods.improvement.min_makespan", interrupted)
    better = improve(schedule, work(ENOUGH))
    assert better.interrupted
    assert validate(better.schedule).makespan <= schedule.makespan


def test_a_schedule_out_of_order_is_put_in_order() -> None:
    placement = Placement("two", 1, (Block("F", Kind.F, (0,), 2),))
    schedule = Schedule(placement, 3, ((0, 2, "F"), (5, 0, "F"), (9, 1, "F")))
    better = improve(schedule, work(ENOUGH))
    assert better.schedule.blocks == ((0, 0, "F"), (2, 1, "F"), (4, 2, "F"))
    assert better.proved


class SlowModel:
    """In place of a solver's model: takes a second to build and all the time that it is given."""

    seconds = 0.0
    deadline = 100.0
    solved = True

    def __init__(self, part: neighbourhood.Neighbourhood) -> None:
        self.start = part.start
        SlowModel.seconds += 1.0

    def shorten(self, budget: SolverBudget) -> None:
        assert budget.timeout_s <= self.deadline - SlowModel.seconds
        SlowModel.seconds += min(budget.work, budget.timeout_s)
        budget.spend(budget.work)

    shorten_quickly = shorten

    def prove(self, budget: SolverBudget) -> tuple[None, int]:
        return self.shorten(budget), 0


@pytest.mark.parametrize("number", [6, 60])
def test_no_step_gets_more_than_the_time_left(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only steps advance; building a model came on top of what its step was given."""

    def no_states(*_: object, time_limit_s: float, **__: object) -> None:
        assert time_limit_s <= SlowModel.deadline - SlowModel.seconds
        SlowModel.seconds += min(time_limit_s, 5.0)

    schedule = one_f_one_b(v_shape(4, 1, 2).with_memory(4), number)
    monkeypatch.setattr(SlowModel, "seconds", 0.0)
    for module in (improve_module, effort_module):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: SlowModel.seconds))
    monkeypatch.setattr(improve_module, "min_makespan", no_states)
    monkeypatch.setattr(neighbourhood_model, "NeighbourhoodModel", SlowModel)
    without_bound = replace(MAKESPAN, bound=lambda *_: 0)
    better = improve(schedule, Effort(SlowModel.deadline), objective=without_bound)
    assert better.schedule.makespan == schedule.makespan
    # Nothing is begun that may come late, once it is known how long a model takes.
    assert SlowModel.deadline - 2 <= SlowModel.seconds <= SlowModel.deadline
