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

Throughputs and pairs are by the types of jobs, which are their names where the file gives none, in steps per
second; null or 0 where a job cannot run. Clocks, powers and several numbers of GPUs are in a table of
throughputs, whose path may stand instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, json_file
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
class DecisionForm:
    """The fields of a decision file besides the cluster's own."""

    jobs: Annotated[tuple[Field, ...], Meaning("active jobs")]
    throughputs: Annotated[Field, Meaning("steps per second by job type and GPU type, or a file")]
    pairs: Annotated[tuple[Field, ...], Meaning("steps per second of two jobs that share GPUs")] = ()


@dataclass(frozen=True, eq=False)
class Decision:
    """The question of a decision file.

    Attributes:
        demand: With pairs, where the file has some.
        has_steps: The file says how many steps each job has; where not, policies that look at steps have
            nothing to decide on.
    """

    demand: Demand
    has_steps: bool


def read_decision(path: str | Path) -> Decision:
    """Return the decision that a JSON file asks for.

    Raises:
        ClusterError: The file cannot be read or is wrong: a field that is not known, a name twice, a number
            out of its range, an SLO in the past, a job that cannot run.
    """
    with json_file(path, "a JSON file of workers, jobs and throughputs", ClusterError) as data:
        of_cluster, others = _divided(data, [option.name for option in fields(GpuCluster)])
        cluster, form = of_cluster.record(GpuCluster), others.record(DecisionForm)
        require(bool(form.jobs), "jobs", [], "a list of jobs; give at least one")
        jobs = [_active(entry) for entry in form.jobs]
        names = [active.name for active in jobs]
        for name in names:
            require(names.count(name) == 1, "jobs", name, "a name of one job alone; rename one")
        if isinstance(form.throughputs.value, str):
            throughputs = read_throughputs(Path(path).parent / form.throughputs.value)
        else:
            throughputs = throughputs_of(_rows(form, jobs, cluster))
        jobs.sort(key=lambda active: active.job.arrival_s)
        demand = throughputs.demand(cluster, jobs, shares_space=True)
        for active, rates in zip(jobs, demand.alone_steps_per_s, strict=True):
            wanted = f"runnable: no GPU type with its {active.job.scale_factor} GPUs has a throughput above 0"
            require(rates.any(), "jobs", active.name, f"{wanted}; add one, or remove the job")
        return Decision(demand, all({"steps", "steps_left"} & entry.value.keys() for entry in form.jobs))


def _divided(data: Field, names: Sequence[str]) -> tuple[Field, Field]:
    """Return two parts of a mapping: some named fields and the rest; null fields are dropped."""
    there = {name: value for name, value in data.mapping().items() if value is not None}
    some = {name: there.pop(name) for name in names if name in there}
    return replace(data, value=some), replace(data, value=there)


def _active(entry: Field) -> ActiveJob:
    """Return the active job of an entry: by default its type is its name and its steps are the steps left."""
    progress, submitted = _divided(entry, ("steps_left", "waited_s", "isolated_s"))
    steps = progress.value.get("steps_left", 1.0)
    filled = {"type": submitted["name"].value, "steps": steps, **submitted.value}
    job = replace(submitted, value=filled).record(Job)
    active = replace(progress, value={"steps_left": job.steps, **progress.value}).record(ActiveJob, job=job)
    wanted = f"above 0 and at most the job's {job.steps:g} steps; correct one of them"
    is_right = 0 < active.steps_left <= job.steps
    require(is_right, f"{entry.where}.steps_left", active.steps_left, wanted)
    wanted = f"after the {active.waited_s:g} s that the job has waited; give a later one, or none"
    require(active.slo_left_s > 0, f"{entry.where}.slo_s", job.slo_s, wanted)
    return active


def _rows(form: DecisionForm, jobs: Sequence[ActiveJob], cluster: GpuCluster) -> Iterator[PlacedRow]:
    gpus_of: dict[str, set[int]] = {}
    for active in jobs:
        gpus_of.setdefault(active.job.type, set()).add(active.job.scale_factor)
    for where, row in (*_alone(form.throughputs, gpus_of), *_pairs(form, gpus_of)):
        wanted = "a GPU type of the workers; correct it, or add it to them, with 0 GPUs to skip it"
        require(row.gpu_type in cluster.workers, where, row.gpu_type, wanted)
        yield where, row


def _alone(throughputs: Field, gpus_of: Mapping[str, set[int]]) -> Iterator[PlacedRow]:
    for job_type in throughputs.mapping("throughputs by type of job", "give steps/s of each"):
        wanted = f"a job or type; the file has {', '.join(gpus_of)}"
        require(job_type in gpus_of, throughputs.where, job_type, wanted)
        row = throughputs[job_type]
        for gpu_type in row.mapping("throughputs by GPU type", "give steps/s for each GPU type"):
            for gpus in gpus_of[job_type] if row[gpu_type].value is not None else ():
                yield row[gpu_type].where, ThroughputRow(job_type, gpus, gpu_type, rate_of(row[gpu_type]))


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
