"""The types from which jobs are generated: ``index,job_type,may_be_distributed``, in the order of drawing."""

from __future__ import annotations

from pathlib import Path

from placements.plain_data import in_file
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.table import read_text, rows_of


def read_job_types(path: str | Path) -> dict[str, bool]:
    """Return the types of a CSV file with the columns job_type and may_be_distributed, in the file's order.

    Returns:
        For each type by its name whether its jobs may run on more than one GPU, as `generated` takes it.

    Raises:
        ClusterError: The file cannot be read or is wrong.
    """
    with in_file(path, ClusterError):
        found: dict[str, bool] = {}
        text = read_text(path, "a CSV file with the columns job_type,may_be_distributed")
        for row in rows_of(text, ("job_type", "may_be_distributed"), ("index",)):
            name = row.text("job_type")
            if name in found:
                raise row.wrong(f"the type {name!r} is given twice; keep one row")
            found[name] = bool(row["may_be_distributed"].whole("0 or 1", "give one", 0, 1))
        return found
