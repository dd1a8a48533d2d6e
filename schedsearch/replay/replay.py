"""Measured iterations through the simulator, in better orders, and with micro-batches assigned anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.replay.pipeline import JobPipeline, job_pipeline, orders_of
from schedsearch.replay.trace import TICK_MS, JobTrace, ReplicaIteration
from schedsearch.schedule import as_soon_as_possible
from schedsearch.simulation.iterations import simulate
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.unequal.micro_batches import MicroBatchRow, unequal_batch
from schedsearch.unequal.replica_work import ReplicaSchedules, ReplicaWork
from schedsearch.unequal.unequal_search import replica_search
from schedsearch.validate import validate

_REORDERED = 0.4
"""Share of the work for the best order; the rest is for assignment and order."""


@dataclass(frozen=True)
class ReplayedIteration:
    """A measured iteration, replayed in several orders; each time is of the slowest replica.

    Attributes:
        job: Name of the job.
        step: Number of the iteration in the trace.
        replicas: Number of replicas.
        micro_batches: Micro-batches of all replicas.
        measured_ms: From the first start to the last end of a replica's blocks, as measured.
        simulated_ms: Simulated with the measured block times and orders.
        reordered_ms: With the best orders found; micro-batches stay on their replica.
        reassigned_ms: With the best assignment and orders found.
        bound_ms: Lower bound over all assignments and orders.
        measured_mean_ms: Mean over replicas, as measured.
        reassigned_mean_ms: Mean over replicas with the best assignment.
        moved: Micro-batches that the best assignment moves to another replica.
    """

    job: str
    step: int
    replicas: int
    micro_batches: int
    measured_ms: float
    simulated_ms: float
    reordered_ms: float
    reassigned_ms: float
    bound_ms: float
    measured_mean_ms: float
    reassigned_mean_ms: float
    moved: int


@dataclass(frozen=True)
class ReplayedJob:
    """The means of a job's iterations."""

    job: str
    iterations: int
    measured_ms: float
    simulated_ms: float
    reordered_ms: float
    reassigned_ms: float
    bound_ms: float


def mean_of(iterations: Sequence[ReplayedIteration]) -> ReplayedJob:
    """Return the means of iterations of one job."""
    columns = ("measured_ms", "simulated_ms", "reordered_ms", "reassigned_ms", "bound_ms")
    means = (round(fmean(getattr(each, column) for each in iterations), 6) for column in columns)
    return ReplayedJob(iterations[0].job, len(iterations), *means)


def replay(
    trace: JobTrace,
    work_limit: float = 30.0,
    seed: int = 0,
    on_iteration: Callable[[ReplayedIteration], None] | None = None,
) -> list[ReplayedIteration]:
    """Return each iteration of a job with its measured time, and its times in better orders.

    Args:
        trace: The job.
        work_limit: Units of counted work, each of about a second, for all iterations together.
        seed: Seed of the random choices.
        on_iteration: Called after each.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C; `on_iteration` has had all finished iterations.
    """
    pipeline, found = job_pipeline(trace), []
    limits = SharedLimits(work_limit, searches=len(trace.steps))
    device = {block.name: block.devices[0] for block in pipeline.placement.blocks}
    for step, runs in trace.steps.items():
        INTERRUPTS.raise_if_seen()
        limit = limits.share()["work_limit"]
        work, own = iteration_work(pipeline, runs)
        schedules = []
        for replica, run in enumerate(runs):
            batch, orders = work.part(replica, own[replica]), orders_of(run, device, trace.num_stages)
            made = as_soon_as_possible(batch.placement, batch.num_micro_batches, orders, batch.chosen)
            schedules.append(validate(made))
        begin, share = ReplicaSchedules(own, tuple(schedules)), limit * _REORDERED
        reordered, in_place = replica_search(work, given=own, begin_with=begin, work_limit=share, seed=seed)
        reassigned, answer = replica_search(work, begin_with=reordered, work_limit=limit - share, seed=seed)
        limits.spend(in_place.work + answer.work)
        assert reordered is not None and reassigned is not None, "they began with schedules"
        took_ms = [run.measured_ms for run in runs]
        spans = [max(ticks, 0) for ticks in reassigned.values(Objective.MAKESPAN)]
        found.append(
            ReplayedIteration(
                trace.job,
                step,
                len(runs),
                work.num_micro_batches,
                measured_ms=round(max(took_ms), 6),
                simulated_ms=round(max(simulate(each, iterations=1).mean_ms for each in schedules), 6),
                reordered_ms=round(reordered.value(Objective.MAKESPAN) * TICK_MS, 6),
                reassigned_ms=round(reassigned.value(Objective.MAKESPAN) * TICK_MS, 6),
                bound_ms=round(answer.makespan_bound * TICK_MS, 6),
                measured_mean_ms=round(fmean(took_ms), 6),
                reassigned_mean_ms=round(fmean(spans) * TICK_MS, 6),
                moved=sum(len({*new} - {*old}) for new, old in zip(reassigned.assigned, own, strict=True)),
            )
        )
        if on_iteration is not None:
            on_iteration(found[-1])
    return found


def iteration_work(
    pipeline: JobPipeline, runs: Sequence[ReplicaIteration]
) -> tuple[ReplicaWork, tuple[tuple[int, ...], ...]]:
    """Return the micro-batches of an iteration on all replicas, and the numbers of each replica's own.

    On its own replica a micro-batch has its measured times. On another these are multiplied by how fast that
    replica is in each block beside its own, over all iterations.
    """
    names = [block.name for block in pipeline.placement.topological_order]
    firsts = np.cumsum([0, *(run.num_micro_batches for run in runs)]).tolist()
    own = tuple(tuple(range(a, b)) for a, b in pairwise(firsts))
    times = np.zeros((len(runs), len(names), firsts[-1]), np.int64)
    for source, run in enumerate(runs):
        for (name, n), measured in run.blocks.items():
            kind = names.index(name)
            for replica, speeds in enumerate(pipeline.speeds):
                factor = speeds[name] / pipeline.speeds[source][name] if replica != source else 1.0
                times[replica, kind, firsts[source] + n] = max(1, round(measured.time_ms * factor / TICK_MS))
    memory = [1 if name.startswith("F") else -1 for name in names]

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
