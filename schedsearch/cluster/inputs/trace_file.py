"""The jobs of a trace: Gavel's two tab-separated forms without a header, and CSV with one.

Gavel's are told apart by the number of columns: that of its physical experiments, whose SLO is a multiple of
the duration or -1 for none, and an older one of the traces from Microsoft's cluster. CSV has our own columns,
or those of the public traces of Philly and Helios and of Alibaba's simulator, in `COLUMNS`; others are passed
over. Times are dates, seconds, or milli- to nanoseconds since 1970. A job of which only the duration is known
has as many steps as it does in that time where its type is fastest. One without a type gets one by a seeded
draw among those that have a throughput at its number of GPUs, one draw for each such row in the order of the
file. A part of a GPU is rounded up to a whole one. The status is not read: a job that failed used its GPUs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from random import Random

from placements.forms.reading import Field, in_file
from placements.forms.tables import Cell, Row, csv_rows, read_csv
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.inputs.cells import above_0, at_least_0, date_of
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.throughputs import Throughputs

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "name": ("name", "jobid", "job_id", "job_name"),
    "arrival": ("arrival_s", "submitted_time", "submit_time", "start_time"),
    "GPUs": ("scale_factor", "num_gpus", "num_gpu", "gpu_num", "gpus"),
    "type": ("job_type", "type"),
    "steps": ("steps", "num_steps", "total_steps"),
    "duration": ("duration_s", "duration", "run_time"),
    "weight": ("weight", "priority_weight"),
    "SLO": ("slo_s",),
    "entity": ("entity", "vc", "user"),
}
"""Possible names of each column; the first name that a file has counts."""

_SLO_FACTOR, _NO_SLO = "slo_factor", -1

_PHYSICAL = ("job_type", "", "", "", "", "steps", "scale_factor", "weight", _SLO_FACTOR, "arrival_s")
_MSR = ("job_type", "", "", "", "steps", "arrival_s", "scale_factor")
"""Columns of Gavel's forms under our names; those without are not read."""

_UNKNOWN = ("none", "na", "nan", "null")
"""How public traces write that a time or a number was not recorded."""


@dataclass(frozen=True)
class Trace:
    """The jobs of a trace that can run.

    Attributes:
        jobs: By arrival; each is named as in the file, or after its place there, from 0.
        skipped: Number of jobs left out, by (type, scale factor), because these have no throughput.
        not_run: Number of rows left out because they used no GPU, or for no time.
    """

    jobs: tuple[Job, ...]
    skipped: Mapping[tuple[str, int], int] = field(default_factory=dict)
    not_run: int = 0

    def skipped_text(self) -> str:
        """Return a one-line note on the skipped jobs and rows; empty if none were skipped."""
        skipped = sorted(self.skipped.items(), key=lambda item: (-item[1], item[0]))
        kinds = ", ".join(f"{count} of {_shown(*kind)}" for kind, count in skipped)
        number = sum(self.skipped.values())
        texts = [f"{number} jobs have no throughput and are skipped: {kinds}"] if skipped else []
        texts += [f"{self.not_run} rows used no GPU or no time and are skipped"] if self.not_run else []
        return "; ".join(texts)


def read_trace(
    path: str | Path, throughputs: Throughputs, *, seed: int = 0, cluster: GpuCluster | None = None
) -> Trace:
    """Return the jobs of a trace file; a seed draws the types of jobs that have none.

    With a cluster, a job that needs more GPUs than it has of any type is an error.

    Raises:
        ClusterError: The file cannot be read, a row is wrong, or the throughputs do not know a type of job at
            all.
    """
    with in_file(path, ClusterError):
        text = read_csv(path, ClusterError, "a trace of Gavel or a CSV file")
        rows = _gavel_rows(text) if "\t" in text.lstrip().partition("\n")[0] else _csv_rows(text)
        arrivals_s, random = _arrivals_s(rows), Random(seed)
        rates = {
            kind: max(throughputs.rate(*kind, gpu_type) for gpu_type in row)
            for kind, row in throughputs.alone.items()
        }
        fastest, known = {kind: rate for kind, rate in rates.items() if rate > 0}, {name for name, _ in rates}
        types_of = {gpus: [name for name, count in fastest if count == gpus] for _, gpus in fastest}
        jobs, skipped, not_run = dict[str, Job](), Counter[tuple[str, int]](), 0
        for place, row in enumerate(rows):
            gpus = math.ceil(_number(row, "GPUs", at_least_0, "a number of GPUs", 0.0))
            steps = _number(row, "steps", above_0, "a number of steps", 0.0)
            duration_s = _number(row, "duration", at_least_0, "a duration in seconds", 0.0)
            if not gpus or not (steps or duration_s):
                not_run += 1
                continue
            types = types_of.get(gpus, [""])  # one number is drawn even if there is no choice
            kind = _text(row, "type") or types[int(random.random() * len(types))], gpus
            if kind not in fastest:
                if kind[0] and kind[0] not in known:
                    near = get_close_matches(kind[0], known, n=1, cutoff=0.0)[0]
                    raise row.wrong(
                        f"the throughputs have no type of job {kind[0]!r}; add it to them, or write {near!r}"
                    )
                skipped[kind] += 1
                continue
            if cluster is not None and not throughputs.can_run(cluster, *kind):
                has = ", ".join(f"{workers} {gpu_type}" for gpu_type, workers in cluster.workers.items())
                raise row.wrong(
                    f"{_shown(*kind)} does not run on any type of which the cluster has enough ({has}); "
                    "give it more GPUs, or remove the job"
                )
            steps = steps or duration_s * fastest[kind]
            slo_s = _number(row, "SLO", above_0, "a time after the arrival in seconds", math.inf)
            if _SLO_FACTOR in row:
                factor = above_0(row[_SLO_FACTOR], "a multiple of the job's duration", "give -1 for none")
                slo_s = factor * steps / fastest[kind]
            name = _text(row, "name") or str(place)
            if name in jobs:
                raise row.wrong(f"the name {name!r} is given twice; rename one of the jobs")
            weight = _number(row, "weight", above_0, "a weight", 1.0)
            arrival_s = arrivals_s.get(row.line)
            if arrival_s is None:
                raise row.wrong("lacks the arrival; give it, or remove the row")
            jobs[name] = Job(name, *(kind[0], steps, gpus, weight, arrival_s, slo_s), _text(row, "entity"))
        return Trace(tuple(sorted(jobs.values(), key=lambda job: job.arrival_s)), dict(skipped), not_run)


def _gavel_rows(text: str) -> list[Row]:
    lines = [(line, text.split("\t")) for line, text in enumerate(text.splitlines(), 1) if text.strip()]
    header = _MSR if len(lines[0][1]) == len(_MSR) else _PHYSICAL
    rows = []
    for line, cells in lines:
        if len(cells) != len(header):
            raise ClusterError(
                f"line {line}: has {len(cells)} tab-separated columns; a physical trace of Gavel has "
                f"{len(_PHYSICAL)}, one of its MSR traces {len(_MSR)}, on all lines alike"
            )
        named = {name: text for name, cell in zip(header, cells, strict=True) if (text := cell.strip())}
        row = Row(line, named, ClusterError)
        if _SLO_FACTOR in row and row[_SLO_FACTOR].parsed == _NO_SLO:
            del named[_SLO_FACTOR]
        rows.append(row)
    return rows


def _csv_rows(text: str) -> list[Row]:
    """Return the rows without the cells that say that nothing is known."""
    known = [name for names in COLUMNS.values() for name in names]
    rows = [
        replace(row, cells={name: cell for name, cell in row.cells.items() if cell.lower() not in _UNKNOWN})
        for row in csv_rows(text, "job", ClusterError, (), known)
    ]
    for kind in ("arrival", "GPUs"):
        if not any(_cell(row, kind) for row in rows):
            raise ClusterError(
                f"line 1: has no column of {kind}; add one of {', '.join(COLUMNS[kind])}, with commas between"
            )
    return rows


def _arrivals_s(rows: Sequence[Row]) -> dict[int, float]:
    """Return the arrivals by line: as they are, or from the first submission on, all dates or all seconds."""
    cells = {row.line: cell for row in rows if (cell := _cell(row, "arrival")) is not None}
    if any("arrival_s" in row for row in rows):
        remedy = "give 0 or more, or name the column of dates submit_time"
        return {line: at_least_0(cell, "an arrival in seconds", remedy) for line, cell in cells.items()}
    dates = {line: date for line, cell in cells.items() if (date := date_of(cell.value))}
    times, units = {line: date.timestamp() for line, date in dates.items()}, set()
    for line, cell in cells.items():
        if line in dates:
            continue
        if dates:
            raise cell.wrong("a date as others of the column are", "write all as 2017-10-07 01:11:39")
        number = cell.number("a date as 2017-10-07 01:11:39, or seconds", "write all so", 0)
        # Seconds since 1970 have 9 or 10 digits, milliseconds 3 more, and so on.
        unit = 1000.0 ** max(0, int(math.log10(max(number, 1.0)) - 8) // 3)
        units.add(unit)
        if len(units) > 1:
            raise cell.wrong("in the unit of others of the column", "give all times in one unit")
        times[line] = number / unit
    first = min(times.values())
    return {line: time - first for line, time in times.items()}


def _cell(row: Row, kind: str) -> Cell | None:
    return next((row[name] for name in COLUMNS[kind] if name in row), None)


def _text(row: Row, kind: str) -> str:
    cell = _cell(row, kind)
    return cell.value if cell else ""


def _number(row: Row, kind: str, read: Callable[[Field, str], float], wanted: str, default: float) -> float:
    cell = _cell(row, kind)
    return read(cell, wanted) if cell else default


def _shown(job_type: str, gpus: int) -> str:
    return f"{job_type or 'any type'} on {gpus} GPU{'s' if gpus > 1 else ''}"
