"""Measured iterations through the simulator, in a better order, and with micro-batches assigned anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import fmean

import numpy as np

from placements import Kind, Placement
from schedsearch.core.answer import Answer
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.problem import Problem
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.replay.job import Job, ReplicaIteration
from schedsearch.replay.pipeline import (
    TICK_MS,
    Delays,
    JobPipeline,
    Orders,
    makespan_ms,
    memory_of,
    order_bound_ms,
    orders_of,
    with_halves,
)
from schedsearch.schedule import Instance, Schedule, ScheduledBlock, as_soon_as_possible
from schedsearch.searches.search import search
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.unequal.block_orders import BlockOrders
from schedsearch.unequal.micro_batches import MicroBatchRow, unequal_batch
from schedsearch.unequal.replica_work import ReplicaWork
from schedsearch.unequal.unequal_search import replica_search
from schedsearch.validate import validate

_BOUNDED = 500
"""Most blocks of an iteration for which the bound also counts memory."""

_SINGLE_ITERATIONS = 8
"""Most iterations whose own best orders are offered to all."""


@dataclass(frozen=True)
class ReplayedIteration:
    """A measured iteration, replayed in several orders; each time is of the slowest replica.

    Attributes:
        job: Name of the job.
        step: Number of the iteration in the trace.
        replicas: Number of replicas.
        micro_batches: Micro-batches of all replicas.
        measured_ms: From the first start to the last end of a replica's blocks, as measured.
        simulated_ms: Simulated with the measured block times and orders, and typical messages.
        reordered_ms: In the one order that is best for all iterations.
        order_bound_ms: Lower bound over all orders; micro-batches stay on their replica.
        split_ms: Like `reordered_ms`, if each backward is two halves of equal time.
        split_bound_ms: Lower bound for that.
        reassigned_ms: With the best assignment and orders found for this iteration, its times being known.
        bound_ms: Lower bound over all assignments and orders.
        measured_mean_ms: Mean over replicas, as measured.
        reassigned_mean_ms: Mean over replicas with the best assignment.
        moved: Micro-batches that the best assignment moves to another replica.
        assignment: Micro-batches of each replica in the best assignment, numbered through all replicas.
    """

    job: str
    step: int
    replicas: int
    micro_batches: int
    measured_ms: float
    simulated_ms: float
    reordered_ms: float
    order_bound_ms: float
    split_ms: float
    split_bound_ms: float
    reassigned_ms: float
    bound_ms: float
    measured_mean_ms: float
    reassigned_mean_ms: float
    moved: int
    assignment: str


@dataclass(frozen=True)
class ChangeRow:
    """The pipeline's time of a job in a better order, a mean over its iterations.

    Attributes:
        job: Name of the job.
        change: Parts of the job that may change; one of `CHANGES`.
        pipeline_ms: From the first start to the last end of the slowest replica's blocks.
        bound_ms: Lower bound for all ways to make the change; None for the measured and simulated time.
    """

    job: str
    change: str
    pipeline_ms: float
    bound_ms: float | None


REASSIGNED = "order and assignment, times known"
CHANGES = (
    "measured",
    "simulated",
    "order",
    "order, backwards in halves",
    REASSIGNED,
    "order and division of layers",
)
"""Parts of a job that may change: none; the order of all iterations alike, of blocks as they are or with each
backward in two halves; order and assignment of micro-batches for each iteration by
itself; order and the layers of each stage."""


@dataclass(frozen=True)
class BestOrders:
    """The schedules to run.

    Attributes:
        found: The best order found, with mean times; the usual one where none is better.
        split: Likewise with each backward in two halves of equal time.
        divided: The best order found if all stages took equally long.
    """

    found: Schedule
    split: Schedule
    divided: Schedule


def changes(iterations: Sequence[ReplayedIteration], best: BestOrders) -> list[ChangeRow]:
    """Return a row for each of `CHANGES`, means of iterations of one job; of one replica, none is assigned.

    The best division is found for stages that take equally long, and bounded for any.
    """

    def mean(column: str) -> float:
        return round(fmean(getattr(each, column) for each in iterations), 6)

    names = ("measured", "simulated", "reordered", "split", "reassigned")
    times = [mean(f"{name}_ms") for name in names]
    bounds = [None, None, mean("order_bound_ms"), mean("split_bound_ms"), mean("bound_ms")]
    bounds.append(_ms(division_bound(best.divided)))
    rows = zip(CHANGES, [*times, _ms(best.divided.makespan)], bounds, strict=True)
    is_one = iterations[0].replicas == 1
    return [ChangeRow(iterations[0].job, *row) for row in rows if not (is_one and row[0] == REASSIGNED)]


def division_bound(schedule: Schedule) -> float:
    """Return ticks that no division of a pipeline's work beats, in any order.

    With one stage on each of p devices, stage i of time t_i computes n micro-batches after the forwards and
    before the backwards of the stages before it: the makespan is at least n t_i + t_0 + ... + t_(i-1). The
    times that meet all of these sum to the work of a micro-batch where the makespan is that work over
    1 - (1 - 1/n)^p. With several stages on a device it is at least the mean load.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    work, devices = sum(block.time for block in placement.blocks), placement.num_devices
    if sum(block.kind is Kind.F for block in placement.blocks) > devices:
        return work * number / devices
    return work / (1 - (1 - 1 / number) ** devices)


def best_orders(job: Job, pipeline: JobPipeline, work_limit: float, seed: int = 0) -> BestOrders:
    """Return the order that is best for the iterations of a job on average, and the best for equal stages.

    Offered are the usual order of the job, the best found with mean times, and the best found with the times
    of some single iterations. In each, micro-batches are numbered as the first block takes them: what makes
    the first micro-batch of every iteration slow would make any first one slow.

    Args:
        job: The job.
        pipeline: Its pipeline.
        work_limit: Units of counted work, each of about a second.
        seed: Seed of the random choices.
    """
    limits = SharedLimits(work_limit, searches=3)
    halves = with_halves(job, pipeline)
    found = _best_order(job, pipeline, limits, seed)
    split = found if halves is None else _best_order(*halves, limits, seed)
    kinds = {kind: [b.time for b in pipeline.placement.blocks if b.kind == kind] for kind in [*"FBIW"]}
    equal = (replace(b, time=round(fmean(kinds[b.kind]))) for b in pipeline.placement.blocks)
    divided = replace(pipeline.placement, name=f"{job.name}, equal stages", blocks=tuple(equal))
    begin = as_soon_as_possible(divided, found.num_micro_batches, _usual_order(job))
    return BestOrders(found, split, _searched(validate(begin), limits, seed))


def _usual_order(job: Job) -> Orders:
    runs = (run for step in job.steps.values() for run in step)
    return Counter(tuple(map(tuple, orders_of(run, job.device))) for run in runs).most_common(1)[0][0]


def _best_order(job: Job, pipeline: JobPipeline, limits: SharedLimits, seed: int) -> Schedule:
    """Return the order that is best for the iterations on average, with mean times."""
    usual, own = _usual_order(job), SharedLimits(limits.share()["work_limit"])
    number = 1 + max(n for order in usual for _, n in order)
    runs = [run for step in job.steps.values() for run in step if run.num_micro_batches == number]
    some = runs[:: -(-len(runs) // _SINGLE_ITERATIONS)]
    own.searches, given = 1 + len(some), own.work
    begin = [validate(as_soon_as_possible(pipeline.placement, number, usual))]
    begin += [in_order(pipeline, run, usual) for run in some]
    offered = [usual, *(_in_sequence(orders_in(_searched(each, own, seed))) for each in begin)]
    limits.spend(given - own.work)
    times = [pipeline.delays.times(run) for run in runs]
    best = min(
        offered, key=lambda orders: sum(makespan_ms(each, pipeline.delays, job, orders) for each in times)
    )
    return validate(as_soon_as_possible(pipeline.placement, number, best))


def _in_sequence(orders: Orders) -> list[list[Instance]]:
    """Return orders with the micro-batches numbered as the first block takes them."""
    places = {number: place for place, number in enumerate(_taken(orders))}
    return [[(name, places[number]) for name, number in order] for order in orders]


def _taken(orders: Orders) -> list[int]:
    """Return the micro-batches in the order in which the first block takes them."""
    return [number for order in orders for name, number in order if name == "F0"]


def _searched(begin: Schedule, limits: SharedLimits, seed: int) -> Schedule:
    """Return the schedule of least makespan found, in the memory of the given schedule's placement."""
    problem = Problem(
        begin.placement,
        begin.num_micro_batches,
        begin.chosen,
        objectives=[Objective.MAKESPAN],
        work_limit=limits.share()["work_limit"],
        begin_with=begin,
        seed=seed,
    )
    answer = search(problem)
    limits.spend(answer.work)
    return begin if answer.schedule is None else answer.schedule


def replay(
    job: Job,
    pipeline: JobPipeline,
    best: BestOrders,
    work_limit: float = 12.0,
    seed: int = 0,
    on_iteration: Callable[[ReplayedIteration], None] | None = None,
) -> list[ReplayedIteration]:
    """Return each iteration of a job with its measured time, and its times in better orders.

    Args:
        job: The job.
        pipeline: Its pipeline.
        best: The best order for all iterations.
        work_limit: Units of counted work, each of about a second, for all iterations together.
        seed: Seed of the random choices.
        on_iteration: Called after each.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C; `on_iteration` has had all finished iterations.
    """
    found: list[ReplayedIteration] = []
    limits = SharedLimits(work_limit, searches=len(job.steps))
    halves = with_halves(job, pipeline)
    for step, runs in job.steps.items():
        INTERRUPTS.raise_if_seen()
        own = _numbers(runs)
        simulated, reordered, bounds = _replayed(job, pipeline, runs, best.found)
        _, split, split_bounds = (
            (simulated, reordered, bounds)
            if halves is None
            else _replayed(*halves, halves[0].steps[step], best.split)
        )
        spans, bound_ms, assigned = min(simulated, reordered, key=max), max(bounds), own
        if len(runs) > 1:
            limit = limits.share()["work_limit"]
            moved_ms, moved_to, answer = _reassigned(job, pipeline, runs, limit, seed)
            limits.spend(answer.work)
            bound_ms = answer.makespan_bound * TICK_MS * min(pipeline.positions.values(), default=1.0)
            if max(moved_ms) < max(spans):
                spans, assigned = moved_ms, moved_to
        took_ms = [run.measured_ms for run in runs]
        found.append(
            ReplayedIteration(
                job.name,
                step,
                len(runs),
                sum(map(len, own)),
                measured_ms=round(max(took_ms), 6),
                simulated_ms=round(max(simulated), 6),
                reordered_ms=round(max(reordered), 6),
                order_bound_ms=round(max(bounds), 6),
                split_ms=round(max(split), 6),
                split_bound_ms=round(max(split_bounds), 6),
                reassigned_ms=round(max(spans), 6),
                bound_ms=round(min(bound_ms, max(spans)), 6),
                measured_mean_ms=round(fmean(took_ms), 6),
                reassigned_mean_ms=round(fmean(spans), 6),
                moved=sum(len({*new} - {*old}) for new, old in zip(assigned, own, strict=True)),
                assignment=" | ".join(" ".join(map(str, numbers)) for numbers in assigned),
            )
        )
        if on_iteration is not None:
            on_iteration(found[-1])
    return found


def _replayed(
    job: Job, pipeline: JobPipeline, runs: Sequence[ReplicaIteration], found: Schedule
) -> tuple[list[float], list[float], list[float]]:
    """Return each replica's time in its own order and in a found one, and its bound, in ms.

    An order found is for one number of micro-batches; a replica with another one keeps its own.
    """
    own, better, bounds = [], [], []
    for run in runs:
        times, is_for = pipeline.delays.times(run), run.num_micro_batches == found.num_micro_batches
        own.append(makespan_ms(times, pipeline.delays, job, orders_of(run, job.device)))
        better.append(makespan_ms(times, pipeline.delays, job, orders_in(found)) if is_for else own[-1])
        bounds.append(order_bound_ms(times, pipeline.delays, job))
        batch = _batch(pipeline.placement, times, run.num_micro_batches)
        if batch.chosen and len(times) <= _BOUNDED:
            ticks = BlockOrders(batch, FINITE[Objective.MAKESPAN]).bound()
            bounds[-1] = min(max(bounds[-1], ticks * TICK_MS), own[-1], better[-1])
    return own, better, bounds


def _ms(ticks: float) -> float:
    return round(ticks * TICK_MS, 6)


def orders_in(schedule: Schedule) -> list[tuple[Instance, ...]]:
    """Return the order of each device in a schedule."""
    return [schedule.order(device) for device in range(schedule.placement.num_devices)]


def _batch(placement: Placement, times: Mapping[Instance, float], num_micro_batches: int) -> Problem:
    """Return micro-batches whose blocks take given times in ms."""
    rows = [
        MicroBatchRow(number, name, round(ms, 3), memory_of(name, placement.by_name))
        for (name, number), ms in times.items()
    ]
    return unequal_batch(placement, rows, num_micro_batches)


def in_order(pipeline: JobPipeline, run: ReplicaIteration, orders: Orders) -> Schedule:
    """Return a replica's schedule with its measured times in given orders."""
    batch = _batch(pipeline.placement, pipeline.delays.times(run), run.num_micro_batches)
    return validate(as_soon_as_possible(batch.placement, batch.num_micro_batches, orders, batch.chosen))


def _numbers(runs: Sequence[ReplicaIteration]) -> tuple[tuple[int, ...], ...]:
    """Return the micro-batches of each replica, numbered through all replicas."""
    firsts = accumulate((run.num_micro_batches for run in runs), initial=0)
    return tuple(tuple(range(a, b)) for a, b in pairwise(firsts))


def _reassigned(
    job: Job, pipeline: JobPipeline, runs: Sequence[ReplicaIteration], work_limit: float | None, seed: int
) -> tuple[list[float], tuple[tuple[int, ...], ...], Answer]:
    """Return the time of each replica with the best assignment found, the assignment, and the answer.

    In the answer's times the places in the iteration make no difference; in the times of replicas they do.
    """
    work = iteration_work(pipeline, runs)
    found, answer = replica_search(work, work_limit=work_limit, seed=seed)
    assert found is not None, "the memory holds what it held in the trace"
    spans = []
    for replica, (schedule, numbers) in enumerate(zip(found.schedules, found.assigned, strict=True)):
        orders: Orders = [] if schedule is None else orders_in(schedule)
        times = {
            (name, place): float(ticks) * TICK_MS * pipeline.positions.get((name, place), 1.0)
            for place, number in enumerate(_taken(orders))
            for name, ticks in zip(work.names, work.times[replica, :, numbers[number]], strict=True)
        }
        spans.append(makespan_ms(times, pipeline.delays, job, _in_sequence(orders)) if times else 0.0)
    return spans, found.assigned, answer


def as_measured(pipeline: JobPipeline, run: ReplicaIteration) -> Schedule:
    """Return a replica's iteration as it was measured, for pictures: blocks may overlap."""
    batch = _batch(pipeline.placement, Delays({}, {}).times(run), run.num_micro_batches)
    begin_ms = min(block.start_ms for block in run.blocks.values())
    blocks = (
        ScheduledBlock(round((block.start_ms - begin_ms) / TICK_MS), number, name)
        for (name, number), block in run.blocks.items()
    )
    return Schedule(batch.placement, batch.num_micro_batches, tuple(sorted(blocks)), batch.chosen)


def iteration_work(pipeline: JobPipeline, runs: Sequence[ReplicaIteration]) -> ReplicaWork:
    """Return the micro-batches of an iteration on all replicas, numbered through them.

    On its own replica a micro-batch has its measured times, less what its place in the iteration makes of
    them. On another these are multiplied by how fast that replica is in each block beside its own, over all
    iterations.
    """
    names = [block.name for block in pipeline.placement.topological_order]
    own = _numbers(runs)
    times = np.zeros((len(runs), len(names), sum(map(len, own))), np.int64)
    for source, run in enumerate(runs):
        for (name, n), ms in pipeline.delays.times(run).items():
            for replica, speeds in enumerate(pipeline.speeds):
                factor = speeds[name] / pipeline.speeds[source][name] / pipeline.positions.get((name, n), 1.0)
                times[replica, names.index(name), own[source][n]] = max(1, round(ms * factor / TICK_MS))
    memory = np.array([memory_of(name, pipeline.placement.by_name) for name in names])

    def part(replica: int, numbers: Sequence[int]) -> Problem:
        given = {
            (name, place): float(times[replica, kind, number]) * TICK_MS
            for place, number in enumerate(numbers)
            for kind, name in enumerate(names)
        }
        return _batch(pipeline.placement, given, len(numbers))

    units = np.repeat(memory[:, None], times.shape[2], axis=1)
    return ReplicaWork(pipeline.placement, times, units, np.zeros_like(units), part)
