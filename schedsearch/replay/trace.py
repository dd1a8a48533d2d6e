"""The trace of a training job: when each rank ran each block of each micro-batch, in each of some iterations.

The form is that of published traces of production jobs (StragglerAnalysis): ``trace-NAME.csv.gz`` with a row
for each operation, and ``meta-NAME.yaml`` with the degrees of parallelism. Knows no search.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, NamedTuple

from placements import Kind
from placements.meaning import Meaning
from placements.placement_file.yaml_text import read_yaml
from placements.plain_data import Field, in_file
from placements.tables import csv_records
from schedsearch.schedule import Instance

TICK_MS = 0.001
"""Ticks in which times of a trace are counted."""

_COMPUTE = {"forward-compute": Kind.F, "backward-compute": Kind.B}


class JobTraceError(ValueError):
    """A trace or its meta file is wrong; the message says where and the remedy in one line."""


class MeasuredBlock(NamedTuple):
    """A block as a replica ran it; of several ranks that ran it together, their mean.

    Attributes:
        start_ms: From the begin of the trace's clock on.
        time_ms: How long it took.
    """

    start_ms: float
    time_ms: float

    @property
    def end_ms(self) -> float:
        """When it ended."""
        return self.start_ms + self.time_ms


class ReplicaIteration(NamedTuple):
    """The blocks of one replica in one iteration; micro-batches are numbered from 0 on."""

    blocks: Mapping[Instance, MeasuredBlock]

    @property
    def num_micro_batches(self) -> int:
        """How many micro-batches it had."""
        return 1 + max(number for _, number in self.blocks)

    @property
    def measured_ms(self) -> float:
        """Time from the start of its first block to the end of its last one."""
        first = min(each.start_ms for each in self.blocks.values())
        return max(each.end_ms for each in self.blocks.values()) - first


class JobTrace(NamedTuple):
    """A job's iterations that are whole.

    Attributes:
        job: Its name.
        num_stages: Devices of a replica's pipeline.
        num_chunks: Parts of the model on each device; more than 1 for interleaved schedules.
        steps: For each iteration, by its number, what each replica ran.
        lines: What was left out, a line each.
    """

    job: str
    num_stages: int
    num_chunks: int
    steps: Mapping[int, tuple[ReplicaIteration, ...]]
    lines: tuple[str, ...]


class _Row(NamedTuple):
    """A block as a rank ran it; other columns are not read."""

    replica: Annotated[int, Meaning("replica", min=0, key="dp_rank")]
    stage: Annotated[int, Meaning("stage", min=0)]
    rank: Annotated[int, Meaning("rank", min=0)]
    step: Annotated[int, Meaning("iteration", min=0)]
    optype: str
    start_s: Annotated[float, Meaning("begin", "seconds", max=1e11, key="start_ts")]
    time_s: Annotated[float, Meaning("how long it took", "seconds", min=0, key="duration")]
    chunk: Annotated[int, Meaning("chunk of the stage", min=0, key="mc")]
    micro_batch: Annotated[int, Meaning("micro-batch", min=0, key="mb_id")]

    @property
    def kind(self) -> Kind:
        """Forward or backward."""
        return _COMPUTE[self.optype]


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


def read_job_trace(path: str | Path) -> JobTrace:
    """Return the iterations of a trace, with the degrees of the meta file beside it.

    Raises:
        JobTraceError: A file is wrong; the line names it, the place and the remedy.
    """
    path = Path(path)
    meta = _meta_of(path)
    with in_file(meta, JobTraceError):
        data = Field(read_yaml(meta, JobTraceError), "", JobTraceError, is_open=True)
        data.mapping("a mapping with dp_size and pp_size")
        sizes = {name: data[name].whole(min=1, remedy="give 1 or more") for name in ("dp_size", "pp_size")}
        chunks = data.get("vpp_size", 1).whole(min=1, remedy="give 1 or more")
    job = path.name.removesuffix(".csv.gz").removeprefix("trace-")
    with in_file(path, JobTraceError):
        table = csv_records(path, "operation", JobTraceError, _Row, others=True, only={"optype": _COMPUTE})
        rows = [row for _, row in table]
        steps, lines = _steps(rows, sizes["dp_size"], sizes["pp_size"], chunks)
    return JobTrace(job, sizes["pp_size"], chunks, steps, tuple(f"{job}: {line}" for line in lines))


def _meta_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".csv.gz").replace("trace-", "meta-", 1) + ".yaml")


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
    by_step: dict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        ranks[row.replica, row.stage].add(row.rank)
        by_step[row.step].append(row)
    places = [(f"{kind.value}{c}", c % stages) for c in range(stages * chunks) for kind in (Kind.F, Kind.B)]
    found = {}
    for step, own in sorted(by_step.items()):
        whole = _whole(own, ranks, places, there, stages)
        if isinstance(whole, str):
            lines.append(f"step {step} is left out: {whole}")
        else:
            found[step] = whole
    if not found:
        raise JobTraceError(f"has no iteration that is whole ({lines[-1]}); give all blocks of one")
    return found, lines


def _whole(
    rows: Sequence[_Row],
    ranks: Mapping[tuple[int, int], set[int]],
    places: Sequence[tuple[str, int]],
    replicas: int,
    stages: int,
) -> tuple[ReplicaIteration, ...] | str:
    """Return what each replica ran in an iteration, or what is missing."""
    repeats: dict[tuple[int, int, str], list[_Row]] = defaultdict(list)
    for row in rows:
        name = f"{row.kind.value}{row.chunk * stages + row.stage}"
        repeats[row.replica, row.micro_batch, name].append(row)
    found = []
    for replica in range(replicas):
        numbers = sorted({number for r, number, _ in repeats if r == replica})
        if not numbers:
            return f"replica {replica} has no blocks"
        blocks = {}
        for number in numbers:
            for name, stage in places:
                same = repeats.get((replica, number, name), [])
                by_rank = Counter(row.rank for row in same)
                lacking = sorted(ranks[replica, stage] - set(by_rank))
                if lacking:
                    return f"{name} of micro-batch {number} on rank {lacking[0]} is missing"
                if len(same) > len(by_rank):
                    rank = by_rank.most_common(1)[0][0]
                    return f"{name} of micro-batch {number} on rank {rank} is there twice"
                start_ms = 1000 * fmean(row.start_s for row in same)
                time_ms = 1000 * fmean(row.time_s for row in same)
                blocks[name, numbers.index(number)] = MeasuredBlock(start_ms, time_ms)
        found.append(ReplicaIteration(blocks))
    return tuple(found)
