"""Fairness between three entities and inside them, as jobs are added one by one (Fig. 5.12 and 5.13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Literal

import numpy as np

from experiments.reproduce.gavel.study import (
    JOB_TYPES,
    THROUGHPUTS,
    FactorSpread,
    SeedOptions,
    cluster_of,
    gavel_throughputs,
    gavel_types,
)
from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import draw_curves, grouped, in_all, numbers, rows_with
from schedsearch.cluster.demand import Demand, FloatArray
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.water_filling import Entity, Hierarchical

ENTITIES = {"entity 0": 1.0, "entity 1": 2.0, "entity 2": 3.0}
"""Weights, by name; the jobs of the first come first."""

JOBS_OF_EACH = 6

GPUS_PER_TYPE = 3

STEPS_BETWEEN = 4
"""Time steps from one job to the next; allocations change when jobs come."""

AWARE, STATIC, FIFO = "hierarchical", "static partition", "fairness and FIFO"

THROUGHPUT, RATIO = "total_throughput", "total_throughput_factor"
OF_ENTITY, RUNNING = "throughput_of_entity", "jobs_that_run"

PUBLISHED = 0.83
"""Throughput of the static partition over the policy's: about 17 % lower (Sec. 5.7.3)."""


def _rows(options: SeedOptions, case: tuple[str, int]) -> Iterator[Row]:
    demands = _demands(options, case[1])
    totals = {name: [float(PARTS[name](demand).sum()) for demand in demands] for name in (AWARE, STATIC)}
    for name, curve in totals.items():
        for at, total in zip(range(0, STEPS_BETWEEN * len(curve), STEPS_BETWEEN), curve, strict=True):
            yield Row(f"{name}, step {at}", THROUGHPUT, total, series=name, at=at)
    yield Row(f"{STATIC} / {AWARE}", RATIO, sum(totals[STATIC]) / sum(totals[AWARE]), PUBLISHED, digits=2)
    for name in (AWARE, FIFO):
        for number, of_jobs in enumerate(PARTS[name](demands[-1]).reshape(len(ENTITIES), JOBS_OF_EACH)):
            for metric, value in ((OF_ENTITY, of_jobs.sum()), (RUNNING, (of_jobs > 1e-6).sum())):
                yield Row(f"{name}, entity {number}", metric, float(value), series=name, at=number)


def _demands(options: SeedOptions, seed: int) -> list[Demand]:
    """Return the demand after each job has come; no job ends."""
    throughputs, random = gavel_throughputs(options.file(THROUGHPUTS)), Random(seed)
    names = [*gavel_types(options.file(JOB_TYPES))]
    jobs = [
        ActiveJob(Job(str(number), random.choice(names), 1.0, entity=entity), 1.0)
        for number, entity in enumerate(name for name in ENTITIES for _ in range(JOBS_OF_EACH))
    ]
    cluster = cluster_of(GPUS_PER_TYPE)
    return [throughputs.demand(cluster, jobs[: count + 1]) for count in range(len(jobs))]


def _parts(inside: Literal["fairness", "fifo"], demand: Demand) -> FloatArray:
    """Return each job's throughput by the policy, relative to its proportional one."""
    policy = Hierarchical({name: Entity(weight, inside) for name, weight in ENTITIES.items()})
    return policy.allocate(demand).rates / demand.proportional_steps_per_s


def _static_parts(demand: Demand) -> FloatArray:
    """Return each job's throughput with a fixed share of each GPU type by weight, one type at a time."""
    entities = [active.job.entity for active in demand.jobs]
    whole = sum(ENTITIES[name] for name in {*entities})
    weights = np.array([ENTITIES[name] / entities.count(name) / whole for name in entities])
    times = weights[:, None] * demand.workers
    times /= np.maximum(times.sum(axis=1, keepdims=True), 1)
    parts: FloatArray = (demand.alone_steps_per_s * times).sum(axis=1) / demand.proportional_steps_per_s
    return parts


PARTS: dict[str, Callable[[Demand], FloatArray]] = {
    AWARE: partial(_parts, "fairness"),
    FIFO: partial(_parts, "fifo"),
    STATIC: _static_parts,
}


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    lower = FactorSpread.of(numbers(rows_with(rows, metric=RATIO)))
    conclusion = f"total throughput of a static partition over the policy: below 1, printed {PUBLISHED}"
    yield Trend(conclusion, lower.high < 1 and lower.is_near(PUBLISHED), str(lower))
    of_entity = [
        numbers(group) for group in grouped(rows_with(rows, metric=OF_ENTITY, series=AWARE)).values()
    ]
    ordered = [values == sorted(values) for values in of_entity]
    conclusion = "entities of more weight get more, when all jobs are there"
    yield in_all(conclusion, ordered, "seeds")
    fair, fifo = (numbers(rows_with(rows, metric=RUNNING, series=name, at=0)) for name in (AWARE, FIFO))
    conclusion = "FIFO inside leaves later jobs of entity 0 without time, fairness none"
    shown_by = f"{max(fifo):g} of {JOBS_OF_EACH} jobs run at most"
    yield Trend(conclusion, min(fair) == JOBS_OF_EACH > max(fifo), shown_by)


def _draw(rows: Sequence[Row]) -> Any:
    shown = rows_with(rows, case=rows[0].case, metric=THROUGHPUT)
    return draw_curves(shown, "time step", "total throughput", "Policy", width=7.0)


def _cases(options: SeedOptions) -> dict[str, tuple[str, int]]:
    options.file(THROUGHPUTS)
    return options.cases(["entities"])


ITEMS = (described("gavel_hierarchical", _cases, _rows, _trends, _draw, SeedOptions(seeds=(0,))),)
