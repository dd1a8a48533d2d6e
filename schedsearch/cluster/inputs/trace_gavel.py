"""Gavel's two forms of traces: tab-separated lines without a header, told apart by the number of columns."""

from __future__ import annotations

import math
from collections.abc import Iterator

from placements.tables import Row
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.cells import above_0, at_least_0, count_of_gpus
from schedsearch.cluster.inputs.submission import Submission

PHYSICAL = (
    "job type",
    "command",
    "working directory",
    "steps argument",
    "needs data dir",
    "total steps",
    "scale factor",
    "priority weight",
    "SLO",
    "arrival",
)
"""Columns of the form of its physical experiments. The SLO is a multiple of the duration, or -1 for none."""

MSR = (
    "job type",
    "command",
    "steps argument",
    "needs data dir",
    "total steps",
    "arrival",
    "scale factor",
)
"""Columns of an older form, that of the traces from Microsoft's cluster."""

NO_SLO = -1


def is_gavels(text: str) -> bool:
    """Return whether the first line of a trace is tab-separated."""
    return "\t" in text.lstrip().partition("\n")[0]


def submissions(text: str) -> Iterator[Submission]:
    """Yield the jobs of a trace in the order of the file; each is named after its place there, from 0.

    Raises:
        ClusterError: A line has too few columns, too many, or a wrong number.
    """
    lines = [(line, text) for line, text in enumerate(text.splitlines(), 1) if text.strip()]
    header = MSR if lines[0][1].count("\t") + 1 == len(MSR) else PHYSICAL
    for index, (line, cells) in enumerate(lines):
        yield _submission(str(index), _row(line, header, [cell.strip() for cell in cells.split("\t")]))


def _row(line: int, header: tuple[str, ...], cells: list[str]) -> Row:
    if len(cells) != len(header):
        raise ClusterError(
            f"line {line}: has {len(cells)} tab-separated columns; a physical trace of Gavel has "
            f"{len(PHYSICAL)}, one of its MSR traces {len(MSR)}, on all lines alike"
        )
    return Row(line, {column: cell for column, cell in zip(header, cells, strict=True) if cell}, ClusterError)


def _submission(name: str, row: Row) -> Submission:
    return Submission(
        row.line,
        name,
        at_least_0(row["arrival"], "an arrival in seconds"),
        count_of_gpus(row["scale factor"]),
        row.text("job type"),
        above_0(row["total steps"], "a number of steps"),
        weight=_weight(row),
        slo_factor=_slo_factor(row),
    )


def _weight(row: Row) -> float:
    if "priority weight" not in row:
        return 1.0
    return above_0(row["priority weight"], "a weight")


def _slo_factor(row: Row) -> float:
    """Return the multiple of the duration in which a job should be done."""
    if "SLO" not in row or row["SLO"].number("an SLO") == NO_SLO:
        return math.inf
    wanted = "an SLO that can be met, a multiple of the job's duration"
    return above_0(row["SLO"], wanted, f"give more than 0, or {NO_SLO} for none")
