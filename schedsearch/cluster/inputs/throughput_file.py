"""Throughputs of each type of job on each GPU type: Gavel's JSON, and a CSV table of the user's own.

Gavel's form is ``{gpu_type: {"('job type', scale factor)": {"null": steps/s alone, "('other type', scale
factor)": [steps/s of this, of other]}}}``. A table has a row for each way to run a type of job::

    job_type,scale_factor,gpu_type,steps_per_s,power_w,clock_mhz,other_job_type,other_steps_per_s
    GPT-3 1.3B,8,h100,4.1,4400,1980,,
    GPT-3 1.3B,8,h100,3.6,3100,1400,,
    GPT-3 1.3B,8,a100,1.9,,,,
    BERT,1,a100,11.0,,,,
    BERT,1,a100,7.5,,,ResNet-50,6.0

Several clocks are several rows; a row with another type of job is the two on the same GPUs, and a zero there
says that they cannot share. What a file does not name cannot run. The types from which jobs are generated are
in a file of their own: ``index,job_type,may_be_distributed``, in the order of drawing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, in_file, json_file
from placements.forms.tables import csv_records
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.cells import at_least_0
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs

ALONE = "null"
"""The key in Gavel's form of the throughput of a job alone."""

UNCONSOLIDATED = "_unconsolidated"
"""End of the names of Gavel's GPU types whose GPUs are on several servers."""

_WANTED = "Gavel's JSON or a CSV table of throughputs"


class ThroughputRow(NamedTuple):
    """One way to run a type of job, or two types on the same GPUs."""

    job_type: Annotated[str, Meaning("job type")]
    scale_factor: Annotated[int, Meaning("number of GPUs", min=1)]
    gpu_type: Annotated[str, Meaning("GPU type")]
    steps_per_s: Annotated[
        float,
        Meaning("steps per second of all GPUs together; 0: it cannot run there", min=0),
    ]
    power_w: Annotated[float, Meaning("mean power of all GPUs together; 0: unknown", "W", min=0)] = 0.0
    clock_mhz: Annotated[int, Meaning("GPU clock; 0: default clocks", "MHz", min=0)] = 0
    unconsolidated_steps_per_s: Annotated[
        float | None,
        Meaning("steps per second with a GPU a server; needs `placement_sensitive=true`", min=0),
    ] = None
    other_job_type: Annotated[str | None, Meaning("job type that shares the GPUs")] = None
    other_steps_per_s: Annotated[
        float | None, Meaning("its steps per second; 0: the two cannot share", min=0)
    ] = None


PlacedRow = tuple[str, ThroughputRow]
"""A row after its place in the file, with which messages begin."""


def read_throughputs(path: str | Path, *, unconsolidated: bool = False) -> Throughputs:
    """Return the throughputs of a file: Gavel's JSON if its name ends in ``.json``, else a CSV table.

    Args:
        path: The file.
        unconsolidated: Whether to read too how fast jobs are whose GPUs are in several servers.

    Raises:
        ClusterError: The file cannot be read, is wrong, or lacks the throughputs to read.
    """
    with in_file(path, ClusterError):
        throughputs = throughputs_of(_rows(path, False))
        if not throughputs.alone:
            raise ClusterError(f"has no throughputs; give {_WANTED}")
        if not unconsolidated:
            return throughputs
        apart = throughputs_of(_rows(path, True))
        if not apart.alone:
            raise ClusterError(
                "does not say how fast a job is on several servers; give GPU types that end in "
                f"{UNCONSOLIDATED} in Gavel's JSON, or the column unconsolidated_steps_per_s in a CSV table"
            )
        return replace(throughputs, unconsolidated=apart)


def _rows(path: str | Path, is_apart: bool) -> Iterator[PlacedRow]:
    """Yield the rows of jobs in as few servers as possible, or, if `is_apart`, on several servers."""
    if Path(path).suffix.lower() == ".json":
        with json_file(path, _WANTED, ClusterError) as data:
            yield from _gavel_rows(data, UNCONSOLIDATED * is_apart)
        return
    for line, row in csv_records(Path(path), "type of job", ClusterError, ThroughputRow):
        if not is_apart:
            yield f"line {line}", row
        elif row.unconsolidated_steps_per_s is not None:
            yield f"line {line}", row._replace(steps_per_s=row.unconsolidated_steps_per_s)


def throughputs_of(rows: Iterable[PlacedRow]) -> Throughputs:
    """Return the throughputs of rows.

    Raises:
        ClusterError: Two rows are of the same configuration, or a row of two jobs has a cell for one job.
    """
    alone: dict[tuple[str, int], dict[str, tuple[JobOperatingPoint, ...]]] = {}
    pairs: dict[tuple[str, str, int], dict[str, tuple[float, float]]] = {}
    for where, row in rows:
        one, gpus, gpu_type, other = row.job_type, row.scale_factor, row.gpu_type, row.other_job_type
        if (other is None) != (row.other_steps_per_s is None):
            raise ClusterError(
                f"{where}: gives one of other_job_type and other_steps_per_s; give both or none"
            )
        if other is None or row.other_steps_per_s is None:
            points = alone.setdefault((one, gpus), {}).get(gpu_type, ())
            if row.clock_mhz in [point.clock_mhz for point in points]:
                raise ClusterError(
                    f"{where}: {one} on {gpus} {gpu_type} is given twice at this clock; keep one"
                )
            points += (JobOperatingPoint(row.steps_per_s, row.power_w, row.clock_mhz),)
            alone[one, gpus][gpu_type] = tuple(sorted(points, key=lambda point: -point.steps_per_s))
            continue
        if row.power_w or row.clock_mhz or row.unconsolidated_steps_per_s is not None:
            raise ClusterError(
                f"{where}: has power_w, clock_mhz or unconsolidated_steps_per_s for two jobs on the same "
                "GPUs; leave them empty"
            )
        rates = row.steps_per_s, row.other_steps_per_s
        for key, both in {(other, one, gpus): rates[::-1], (one, other, gpus): rates}.items():
            if pairs.setdefault(key, {}).setdefault(gpu_type, both) != both:
                raise ClusterError(
                    f"{where}: {one} with {other} on {gpus} {gpu_type} has other steps/s elsewhere; "
                    "make both entries equal"
                )
    return Throughputs(alone, pairs)


def _gavel_rows(data: Field, suffix: str) -> Iterator[PlacedRow]:
    """Yield the rows of plain data in Gavel's form, of the GPU types whose names end so."""
    for name in data.mapping("throughputs by GPU type", f"give {_WANTED}"):
        gpu_type = name.removesuffix(UNCONSOLIDATED)
        for key in data[name].mapping() if name == gpu_type + suffix else ():
            row = data[name][key]
            job_type, gpus = _kind_of(key, name)
            for other in row.mapping():
                cell = row[other]
                if other == ALONE:
                    yield cell.where, ThroughputRow(job_type, gpus, gpu_type, rate_of(cell))
                    continue
                other_type, of_other = _kind_of(other, name)
                if of_other != gpus:
                    raise cell.wrong(f"of jobs with {gpus} GPUs", "pair jobs of one scale factor")
                yield cell.where, row_of_two(job_type, other_type, gpus, gpu_type, cell)


@cache
def _kind_of(key: str, where: str) -> tuple[str, int]:
    """Return the type and the number of GPUs that a key names; keys repeat some thousand times."""
    with suppress(ValueError, SyntaxError):
        match ast.literal_eval(key):
            case (str(job_type), int(scale_factor)) if job_type and scale_factor >= 1:
                return job_type, scale_factor
    raise ClusterError(f"{where}: {key!r} is not a type of job; write \"('ResNet-18', 1)\"")


def rate_of(cell: Field) -> float:
    """Return a throughput, in steps/s."""
    return at_least_0(cell, "a throughput in steps/s", "give a finite number of 0 or more")


def row_of_two(one: str, other: str, gpus: int, gpu_type: str, cell: Field) -> ThroughputRow:
    """Return the row of two jobs on the same GPUs, whose throughputs are a list."""
    wanted = "the throughputs of two jobs", "give [steps/s, steps/s]"
    rates = [rate_of(item) for item in cell.items(*wanted)]
    if len(rates) != 2:
        raise cell.wrong(*wanted)
    return ThroughputRow(one, gpus, gpu_type, rates[0], other_job_type=other, other_steps_per_s=rates[1])


class _TypeRow(NamedTuple):
    job_type: str
    may_be_distributed: Annotated[int, Meaning("whether its jobs may run on more than one GPU", min=0, max=1)]
    place: Annotated[str, Meaning("its place, which is not read", key="index")] = ""


def read_job_types(path: str | Path) -> dict[str, bool]:
    """Return the types of a CSV file with the columns job_type and may_be_distributed, in the file's order.

    Returns:
        For each type by its name whether its jobs may run on more than one GPU, as `generated` takes it.

    Raises:
        ClusterError: The file cannot be read or is wrong.
    """
    rows = csv_records(Path(path), "type of job", ClusterError, _TypeRow, once=("job_type",))
    return {row.job_type: bool(row.may_be_distributed) for _, row in rows}
