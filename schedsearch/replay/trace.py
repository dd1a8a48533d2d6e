"""The trace of a training job: start and time of each block of each micro-batch, by rank and iteration.

The form is that of published traces of production jobs (StragglerAnalysis): ``trace-NAME.csv.gz`` with a row
for each operation, and ``meta-NAME.yaml`` with the degrees of parallelism. Knows no search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, NamedTuple

from placements import Kind
from placements.forms.meaning import Meaning
from placements.forms.reading import Field, in_file
from placements.forms.tables import csv_records
from placements.forms.texts import read_yaml
from schedsearch.schedule import Instance

TICK_MS = 0.001
"""Ticks in which times of a trace are counted."""

_COMPUTE = {"forward-compute": Kind.F, "backward-compute": Kind.B}


class JobTraceError(ValueError):
    """A trace or its meta file is wrong; the message says where and the remedy in one line."""


class MeasuredBlock(NamedTuple):
    """A block's start and time on a replica; if several ranks ran it together, their means.

    Attributes:
        start_ms: Start on the trace's clock.
        time_ms: Time that the block took.
    """

    start_ms: float
    time_ms: float

    @property
    def end_ms(self) -> float:
        """The block's end on the trace's clock."""
        return self.start_ms + self.time_ms


class ReplicaIteration(NamedTuple):
    """The blocks of one replica in one iteration; micro-batches are numbered from 0 on."""

    blocks: Mapping[Instance, MeasuredBlock]

    @property
    def num_micro_batches(self) -> int:
        """Number of micro-batches of the replica."""
        return 1 + max(number for _, number in self.blocks)

    @property
    def measured_ms(self) -> float:
        """Time from the start of its first block to the end of its last one."""
        first = min(each.start_ms for each in self.blocks.values())
        return max(each.end_ms for each in self.blocks.values()) - first


class JobTrace(NamedTuple):
    """A job's complete iterations.

    Attributes:
        job: Its name.
        num_stages: Devices of a replica's pipeline.
        num_chunks: Parts of the model on each device; more than 1 for interleaved schedules.
        steps: For each iteration, by its number, the blocks of each replica.
        lines: Iterations left out, a line each.
    """

    job: str
    num_stages: int
    num_chunks: int
    steps: Mapping[int, tuple[ReplicaIteration, ...]]
    lines: tuple[str, ...]


class _Row(NamedTuple):
    """One row of a trace: a block on a rank; other columns are not read."""

    replica: Annotated[int, Meaning("replica", min=0, key="dp_rank")]
    stage: Annotated[int, Meaning("stage", min=0)]
    rank: Annotated[int, Meaning("rank", min=0)]
    step: Annotated[int, Meaning("iteration", min=0)]
    optype: str
    start_s: Annotated[float, Meaning("begin", "seconds", max=1e11, key="start_ts")]
    time_s: Annotated[float, Meaning("how long it took", "seconds", min=0, key="duration")]
    chunk: Annotated[int, Meaning("chunk of the stage", min=0, key="mc")]
    micro_batch: Annotated[int, Meaning("micro-batch", min=0, key="mb_id")]


def read_job_traces(folder: str | Path) -> list[Path]:
    """Return the traces of a folder, by name.

    Raises:
        JobTraceError: There is none, or one has no meta file.
    """
    found = sorted(Path(folder).glob("trace-*.csv.gz"))
    if not found:
        raise JobTraceError(f"{folder}: has no trace-NAME.csv.gz; give a folder with at least one")
    for path in found:
        if not _meta_of(path).is_file():
            raise JobTraceError(f"{path}: there is no {_meta_of(path).name} beside it; add the job's degrees")
    return found


def _meta_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".csv.gz").replace("trace-", "meta-", 1) + ".yaml")


def read_job_trace(path: str | Path) -> JobTrace:
    """Read the iterations of a trace, and the job's degrees from the meta file in the same folder.

    Raises:
        JobTraceError: A file is wrong; the line names it, the place and the remedy.
    """
    path = Path(path)
    meta, job = _meta_of(path), path.name.removesuffix(".csv.gz").removeprefix("trace-")
    with in_file(meta, JobTraceError):
        data = Field(read_yaml(meta, JobTraceError), "", JobTraceError, is_open=True)
        data.mapping("a mapping with dp_size and pp_size")
        sizes = [data[name].whole(min=1, remedy="give 1 or more") for name in ("dp_size", "pp_size")]
        sizes.append(data.get("vpp_size", 1).whole(min=1, remedy="give 1 or more"))
    with in_file(path, JobTraceError):
        table = csv_records(path, "operation", JobTraceError, _Row, others=True, only={"optype": _COMPUTE})
        steps, lines = _steps([row for _, row in table], *sizes)
    return JobTrace(job, sizes[1], sizes[2], steps, tuple(f"{job}: {line}" for line in lines))


def _steps(
    rows: Sequence[_Row], replicas: int, stages: int, chunks: int
) -> tuple[dict[int, tuple[ReplicaIteration, ...]], list[str]]:
    """Return the iterations that are whole, and a line for each that is not."""
    for name, number, degree, size in (
        ("stage", max((row.stage for row in rows), default=-1), "pp_size", stages),
        ("mc", max((row.chunk for row in rows), default=-1), "vpp_size", chunks),
    ):
        if number != size - 1:
            raise JobTraceError(
                f"column {name}: goes to {number}, where the meta file says {degree} {size}; give all ranks' "
                "blocks, or the degrees of this trace"
            )
    lines, there = [], 1 + max(row.replica for row in rows)
    if there != replicas:
        lines.append(f"has {there} replicas, where the meta file says dp_size {replicas}; these are replayed")
    ranks: dict[tuple[int, int], set[int]] = defaultdict(set)
    steps: dict[int, list[dict[Instance, list[_Row]]]] = {}
    for row in rows:
        ranks[row.replica, row.stage].add(row.rank)
        step = steps.setdefault(row.step, [defaultdict(list) for _ in range(there)])
        name = f"{_COMPUTE[row.optype].value}{row.chunk * stages + row.stage}"
        step[row.replica][name, row.micro_batch].append(row)
    names = {f"{kind.value}{c}": c % stages for c in range(stages * chunks) for kind in (Kind.F, Kind.B)}
    found = {}
    for number, step in sorted(steps.items()):
        try:
            found[number] = tuple(
                _whole(i, own, {name: ranks[i, stage] for name, stage in names.items()})
                for i, own in enumerate(step)
            )
        except _MissingError as error:
            lines.append(f"step {number} is left out: {error}")
    if not found:
        raise JobTraceError(f"has no iteration that is whole ({lines[-1]}); give all blocks of one")
    return found, lines


class _MissingError(Exception):
    """An iteration is incomplete; the message names the missing block."""


def _whole(
    replica: int, own: Mapping[Instance, list[_Row]], ranks: Mapping[str, set[int]]
) -> ReplicaIteration:
    """Return the blocks of a replica in an iteration, and check that every rank ran its blocks.

    Raises:
        _MissingError: A block is missing or twice there.
    """
    if not own:
        raise _MissingError(f"replica {replica} has no blocks")
    blocks = {}
    for place, number in enumerate(sorted({number for _, number in own})):
        for name, known in ranks.items():
            same = own.get((name, number), [])
            lacking = sorted(known - {row.rank for row in same})
            if lacking:
                raise _MissingError(f"{name} of micro-batch {number} on rank {lacking[0]} is missing")
            if len(same) > len(known):
                raise _MissingError(f"{name} of micro-batch {number} is there twice on a rank")
            start_ms = 1000 * fmean(row.start_s for row in same)
            blocks[name, place] = MeasuredBlock(start_ms, 1000 * fmean(row.time_s for row in same))
    return ReplicaIteration(blocks)
