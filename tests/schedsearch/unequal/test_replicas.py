"""Micro-batches on several replicas: optima by brute force, bounds, limits, and rules in use."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from oracles import min_makespan_of_modes

from placements.shapes import v_shape
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.metrics import peak_memory
from schedsearch.unequal.micro_batches import MicroBatchRow, unequal_batch
from schedsearch.unequal.replica_bound import replica_bound
from schedsearch.unequal.replica_work import replica_work
from schedsearch.unequal.starts import packings, replicas_by_hand
from schedsearch.unequal.unequal_search import replica_search
from schedsearch.validate import validate


def random_batch(number: int, devices: int, seed: int, memory: int | None = None) -> Problem:
    rng = random.Random(seed)
    placement = v_shape(devices, 1, 2).with_memory(memory)
    rows = [
        MicroBatchRow(n, block.name, float(rng.randint(1, 9)))
        for n in range(number)
        for block in placement.blocks
    ]
    return unequal_batch(placement, rows)


def min_makespan_of(batch: Problem, numbers: tuple[int, ...]) -> int:
    return min_makespan_of_modes(batch.placement, [batch.chosen[n] for n in numbers])


@pytest.mark.parametrize(("seed", "memory"), [(0, None), (1, 1)])
def test_the_best_assignment_and_orders_are_those_of_brute_force(seed: int, memory: int | None) -> None:
    batch = random_batch(4, 2, seed, memory)
    work = replica_work(batch, 2, max_micro_batches=2)
    pairs = {two: min_makespan_of(batch, two) for two in itertools.combinations(range(4), 2)}
    best = min(max(ticks, pairs[tuple(n for n in range(4) if n not in two)]) for two, ticks in pairs.items())
    replicas, _ = replica_search(work, work_limit=1, seed=seed)
    assert replicas.value(Objective.MAKESPAN) == best
    assert replica_bound(work) <= best


@pytest.mark.parametrize("seed", range(2))
def test_no_assignment_is_below_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    replicas, memory = rng.choice((2, 3)), rng.choice((None, 2, 3))
    batch = random_batch(9, 3, seed, memory)
    work = replica_work(batch, replicas)
    division, result = replica_search(work, work_limit=0.3, seed=seed)
    best = division.value(Objective.MAKESPAN)
    assert result.makespan_bound <= best
    assert sorted(itertools.chain(*division.assigned)) == list(range(9))
    for numbers, schedule in zip(division.assigned, division.schedules, strict=True):
        if schedule is not None:
            assert validate(schedule).num_micro_batches == len(numbers)
            assert schedule.chosen == tuple(batch.chosen[n] for n in numbers)
            assert memory is None or max(peak_memory(schedule)) <= memory
    by_hand = replicas_by_hand(work, ("one_f_one_b", "zb_h1")).values()
    assert all(best <= replicas.value(Objective.MAKESPAN) for replicas in by_hand if replicas is not None)


def test_what_fits_one_after_another_holds_memory_to_the_end_of_its_release() -> None:
    work = replica_work(Problem(v_shape(2, 1, 2).with_memory(1), 4), 2)
    replicas, result = replica_search(work, work_limit=0.3)
    assert (replicas.value(Objective.MAKESPAN), result.makespan_bound) == (12, 12)  # two of 6 ticks on each


def test_the_longest_must_share_a_replica_and_nothing_short_shortens_their_ends() -> None:
    stages, lengths = v_shape(3, 1, 2), [4, 4, 4, 1, 1]
    rows = [
        MicroBatchRow(n, block.name, float(block.time * length))
        for n, length in enumerate(lengths)
        for block in stages.blocks
    ]
    work = replica_work(unequal_batch(stages, rows), 2)
    # two long ones on one replica: 8 ticks before the last device, twice 12 on it, 16 after it
    assert replica_bound(work) == 8 + 24 + 16
    replicas, _ = replica_search(work, work_limit=0.5)
    assert replicas.value(Objective.MAKESPAN) == 48


def test_memory_that_fills_and_empties_is_not_full_meanwhile() -> None:
    work = replica_work(Problem(v_shape(8, 1, 2).with_memory(3), 30), 1)
    held = 30 * 24 // 3  # each holds a third of the first device for 24 ticks
    replicas, _ = replica_search(work, work_limit=0.3)
    assert held < replica_bound(work) <= replicas.value(Objective.MAKESPAN)


def test_replicas_have_their_own_speed_and_room() -> None:
    batch = random_batch(8, 2, 1)
    alike = replica_work(batch, 2, max_micro_batches=5)
    slow = np.array(alike.times)
    slow[1] *= 3

    def part(replica: int, numbers: object) -> Problem:
        rows = [
            MicroBatchRow(place, name, float(slow[replica, kind, n]))
            for place, n in enumerate(numbers)  # type: ignore[arg-type, var-annotated]
            for kind, name in enumerate(alike.names)
        ]
        return unequal_batch(v_shape(2, 1, 2).with_memory(None), rows)

    work = replace(alike, times=slow, part=part)
    replicas, result = replica_search(work, work_limit=0.5)
    fast_has, slow_has = map(len, replicas.assigned)
    assert (fast_has, slow_has) == (5, 3)
    assert result.makespan_bound <= replicas.value(Objective.MAKESPAN)


def test_more_work_is_never_worse_and_seeds_give_the_same() -> None:
    work = replica_work(random_batch(12, 3, 4, 2), 3)
    once, _ = replica_search(work, work_limit=0.2, seed=2)
    again, _ = replica_search(work, work_limit=0.2, seed=2)
    more, _ = replica_search(work, work_limit=1.0, seed=2)
    assert once == again
    assert more.value(Objective.MAKESPAN) <= once.value(Objective.MAKESPAN)


def test_device_spans_are_searched_likewise() -> None:
    work = replica_work(random_batch(6, 2, 5), 2)
    replicas, _ = replica_search(work, objectives=["device_span"], work_limit=0.3)
    assert replicas is not None
    span, makespan = (replicas.value(objective) for objective in (Objective.DEVICE_SPAN, Objective.MAKESPAN))
    assert replica_bound(work, span=True) <= span <= makespan


def test_micro_batches_that_are_alike_are_shared_evenly() -> None:
    work = replica_work(Problem(v_shape(2, 1, 2), 8), 2)
    replicas, _ = replica_search(work, work_limit=0.3)
    assert [len(numbers) for numbers in replicas.assigned] == [4, 4]
    assert dict(packings(work))["blocks"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
