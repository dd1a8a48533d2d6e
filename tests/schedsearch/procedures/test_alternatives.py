"""Several schedules of one period: valid, different, and within the search's limits."""

from __future__ import annotations

from itertools import islice

from placements.shapes import m_shape, nn_shape, v_shape
from schedsearch.core.objective import Objective
from schedsearch.metrics import peak_memory
from schedsearch.procedures.alternatives import order_key, reached, schedules_of_equal_period
from schedsearch.searches.search import search
from schedsearch.validate import validate


def test_candidates_differ_and_have_the_period_of_the_search() -> None:
    placement = nn_shape(4).with_memory(6)
    result = search(placement, 6, work_limit=5)
    assert result.repetend is not None
    candidates = list(schedules_of_equal_period(placement, 6, result, count=6, work_limit=20))
    assert 1 < len(candidates) <= 6
    assert candidates[0].schedule == result.schedule
    assert candidates[0].origin == "search"
    assert len({order_key(candidate.schedule) for candidate in candidates}) == len(candidates)
    for candidate in candidates:
        assert validate(candidate.schedule).placement == placement
        assert candidate.schedule.num_micro_batches == 6
        assert candidate.repetend is not None
        assert candidate.repetend.period == result.repetend.period
    assert "sample" in {candidate.origin for candidate in candidates}


def test_hand_made_schedules_are_candidates() -> None:
    placement = v_shape(3)
    result = search(placement, 4, objectives=["period"])
    origins = [candidate.origin for candidate in islice(schedules_of_equal_period(placement, 4, result), 4)]
    assert {"gpipe", "one_f_one_b"} & set(origins)


def test_shared_blocks_are_also_gathered_at_the_ends() -> None:
    placement = m_shape(4)
    result = search(placement, 4, work_limit=5)
    for candidate in schedules_of_equal_period(placement, 4, result, count=6):
        if candidate.origin == "gathered":
            orders = [candidate.schedule.order(device) for device in range(4)]
            assert {tuple(name for name, _ in order[:4]) for order in orders} == {("E",) * 4}
            assert {tuple(name for name, _ in order[-4:]) for order in orders} == {("EB",) * 4}


def test_an_objective_that_was_reached_is_kept() -> None:
    placement = v_shape(3)
    result = search(placement, 6, objectives=["period", "memory", "makespan"], work_limit=5)
    assert result.repetend is not None
    limit = reached(result, ["period", "memory", "makespan"])
    assert limit == {
        Objective.PERIOD: result.repetend.period,
        Objective.MEMORY: max(result.repetend.peak_memory),
    }
    for candidate in schedules_of_equal_period(placement, 6, result, limit=limit, count=6, work_limit=5):
        assert peak_memory(candidate.schedule).max() <= limit[Objective.MEMORY]


def test_a_latency_leaves_only_repetends() -> None:
    placement = v_shape(3, inference=True)
    objectives = ["latency", "period"]
    result = search(placement, 6, objectives=objectives)
    limit = reached(result, objectives)
    for candidate in schedules_of_equal_period(placement, 6, result, limit=limit, count=4, work_limit=5):
        assert candidate.origin in ("search", "repetend", "sample")
        assert candidate.repetend is not None
        assert candidate.repetend.latency <= limit[Objective.LATENCY]


def test_no_time_leaves_the_search_s_own() -> None:
    placement = v_shape(3)
    result = search(placement, 4, objectives=["period"])
    for most in ({"work_limit": 0}, {"count": 1}):
        (only,) = schedules_of_equal_period(placement, 4, result, **most)
        assert only.schedule == result.schedule
