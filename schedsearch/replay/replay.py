"""Measured iterations through the simulator, in a better order, and with micro-batches assigned anew."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean

import numpy as np

from placements import Placement
from schedsearch.core.answer import Answer
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.problem import Problem
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.replay.job import Job, ReplicaIteration
from schedsearch.replay.pipeline import (
    TICK_MS,
    JobPipeline,
    Orders,
    Variant,
    ends_ms,
    measured_orders,
    memory_of,
    order_bound_ms,
    with_equal_stages,
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
        reordered_bound_ms: Lower bound over all orders; micro-batches stay on their replica.
        split_ms: Like `reordered_ms`, if each backward is two halves of equal time; None if it is already.
        split_bound_ms: Lower bound for that.
        equal_ms: Like `reordered_ms`, if all stages took equally long on average.
        equal_bound_ms: Lower bound over all divisions of the layers and all orders.
        reassigned_ms: With the best assignment and orders found for this iteration, its times being known;
            None for one replica.
        reassigned_bound_ms: Lower bound over all assignments and orders.
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
    reordered_bound_ms: float
    equal_ms: float
    equal_bound_ms: float
    moved: int
    assignment: str
    split_ms: float | None = None
    split_bound_ms: float | None = None
    reassigned_ms: float | None = None
    reassigned_bound_ms: float | None = None


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


ORDER, HALVES, EQUAL = "order", "order, backwards in halves", "order and division of layers"
REASSIGNED = "order and assignment, per iteration"
CHANGES = ("measured", "simulated", ORDER, HALVES, REASSIGNED, EQUAL)
"""Parts of a job that may change: none; the order of all iterations alike, of blocks as they are, or with
each backward in two halves; order and assignment of micro-batches for each iteration by itself; the order,
with the layers divided so that all stages take equally long."""

_COLUMNS = dict(
    zip(CHANGES, ("measured", "simulated", "reordered", "split", "reassigned", "equal"), strict=True)
)
"""Begins of the columns of `ReplayedIteration`."""


def variants(job: Job, pipeline: JobPipeline) -> dict[str, Variant]:
    """Return the job with each change for which an order is searched, by the change; no halves of halves."""
    halves = with_halves(job, pipeline)
    made = {ORDER: (job, pipeline), EQUAL: with_equal_stages(job, pipeline)}
    return made if halves is None else made | {HALVES: halves}


def changes(iterations: Sequence[ReplayedIteration]) -> list[ChangeRow]:
    """Return a row for each of `CHANGES` that was made, means of iterations of one job."""
    rows = []
    for change, column in _COLUMNS.items():
        times = [getattr(iteration, f"{column}_ms") for iteration in iterations]
        if change == EQUAL:  # or the layers stay as they are
            times = min(times, [iteration.reordered_ms for iteration in iterations], key=fmean)
        bounds = [getattr(iteration, f"{column}_bound_ms", None) for iteration in iterations]
        if None not in times:
            known = [bound for bound in bounds if bound is not None]
            bound = round(fmean(known), 6) if known else None
            rows.append(ChangeRow(iterations[0].job, change, round(fmean(times), 6), bound))
    return rows


def division_bound_ms(times: Mapping[Instance, float], job: Job) -> float:
    """Return the least time of a replica's iteration with any division of its layers, in any order.

    With one stage on each of p devices, stage i with the share a_i of all work W begins after the shares
    before it of the shortest micro-batch w, and ends before them: the iteration takes at least
    a_i W + (a_0 + ... + a_(i-1)) w. Shares that meet all of these sum to 1 where it takes w over
    1 - (1 - w/W)^p. With several stages on a device it takes at least the mean load. Each layer has the same
    share of every micro-batch.
    """
    work: dict[int, float] = defaultdict(float)
    for (_, number), ms in times.items():
        work[number] += ms
    total, shortest = sum(work.values()), min(work.values())
    if sum(name[0] == "F" for name in job.device) > job.num_devices:
        return total / job.num_devices
    return shortest / (1 - (1 - shortest / total) ** job.num_devices)


def best_orders(made: Mapping[str, Variant], work_limit: float, seed: int = 0) -> dict[str, Schedule]:
    """Return for each change the order that is best for the iterations of a job on average, with mean times.

    Offered are the usual order of the job, the best found with mean times, and the best found with the times
    of some single iterations. In each, micro-batches are numbered as the first block takes them: what makes
    the first micro-batch of every iteration slow would make any first one slow.

    Args:
        made: The job with each change; see `variants`.
        work_limit: Units of counted work, each of about a second.
        seed: Seed of the random choices.
    """
    limits = SharedLimits(work_limit, searches=len(made))
    return {change: _best_order(*variant, limits, seed) for change, variant in made.items()}


def _best_order(job: Job, pipeline: JobPipeline, limits: SharedLimits, seed: int) -> Schedule:
    """Return the order that is best for the iterations on average, with mean times."""
    usual = Counter(measured_orders(run, job.device) for run in job.runs).most_common(1)[0][0]
    share = SharedLimits(limits.share()["work_limit"])
    number = 1 + max(n for order in usual for _, n in order)
    runs = [run for run in job.runs if run.num_micro_batches == number]
    some = runs[:: -(-len(runs) // _SINGLE_ITERATIONS)]
    share.searches, given = 1 + len(some), share.work
    begin = [validate(as_soon_as_possible(pipeline.placement, number, usual))]
    begin += [in_order(pipeline, run, usual) for run in some]
    offered = [usual, *(_in_sequence(orders_in(_searched(schedule, share, seed))) for schedule in begin)]
    limits.spend(given - share.work)
    best = min(offered, key=lambda orders: sum(_makespan_ms(job, pipeline, run, orders) for run in runs))
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
    made: Mapping[str, Variant],
    best: Mapping[str, Schedule],
    work_limit: float = 12.0,
    seed: int = 0,
    on_iteration: Callable[[ReplayedIteration], None] | None = None,
) -> list[ReplayedIteration]:
    """Return each iteration of a job with its measured time, and its times in better orders.

    Args:
        made: The job with each change; see `variants`.
        best: The best order for all iterations with each change.
        work_limit: Units of counted work, each of about a second, for all iterations together.
        seed: Seed of the random choices.
        on_iteration: Called after each.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C; `on_iteration` has had all finished iterations.
    """
    iterations: list[ReplayedIteration] = []
    job, pipeline = made[ORDER]
    limits = SharedLimits(work_limit, searches=len(job.steps))
    for step, runs in job.steps.items():
        INTERRUPTS.raise_if_seen()
        before = assigned = _numbers(runs)
        simulated = [_makespan_ms(job, pipeline, run) for run in runs]
        times = {"measured_ms": max(run.measured_ms for run in runs), "simulated_ms": max(simulated)}
        for change, (changed, within) in made.items():
            better, bounds = _replayed(changed, within, changed.steps[step], best[change])
            if change == EQUAL:
                bounds = [division_bound_ms(within.delays.times(run), changed) for run in changed.steps[step]]
            if change == ORDER:
                spans = min(better, simulated, key=max)
            column = _COLUMNS[change]
            times |= {f"{column}_ms": max(better), f"{column}_bound_ms": max(bounds)}
        if len(runs) > 1:
            limit = limits.share()["work_limit"]
            moved_ms, moved_to, answer = _reassigned(job, pipeline, runs, limit, seed)
            limits.spend(answer.work)
            if max(moved_ms) < max(spans):
                spans, assigned = moved_ms, moved_to
            ticks = answer.makespan_bound - sum(len(run.blocks) for run in runs)  # their times are rounded
            bound_ms = ticks * TICK_MS * min(pipeline.positions.values(), default=1.0)
            times |= {"reassigned_ms": max(spans), "reassigned_bound_ms": bound_ms}
        iterations.append(
            ReplayedIteration(
                job.name,
                step,
                len(runs),
                sum(map(len, before)),
                **{name: round(ms, 6) for name, ms in times.items()},
                moved=sum(len({*new} - {*old}) for new, old in zip(assigned, before, strict=True)),
                assignment=" | ".join(" ".join(map(str, numbers)) for numbers in assigned),
            )
        )
        if on_iteration is not None:
            on_iteration(iterations[-1])
    return iterations


def _makespan_ms(
    job: Job, pipeline: JobPipeline, run: ReplicaIteration, orders: Orders | None = None
) -> float:
    """Return a replica's time with its measured times, in given orders or in its own."""
    orders = measured_orders(run, job.device) if orders is None else orders
    return max(ends_ms(pipeline.delays.times(run), pipeline.delays, job, orders).values())


def _replayed(
    job: Job, pipeline: JobPipeline, runs: Sequence[ReplicaIteration], schedule: Schedule
) -> tuple[list[float], list[float]]:
    """Return each replica's time in an order that was found, and its bound, in ms.

    The order is for one number of micro-batches; a replica with another one keeps its own.
    """
    spans, bounds = [], []
    for run in runs:
        is_for = run.num_micro_batches == schedule.num_micro_batches
        spans.append(_makespan_ms(job, pipeline, run, orders_in(schedule) if is_for else None))
        times = pipeline.delays.times(run)
        bounds.append(order_bound_ms(times, pipeline.delays, job))
        batch = _batch(pipeline.placement, times, run.num_micro_batches)
        if batch.chosen and len(times) <= _BOUNDED:
            ticks = BlockOrders(batch, FINITE[Objective.MAKESPAN]).bound()
            bounds[-1] = max(bounds[-1], (ticks - len(times)) * TICK_MS)  # times in ticks are rounded
    return spans, bounds


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
    result, answer = replica_search(work, work_limit=work_limit, seed=seed)
    assert result is not None, "the memory holds what it held in the trace"
    spans = []
    for replica, (schedule, numbers) in enumerate(zip(result.schedules, result.assigned, strict=True)):
        orders: Orders = [] if schedule is None else orders_in(schedule)
        times = {
            (name, place): float(ticks) * TICK_MS * pipeline.positions.get((name, place), 1.0)
            for place, number in enumerate(_taken(orders))
            for name, ticks in zip(work.names, work.times[replica, :, numbers[number]], strict=True)
        }
        ends = ends_ms(times, pipeline.delays, job, _in_sequence(orders))
        spans.append(max(ends.values(), default=0.0))
    return spans, result.assigned, answer


def as_measured(pipeline: JobPipeline, run: ReplicaIteration) -> Schedule:
    """Return a replica's iteration as it was measured, for pictures: blocks may overlap."""
    return _drawn(
        pipeline, {instance: (block.start_ms, block.end_ms) for instance, block in run.blocks.items()}
    )


def as_replayed(job: Job, pipeline: JobPipeline, run: ReplicaIteration, orders: Orders) -> Schedule:
    """Return a replica's iteration in given orders, for pictures: without the gaps before blocks."""
    ends = ends_ms(pipeline.delays.times(run), pipeline.delays, job, orders)
    return _drawn(pipeline, {i: (end - run.blocks[i].time_ms, end) for i, end in ends.items()})


def _drawn(pipeline: JobPipeline, spans: Mapping[Instance, tuple[float, float]]) -> Schedule:
    """Return blocks with begins and ends in ms as a schedule that begins at 0."""
    begin_ms = min(start for start, _ in spans.values())
    ticks = {instance: [round((ms - begin_ms) / TICK_MS) for ms in ends] for instance, ends in spans.items()}
    times = {instance: max(end - start, 1) * TICK_MS for instance, (start, end) in ticks.items()}
    batch = _batch(pipeline.placement, times, 1 + max(number for _, number in spans))
    blocks = sorted(ScheduledBlock(start, number, name) for (name, number), (start, _) in ticks.items())
    return Schedule(batch.placement, batch.num_micro_batches, tuple(blocks), batch.chosen)


def iteration_work(pipeline: JobPipeline, runs: Sequence[ReplicaIteration]) -> ReplicaWork:
    """Return the micro-batches of an iteration on all replicas, numbered through them.

    On its own replica a micro-batch has its measured times, less what its place in the iteration makes of
    them. On another these are multiplied by how fast that replica is in each block beside its own, over all
    iterations.
    """
    names = [block.name for block in pipeline.placement.topological_order]
    numbers = _numbers(runs)
    times = np.zeros((len(runs), len(names), sum(map(len, numbers))), np.int64)
    for source, run in enumerate(runs):
        for (name, n), ms in pipeline.delays.times(run).items():
            for replica, speeds in enumerate(pipeline.speeds):
                factor = speeds[name] / pipeline.speeds[source][name] / pipeline.positions.get((name, n), 1.0)
                times[replica, names.index(name), numbers[source][n]] = max(1, round(ms * factor / TICK_MS))
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
