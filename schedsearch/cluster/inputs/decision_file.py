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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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
class JobEntry:
    """A job of a decision file."""

    name: Annotated[str, Meaning("its own among all jobs")]
    type: Annotated[str | None, Meaning("type under which its throughputs are; else its name")] = None
    steps: Annotated[float | None, Meaning("mini-batches until it is done", above=0)] = None
    steps_left: Annotated[float | None, Meaning("those that it has left; else all", above=0)] = None
    scale_factor: Annotated[int, Meaning("number of GPUs that it runs on", min=1)] = 1
    weight: Annotated[float, Meaning("weight of its share in fair policies", above=0)] = 1.0
    arrival_s: Annotated[float, Meaning("when it was submitted", "s", min=0)] = 0.0
    waited_s: Annotated[float, Meaning("time since then", "s", min=0)] = 0.0
    slo_s: Annotated[
        float | None, Meaning("time after its arrival in which it should be done", "s", above=0)
    ] = None
    entity: Annotated[str | None, Meaning("its owner, for hierarchical policies")] = None
    isolated_s: Annotated[
        float, Meaning("time that its steps so far would have taken on its own share", "s", min=0)
    ] = 0.0

    def active(self) -> ActiveJob:
        """Return the job at the moment of the decision."""
        steps = self.steps or self.steps_left or 1.0
        left, slo_s = self.steps_left or steps, math.inf if self.slo_s is None else self.slo_s
        wanted = f"at most the job's {steps:g} steps; correct one of them"
        require(left <= steps, f"job {self.name}: steps_left", left, wanted)
        wanted = f"after the {self.waited_s:g} s that the job has waited; give a later SLO, or none"
        require(slo_s > self.waited_s, f"job {self.name}: slo_s", slo_s, wanted)
        job_type = self.type or self.name
        sizes = (steps, self.scale_factor, self.weight, self.arrival_s, slo_s)
        return ActiveJob(
            Job(self.name, job_type, *sizes, self.entity or ""), left, self.waited_s, self.isolated_s
        )


@dataclass(frozen=True)
class EntityEntry:
    """An owner of jobs."""

    weight: Annotated[float, Meaning("its share among entities", above=0)] = 1.0
    policy: Annotated[Literal["fairness", "fifo"], Meaning("how its jobs share what it has")] = "fairness"


@dataclass(frozen=True)
class DecisionForm:
    """The fields of a decision file."""

    workers: Annotated[Mapping[str, int], Meaning("GPUs of each type", min=0)]
    jobs: Annotated[tuple[JobEntry, ...], Meaning("jobs that are there")]
    throughputs: Annotated[Field, Meaning("steps per second by type of job and GPU type")]
    pairs: Annotated[tuple[Field, ...], Meaning("throughputs of two jobs on the same GPUs")] = ()
    dollars_per_hour: Annotated[Mapping[str, float], Meaning("price of a GPU of each type", min=0)] = field(
        default_factory=dict
    )
    gpus_per_server: Annotated[Mapping[str, int], Meaning("GPUs of each type in one server", min=1)] = field(
        default_factory=dict
    )
    power_cap_w: Annotated[float, Meaning("what all GPUs may draw on average", "W", above=0)] = math.inf
    entities: Annotated[Mapping[str, EntityEntry], Meaning("owners of jobs by name")] = field(
        default_factory=dict
    )
    budget_dollars: Annotated[float, Meaning("what all jobs together may cost", above=0)] = math.inf

    def __post_init__(self) -> None:
        """Check the names."""
        names = [job.name for job in self.jobs]
        require(bool(names), "jobs", [], "a list of jobs; give at least one")
        for job in self.jobs:
            require(names.count(job.name) == 1, "jobs", job.name, "a name of one job alone; rename one")
            if self.entities and job.entity not in self.entities:
                wanted = f"an entity of the file; write one of {', '.join(self.entities)}"
                require(False, f"job {job.name}: entity", job.entity, wanted)


@dataclass(frozen=True, eq=False)
class Decision:
    """The question of a decision file.

    Attributes:
        demand: With pairs, where the file has some.
        entities: Those that the file describes, by name.
        budget_dollars: What all may cost together; infinite where the file does not say.
        has_steps: The file says how many steps each job has; where not, policies that look at steps have
            nothing to decide on.
    """

    demand: Demand
    entities: Mapping[str, EntityEntry]
    budget_dollars: float
    has_steps: bool


def read_decision(path: str | Path) -> Decision:
    """Return the decision that a JSON file asks for.

    Raises:
        ClusterError: The file cannot be read or is wrong: a field that is not known, a name twice, a number
            out of its range, an SLO in the past, a job that cannot run.
    """
    with json_file(path, "a JSON file of workers, jobs and throughputs", ClusterError) as data:
        form = data.record(DecisionForm)
        cluster = GpuCluster(form.workers, form.dollars_per_hour, form.gpus_per_server, form.power_cap_w)
        jobs = sorted((job.active() for job in form.jobs), key=lambda active: active.job.arrival_s)
        if isinstance(form.throughputs.value, str):
            throughputs = read_throughputs(Path(path).parent / form.throughputs.value)
        else:
            gpus_of: dict[str, set[int]] = {}
            for active in jobs:
                gpus_of.setdefault(active.job.type, set()).add(active.job.scale_factor)
            throughputs = throughputs_of(_rows(form, gpus_of))
            jobs = [_with_other_gpus(active, gpus_of, throughputs.alone) for active in jobs]
        demand = throughputs.demand(cluster, jobs, shares_space=True)
        for active, rates in zip(jobs, demand.alone_steps_per_s, strict=True):
            if not rates.any():
                raise ClusterError(
                    f"job {active.name}: has no throughput above 0 on a GPU type with its "
                    f"{active.job.scale_factor} GPUs; add one, or remove the job"
                )
        has_steps = all(job.steps or job.steps_left for job in form.jobs)
        return Decision(demand, form.entities, form.budget_dollars, has_steps)


def _with_other_gpus(
    active: ActiveJob, gpus_of: Mapping[str, set[int]], alone: Mapping[tuple[str, int], object]
) -> ActiveJob:
    """Return a job that may use the numbers of GPUs which only points of its type have."""
    job = active.job
    others = tuple(gpus for name, gpus in alone if name == job.type and gpus not in gpus_of[name])
    return replace(active, job=replace(job, other_scale_factors=others))


def _rows(form: DecisionForm, gpus_of: Mapping[str, set[int]]) -> Iterator[PlacedRow]:
    for where, row in (*_alone(form, gpus_of), *_pairs(form, gpus_of)):
        wanted = "a GPU type of the workers; correct it, or add it to them, with 0 GPUs to skip it"
        require(row.gpu_type in form.workers, where, row.gpu_type, wanted)
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
    one_job: dict[str, Any] = {
        "unconsolidated_steps_per_s": None,
        "other_job_type": None,
        "other_steps_per_s": None,
    }
    columns = replace(point, value={"scale_factor": gpus, **point.value})
    return columns.record(ThroughputRow, job_type=job_type, gpu_type=gpu_type, **one_job)


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
