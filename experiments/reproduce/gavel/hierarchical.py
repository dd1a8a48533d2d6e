"""Fairness between three entities and inside them, as jobs are added one by one (Fig. 5.12 and 5.13)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import numpy as np

from experiments.reproduce.gavel.options import (
    INPUTS,
    SeedOptions,
    checked_cases,
    cluster_of,
    folder_of,
    gavel_throughputs,
    gavel_types,
)
from experiments.reproduce.gavel.spread import Spread
from experiments.reproduce.item import Claim, Item, Row, Trend, cases_in
from schedsearch.cluster.demand import Demand, FloatArray
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.hierarchical import Entity, Hierarchical
from schedsearch.figures.panels import Panel, Point, draw_panels

ENTITIES = {"entity 0": 1.0, "entity 1": 2.0, "entity 2": 3.0}
"""Weights, by name; the jobs of the first come first."""

JOBS_OF_EACH = 6

GPUS_PER_TYPE = 3

STEPS_BETWEEN = 4
"""Time steps from one job to the next; allocations change when jobs come."""

AWARE, STATIC, FIFO = "hierarchical", "static partition", "fairness and FIFO"

THROUGHPUT, RATIO = "total_throughput", "total_throughput_factor"

PUBLISHED = 0.83
"""The static partition's throughput is about 17 % lower (Sec. 5.7.3)."""


def _cases(options: SeedOptions) -> list[str]:
    return checked_cases(options, ("entities",))


def _rows(options: SeedOptions, case: str) -> list[Row]:
    demands = _demands(options, int(case.rpartition("_seed")[2]))
    totals = {
        AWARE: [_sum_of_parts(demand, _policy("fairness").allocate(demand).rates) for demand in demands],
        STATIC: [_sum_of_parts(demand, _static_rates(demand)) for demand in demands],
    }
    rows = [
        Row(case, f"{name}, step {STEPS_BETWEEN * number}", THROUGHPUT, total)
        for name, each in totals.items()
        for number, total in enumerate(each)
    ]
    rows.append(
        Row(case, f"{STATIC} / {AWARE}", RATIO, sum(totals[STATIC]) / sum(totals[AWARE]), PUBLISHED, digits=2)
    )
    last = demands[-1]
    inner: dict[str, Literal["fairness", "fifo"]] = {AWARE: "fairness", FIFO: "fifo"}
    for label, inside in inner.items():
        rates = _policy(inside).allocate(last).rates / last.proportional_steps_per_s
        for number, each in enumerate(rates.reshape(len(ENTITIES), JOBS_OF_EACH)):
            rows.append(Row(case, f"{label}, entity {number}", "throughput_of_entity", float(each.sum())))
            rows.append(Row(case, f"{label}, entity {number}", "jobs_that_run", float((each > 1e-6).sum())))
    return rows


def _policy(inside: Literal["fairness", "fifo"]) -> Hierarchical:
    return Hierarchical({name: Entity(weight, inside) for name, weight in ENTITIES.items()})


def _demands(options: SeedOptions, seed: int) -> list[Demand]:
    """Return what is asked after each job has come; no job ends."""
    folder = folder_of(options)
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


def _trends(rows: Sequence[Row]) -> list[Trend]:
    lower = Spread.of([row.ours or 0.0 for row in rows if row.metric == RATIO])
    values = {(row.case, row.label, row.metric): row.ours or 0.0 for row in rows}
    cases = cases_in(rows)
    entities = [f"{AWARE}, entity {number}" for number in range(len(ENTITIES))]
    of_entity = [[values[case, label, "throughput_of_entity"] for label in entities] for case in cases]
    ordered = [each == sorted(each) for each in of_entity]
    run = {
        label: [values[case, f"{label}, entity 0", "jobs_that_run"] for case in cases]
        for label in (AWARE, FIFO)
    }
    return [
        Trend(
            "the total throughput of a static partition is below that of the policy, 0.83 times in the "
            "dissertation",
            (lower.mean if lower.count == 1 else lower.high) < 1,
            f"{lower} times",
        ),
        Trend(
            "entities of more weight get more, when all jobs are there",
            all(ordered),
            f"{sum(ordered)} of {len(ordered)} seeds",
        ),
        Trend(
            "FIFO inside leaves later jobs of entity 0 without time, fairness none",
            min(run[AWARE]) == JOBS_OF_EACH > max(run[FIFO]),
            f"{max(run[FIFO]):g} of {JOBS_OF_EACH} jobs run at most",
        ),
    ]


def _draw(rows: Sequence[Row]) -> Any:
    case = rows[0].case
    curves = {
        name: [
            Point(float(row.label.rpartition(" ")[2]), row.ours or 0.0)
            for row in rows
            if row.case == case and row.metric == THROUGHPUT and row.label.startswith(f"{name}, step ")
        ]
        for name in (AWARE, STATIC)
    }
    return draw_panels([Panel(case, curves)], "time step", "total throughput", "Policy", width=7.0)


HIERARCHICAL_ITEM = Item(
    "gavel_hierarchical",
    "Narayanan's dissertation, Fig. 5.12 and 5.13",
    "Fairness between entities, as jobs are added",
    Claim.TREND,
    SeedOptions,
    SeedOptions(seeds=(0,)),
    _cases,
    _rows,
    _trends,
    _draw,
    inputs=INPUTS,
    because=(
        "The types of the 18 jobs are not given; they are drawn from Gavel's 26. Throughputs are summed as "
        "parts of what each job would get if its time were divided as the GPUs are among the types"
    ),
)
