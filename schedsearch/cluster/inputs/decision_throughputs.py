"""The throughputs of a decision file, in any of the forms that `decision_file` tells of, as a demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from placements.plain_data import Field
from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.inputs.cells import at_least_0, count_of_gpus, fields_of, nearest
from schedsearch.cluster.inputs.throughput_file import (
    gavel_throughputs,
    rate_of,
    rates_of_two,
    read_throughputs,
)
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.throughputs import Throughputs

_POINT: Mapping[str, Sequence[str]] = {
    "steps_per_s": ("throughput",),
    "power_w": ("power",),
    "clock_mhz": ("clock",),
    "gpus": ("num_gpus",),
}

_Cells = list[tuple[str, Field]]
"""Entries of a file about a job or a pair, by GPU type."""


@dataclass(frozen=True)
class Names:
    """The names by which the throughputs of a file are looked up.

    Attributes:
        gpu_types: GPU types of the cluster, in order.
        jobs: Jobs in the order of the file.
    """

    gpu_types: tuple[str, ...]
    jobs: tuple[Job, ...]

    @cached_property
    def place(self) -> dict[str, int]:
        """Return the place of each job by its name."""
        return {job.name: place for place, job in enumerate(self.jobs)}

    @cached_property
    def types(self) -> set[str]:
        """Return the types of the jobs."""
        return {job.type for job in self.jobs if job.type}

    def pair_of(self, cell: Field) -> tuple[int, int] | None:
        """Return the places of two jobs of a list, or of a key such as "a, b"; None if it has none."""
        parts = cell.value
        if isinstance(parts, str):
            parts = [part.strip().strip("'\"") for part in parts.strip("()[] ").split(",")]
        if not isinstance(parts, list) or len(parts) != 2:
            return None
        found = [self.place.get(str(part)) for part in parts]
        if None in found and all(type(part) is int and 0 <= part < len(self.jobs) for part in parts):
            found = parts
        one, other = found
        return None if one is None or other is None or one == other else (one, other)


def demand_of(
    cluster: GpuCluster,
    jobs: Sequence[ActiveJob],
    names: Names,
    own: Sequence[Field | None],
    table: Field | None,
    pairs: Field | None,
    folder: Path,
) -> Demand:
    """Return the demand of the jobs of a decision file, by their arrival.

    Args:
        cluster: Cluster of the file.
        jobs: Jobs in the order of the file.
        names: Names of these jobs and of the GPU types.
        own: What each job says of its throughputs.
        table: What the file says of all of them.
        pairs: What it says of pairs.
        folder: Folder of the file, for a path of throughputs in it.
    """
    known = None if table is None else _by_type_of_job(table, folder)
    if known is not None:
        found = [*_known_configurations(known, cluster, jobs)]
    else:
        found = [*_of_jobs(names, own, table)]
    found += _pairs(names, pairs) if pairs is not None else ()
    _check_once(names, found)
    order = sorted(range(len(jobs)), key=lambda place: jobs[place].job.arrival_s)
    new = {old: place for place, old in enumerate(order)}
    fitting = [
        replace(one, jobs=tuple(new[job] for job in one.jobs))
        for one in found
        if one.gpus <= cluster.workers[one.gpu_type]
    ]
    demand = Demand.of(cluster, [jobs[place] for place in order], fitting)
    for active, rates in zip(demand.jobs, demand.alone_steps_per_s, strict=True):
        if not rates.any():
            raise ClusterError(
                f"job {active.name}: has no throughput above 0 on a GPU type with its "
                f"{active.job.scale_factor} GPUs; add one, or remove the job"
            )
    return demand


def _by_type_of_job(table: Field, folder: Path) -> Throughputs | None:
    """Return throughputs in Gavel's form, or of a file; None for the forms that name the jobs of this one."""
    if isinstance(table.value, str):
        return read_throughputs(folder / table.value)
    if not isinstance(table.value, dict) or not table.value:
        return None
    rows = table.value.values()
    is_gavels = all(isinstance(row, dict) and row and all(key.startswith("(") for key in row) for row in rows)
    return gavel_throughputs(table) if is_gavels else None


def _known_configurations(
    known: Throughputs, cluster: GpuCluster, jobs: Sequence[ActiveJob]
) -> Iterator[Configuration]:
    for active in jobs:
        kind = (active.job.type, active.job.scale_factor)
        if kind not in known.alone:
            near = nearest(active.job.type, [job_type for job_type, gpus in known.alone if gpus == kind[1]])
            raise ClusterError(
                f"job {active.name}: the throughputs have no type {kind[0]!r} on {kind[1]} GPUs; "
                f"add it, or write {near!r}"
            )
    found = known.demand(cluster, jobs, shares_space=True).configurations
    for index in range(len(found)):
        places, gpu_type, gpus = found[index]
        yield Configuration(
            places,
            cluster.gpu_types[gpu_type],
            gpus,
            tuple(found.steps_per_s[index, : len(places)].tolist()),
            float(found.power_w[index]),
            int(found.clock_mhz[index]),
        )


def _of_jobs(names: Names, own: Sequence[Field | None], table: Field | None) -> Iterator[Configuration]:
    """Yield the configurations of each job, and of pairs that stand among them."""
    rows, of_pairs = _rows(names, table) if table is not None else ({}, {})
    for place, job in enumerate(names.jobs):
        row = own[place]
        cells = rows.get(place) if row is None else _cells(names, row)
        if cells is None:
            raise ClusterError(
                f"throughputs: lack job {job.name}; add how many steps/s it does on each GPU type"
            )
        for gpu_type, cell in cells:
            for point in _points(cell):
                yield _configuration(place, job, gpu_type, point)
    for pair, cells in of_pairs.items():
        yield from _pair(names, pair, cells)


def _rows(names: Names, table: Field) -> tuple[dict[int, _Cells], dict[tuple[int, int], _Cells]]:
    """Return what a table says of each job, by its place, and of pairs of them."""
    is_by_gpu_type = isinstance(table.value, dict) and set(table.value) <= {*names.gpu_types}
    if not is_by_gpu_type or set(table.value) <= {*names.place}:
        jobs, pairs = _by_job(names, table)
        return (
            {place: _cells(names, row) for place, row in jobs.items()},
            {pair: _cells(names, row) for pair, row in pairs.items()},
        )
    rows: dict[int, _Cells] = {}
    of_pairs: dict[tuple[int, int], _Cells] = {}
    for gpu_type in table.mapping():
        jobs, pairs = _by_job(names, table[gpu_type])
        for place, cell in jobs.items():
            rows.setdefault(place, []).append((gpu_type, cell))
        for pair, cell in pairs.items():
            of_pairs.setdefault(pair, []).append((gpu_type, cell))
    return rows, of_pairs


def _by_job(names: Names, listed: Field) -> tuple[dict[int, Field], dict[tuple[int, int], Field]]:
    """Return the entries of jobs, which stand there by their names or types, or as a list, and of pairs."""
    if isinstance(listed.value, list):
        cells = listed.items()
        if len(cells) != len(names.jobs):
            raise listed.wrong(f"a list with an entry for each of {len(names.jobs)} jobs", "give as many")
        return dict(enumerate(cells)), {}
    found: dict[int, Field] = {}
    of_pairs: dict[tuple[int, int], Field] = {}
    of_types: dict[str, Field] = {}
    for key in listed.mapping("throughputs by job", "give a matrix, or steps/s by job and GPU type"):
        pair = names.pair_of(Field(key, listed.where, ClusterError))
        if key in names.place:
            found[names.place[key]] = listed[key]
        elif key in names.types:
            of_types[key] = listed[key]
        elif pair is not None:
            of_pairs[pair] = listed[key]
        else:
            near = nearest(key, [*names.place, *names.types])
            raise ClusterError(
                f"{listed.where}: {key!r} is no job, pair or type of job of the file; write {near!r}"
            )
    for place, job in enumerate(names.jobs):
        if place not in found and job.type in of_types:
            found[place] = of_types[job.type]
    return found, of_pairs


def _cells(names: Names, row: Field) -> _Cells:
    """Return a row by GPU type: of a mapping, or of a list in the order of the workers."""
    if isinstance(row.value, list):
        cells = row.items()
        if len(cells) != len(names.gpu_types):
            raise row.wrong(f"a list with an entry for each of {', '.join(names.gpu_types)}", "give as many")
        return [*zip(names.gpu_types, cells, strict=True)]
    keys = row.mapping("throughputs by GPU type", "give steps/s for each GPU type")
    for gpu_type in keys:
        if gpu_type not in names.gpu_types:
            raise ClusterError(
                f"{row.where}: {gpu_type!r} is no GPU type of the workers; "
                f"write {nearest(gpu_type, names.gpu_types)!r}, or add it to them, with 0 GPUs to skip it"
            )
    return [(gpu_type, row[gpu_type]) for gpu_type in keys]


def _points(cell: Field) -> list[Field]:
    if cell.value is None:
        return []
    return cell.items() if isinstance(cell.value, list) else [cell]


def _configuration(place: int, job: Job, gpu_type: str, point: Field) -> Configuration:
    if not isinstance(point.value, dict):
        return Configuration((place,), gpu_type, job.scale_factor, (rate_of(point),))
    fields = fields_of(point, _POINT)
    if "steps_per_s" not in fields:
        raise point.wrong("a throughput", "add steps_per_s")
    power = at_least_0(fields["power_w"], "a power in W") if "power_w" in fields else 0.0
    clock = fields["clock_mhz"].whole("a clock in MHz", "give 0 or more", 0) if "clock_mhz" in fields else 0
    gpus = count_of_gpus(fields["gpus"]) if "gpus" in fields else job.scale_factor
    return Configuration((place,), gpu_type, gpus, (rate_of(fields["steps_per_s"]),), power, clock)


def _pairs(names: Names, pairs: Field) -> Iterator[Configuration]:
    if isinstance(pairs.value, dict):
        for key in pairs.value:
            pair = _known_pair(names, Field(key, pairs.where, ClusterError))
            yield from _pair(names, pair, _cells(names, pairs[key]))
        return
    for cell in pairs.items('a list as [{"jobs": ["a", "b"], "v100": [20, 7.5]}]'):
        row = {key: value for key, value in cell.mapping().items() if key not in ("jobs", "throughputs")}
        row |= cell.get("throughputs", {}).mapping()
        pair = _known_pair(names, cell["jobs"])
        yield from _pair(names, pair, _cells(names, Field(row, cell.where, ClusterError)))


def _known_pair(names: Names, cell: Field) -> tuple[int, int]:
    pair = names.pair_of(cell)
    if pair is None:
        raise cell.wrong("two different jobs of the file", f"name two of {', '.join(names.place)}")
    return pair


def _pair(names: Names, pair: tuple[int, int], cells: _Cells) -> Iterator[Configuration]:
    first, second = (names.jobs[place] for place in pair)
    for gpu_type, cell in cells:
        if cell.value is None:
            continue
        if first.scale_factor != second.scale_factor:
            gpus = f"{first.scale_factor} GPUs for {first.name} and {second.scale_factor} for {second.name}"
            raise cell.wrong(f"possible with {gpus}", "remove the pair")
        yield Configuration(pair, gpu_type, first.scale_factor, rates_of_two(cell))


def _check_once(names: Names, found: Sequence[Configuration]) -> None:
    """Check that no two entries are of one job or pair in the same way."""
    seen = set()
    for one in found:
        key = (frozenset(one.jobs), one.gpu_type, one.gpus, one.clock_mhz)
        if key in seen:
            shown = " with ".join(names.jobs[place].name for place in one.jobs)
            raise ClusterError(f"throughputs: {shown} on {one.gpus} {one.gpu_type} is given twice; keep one")
        seen.add(key)
