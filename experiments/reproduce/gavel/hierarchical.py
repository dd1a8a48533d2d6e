"""Fairness between three entities and inside them, as jobs are added one by one (Fig. 5.12 and 5.13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Literal

import numpy as np

from experiments.reproduce.gavel.options import (
    THROUGHPUTS,
    SeedOptions,
    cluster_of,
    file_of,
    gavel_throughputs,
    gavel_types,
    seeded,
)
from experiments.reproduce.gavel.study import BAND, FactorSpread
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
    totals = {
        AWARE: [_sum_of_parts(demand, _policy("fairness").allocate(demand).rates) for demand in demands],
        STATIC: [_sum_of_parts(demand, _static_rates(demand)) for demand in demands],
    }
    for name, each in totals.items():
        for step, total in enumerate(each):
            at = STEPS_BETWEEN * step
            yield Row(f"{name}, step {at}", THROUGHPUT, total, series=name, at=at)
    yield Row(f"{STATIC} / {AWARE}", RATIO, sum(totals[STATIC]) / sum(totals[AWARE]), PUBLISHED, digits=2)
    last = demands[-1]
    inner: dict[str, Literal["fairness", "fifo"]] = {AWARE: "fairness", FIFO: "fifo"}
    for label, inside in inner.items():
        rates = _policy(inside).allocate(last).rates / last.proportional_steps_per_s
        for number, own in enumerate(rates.reshape(len(ENTITIES), JOBS_OF_EACH)):
            yield Row(f"{label}, entity {number}", OF_ENTITY, float(own.sum()), series=label, at=number)
            running = float((own > 1e-6).sum())
            yield Row(f"{label}, entity {number}", RUNNING, running, series=label, at=number)


def _policy(inside: Literal["fairness", "fifo"]) -> Hierarchical:
    return Hierarchical({name: Entity(weight, inside) for name, weight in ENTITIES.items()})


def _demands(options: SeedOptions, seed: int) -> list[Demand]:
    """Return the demand after each job has come; no job ends."""
    folder = file_of(options, THROUGHPUTS).parent
    throughputs, random = gavel_throughputs(folder), Random(seed)
    names = [*gavel_types(folder)]
    jobs = [
        ActiveJob(Job(str(number), random.choice(names), 1.0, entity=entity), 1.0)
        for number, entity in enumerate(name for name in ENTITIES for _ in range(JOBS_OF_EACH))
    ]
    cluster = cluster_of(GPUS_PER_TYPE)
    return [throughputs.demand(cluster, jobs[: count + 1]) for count in range(len(jobs))]


def _sum_of_parts(demand: Demand, rates: FloatArray) -> float:
    return float((rates / demand.proportional_steps_per_s).sum())


def _static_rates(demand: Demand) -> FloatArray:
    """Return the throughputs with a part of each type for each job, by its weight, but never two at once."""
    entities = [active.job.entity for active in demand.jobs]
    whole = sum(ENTITIES[name] for name in {*entities})
    parts = np.array([ENTITIES[name] / entities.count(name) / whole for name in entities])
    times = parts[:, None] * demand.workers
    times /= np.maximum(times.sum(axis=1, keepdims=True), 1)
    rates: FloatArray = (demand.alone_steps_per_s * times).sum(axis=1)
    return rates


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    lower = FactorSpread.of(numbers(rows_with(rows, metric=RATIO)))
    yield Trend(
        "the total throughput of a static partition is below that of the policy, 0.83 times in the "
        f"dissertation (within {BAND:.0%})",
        (lower.mean if lower.count == 1 else lower.high) < 1 and abs(lower.mean / 0.83 - 1) <= BAND,
        f"{lower} times",
    )
    of_entity = [numbers(own) for own in grouped(rows_with(rows, metric=OF_ENTITY, series=AWARE)).values()]
    ordered = [each == sorted(each) for each in of_entity]
    says = "entities of more weight get more, when all jobs are there"
    yield in_all(says, ordered, "seeds", start="")
    fair, fifo = (numbers(rows_with(rows, metric=RUNNING, series=name, at=0)) for name in (AWARE, FIFO))
    yield Trend(
        "FIFO inside leaves later jobs of entity 0 without time, fairness none",
        min(fair) == JOBS_OF_EACH > max(fifo),
        f"{max(fifo):g} of {JOBS_OF_EACH} jobs run at most",
    )


def _draw(rows: Sequence[Row]) -> Any:
    shown = rows_with(rows, case=rows[0].case, metric=THROUGHPUT)
    return draw_curves(shown, "time step", "total throughput", "Policy", width=7.0)


HIERARCHICAL_ITEM = described(
    "gavel_hierarchical",
    lambda options: seeded(options, ("entities",)),
    _rows,
    conclude=_trends,
    draw=_draw,
    small=SeedOptions(seeds=(0,)),
)

ITEMS = (HIERARCHICAL_ITEM,)
