"""Rows of traces: Gavel's two tab-separated forms without a header, and CSV with one.

Gavel's are told apart by the number of columns: that of its physical experiments, whose SLO is a multiple of
the duration or -1 for none, and an older one of the traces from Microsoft's cluster. CSV has our own columns,
or those of the public traces of Philly and Alibaba.

What is read, under any of these names (the first that the file has); other columns are passed over:

=============  =================================================================================
name           name, jobid, job_id, job_name; else the row's place, from 0
arrival        arrival_s (as it is); submitted_time, submit_time, start_time (from the first one)
GPUs           scale_factor, num_gpus, num_gpu, gpu_num, gpus; plan_gpu in percent, times inst_num if given
type of job    job_type, type; else one is drawn, see `trace_file.read_trace`
steps          steps, num_steps, total_steps
duration       duration_s, duration, run_time, in seconds; else end_time - start_time
ran on         gpu_type, if throughputs know it in small letters
weight         weight, priority_weight
SLO            slo_s, in seconds after the arrival
entity         entity, vc (Philly's virtual cluster), user
=============  =================================================================================

Times are seconds, or dates as 2017-10-07 01:11:39, in any form of ISO, with / or as 20171007, or seconds to
nanoseconds since 1970; those of a column are all of one form. Philly's log is JSON; its jobs as CSV usually
have jobid, vc, submitted_time, num_gpus, run_time and status. Alibaba's tables (cluster-trace-gpu-v2020) come
without their header: write it above. `plan_gpu` of its task table is percent of one GPU for each of inst_num
instances; rows of one job with a task_name are its tasks, and their GPUs are added. The CSV of its simulator
has `num_gpu` in GPUs, and parts of them. A part of a GPU is rounded up to a whole one: jobs share GPUs only
where the policy lets them. The status is not read: a job that failed used its GPUs too. A row without an
arrival is left out as a job that did not run, unless it has steps or a duration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placements.tables import Row, csv_rows
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.cells import above_0, at_least_0, count_of_gpus, date_of, times_s

PHYSICAL = (
    *("job type", "command", "working directory", "steps argument", "needs data dir", "total steps"),
    *("scale factor", "priority weight", "SLO", "arrival"),
)
MSR = ("job type", "command", "steps argument", "needs data dir", "total steps", "arrival", "scale factor")
NO_SLO = -1

NAME = ("name", "jobid", "job_id", "job_name")
SUBMITTED = ("submitted_time", "submit_time", "start_time")
ARRIVAL = ("arrival_s", *SUBMITTED)
GPUS = ("scale_factor", "num_gpus", "num_gpu", "gpu_num", "gpus")
TYPE = ("job_type", "type")
STEPS = ("steps", "num_steps", "total_steps")
DURATION = ("duration_s", "duration", "run_time")
WEIGHT = ("weight", "priority_weight")
ENTITY = ("entity", "vc", "user")

_COLUMNS = (
    *(*NAME, *ARRIVAL, *GPUS, *TYPE, *STEPS, *DURATION, *WEIGHT, *ENTITY),
    *("end_time", "plan_gpu", "inst_num", "gpu_type", "slo_s", "task_name"),
)

_UNKNOWN = ("none", "na", "nan", "null")
"""How public traces write that a time or a number was not recorded."""

_OTHER_UNIT = 100
"""From how many times as long as from start to end on a duration is in another unit."""

_Times = Mapping[str, Mapping[int, float]]
"""Times of each column of times in seconds, by the line of the row."""


@dataclass(frozen=True)
class Submission:
    """A job as a row tells of it, before the throughputs are known that turn durations into steps.

    Attributes:
        line: Line of the file, from 1.
        name: Name of the job.
        arrival_s: When it is submitted; infinite where the file does not say, of a job that did not run.
        scale_factor: GPUs that it asks for; 0 where it ran without.
        job_type: Type of job as tables of throughputs name it; "" where the file does not say.
        steps: Steps that the job runs; 0 where only the duration is known.
        duration_s: How long it ran, in seconds; 0 where it did not.
        gpu_type: Type of GPU on which it ran so long; "" where the file does not say.
        weight: As of `Job`, as are `slo_s` and `entity`.
        slo_s: See `weight`.
        slo_factor: The same as a multiple of its duration where it runs fastest.
        entity: See `weight`.
    """

    line: int
    name: str
    arrival_s: float
    scale_factor: int
    job_type: str = ""
    steps: float = 0.0
    duration_s: float = 0.0
    gpu_type: str = ""
    weight: float = 1.0
    slo_s: float = math.inf
    slo_factor: float = math.inf
    entity: str = ""

    @property
    def kind(self) -> tuple[str, int]:
        """Return its type and scale factor, by which throughputs are found."""
        return self.job_type, self.scale_factor

    @property
    def is_run(self) -> bool:
        """Return whether it used GPUs, for some time or steps."""
        return self.scale_factor > 0 and (self.steps > 0 or self.duration_s > 0)


def submissions(text: str) -> list[Submission]:
    """Return the jobs of a trace, in the order of the file; those of Gavel are named by their places.

    Raises:
        ClusterError: A column that is needed is not there, or a cell is wrong.
    """
    is_gavels = "\t" in text.lstrip().partition("\n")[0]
    return [*_of_gavel(text)] if is_gavels else _of_csv(text)


def _of_gavel(text: str) -> Iterator[Submission]:
    lines = [(line, text.split("\t")) for line, text in enumerate(text.splitlines(), 1) if text.strip()]
    header = MSR if len(lines[0][1]) == len(MSR) else PHYSICAL
    for index, (line, cells) in enumerate(lines):
        if len(cells) != len(header):
            raise ClusterError(
                f"line {line}: has {len(cells)} tab-separated columns; a physical trace of Gavel has "
                f"{len(PHYSICAL)}, one of its MSR traces {len(MSR)}, on all lines alike"
            )
        named = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
        row = Row(line, named, ClusterError)
        has_slo = "SLO" in row and row["SLO"].number("an SLO") != NO_SLO
        wanted = "an SLO that can be met, a multiple of the job's duration"
        yield Submission(
            line,
            str(index),
            at_least_0(row["arrival"], "an arrival in seconds"),
            count_of_gpus(row["scale factor"]),
            row.text("job type"),
            above_0(row["total steps"], "a number of steps"),
            weight=_number(row, ("priority weight",), "a weight", default=1.0),
            slo_factor=above_0(row["SLO"], wanted, f"give more than 0, or {NO_SLO} for none")
            if has_slo
            else math.inf,
        )


def _of_csv(text: str) -> list[Submission]:
    rows = [_known(row) for row in csv_rows(text, "job", ClusterError, (), _COLUMNS)]
    columns = {column for row in rows for column in row.cells}
    for kind, names in (("arrivals", ARRIVAL), ("GPUs", (*GPUS, "plan_gpu"))):
        if columns.isdisjoint(names):
            raise ClusterError(
                f"line 1: has no column of {kind}; add one of {', '.join(names)}, with commas between columns"
            )
    if all(date_of(row.cells.get("arrival_s", "")) for row in rows):
        raise ClusterError(f"line {rows[0].line}, column arrival_s: is in seconds; name dates submit_time")
    arrival = next(column for column in ARRIVAL if column in columns)
    times = {column: times_s(rows, column) for column in (*SUBMITTED, "end_time")}
    found = [_submission(str(index), row, arrival, times) for index, row in enumerate(rows)]
    if "task_name" in columns:
        found = _joined(found)
    if "arrival_s" in columns:
        return found
    first_s = min(one.arrival_s for one in found)
    return [replace(one, arrival_s=one.arrival_s - first_s) for one in found]


def _known(row: Row) -> Row:
    """Return a row without the cells that say that nothing is known."""
    return replace(
        row, cells={name: cell for name, cell in row.cells.items() if cell.lower() not in _UNKNOWN}
    )


def _submission(place: str, row: Row, arrival: str, times: _Times) -> Submission:
    """Return the job of a row; the column of arrivals is named where its cell is empty."""
    found = Submission(
        row.line,
        _text(row, NAME) or place,
        math.inf,
        math.ceil(_gpus(row)),
        _text(row, TYPE),
        _number(row, STEPS, "a number of steps", default=0.0),
        _duration_s(row, times),
        row.cells.get("gpu_type", "").lower(),
        _number(row, WEIGHT, "a weight", default=1.0),
        _number(row, ("slo_s",), "a time after the arrival in seconds", default=math.inf),
        entity=_text(row, ENTITY),
    )
    column = _first(row, ARRIVAL)
    if not column and not found.is_run:
        return found
    cell = row[column or arrival]
    is_in_s = column == "arrival_s"
    arrival_s = at_least_0(cell, "an arrival in seconds") if is_in_s else times[column][row.line]
    return replace(found, arrival_s=arrival_s)


def _joined(tasks: Sequence[Submission]) -> list[Submission]:
    """Return the jobs whose tasks the rows are: from the first that starts to the last that ends."""
    by_name: dict[str, list[Submission]] = {}
    for task in tasks:
        by_name.setdefault(task.name, []).append(task)
    return [_job_of(of_job) for of_job in by_name.values()]


def _job_of(tasks: Sequence[Submission]) -> Submission:
    tasks = [task for task in tasks if math.isfinite(task.arrival_s)] or tasks[:1]
    start_s = min(task.arrival_s for task in tasks)
    main = max(tasks, key=lambda task: task.scale_factor)
    return replace(
        main,
        arrival_s=start_s,
        scale_factor=sum(task.scale_factor for task in tasks),
        duration_s=max(task.arrival_s + task.duration_s for task in tasks) - start_s,
    )


def _first(row: Row, columns: Sequence[str]) -> str:
    """Return the first of some columns in which a row has something; "" for none."""
    return next((column for column in columns if column in row), "")


def _text(row: Row, columns: Sequence[str]) -> str:
    column = _first(row, columns)
    return row.cells[column] if column else ""


def _number(row: Row, columns: Sequence[str], wanted: str, default: float) -> float:
    column = _first(row, columns)
    return above_0(row[column], wanted) if column else default


def _gpus(row: Row) -> float:
    """Return the GPUs of a row, of which there may be parts."""
    column = _first(row, GPUS)
    if column:
        return at_least_0(row[column], "a number of GPUs")
    if "plan_gpu" not in row:
        return 0.0
    instances = at_least_0(row["inst_num"], "a number of instances") if "inst_num" in row else 1
    return instances * at_least_0(row["plan_gpu"], "GPUs in percent") / 100


def _duration_s(row: Row, times: _Times) -> float:
    column, ran_s = _first(row, DURATION), math.inf
    if "end_time" in row and "start_time" in row:
        ran_s = times["end_time"][row.line] - times["start_time"][row.line]
        if ran_s < 0:
            raise row["end_time"].wrong("after start_time", "correct one of them")
    if not column:
        return ran_s if math.isfinite(ran_s) else 0.0
    duration_s = at_least_0(row[column], "a duration in seconds")
    if math.isfinite(ran_s) and duration_s > _OTHER_UNIT * max(ran_s, 1.0):
        raise row[column].wrong(f"in seconds: end_time is {ran_s:g} s after start_time", "give seconds")
    return duration_s
