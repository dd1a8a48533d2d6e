"""One decision as JSON: jobs, throughputs and workers.

The form that we write in examples::

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

Only workers, jobs and throughputs are needed. Fields of a job: name (else its place, from 0), type (else the
name), steps, steps_left (else all), scale_factor (else 1), weight (else 1), arrival_s (else 0), slo_s
(seconds after the arrival; else none), entity, waited_s (else now_s - arrival_s where now_s is given, else
0), isolated_s, and throughputs of its own. Fields of the file: gpus_per_server, power_cap_w, entities
(``{"name": {"weight": 2, "policy": "fifo"}}``), budget_dollars and now_s. Accepted as well:

- jobs: a list of names, or a mapping from names to their fields;
- workers: a list of numbers, with gpu_types as the list of their names; prices in that order too;
- throughputs: a matrix with a row for each job and a column for each GPU type, rows by the type of the job,
  rows by GPU type, Gavel's form, or the path of a file of throughputs, both by the jobs' types;
- a throughput: steps per second, or ``{"steps_per_s": 40, "power_w": 250, "clock_mhz": 1380, "gpus": 1}``,
  or a list of these (clocks, or other numbers of GPUs); null or 0 where the job cannot run;
- pairs: as a mapping ``{"a, b": {"v100": [20, 7.5]}}``, or among the throughputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from placements.plain_data import Field, json_file
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.inputs.cells import above_0, at_least_0, fields_of, nearest
from schedsearch.cluster.inputs.decision_throughputs import Names, demand_of
from schedsearch.cluster.jobs import ActiveJob, Job

_FILE: Mapping[str, Sequence[str]] = {
    "workers": ("cluster_spec", "num_workers"),
    "gpu_types": ("worker_types",),
    "jobs": (),
    "throughputs": ("throughput",),
    "pairs": (),
    "dollars_per_hour": ("prices", "price", "cost_per_hour", "costs"),
    "gpus_per_server": (),
    "power_cap_w": (),
    "entities": (),
    "budget_dollars": ("budget",),
    "now_s": (),
}

_JOB: Mapping[str, Sequence[str]] = {
    "name": ("id", "job", "job_id", "job_name"),
    "type": ("job_type", "model"),
    "steps": ("num_steps", "total_steps", "iterations"),
    "steps_left": ("steps_remaining", "num_steps_remaining", "remaining_steps"),
    "scale_factor": ("num_gpus", "gpus"),
    "weight": ("priority_weight", "priority"),
    "arrival_s": ("arrival", "arrival_time"),
    "slo_s": ("slo", "SLO", "deadline_s"),
    "entity": ("entity_id",),
    "waited_s": ("elapsed_s", "elapsed", "time_since_start"),
    "isolated_s": (),
    "throughputs": ("throughput", "steps_per_s"),
}

_ENTITY: Mapping[str, Sequence[str]] = {"weight": ("priority_weight",), "policy": ("inside",)}

_TIME = "a time in seconds"


@dataclass(frozen=True, eq=False)
class Decision:
    """The question of a decision file.

    Attributes:
        demand: With pairs, where the file has some.
        entities: Weight and policy inside ("fairness" or "fifo") of each entity that the file describes.
        budget_dollars: What all may cost together; infinite where the file does not say.
        has_steps: The file says how many steps jobs have; where not, each has 1, and policies that look at
            steps have nothing to decide on.
    """

    demand: Demand
    entities: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    budget_dollars: float = math.inf
    has_steps: bool = True


def read_decision(path: str | Path) -> Decision:
    """Return the decision that a JSON file asks for.

    Raises:
        ClusterError: The file cannot be read or is wrong: a field that is not known, a name twice, a number
            out of its range, more GPUs asked than there are, an SLO in the past, a job that cannot run.
    """
    with json_file(path, "a JSON file of workers, jobs and throughputs", ClusterError) as data:
        return _decision(data, Path(path).parent)


def _decision(data: Field, folder: Path) -> Decision:
    top = fields_of(data, _FILE)
    for name in ("workers", "jobs"):
        if name not in top:
            raise ClusterError(f"lacks the field {name!r}; add it")
    cluster = _cluster(top)
    described = _described(top["jobs"])
    now_s = at_least_0(top["now_s"], _TIME) if "now_s" in top else None
    jobs = [_active(name, fields, cluster, now_s) for name, fields in described]
    entities = _entities(top["entities"]) if "entities" in top else {}
    _check_entities(jobs, described, entities)
    with_steps = [name for name, fields in described if "steps" in fields or "steps_left" in fields]
    if 0 < len(with_steps) < len(jobs):
        without = next(active.name for active in jobs if active.name not in with_steps)
        raise ClusterError(f"job {without}: lacks the field 'steps', which others have; add it")
    own = [fields.get("throughputs") for _, fields in described]
    names = Names(cluster.gpu_types, tuple(active.job for active in jobs))
    return Decision(
        demand_of(cluster, jobs, names, own, top.get("throughputs"), top.get("pairs"), folder),
        entities,
        _above_0(top["budget_dollars"], "dollars") if "budget_dollars" in top else math.inf,
        bool(with_steps),
    )


def _above_0(cell: Field, unit: str) -> float:
    return above_0(cell, f"a number of {unit}")


def _cluster(top: Mapping[str, Field]) -> GpuCluster:
    workers = _by_type(top, "workers", None)
    counts = {name: cell.whole("a number of GPUs", "give 0 or more", 0) for name, cell in workers.items()}
    if counts and not any(counts.values()):
        raise top["workers"].wrong("a cluster with a GPU", "give 1 or more of some type")
    prices = _by_type(top, "dollars_per_hour", counts)
    servers = _by_type(top, "gpus_per_server", counts)
    return GpuCluster(
        counts,
        {name: at_least_0(cell, "a price") for name, cell in prices.items()},
        {name: cell.whole("a number of GPUs", "give 1 or more", 1) for name, cell in servers.items()},
        _above_0(top["power_cap_w"], "W") if "power_cap_w" in top else math.inf,
    )


def _by_type(top: Mapping[str, Field], name: str, known: Mapping[str, int] | None) -> dict[str, Field]:
    """Return a field's entries by GPU type; a list is in the order of gpu_types, or else of the workers."""
    if name not in top:
        return {}
    listed = top[name]
    if isinstance(listed.value, dict):
        return {gpu_type: listed[gpu_type] for gpu_type in listed.value}
    if "gpu_types" in top:
        types = [cell.text("a GPU type", "give its name") for cell in top["gpu_types"].items()]
    elif known is not None:
        types = [*known]
    else:
        raise listed.wrong("by GPU type", 'write {"v100": 1, "k80": 1}, or give their names as gpu_types')
    cells = listed.items()
    if len(cells) != len(types) or len({*types}) != len(types):
        raise listed.wrong(f"of the GPU types {', '.join(types)}", "give one number for each type, each once")
    return dict(zip(types, cells, strict=True))


def _described(jobs: Field) -> list[tuple[str, dict[str, Field]]]:
    """Return the name and the fields of each job."""
    if isinstance(jobs.value, dict):
        found = [(name, fields_of(jobs[name], _JOB)) for name in jobs.value]
        for name, fields in found:
            if "name" in fields and str(fields["name"].value) != name:
                raise fields["name"].wrong(f"the name under which the job stands, {name!r}", "remove one")
    else:
        found = [_listed(place, cell) for place, cell in enumerate(jobs.items("a list of jobs"))]
    if not found:
        raise jobs.wrong("jobs", "give at least one")
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise ClusterError(f"jobs: the name {name!r} is given twice; rename one")
    return found


def _listed(place: int, cell: Field) -> tuple[str, dict[str, Field]]:
    if isinstance(cell.value, str):
        return cell.text("a name"), {}
    fields = fields_of(cell, _JOB)
    if "name" not in fields:
        return str(place), fields
    name = fields["name"]
    if type(name.value) is int:
        return str(name.value), fields
    return name.text("a name"), fields


def _active(name: str, fields: Mapping[str, Field], cluster: GpuCluster, now_s: float | None) -> ActiveJob:
    def number(
        key: str, default: float, wanted: str = _TIME, read: Callable[[Field, str], float] = at_least_0
    ) -> float:
        is_there = key in fields and fields[key].value is not None
        return read(fields[key], wanted) if is_there else default

    steps_left = number("steps_left", 0.0, "a number of steps", above_0)
    steps = number("steps", steps_left or 1.0, "a number of steps", above_0)
    if steps_left > steps:
        raise fields["steps_left"].wrong(f"at most the job's {steps:g} steps", "correct one of them")
    arrival_s = number("arrival_s", 0.0)
    if now_s is not None and arrival_s > now_s:
        raise fields["arrival_s"].wrong(f"at or before now_s, {now_s:g}", "leave out jobs that come later")
    waited_s = number("waited_s", now_s - arrival_s if now_s is not None else 0.0)
    job = Job(
        name,
        fields["type"].text("a type of job") if "type" in fields else name,
        steps,
        _scale_factor(fields, cluster),
        number("weight", 1.0, "a weight", above_0),
        arrival_s,
        number("slo_s", math.inf, "a time after the arrival in seconds", above_0),
        _entity(fields),
    )
    if job.slo_s <= waited_s:
        raise fields["slo_s"].wrong(
            f"after the {waited_s:g} s that the job has waited", "its SLO is past: give a later one, or none"
        )
    return ActiveJob(job, steps_left or steps, waited_s, number("isolated_s", 0.0))


def _scale_factor(fields: Mapping[str, Field], cluster: GpuCluster) -> int:
    if "scale_factor" not in fields:
        return 1
    most = max(cluster.workers.values())
    remedy = f"the largest type of the cluster has {most}; give 1 to {most}"
    return fields["scale_factor"].whole("a number of GPUs that there are", remedy, 1, most)


def _entity(fields: Mapping[str, Field]) -> str:
    if "entity" not in fields or fields["entity"].value is None:
        return ""
    entity = fields["entity"]
    return str(entity.value) if type(entity.value) is int else entity.text("the name of an entity")


def _entities(data: Field) -> dict[str, tuple[float, str]]:
    found: dict[str, tuple[float, str]] = {}
    for name in data.mapping("a mapping from names to weight and policy"):
        if not isinstance(data[name].value, dict):
            found[name] = (_above_0(data[name], "weight"), "fairness")
            continue
        fields = fields_of(data[name], _ENTITY)
        weight = _above_0(fields["weight"], "weight") if "weight" in fields else 1.0
        policy = fields["policy"].choice(("fairness", "fifo")) if "policy" in fields else "fairness"
        found[name] = (weight, policy)
    return found


def _check_entities(
    jobs: Sequence[ActiveJob],
    described: Sequence[tuple[str, Mapping[str, Field]]],
    entities: Mapping[str, object],
) -> None:
    for active, (_, fields) in zip(jobs, described, strict=True):
        if entities and active.job.entity not in entities:
            cell = fields.get("entity", Field("", f"job {active.name}: entity", ClusterError))
            raise cell.wrong("an entity of the file", f"write {nearest(active.job.entity, entities)!r}")
