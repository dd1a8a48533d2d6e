"""Measured iterations through the simulator, in a better order, and with micro-batches assigned anew."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

import numpy as np

from placements import Kind
from schedsearch.core.answer import Answer
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.problem import Problem
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.replay.job import Job, ReplicaIteration
from schedsearch.replay.pipeline import (
    TICK_MS,
    Delays,
    JobPipeline,
    memory_of,
    orders_of,
    with_halves,
)
from schedsearch.schedule import Instance, Schedule, ScheduledBlock, as_soon_as_possible
from schedsearch.searches.search import search
from schedsearch.simulation.iterations import simulate
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.unequal.block_orders import BlockOrders
from schedsearch.unequal.micro_batches import MicroBatchRow, unequal_batch
from schedsearch.unequal.replica_work import ReplicaWork
from schedsearch.unequal.unequal_search import replica_search
from schedsearch.validate import validate

_Orders = Sequence[Sequence[Instance]]

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
    number, usual = found.num_micro_batches, _usual_order(job)
    even = _searched(validate(as_soon_as_possible(divided, number, usual)), limits, seed)
    return BestOrders(found, split, even)


def _usual_order(job: Job) -> _Orders:
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
    batches = [batch_of(pipeline, run) for run in runs]
    best = min(offered, key=lambda orders: fmean(_scheduled(batch, orders).makespan for batch in batches))
    return validate(as_soon_as_possible(pipeline.placement, number, best))


def _in_sequence(orders: _Orders) -> list[list[Instance]]:
    """Return orders with the micro-batches numbered as the first block takes them."""
    places = {number: place for place, number in enumerate(_taken(orders))}
    return [[(name, places[number]) for name, number in order] for order in orders]


def _taken(orders: _Orders) -> list[int]:
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
        work, own = iteration_work(pipeline, runs)
        simulated = [in_order(pipeline, run, orders_of(run, job.device)) for run in runs]
        reordered, bounds = _replayed(pipeline, runs, best.found, simulated)
        if halves is not None:
            split_runs = halves[0].steps[step]
            as_run = [in_order(halves[1], run, orders_of(run, halves[0].device)) for run in split_runs]
            split, split_bounds = _replayed(halves[1], split_runs, best.split, as_run)
        else:
            split, split_bounds = reordered, bounds
        spans = min([each.makespan for each in simulated], reordered, key=max)
        bound, assigned = max(bounds), own
        if len(runs) > 1:
            ticks, moved_to, answer = _reassigned(pipeline, work, limits.share()["work_limit"], seed)
            limits.spend(answer.work)
            bound = math.floor(answer.makespan_bound * min(pipeline.positions.values(), default=1.0))
            if max(ticks) < max(spans):
                spans, assigned = ticks, moved_to
        took_ms = [run.measured_ms for run in runs]
        found.append(
            ReplayedIteration(
                job.name,
                step,
                len(runs),
                work.num_micro_batches,
                measured_ms=round(max(took_ms), 6),
                simulated_ms=round(max(simulate(each, iterations=1).mean_ms for each in simulated), 6),
                reordered_ms=_ms(max(reordered)),
                order_bound_ms=_ms(max(bounds)),
                split_ms=_ms(max(split)),
                split_bound_ms=_ms(max(split_bounds)),
                reassigned_ms=_ms(max(spans)),
                bound_ms=_ms(bound),
                measured_mean_ms=round(fmean(took_ms), 6),
                reassigned_mean_ms=_ms(fmean(spans)),
                moved=sum(len({*new} - {*old}) for new, old in zip(assigned, own, strict=True)),
                assignment=" | ".join(" ".join(map(str, numbers)) for numbers in assigned),
            )
        )
        if on_iteration is not None:
            on_iteration(found[-1])
    return found


def _replayed(
    pipeline: JobPipeline, runs: Sequence[ReplicaIteration], found: Schedule, own: Sequence[Schedule]
) -> tuple[list[int], list[int]]:
    """Return each replica's makespan in a found order, and its bound; in its own order for other numbers."""
    spans, bounds = [], []
    for run, simulated in zip(runs, own, strict=True):
        is_for = run.num_micro_batches == found.num_micro_batches
        spans.append((in_order(pipeline, run, orders_in(found)) if is_for else simulated).makespan)
        batch, goal = batch_of(pipeline, run), FINITE[Objective.MAKESPAN]
        is_equal = not batch.chosen
        same = goal.bound(batch.placement, batch.num_micro_batches) if is_equal else 0
        bounds.append(same or BlockOrders(batch, goal).bound())
    return spans, bounds


def _ms(ticks: float) -> float:
    return round(ticks * TICK_MS, 6)


def orders_in(schedule: Schedule) -> list[tuple[Instance, ...]]:
    """Return the order of each device in a schedule."""
    return [schedule.order(device) for device in range(schedule.placement.num_devices)]


def batch_of(pipeline: JobPipeline, run: ReplicaIteration) -> Problem:
    """Return a replica's micro-batches with their measured times, each with the gap before it."""
    rows = [
        MicroBatchRow(n, name, round(ms, 3), memory_of(name, pipeline.placement.by_name))
        for (name, n), ms in _times(pipeline, run).items()
    ]
    return unequal_batch(pipeline.placement, rows, run.num_micro_batches)


def _times(pipeline: JobPipeline, run: ReplicaIteration) -> Mapping[Instance, float]:
    """Return the measured time of each block in ms, with the usual gap before it."""
    return {
        instance: max(block.time_ms + pipeline.delays.gap_ms.get(instance[0], 0.0), TICK_MS)
        for instance, block in run.blocks.items()
    }


def _scheduled(batch: Problem, orders: _Orders) -> Schedule:
    """Return the schedule of a batch in given orders, each block as soon as possible."""
    return validate(as_soon_as_possible(batch.placement, batch.num_micro_batches, orders, batch.chosen))


def in_order(pipeline: JobPipeline, run: ReplicaIteration, orders: _Orders) -> Schedule:
    """Return a replica's schedule with its measured times in given orders."""
    return _scheduled(batch_of(pipeline, run), orders)


def _reassigned(
    pipeline: JobPipeline, work: ReplicaWork, work_limit: float | None, seed: int
) -> tuple[list[int], tuple[tuple[int, ...], ...], Answer]:
    """Return the makespan of each replica with the best assignment found, the assignment, and the answer.

    In the answer's times the places in the iteration make no difference; in the makespans they do.
    """
    found, answer = replica_search(work, work_limit=work_limit, seed=seed)
    assert found is not None, "the memory holds what it held in the trace"
    spans = []
    for replica, (schedule, numbers) in enumerate(zip(found.schedules, found.assigned, strict=True)):
        orders = _in_sequence([] if schedule is None else orders_in(schedule))
        taken = [] if schedule is None else _taken(orders_in(schedule))
        rows = []
        for place, number in enumerate(taken):
            for name, ticks in zip(work.names, work.times[replica, :, numbers[number]], strict=True):
                ms = float(ticks) * TICK_MS * pipeline.positions.get((name, place), 1.0)
                rows.append(MicroBatchRow(place, name, round(ms, 3), memory_of(name, pipeline.time_ms)))
        batch = unequal_batch(pipeline.placement, rows, len(taken)) if taken else None
        spans.append(0 if batch is None else _scheduled(batch, orders).makespan)
    return spans, found.assigned, answer


def as_measured(pipeline: JobPipeline, run: ReplicaIteration) -> Schedule:
    """Return a replica's iteration as it was measured, for pictures: blocks may overlap."""
    batch = batch_of(pipeline._replace(delays=Delays({}, {})), run)
    begin_ms = min(block.start_ms for block in run.blocks.values())
    blocks = (
        ScheduledBlock(round((block.start_ms - begin_ms) / TICK_MS), number, name)
        for (name, number), block in run.blocks.items()
    )
    return Schedule(batch.placement, batch.num_micro_batches, tuple(sorted(blocks)), batch.chosen)


def iteration_work(
    pipeline: JobPipeline, runs: Sequence[ReplicaIteration]
) -> tuple[ReplicaWork, tuple[tuple[int, ...], ...]]:
    """Return the micro-batches of an iteration on all replicas, and the numbers of each replica's own.

    On its own replica a micro-batch has its measured times, less what its place in the iteration makes of
    them. On another these are multiplied by how fast that replica is in each block beside its own, over all
    iterations.
    """
    names = [block.name for block in pipeline.placement.topological_order]
    firsts = np.cumsum([0, *(run.num_micro_batches for run in runs)]).tolist()
    own = tuple(tuple(range(a, b)) for a, b in pairwise(firsts))
    times = np.zeros((len(runs), len(names), firsts[-1]), np.int64)
    for source, run in enumerate(runs):
        for (name, n), ms in _times(pipeline, run).items():
            kind = names.index(name)
            for replica, speeds in enumerate(pipeline.speeds):
                factor = speeds[name] / pipeline.speeds[source][name] if replica != source else 1.0
                factor /= pipeline.positions.get((name, n), 1.0)
                times[replica, kind, firsts[source] + n] = max(1, round(ms * factor / TICK_MS))
    memory = [memory_of(name, pipeline.placement.by_name) for name in names]

    def batch(replica: int, numbers: Sequence[int]) -> Problem:
        rows = [
            MicroBatchRow(place, name, round(float(times[replica, kind, n]) * TICK_MS, 3), memory[kind])
            for place, n in enumerate(numbers)
            for kind, name in enumerate(names)
        ]
        return unequal_batch(pipeline.placement, rows, len(numbers))

    units, none = (
        np.repeat(np.array(memory)[:, None], firsts[-1], axis=1),
        np.zeros(times.shape[1:], np.int64),
    )
    return ReplicaWork(pipeline.placement, times, units, none, batch), own
