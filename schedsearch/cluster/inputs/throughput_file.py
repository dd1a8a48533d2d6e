"""How fast each type of job runs where: Gavel's JSON, and a CSV table of a user's own.

Gavel's form is ``{gpu_type: {"('job type', scale factor)": {"null": steps/s alone, "('other type', scale
factor)": [steps/s of this, of other]}}}``. A table has a row for each way to run a type of job::

    job_type,scale_factor,gpu_type,steps_per_s,power_w,clock_mhz,other_job_type,other_steps_per_s
    GPT-3 1.3B,8,h100,4.1,4400,1980,,
    GPT-3 1.3B,8,h100,3.6,3100,1400,,
    GPT-3 1.3B,8,a100,1.9,,,,
    BERT,1,a100,11.0,,,,
    BERT,1,a100,7.5,,,ResNet-50,6.0

The first four columns are needed. Steps per second and watts are of all its GPUs together. Several clocks are
several rows; a row with another type of job is the two on the same GPUs, and a zero there says that they
cannot share. What a table does not name cannot run. One more column, ``unconsolidated_steps_per_s``, is the
speed of the same GPUs each in a server of its own, which Gavel's form has in types named so.

The types from which jobs are generated are in a file of their own: ``index,job_type,may_be_distributed``, in
the order of drawing.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

from placements.meaning import Meaning
from placements.plain_data import Field, in_file, json_file
from placements.tables import Row, csv_records, csv_rows, read_csv
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.cells import at_least_0, count_of_gpus
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs

REQUIRED = ("job_type", "scale_factor", "gpu_type", "steps_per_s")
OPTIONAL = ("power_w", "clock_mhz", "unconsolidated_steps_per_s", "other_job_type", "other_steps_per_s")

ALONE = "null"
"""The key in Gavel's form of the throughput of a job alone."""

UNCONSOLIDATED = "_unconsolidated"
"""End of the names of Gavel's GPU types whose GPUs are on several servers."""

_WANTED = "Gavel's JSON or a CSV table of throughputs"

_Alone = dict[tuple[str, int], dict[str, tuple[JobOperatingPoint, ...]]]
_Pairs = dict[tuple[str, str, int], dict[str, tuple[float, float]]]


def read_throughputs(path: str | Path, *, unconsolidated: bool = False) -> Throughputs:
    """Return the throughputs of a file: Gavel's JSON where its name ends so, else a CSV table.

    Args:
        path: The file.
        unconsolidated: Whether to read too how fast jobs are whose GPUs are in several servers.

    Raises:
        ClusterError: The file cannot be read, is wrong, or lacks what is to be read.
    """
    if Path(path).suffix.lower() == ".json":
        with json_file(path, _WANTED, ClusterError) as data:
            found = gavel_throughputs(data)
            apart = gavel_throughputs(data, UNCONSOLIDATED) if unconsolidated else None
    else:
        with in_file(path, ClusterError):
            text = read_csv(path, ClusterError, _WANTED)
            rows = [*csv_rows(text, "type of job", ClusterError, REQUIRED, OPTIONAL, others=False)]
            found = _table(rows, "steps_per_s")
            apart = _table(rows, "unconsolidated_steps_per_s") if unconsolidated else None
    if apart is not None and not apart.alone:
        raise ClusterError(
            f"{path}: does not say how fast a job is on several servers; give GPU types that end in "
            f"{UNCONSOLIDATED} in Gavel's JSON, or the column unconsolidated_steps_per_s in a CSV table"
        )
    return replace(found, unconsolidated=apart)


def gavel_throughputs(data: Field, suffix: str = "") -> Throughputs:
    """Return the throughputs of plain data in Gavel's form, of the GPU types whose names end so."""
    alone: _Alone = {}
    pairs: _Pairs = {}
    for name in data.mapping("throughputs by GPU type", _WANTED):
        gpu_type = name.removesuffix(UNCONSOLIDATED)
        for key in data[name].mapping() if name == gpu_type + suffix else ():
            row = data[name][key]
            job_type, scale_factor = _kind_of(key, row)
            for other in row.mapping():
                cell = row[other]
                if other == ALONE:
                    rate = rate_of(cell)
                    alone.setdefault((job_type, scale_factor), {})[gpu_type] = (JobOperatingPoint(rate),)
                    continue
                other_type, other_factor = _kind_of(other, cell)
                if other_factor != scale_factor:
                    raise cell.wrong(f"of jobs with {scale_factor} GPUs", "pair jobs of one scale factor")
                _add_gavel_pair(pairs, (job_type, other_type, scale_factor), gpu_type, cell)
    if not alone and not suffix:
        raise data.wrong("throughputs", f"give {_WANTED}")
    return Throughputs(alone, pairs)


def _add_gavel_pair(pairs: _Pairs, key: tuple[str, str, int], gpu_type: str, cell: Field) -> None:
    """Add a pair, which stands in the file twice, once in the row of each of its types."""
    one, other, scale_factor = key
    first, second = rates_of_two(cell)
    mirrored = pairs.get((other, one, scale_factor))
    if mirrored is None or one == other:
        pairs.setdefault(key, {})[gpu_type] = (first, second)
    elif mirrored.setdefault(gpu_type, (second, first)) != (second, first):
        shown = list(mirrored[gpu_type])
        raise cell.wrong(f"what {other} has beside {one}, {shown}", "make both entries equal")


def _kind_of(key: str, field: Field) -> tuple[str, int]:
    found = _parsed(key)
    if found is None:
        raise ClusterError(f"{field.where}: {key!r} is not a type of job; write \"('ResNet-18', 1)\"")
    return found


@cache
def _parsed(key: str) -> tuple[str, int] | None:
    """Return the type and the number of GPUs that a key names; keys repeat some thousand times."""
    with suppress(ValueError, SyntaxError):
        match ast.literal_eval(key):
            case (str(job_type), int(scale_factor)) if job_type and scale_factor >= 1:
                return job_type, scale_factor
    return None


def rate_of(cell: Field) -> float:
    """Return a throughput, in steps/s."""
    return at_least_0(cell, "a throughput in steps/s", "give a finite number of 0 or more")


def rates_of_two(cell: Field) -> tuple[float, float]:
    """Return the throughputs of two jobs on the same GPUs, in steps/s."""
    rates = cell.items("the throughputs of two jobs", "give [steps/s, steps/s]")
    if len(rates) != 2:
        raise cell.wrong("the throughputs of two jobs", "give [steps/s, steps/s]")
    first, second = map(rate_of, rates)
    return first, second


def _table(rows: list[Row], column: str) -> Throughputs:
    """Return the throughputs of a column; rows that leave it empty are left out, but in the first."""
    alone: _Alone = {}
    pairs: _Pairs = {}
    for row in rows:
        if column not in row and column not in REQUIRED:
            continue
        job_type, gpu_type = row.text("job_type"), row.text("gpu_type")
        scale_factor = count_of_gpus(row["scale_factor"])
        rate = rate_of(row[column])
        if "other_job_type" in row:
            _add_pair(pairs, row, (job_type, row.text("other_job_type"), scale_factor), gpu_type, rate)
            continue
        points = alone.setdefault((job_type, scale_factor), {}).get(gpu_type, ())
        point = _point(row, rate)
        if any(point.clock_mhz == other.clock_mhz for other in points):
            raise row.wrong(
                f"{job_type} on {scale_factor} {gpu_type} is given twice at this clock; keep one row"
            )
        fastest_first = sorted((*points, point), key=lambda one: -one.steps_per_s)
        alone[job_type, scale_factor][gpu_type] = tuple(fastest_first)
    return Throughputs(alone, pairs)


def _point(row: Row, rate: float) -> JobOperatingPoint:
    if "other_steps_per_s" in row:
        raise row.wrong("has other_steps_per_s but no other_job_type; name it or leave both empty")
    power_w = at_least_0(row["power_w"], "a power in W") if "power_w" in row else 0.0
    clock = row["clock_mhz"].whole("a clock in MHz", "give 0 or more", min=0) if "clock_mhz" in row else 0
    return JobOperatingPoint(rate, power_w, clock)


def _add_pair(pairs: _Pairs, row: Row, key: tuple[str, str, int], gpu_type: str, rate: float) -> None:
    for column in ("power_w", "clock_mhz", "unconsolidated_steps_per_s"):
        if column in row:
            raise row.wrong(f"has {column} for two jobs on the same GPUs; leave it empty")
    first, second, scale_factor = key
    if any(gpu_type in pairs.get(one, {}) for one in (key, (second, first, scale_factor))):
        raise row.wrong(f"{first} with {second} on {scale_factor} {gpu_type} is given twice; keep one row")
    pairs.setdefault(key, {})[gpu_type] = (rate, rate_of(row["other_steps_per_s"]))


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
