"""Schedules to begin with: hand-made, by idle devices, and serial, for several orders and assignments.

Knows no search.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError
from schedsearch.core.problem import Problem
from schedsearch.passes.lowered import Lowered
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, as_soon_as_possible, with_optimizer
from schedsearch.starts.event_simulation import Rule, list_schedule
from schedsearch.unequal.replica_work import ReplicaSchedules, ReplicaWork
from schedsearch.validate import InvalidScheduleError, validate

Orders = Sequence[Sequence[Instance]]
"""For each device its (block, micro-batch) pairs in the order in which they run."""

AS_GIVEN = "as given"
"""Name of the order of micro-batches by their numbers."""

USUAL = (AS_GIVEN, "short first", "long first")
"""Names of the common orders of micro-batches."""


def hand_made_orders(batch: Problem, names: Iterable[str] = tuple(HAND_MADE)) -> Iterator[tuple[str, Orders]]:
    """Yield the orders of hand-made schedules, which do not depend on times, with their names.

    Schedules that are not defined for the placement are left out.
    """
    usual = replace(batch.placement, decisions=(), memory=None, static_memory=())
    for name in names:
        with contextlib.suppress(UnsuitablePlacementError, InvalidScheduleError, CyclicOrderError):
            yield name, HAND_MADE[name](usual, batch.num_micro_batches).lane_orders


def one_by_one(batch: Problem) -> Orders:
    """Return serial orders: each micro-batch begins at the end of the one before, with least memory."""
    plain, number = batch.placement.per_micro_batch, batch.num_micro_batches
    return [
        [(b.name, n) for n in range(number) for b in plain.topological_order if device in b.devices]
        for device in range(plain.num_devices)
    ]


def numberings(batch: Problem) -> Iterator[tuple[str, list[int]]]:
    """Yield orders of the micro-batches, with their names; the first is by their numbers."""
    numbers = list(range(batch.num_micro_batches))
    yield AS_GIVEN, numbers
    if not batch.chosen:
        return
    first, second = {}, {}
    for n in numbers:
        blocks = batch.placement.as_run(batch.chosen[n]).per_micro_batch.topological_order
        half = len(blocks) // 2
        first[n], second[n] = (sum(b.time for b in part) for part in (blocks[:half], blocks[half:]))
    ascending = sorted(numbers, key=lambda n: first[n] + second[n])
    yield "short first", ascending
    yield "long first", ascending[::-1]
    rising = sorted((n for n in numbers if first[n] <= second[n]), key=first.__getitem__)
    falling = sorted((n for n in numbers if first[n] > second[n]), key=lambda n: -second[n])
    yield "Johnson's order", rising + falling
    yield "long in the middle", ascending[::2] + ascending[1::2][::-1]
    yield "short in the middle", ascending[1::2][::-1] + ascending[::2]


def executed(batch: Problem, orders: Orders, numbers: Sequence[int]) -> Schedule | None:
    """Run orders of micro-batches 0, 1, ... with the micro-batches `numbers` instead; None if not valid."""
    placement, last = batch.placement, batch.num_micro_batches - 1
    runs = [placement.as_run(modes).by_name for modes in batch.chosen]
    optimizer = {block.name for block in placement.optimizer_blocks}
    renumbered = [
        [
            (name, last if name in optimizer else numbers[n])
            for name, n in order
            if not runs or name in optimizer or name in runs[numbers[n]]
        ]
        for order in orders
    ]
    try:
        return validate(as_soon_as_possible(placement, batch.num_micro_batches, renumbered, batch.chosen))
    except (CyclicOrderError, InvalidScheduleError):
        return None


def packings(work: ReplicaWork) -> Iterator[tuple[str, list[list[int]]]]:
    """Yield the common assignments of micro-batches to replicas that keep a replica's limit, with names.

    Each replica's sequence is by numbers, or sorted.
    """
    replicas, number = work.num_replicas, work.num_micro_batches
    total = work.times.sum(axis=1).min(axis=0)
    longest = np.argsort(-total, kind="stable").tolist()
    assignments = {
        "round robin": [list(range(r, number, replicas)) for r in range(replicas)],
        "blocks": [part.tolist() for part in np.array_split(np.arange(number), replicas)],
        "sorted": [longest[r::replicas] for r in range(replicas)],
        "balanced": _packed(work, longest, work.most),
        "balanced, equal numbers": _packed(work, longest, -(-number // replicas)),
    }
    for name, assigned in assignments.items():
        if max(map(len, assigned)) <= work.most:
            yield name, assigned


def _packed(work: ReplicaWork, order: Sequence[int], most: float) -> list[list[int]]:
    """Return micro-batches, each on the least loaded replica of those with fewer than `most`."""
    packed: list[list[int]] = [[] for _ in range(work.num_replicas)]
    load = np.zeros(work.num_replicas)
    for n in order:
        r = min((r for r, numbers in enumerate(packed) if len(numbers) < most), key=load.__getitem__)
        packed[r].append(n)
        load[r] += work.times[r, :, n].sum()
    return [sorted(numbers) for numbers in packed]


def by_hand(batch: Problem, names: Iterable[str]) -> dict[str, Schedule | None]:
    """Return hand-made schedules for the micro-batches in given order and sorted, by name and order.

    A schedule is None if it is not valid for these micro-batches, or does not fit their memory.
    """
    return {
        f"{name}, {how}": executed(batch, orders, numbers)
        for name, orders in hand_made_orders(batch, names)
        for how, numbers in numberings(batch)
        if how in USUAL
    }


def replicas_by_hand(work: ReplicaWork, names: Sequence[str]) -> dict[str, ReplicaSchedules | None]:
    """Return usual assignments with schedules by hand, by name; None where one does not fit on a replica."""
    schedules: dict[str, ReplicaSchedules | None] = {}
    for how, assigned in packings(work):
        parts = [work.part(r, numbers) if numbers else None for r, numbers in enumerate(assigned)]
        orders = [None if part is None else dict(hand_made_orders(part, names)) for part in parts]
        for name in names:
            if all(by_name is None or name in by_name for by_name in orders):
                made = [
                    executed(part, by_name[name], range(part.num_micro_batches)) if part and by_name else None
                    for part, by_name in zip(parts, orders, strict=True)
                ]
                fits = all(schedule or not numbers for schedule, numbers in zip(made, assigned, strict=True))
                whole = ReplicaSchedules(tuple(map(tuple, assigned)), tuple(made))
                schedules[f"{name}, {how}"] = whole if fits else None
    return schedules


def dispatched(lowered: Lowered, numbers: Sequence[int]) -> Schedule | None:
    """Return the plain placement's schedule in which idle devices run ready blocks that fit; None if stuck.

    Earlier micro-batches of the order come first; within one micro-batch, backward blocks.
    """
    place = {n: i for i, n in enumerate(numbers)}
    plain = lowered.plain.per_micro_batch
    ranks = {block.name: place[lowered.original(block.name)[1]] for block in plain.blocks}
    schedule = list_schedule(plain, 1, Rule(None, patience=Fraction(1, 2)), ranks=ranks)
    return None if schedule is None else with_optimizer(lowered.plain, schedule)
