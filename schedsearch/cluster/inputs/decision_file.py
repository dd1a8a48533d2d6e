"""One decision as JSON: jobs, throughputs and workers.

For example::

    {
      "workers": {"v100": 1, "k80": 1},
      "jobs": [
        {"name": "a", "steps": 1000, "scale_factor": 1, "weight": 1, "slo_s": 3600},
        {"name": "b", "steps": 2000, "steps_left": 500, "waited_s": 60}
      ],
      "throughputs": {"a": {"v100": 40, "k80": 10}, "b": {"v100": 12, "k80": 4}},
      "pairs": [{"jobs": ["a", "b"], "v100": [20, 7.5]}],
      "dollars_per_hour": {"v100": 2.48, "k80": 0.45}
    }

Throughputs and pairs are by the types of jobs, which are their names where the file gives none. A throughput
is steps per second, null or 0 where the job cannot run; or a mapping with the columns of a table of
throughputs, as ``{"steps_per_s": 40, "power_w": 250, "clock_mhz": 1380, "scale_factor": 1}``; or a list of
these: clocks, or other numbers of GPUs. Instead of them all it may be the path of a file of throughputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from placements.meaning import Meaning
from placements.plain_data import Field, json_file
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster, require
from schedsearch.cluster.inputs.throughput_file import (
    PlacedRow,
    ThroughputRow,
    rate_of,
    read_throughputs,
    row_of_two,
    throughputs_of,
)
from schedsearch.cluster.jobs import ActiveJob, Job


@dataclass(frozen=True)
class EntityEntry:
    """An owner of jobs."""

    weight: Annotated[float, Meaning("its share among entities", above=0)] = 1.0
    policy: Annotated[Literal["fairness", "fifo"], Meaning("how its jobs share what it has")] = "fairness"


@dataclass(frozen=True)
class DecisionForm:
    """The fields of a decision file besides those of its cluster."""

    jobs: Annotated[tuple[Field, ...], Meaning("jobs that are there")]
    throughputs: Annotated[Field, Meaning("steps per second by type of job and GPU type")]
    pairs: Annotated[tuple[Field, ...], Meaning("throughputs of two jobs on the same GPUs")] = ()
    entities: Annotated[Mapping[str, EntityEntry], Meaning("owners of jobs by name")] = field(
        default_factory=dict
    )
    budget_dollars: Annotated[float, Meaning("what all jobs together may cost", above=0)] = math.inf


@dataclass(frozen=True, eq=False)
class Decision:
    """The question of a decision file.

    Attributes:
        demand: With pairs, where the file has some.
        form: The rest of the file.
    """

    demand: Demand
    form: DecisionForm

    @property
    def has_steps(self) -> bool:
        """Return whether each job has steps; if not, policies that look at them have nothing to decide on."""
        return all({"steps", "steps_left"} & job.value.keys() for job in self.form.jobs)


def read_decision(path: str | Path) -> Decision:
    """Return the decision that a JSON file asks for.

    Raises:
        ClusterError: The file cannot be read or is wrong: a field that is not known, a name twice, a number
            out of its range, an SLO in the past, a job that cannot run.
    """
    with json_file(path, "a JSON file of workers, jobs and throughputs", ClusterError) as data:
        of_cluster, others = _divided(data, [each.name for each in fields(GpuCluster)])
        cluster, form = of_cluster.record(GpuCluster), others.record(DecisionForm)
        jobs = sorted(_jobs(form), key=lambda active: active.job.arrival_s)
        if isinstance(form.throughputs.value, str):
            throughputs = read_throughputs(Path(path).parent / form.throughputs.value)
        else:
            gpus_of: dict[str, set[int]] = {}
            for active in jobs:
                gpus_of.setdefault(active.job.type, set()).add(active.job.scale_factor)
            throughputs = throughputs_of(_rows(form, gpus_of, cluster))
        demand = throughputs.demand(cluster, jobs, shares_space=True)
        for active, rates in zip(jobs, demand.alone_steps_per_s, strict=True):
            wanted = f"runnable: no GPU type with its {active.job.scale_factor} GPUs has a throughput above 0"
            require(rates.any(), "jobs", active.name, f"{wanted}; add one, or remove the job")
        return Decision(demand, form)


def _divided(data: Field, names: Sequence[str]) -> tuple[Field, Field]:
    """Return some fields of a mapping, and the others; those that are null are as if not there."""
    there = {name: value for name, value in data.mapping().items() if value is not None}
    some = {name: there.pop(name) for name in names if name in there}
    return replace(data, value=some), replace(data, value=there)


def _jobs(form: DecisionForm) -> Iterator[ActiveJob]:
    """Yield the jobs as they are at the decision.

    The type of a job is else its name; its steps, those that are left; and those that are left, all.
    """
    names = set[str]()
    for entry in form.jobs:
        progress, submitted = _divided(entry, ("steps_left", "waited_s", "isolated_s"))
        left = progress.value.get("steps_left", 1.0)
        filled = {"type": submitted["name"].value, "steps": left, **submitted.value}
        job = replace(submitted, value=filled).record(Job)
        active = replace(progress, value={"steps_left": job.steps, **progress.value}).record(
            ActiveJob, job=job
        )
        require(job.name not in names, f"{entry.where}.name", job.name, "a name of one job alone; rename one")
        wanted = f"above 0 and at most the job's {job.steps:g} steps; correct one of them"
        is_right = 0 < active.steps_left <= job.steps
        require(is_right, f"{entry.where}.steps_left", active.steps_left, wanted)
        wanted = f"after the {active.waited_s:g} s that the job has waited; give a later one, or none"
        require(active.slo_left_s > 0, f"{entry.where}.slo_s", job.slo_s, wanted)
        wanted = f"an entity of the file; write one of {', '.join(form.entities)}"
        is_right = job.entity in form.entities or not form.entities
        require(is_right, f"{entry.where}.entity", job.entity, wanted)
        names.add(job.name)
        yield active
    require(bool(names), "jobs", [], "a list of jobs; give at least one")


def _rows(form: DecisionForm, gpus_of: Mapping[str, set[int]], cluster: GpuCluster) -> Iterator[PlacedRow]:
    for where, row in (*_alone(form, gpus_of), *_pairs(form, gpus_of)):
        wanted = "a GPU type of the workers; correct it, or add it to them, with 0 GPUs to skip it"
        require(row.gpu_type in cluster.workers, where, row.gpu_type, wanted)
        yield where, row


def _alone(form: DecisionForm, gpus_of: Mapping[str, set[int]]) -> Iterator[PlacedRow]:
    for job_type in form.throughputs.mapping("throughputs by type of job", "give steps/s of each"):
        of_type = form.throughputs[job_type]
        require(
            job_type in gpus_of, "throughputs", job_type, f"a job or type; the file has {', '.join(gpus_of)}"
        )
        for gpu_type in of_type.mapping("throughputs by GPU type", "give steps/s for each GPU type"):
            cell = of_type[gpu_type]
            for point in cell.items() if isinstance(cell.value, list) else [cell]:
                for gpus in sorted(gpus_of[job_type]) if cell.value is not None else ():
                    yield point.where, _row(point, job_type, gpus, gpu_type)
                    if isinstance(point.value, dict) and "scale_factor" in point.value:
                        break


def _row(point: Field, job_type: str, gpus: int, gpu_type: str) -> ThroughputRow:
    if not isinstance(point.value, dict):
        return ThroughputRow(job_type, gpus, gpu_type, rate_of(point))
    of_two: dict[str, Any] = dict.fromkeys(
        ("unconsolidated_steps_per_s", "other_job_type", "other_steps_per_s")
    )
    columns = replace(point, value={"scale_factor": gpus, **point.value})
    return columns.record(ThroughputRow, job_type=job_type, gpu_type=gpu_type, **of_two)


def _pairs(form: DecisionForm, gpus_of: Mapping[str, set[int]]) -> Iterator[PlacedRow]:
    for pair in form.pairs:
        names = [name.text("a job") for name in pair["jobs"].items()]
        is_known = len(names) == 2 and {*names} <= gpus_of.keys()
        require(is_known, pair["jobs"].where, names, f"two jobs of the file; it has {', '.join(gpus_of)}")
        one, other = names
        gpus_of_both = gpus_of[one] & gpus_of[other]
        has_gpus = f"possible with {gpus_of[one]} GPUs for {one} and {gpus_of[other]} for {other}"
        require(bool(gpus_of_both), pair["jobs"].where, names, f"{has_gpus}; remove the pair")
        for gpu_type in pair.value:
            for gpus in gpus_of_both if gpu_type != "jobs" and pair[gpu_type].value is not None else ():
                yield pair[gpu_type].where, row_of_two(one, other, gpus, gpu_type, pair[gpu_type])
