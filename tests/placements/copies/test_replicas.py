"""Copies of devices: pipelines side by side, and micro-batches that go from one to another."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from strategies import with_transfer

from placements import Block, Kind, Placement, PlacementError
from placements.copies.replicas import replicated
from placements.modes import Chosen
from placements.shapes import loop_shape, v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.core.problem import Problem
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Instance, as_soon_as_possible
from schedsearch.searches.search import search
from schedsearch.validate import validate


def with_optimizer(placement: Placement) -> Placement:
    """Return the placement with an optimizer block on each device."""
    last = {block.devices[0]: block.name for block in placement.topological_order}
    blocks = [Block(f"O{device}", Kind.O, (device,), 1, after=(name,)) for device, name in last.items()]
    return replace(placement, blocks=(*placement.blocks, *blocks))


@pytest.mark.parametrize("plain", [v_shape(3, 2, 3), v_shape(3, split_backward=True), loop_shape(2, 2, 1, 2)])
def test_copies_are_pipelines_side_by_side_where_no_micro_batch_leaves_its_own(plain: Placement) -> None:
    plain = with_optimizer(with_transfer(plain, 2))
    number = plain.num_devices
    one = unequal_orders(plain, 4)
    both = replicated(plain, [2] * number)
    orders = [[(f"{name}@{r}", 2 * n + r) for name, n in order] for order in one for r in range(2)]
    chosen = tuple((n % 2,) * number for n in range(8))
    schedule = validate(as_soon_as_possible(both, 8, orders, chosen))
    alone = validate(as_soon_as_possible(plain, 4, one))
    starts = {
        name: start
        for (name, _), start in alone.start_of.items()
        if name in {b.name for b in plain.optimizer_blocks}
    }
    assert schedule.makespan == alone.makespan
    assert peak_memory(schedule).tolist() == peak_memory(alone).repeat(2).tolist()
    for (name, n), start in alone.start_of.items():
        for r in range(2):
            assert schedule.start_of[f"{name}@{r}", 7 if name in starts else 2 * n + r] == start


def unequal_orders(plain: Placement, micro_batches: int) -> list[list[Instance]]:
    """Return orders of a plain placement's blocks of micro-batches: one by one."""
    orders: list[list[Instance]] = [[] for _ in range(plain.num_devices)]
    for n in range(micro_batches):
        for block in plain.per_micro_batch.topological_order:
            orders[block.devices[0]].append((block.name, n))
    return orders


def test_a_micro_batch_runs_on_the_copies_that_it_takes_with_their_transfers_alone() -> None:
    plain = with_optimizer(with_transfer(v_shape(4, split_backward=True).with_memory(3), 2))
    placement = replicated(plain, [2, 3, 1, 4])
    assert placement.num_devices == 10 and placement.memory == (3,) * 10
    block_of = {block.name: block for block in plain.blocks}
    for chosen in itertools.product(range(2), range(3), range(1), range(4)):
        run = placement.as_run(chosen)
        names = {
            block.name: f"{block.name}@{chosen[block.devices[0]]}" for block in plain.per_micro_batch.blocks
        }
        assert {block.name for block in run.per_micro_batch.blocks} == set(names.values())
        for name, copy in names.items():
            assert set(run.by_name[copy].after) == {names[source] for source in block_of[name].after}
            for source in block_of[name].after:
                assert run.transfer_time(names[source], copy) == plain.transfer_time(source, name)
        for block in run.optimizer_blocks:
            (source,) = block_of[block.name.partition("@")[0]].after
            assert block.after == (names[source],)
        assert len(run.optimizer_blocks) == 10


def least_makespan(plain: Placement, chosen: tuple[Chosen, ...]) -> int:
    """Return the least makespan of micro-batches on copies, by all orders; knows no modes."""
    blocks = {
        (block.name, n): (
            (block.devices[0], copies[block.devices[0]]),
            block.time,
            [((source, n), plain.transfer_time(source, block.name)) for source in block.after],
        )
        for n, copies in enumerate(chosen)
        for block in plain.blocks
    }
    best = 10**9

    def extend(ends: dict[Instance, int], free: dict[tuple[int, int], int]) -> None:
        nonlocal best
        if max(ends.values(), default=0) >= best:
            return
        if len(ends) == len(blocks):
            best = max(ends.values())
            return
        ready = [
            (max([free.get(where, 0), *(ends[source] + ticks for source, ticks in waits)]), time, key, where)
            for key, (where, time, waits) in blocks.items()
            if key not in ends and all(source in ends for source, _ in waits)
        ]
        first, where = min((start + time, where) for start, time, _, where in ready)
        for start, time, key, on in ready:
            if on == where and start < first:
                extend(ends | {key: start + time}, free | {on: start + time})

    extend({}, {})
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_search_proves_what_brute_force_finds(seed: int) -> None:
    rng = random.Random(seed)
    plain = v_shape(3, rng.randint(1, 3), rng.randint(1, 4))
    plain = with_transfer(
        replace(plain, blocks=tuple(replace(b, time=rng.randint(1, 4)) for b in plain.blocks)),
        rng.randint(0, 2),
    )
    replicas = [rng.randint(1, 2) for _ in range(3)]
    chosen = tuple(tuple(rng.randrange(number) for number in replicas) for _ in range(3))
    answer = search(Problem(replicated(plain, replicas), 3, chosen, objectives=["makespan"]), work_limit=4)
    assert answer.schedule.makespan == least_makespan(plain, chosen)


def test_many_copies_are_searched_like_one_pipeline() -> None:
    plain = v_shape(4, 1, 2)
    chosen = tuple((n % 8,) * 4 for n in range(64))
    answer = search(Problem(replicated(plain, [8] * 4), 64, chosen, objectives=["makespan"]), work_limit=1)
    assert answer.schedule.makespan == one_f_one_b(plain, 8).makespan


def test_what_cannot_have_copies_is_refused() -> None:
    with pytest.raises(PlacementError, match=r"replicas: \[2\] are not the copies of 2 devices"):
        replicated(v_shape(2), [2])
    with pytest.raises(PlacementError, match="give a number above 0"):
        replicated(v_shape(2), [2, 0])
    together = Placement("both", 2, (Block("F", Kind.F, (0, 1), 1),))
    with pytest.raises(PlacementError, match=r"block F on devices \[0, 1\]"):
        replicated(together, [2, 2])
    with pytest.raises(PlacementError, match="modes, streams or nodes"):
        replicated(replicated(v_shape(2), [2, 2]), [1] * 4)
