"""Ways to go on when a device is lost or slow."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from strategies import with_transfer

from placements.modes import Chosen
from placements.shapes import loop_shape, v_shape
from schedsearch.baselines import zb_h1
from schedsearch.core.answer import Answer
from schedsearch.core.objective import Objective
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.replanning import replan as module
from schedsearch.replanning.division import redivided
from schedsearch.replanning.replan import Replan, ReplanRow, replan
from schedsearch.replanning.replicated_job import ReplanError, ReplicatedJob, copies_of
from schedsearch.schedule import as_soon_as_possible
from schedsearch.searches.search import search
from schedsearch.validate import validate

SPLIT = v_shape(4, 20, split_backward=True, input_time=20, weight_time=20).with_memory(6)


def by_way(replanned: Replan) -> dict[str, ReplanRow]:
    """Return the rows by the names of the ways."""
    return {row.way: row for row in replanned.rows}


def test_micro_batches_of_a_lost_copy_go_to_the_others_in_turn() -> None:
    job = ReplicatedJob(v_shape(4), 4, 6, copies_of(["1@3", "2@0"]))
    chosen = job.rerouted()
    for n, copies in enumerate(chosen):
        home = n % 4
        elsewhere = [copy for copy in copies if copy != home]
        assert elsewhere == [copies[1]] * (home == 3) + [copies[2]] * (home == 0)
    assert Counter(copies[1] for copies in chosen) == {0: 8, 1: 8, 2: 8}
    assert [copies[1] for copies in chosen[3::4]] == [0, 1, 2, 0, 1, 2]


def test_a_slow_copy_gives_micro_batches_away_evenly_until_all_end_together() -> None:
    job = ReplicatedJob(v_shape(2, 2, 4), 2, 8, slowdown={(1, 0): 3.0})
    chosen = job.rerouted()
    assert Counter(copies[1] for copies in chosen) == {0: 4, 1: 12}
    assert [copies[1] for copies in chosen[::2]] == [1, 0, 1, 0, 1, 0, 1, 0]
    assert all(copies == (1, 1) for copies in chosen[1::2])


def test_no_choice_of_copies_is_under_the_bound_and_the_answer_is_the_least_of_all() -> None:
    job = ReplicatedJob(v_shape(2, 2, 3), 2, 2, copies_of(["1@1"]))
    makespans: list[int] = []
    every: list[Chosen] = [(0, 0), (1, 0)]
    for chosen in itertools.product(every, repeat=4):
        result = search(job.batch(chosen), work_limit=2)
        assert result.schedule is not None and result.makespan_bound == result.schedule.makespan
        makespans.append(result.makespan_bound)
    assert job.bound(Objective.MAKESPAN) <= min(makespans)
    answer = by_way(replan(job, "makespan", work_limit=1))["rerouted"]
    assert answer.iteration_ms == min(makespans)


def test_a_lost_device_is_best_met_by_rerouting_in_the_time_of_the_bound() -> None:
    replanned = replan(ReplicatedJob(SPLIT, 4, 6, copies_of(["2@1"])), work_limit=0.5)
    rows = by_way(replanned)
    assert rows["unchanged"].iteration_ms is rows["reordered"].iteration_ms is None
    assert 6 * 60 + 1 <= (rows["before"].iteration_ms or 0) <= 6 * 60 + 21
    assert rows["rerouted"].iteration_ms == replanned.bound_ms == 8 * 60 + 1
    assert rows["rule"].iteration_ms is not None and rows["rule"].iteration_ms >= replanned.bound_ms
    assert rows["dropped"].status == "micro-batches 8, 8, 8"
    schedule = validate(replanned.schedules["rerouted"])
    assert not any(name.endswith("2@1") for name, _ in schedule.start_of)
    assert not schedule.placement.optimizer_blocks


def test_a_slow_device_gives_work_away_or_keeps_it() -> None:
    job = ReplicatedJob(SPLIT, 2, 6, slowdown={(1, 0): 2.0})
    replanned = replan(job, work_limit=0.5, schedule="zb_h1")
    rows = by_way(replanned)
    times = {way: row.iteration_ms for way, row in rows.items()}
    assert all(time is not None for time in times.values())
    assert times["before"] < times["rerouted"] < times["reordered"] <= times["unchanged"]  # type: ignore[operator]
    assert times["rebalanced"] < times["unchanged"]  # type: ignore[operator]
    assert times["reordered"] >= 6 * 120  # type: ignore[operator]
    for schedule in replanned.schedules.values():
        validate(schedule)


def test_the_order_of_a_single_pipeline_is_one_of_the_pipeline_as_it_is_written() -> None:
    pipeline = v_shape(3, 2, 4)
    replanned = replan(ReplicatedJob(pipeline, 1, 5, slowdown={(1, 0): 2.0}), work_limit=0.3)
    for way in ("unchanged", "reordered"):
        schedule = validate(replanned.schedules[way])
        assert schedule.placement == pipeline and schedule.num_micro_batches == 5
    row = next(row for row in replanned.rows if row.way == "reordered")
    slowed = replace(
        pipeline,
        blocks=tuple(replace(b, time=2 * b.time) if b.devices == (1,) else b for b in pipeline.blocks),
    )
    again = as_soon_as_possible(slowed, 5, [replanned.schedules["reordered"].order(d) for d in range(3)])
    # and a tick for the optimizer block that each device has besides
    assert row.iteration_ms == max(device_spans(with_least_device_span(again))) + 1


def test_a_slow_link_slows_its_transfers_and_no_others() -> None:
    job = ReplicatedJob(with_transfer(SPLIT, 3), 2, 4, slow_links={((0, 1), (1, 1)): 5.0})
    placement = job.placement
    assert placement.transfer_time("F0@1", "F1@1") == placement.transfer_time("I1@1", "I0@1") == 15
    assert placement.transfer_time("F0@1", "F1@0") == placement.transfer_time("F1@1", "F2@1") == 3
    assert job.alone(1).transfer_time("F0", "F1") == 15 and job.alone(0).transfer_time("F0", "F1") == 3


def test_the_order_before_may_be_given() -> None:
    job = ReplicatedJob(SPLIT, 2, 3, copies_of(["0@0"]))
    replanned = replan(job, before=zb_h1(SPLIT, 3), work_limit=0.1)
    assert (
        by_way(replanned)["before"].iteration_ms
        == by_way(replan(job, schedule="zb_h1", work_limit=0.1))["before"].iteration_ms
    )
    with pytest.raises(ReplanError, match="of 3 micro-batches of this pipeline"):
        replan(job, before=zb_h1(SPLIT, 4), work_limit=1)


@pytest.mark.parametrize("slowdown", [[1, 1, 1], [1, 2, 1, 1], [1, 1.5]])
def test_stages_are_divided_by_the_speed_of_devices(slowdown: list[float]) -> None:
    plain = replace(SPLIT, memory_unit_mib=8.0)
    placement = redivided(plain, slowdown, 6)
    assert placement is not None and placement.memory_unit_mib == 8 / 6
    works = [sum(block.time for block in placement.on(d)) for d in range(placement.num_devices)]
    layers = [work / 60 / factor for work, factor in zip(works, slowdown, strict=True)]
    assert sum(layers) == 24 and placement.ms(60) == 10
    best = min(
        max(number * factor for number, factor in zip(numbers, slowdown, strict=True))
        for numbers in itertools.product(range(25), repeat=len(slowdown))
        if sum(numbers) == 24
    )
    assert max(works) == 60 * best
    assert placement.memory == (36,) * len(slowdown)


def test_stages_that_do_not_fit_fewer_devices_or_are_no_chain_are_not_divided() -> None:
    assert redivided(loop_shape(2, 2), [1], 4) is None
    held = replace(SPLIT, static_memory=(4,) * 4)
    assert redivided(held, [1, 1, 1], 4) is None
    assert redivided(held, [1] * 4, 4) is not None


def test_a_device_without_a_copy_is_refused() -> None:
    with pytest.raises(ReplanError, match="lost: no copy of device 1 is left"):
        ReplicatedJob(SPLIT, 2, 4, copies_of(["1@0", "1@1"]))


def test_a_limit_of_work_is_of_all_ways_together_and_ctrl_c_leaves_each_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    def counted(find: Callable[..., Answer], is_interrupted: bool) -> Callable[..., Answer]:
        def run(*of: Any, work_limit: float, **options: Any) -> Answer:
            given.append(work_limit)
            if is_interrupted and len(given) == 1:
                signal.raise_signal(signal.SIGINT)
            return replace(find(*of, work_limit=min(work_limit, 0.01), **options), work=work_limit)

        return run

    job = ReplicatedJob(SPLIT, 2, 3, copies_of(["1@1"]))
    for is_interrupted in (False, True):
        with monkeypatch.context() as patched:
            for name in ("search",):
                patched.setattr(module, name, counted(getattr(module, name), is_interrupted))
            replanned = replan(job, work_limit=6.0)
        assert replanned.interrupted == is_interrupted
        assert by_way(replanned)["rerouted"].iteration_ms <= by_way(replanned)["rule"].iteration_ms
        if not is_interrupted:
            assert len(given) > 3 and sum(given) <= 6.0
        given.clear()
