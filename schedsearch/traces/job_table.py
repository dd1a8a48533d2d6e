"""Traces in the form of published production jobs (StragglerAnalysis): a table, and a file of degrees.

``trace-NAME.csv.gz``, packed or not, has a row for each operation of a rank, and ``meta-NAME.yaml`` beside it
the degrees of parallelism. Times of all ranks are of one clock, to about half a millisecond.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NamedTuple

from placements.forms.meaning import Meaning
from placements.forms.reading import Field, in_file
from placements.forms.tables import csv_records
from placements.forms.texts import read_yaml
from schedsearch.traces.table import BLOCK_KINDS, Span, TraceError, TraceTable

COLUMNS = ("optype", "start_ts", "duration")
"""Some columns of the form, by which it is known."""

_KINDS = {
    "F": "forward-compute",
    "B": "backward-compute",
    "message": r"((forward|backward)-(send|recv)-?)+",
    "collective": r".*(all-reduce|reduce-scatter|all-gather|all-to-all)",
    "optimizer": "optimizer.*",
    "data": r".*(batch|data).*",
}
"""Kinds of operations, each with a regular expression for the names of its types."""


class _Row(NamedTuple):
    """One row of a trace: an operation on a rank; other columns are not read."""

    replica: Annotated[int, Meaning("replica", min=0, key="dp_rank")]
    stage: Annotated[int, Meaning("stage", min=0)]
    rank: Annotated[int, Meaning("rank", min=0)]
    step: Annotated[int, Meaning("iteration", min=0)]
    optype: str
    start_s: Annotated[float, Meaning("begin", "seconds", max=1e11, key="start_ts")]
    time_s: Annotated[float, Meaning("how long it took", "seconds", min=0, key="duration")]
    chunk: Annotated[int, Meaning("chunk of the stage, or -1 for none", min=-1, key="mc")] = -1
    micro_batch: Annotated[int, Meaning("micro-batch, or -1 for none", min=-1, key="mb_id")] = -1


def read_job_table(path: str | Path) -> TraceTable:
    """Read the operations of a trace, and the job's degrees from the meta file in the same folder.

    Raises:
        TraceError: A file is wrong; the line names it, the place and the remedy.
    """
    path = Path(path)
    job = re.sub(r"\.csv(\.gz)?$", "", path.name).removeprefix("trace-")
    meta = path.with_name(f"meta-{job}.yaml")
    if not meta.is_file():
        raise TraceError(f"{path}: there is no {meta.name} beside it; add the job's degrees")
    with in_file(meta, TraceError):
        data = Field(read_yaml(meta, TraceError), "", TraceError, is_open=True)
        data.mapping("a mapping with dp_size and pp_size")
        degrees = data["dp_size"], data["pp_size"], data.get("vpp_size", 1)
        replicas, stages, chunks = (degree.whole(min=1, remedy="give 1 or more") for degree in degrees)
    with in_file(path, TraceError):
        rows = csv_records(path, "operation", TraceError, _Row, others=True)
        kinds = {name: _kind(name) for name in {row.optype for _, row in rows}}
        blocks = [(line, row) for line, row in rows if kinds[row.optype] in BLOCK_KINDS]
        for line, row in blocks:
            if min(row.chunk, row.micro_batch) < 0:
                name = "mc" if row.chunk < 0 else "mb_id"
                raise TraceError(f"line {line}, column {name}: is empty or -1; a {row.optype} has 0 or more")
        for name, number, degree, size in (
            ("stage", max((row.stage for _, row in blocks), default=-1), "pp_size", stages),
            ("mc", max((row.chunk for _, row in blocks), default=-1), "vpp_size", chunks),
        ):
            if number != size - 1:
                raise TraceError(
                    f"column {name}: goes to {number}, where the meta file says {degree} {size}; give all "
                    "ranks' blocks, or the degrees of this trace"
                )
    lines, there = [], 1 + max(row.replica for _, row in blocks)
    if there != replicas:
        lines.append(f"has {there} replicas, where the meta file says dp_size {replicas}; these are replayed")
    for name in sorted(name for name, kind in kinds.items() if not kind):
        if sum(times_s := [row.time_s for _, row in rows if row.optype == name]):
            total = f"{len(times_s)} operations, {1000 * sum(times_s):,.6g} ms in all"
            lines.append(f"{name} is of no known type; {total}, are left out")
    spans = [_span(row, kind, stages, chunks) for _, row in rows if (kind := kinds[row.optype])]
    lines = [f"{job}: {line}" for line in lines]
    return TraceTable(job, spans, tuple(lines), replicas, stages, chunks, is_one_clock=True)


def _kind(optype: str) -> str:
    """Return the kind of a type of operations; empty if it is not known."""
    return next((kind for kind, pattern in _KINDS.items() if re.fullmatch(pattern, optype)), "")


def _span(row: _Row, kind: str, stages: int, chunks: int) -> Span:
    chunk = 0 if chunks == 1 else row.chunk
    stage = row.stage + chunk * stages if chunk >= 0 else None
    micro_batch = row.micro_batch if row.micro_batch >= 0 else None
    start_ms, time_ms = 1000 * row.start_s, 1000 * row.time_s
    return Span(row.rank, stage, kind, micro_batch, start_ms, start_ms + time_ms, row.step, row.replica)
