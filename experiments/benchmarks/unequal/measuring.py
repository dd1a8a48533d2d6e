"""Measurements of a search for one batch, beside schedules by hand."""

from __future__ import annotations

import itertools
import math

from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import load_solvers, timed
from experiments.benchmarks.unequal.batches import flow_shop, published_shop, sequences, tiny
from placements.shapes import v_shape
from schedsearch.modulo.result import Objective, Status
from schedsearch.modulo.search import search
from schedsearch.schedule import CyclicOrderError, as_soon_as_possible
from schedsearch.unequal.micro_batches import MicroBatchRow, unequal_batch
from schedsearch.unequal.replica_work import replica_work
from schedsearch.unequal.replicas import hand_made_replicas, replica_search
from schedsearch.unequal.starts import by_hand
from schedsearch.unequal.unequal_search import unequal_search
from schedsearch.validate import InvalidScheduleError, validate


def load() -> None:
    """Load and compile all that a search uses."""
    load_solvers()
    unequal_search(flow_shop(3, 0)[0], work_limit=5)


def beside_hand_made(seed: int, split: bool, limited: bool, work: float) -> CaseResult:
    """Measure a batch of sequences: 10 % below the best by hand, or 2 % above the bound."""
    batch = sequences(seed, split, limited)
    made = by_hand(batch, ("one_f_one_b", "zb_h1"))
    hand = {name: schedule.makespan for name, schedule in made.items() if schedule is not None}
    name = min(hand, key=hand.__getitem__)
    found, seconds = timed(lambda: unequal_search(batch, work_limit=work, seed=seed))
    assert found.schedule is not None
    ours, bound = found.schedule.makespan, found.makespan_bound
    return CaseResult(
        cpu_s=seconds,
        missed=true_of(
            {f"{ours / hand[name] - 1:+.1%}": ours > 0.9 * hand[name] and ours > 1.02 * bound},
        ),
        status=found.status.value,
        makespan=ours,
        makespan_bound=bound,
        note=f"{name} {hand[name]} ({ours / hand[name] - 1:+.1%}), bound {ours / bound - 1:+.1%}",
    )


def on_replicas(seed: int, split: bool, replicas: int, work_limit: float) -> CaseResult:
    """Measure a batch of sequences on replicas: 10 % below the best by hand, or 2 % above the bound."""
    work = replica_work(sequences(seed, split), replicas)
    hand = hand_made_replicas(work)
    fast, quick_s = timed(lambda: replica_search(work, work_limit=1, seed=seed))
    found, seconds = timed(lambda: replica_search(work, work_limit=work_limit, seed=seed))
    assert found.found is not None and fast.found is not None
    ours, bound = found.found.value(Objective.MAKESPAN), found.bound
    name = min(hand, key=hand.__getitem__, default="none by hand fits")
    best = hand.get(name, math.inf)
    beside = f"{name} {best} ({ours / best - 1:+.1%})" if hand else name
    quick_is = fast.found.value(Objective.MAKESPAN) / ours - 1
    return CaseResult(
        cpu_s=seconds,
        missed=true_of(
            {
                beside: ours > 0.9 * best and ours > 1.02 * bound,
                f"1 unit of work: {quick_is:+.1%}": quick_is > 0.03,
            },
        ),
        status="optimal" if ours <= bound else "feasible",
        makespan=ours,
        makespan_bound=bound,
        note=f"{beside}, bound {ours / bound - 1:+.1%}, 1 unit of work {quick_is:+.1%} in {quick_s:.1f} s",
    )


def shop(name: str) -> CaseResult:
    """Measure that a published shop ends within 1 % of the best known in 6 units of work, at most 20 s."""
    batch, best = published_shop(name)
    found, seconds = timed(lambda: unequal_search(batch, work_limit=6))
    assert found.schedule is not None
    ours = found.schedule.makespan
    return CaseResult(
        cpu_s=seconds,
        missed=true_of({f"{ours} beside {best}": ours > 1.01 * best}),
        status=found.status.value,
        makespan=ours,
        makespan_bound=found.makespan_bound,
        note=f"best known {best} ({ours / best - 1:+.1%})",
    )


def quick(seed: int, split: bool, work: float) -> CaseResult:
    """Measure that a unit of work is within 3 % of many."""
    batch = sequences(seed, split)
    fast, seconds = timed(lambda: unequal_search(batch, work_limit=1, seed=seed))
    slow = unequal_search(batch, work_limit=work, seed=seed)
    assert fast.schedule is not None and slow.schedule is not None
    worse = fast.schedule.makespan / slow.schedule.makespan - 1
    return CaseResult(
        cpu_s=seconds,
        missed=true_of({f"{worse:+.1%}": worse > 0.03}),
        status=fast.status.value,
        makespan=fast.schedule.makespan,
        makespan_bound=fast.makespan_bound,
        note=f"{worse:+.1%} beside {work:g} units of work",
    )


def johnson(number: int, seed: int) -> CaseResult:
    """Measure that a flow shop's optimum is found and proved."""
    batch, optimum = flow_shop(number, seed)
    found, seconds = timed(lambda: unequal_search(batch, work_limit=60))
    assert found.schedule is not None
    ours = found.schedule.makespan
    return CaseResult(
        cpu_s=seconds,
        missed=true_of({f"{ours}": ours != optimum, f"{found.status}": found.status is not Status.OPTIMAL}),
        status=found.status.value,
        makespan=ours,
        makespan_bound=found.makespan_bound,
    )


def brute_force(seed: int, memory: int | None) -> CaseResult:
    """Measure that a tiny batch has the least makespan of all orders."""
    batch = tiny(seed, memory)
    placement, number = batch.placement, batch.num_micro_batches
    blocks = [[(b.name, n) for b in placement.on(d) for n in range(number)] for d in range(2)]
    best = None
    for orders in itertools.product(*(itertools.permutations(each) for each in blocks)):
        try:
            made = validate(as_soon_as_possible(placement, number, orders, batch.chosen)).makespan
        except (CyclicOrderError, InvalidScheduleError):
            continue
        best = made if best is None else min(best, made)
    found, seconds = timed(lambda: unequal_search(batch, work_limit=5))
    assert found.schedule is not None
    ours = found.schedule.makespan
    return CaseResult(
        cpu_s=seconds,
        missed=true_of({f"{ours} beside {best}": ours != best}),
        status=found.status.value,
        makespan=ours,
        makespan_bound=found.makespan_bound,
    )


def alike(stages: int, number: int) -> CaseResult:
    """Measure that equal micro-batches as a table have the answer of the placement, as quickly."""
    placement = v_shape(stages, 1, 2).with_memory(stages)
    rows = [MicroBatchRow(n, b.name, float(b.time)) for n in range(number) for b in placement.blocks]
    before, before_s = timed(lambda: search(placement, number, objectives=["makespan"], work_limit=5))
    found, seconds = timed(lambda: unequal_search(unequal_batch(placement, rows), work_limit=5))
    assert found.schedule is not None and before.schedule is not None
    return CaseResult(
        cpu_s=seconds,
        missed=true_of(
            {
                "another schedule": found.schedule.blocks != before.schedule.blocks,
                f"{seconds:.2f} s beside {before_s:.2f} s": seconds > 1.2 * before_s + 0.1,
            }
        ),
        status=found.status.value,
        makespan=found.schedule.makespan,
        makespan_bound=found.makespan_bound,
    )
