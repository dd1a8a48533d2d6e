"""The types from which jobs are generated: ``index,job_type,may_be_distributed``, in the order of drawing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

from placements.meaning import Meaning
from placements.tables import csv_records
from schedsearch.cluster.gpu_cluster import ClusterError


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
