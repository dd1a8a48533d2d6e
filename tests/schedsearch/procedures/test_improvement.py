"""Improving whole schedules: exact on tiny cases, bounds that hold, ends when told to."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import min_makespan
from searching import improve
from strategies import placements as random_placements
from strategies import tight

from placements import Block, Kind, Placement
from placements.shapes import SHAPES, m_shape, v_shape, x_shape
from schedsearch import state_space
from schedsearch.baselines import gpipe
from schedsearch.proof.makespan import makespan_bound
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search
from schedsearch.solver.effort import Effort
from schedsearch.validate import validate

ENOUGH = 120.0
"""Units of work within which all that is proved here is proved."""


def work(limit: float) -> Effort:
    """Return a limit in units of work, which does not depend on the machine's load."""
    return Effort(limit=limit)


def one_by_one(placement: Placement, num_micro_batches: int) -> Schedule | None:
    """One micro-batch after the other, each as the search begins with it."""
    result = search(
        placement, num_micro_batches, work_limit=1, objectives=["period"], micro_batches_per_repetend=1
    )
    return result.schedule


def with_updates(placement: Placement, times: list[int]) -> Placement:
    """Add updates: each waits for its device's blocks without successors, or for all blocks without."""
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
    assert validate(better.best).makespan == better.bound == seen[-1][0]
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
    assert better.best.makespan == better.bound == least


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
    assert better.best.makespan == least


def test_neighbourhoods_improve_what_is_too_large_to_solve_as_a_whole() -> None:
    placement = v_shape(4, 1, 2).with_memory(3)
    repetend = search(placement, 60, objectives=["period"], micro_batches_per_repetend=1).repetend
    schedule = repetend.unroll(60)
    assert schedule.makespan >= 360
    better = improve(schedule, work(ENOUGH), bound=260)  # more than is proved, so that it ends soon
    assert len(schedule.blocks) > 420
    assert better.best.makespan <= 300


def test_an_embedding_without_memory_goes_to_the_ends() -> None:
    """So the V-shape inside the M-shape runs alone, without the memory that overlapping them takes."""
    schedule = search(
        m_shape().with_memory(4), 128, objectives=["period"], micro_batches_per_repetend=1
    ).schedule
    better = improve(schedule, work(ENOUGH))
    assert better.proved
    assert better.best.makespan == 780


def test_interrupted_it_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = gpipe(x_shape(4), 4)

    def interrupted(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return state_space.min_makespan(*arguments, **options)

    monkeypatch.setattr("schedsearch.procedures.neighbourhoods.improvement.min_makespan", interrupted)
    better = improve(schedule, work(ENOUGH))
    assert validate(better.best).makespan <= schedule.makespan
