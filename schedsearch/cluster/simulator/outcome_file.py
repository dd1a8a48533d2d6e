"""The file form of an outcome: JSON, with all its fields by their names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from placements.files import write_json
from placements.plain_data import Field, json_file
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.simulator.outcome import (
    DecisionSeries,
    JobOutcome,
    Outcome,
    Round,
    RoundSeries,
    Run,
    Share,
    Snapshot,
)

SCHEMA_VERSION = 1

Record = TypeVar("Record", Share, Run)


def write_outcome(outcome: Outcome, path: str | Path) -> Path:
    """Write an outcome as JSON; return its path."""
    return write_json(path, outcome_to_json(outcome))


def read_outcome(path: str | Path) -> Outcome:
    """Return the outcome of a file.

    Raises:
        ClusterError: The file cannot be read, or is not an outcome; the message begins with its path.
    """
    with json_file(path, "the cluster.json of a simulation", ClusterError) as data:
        return outcome_from_json(data.value)


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data, field by field; None stands for nan and for infinite numbers.

    The metrics stand at the top, so that the file can be read without this module; they are not read back.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "missing": outcome.missing,
        **_plain(outcome.metrics),
        **_plain(outcome),
    }


def outcome_from_json(data: object) -> Outcome:
    """Return what `outcome_to_json` gave.

    Raises:
        ClusterError: It is not the data of an outcome.
    """
    root = Field(data, "", ClusterError)
    root.version(SCHEMA_VERSION)
    found = root.mapping()
    try:
        cluster = GpuCluster(**_known(found["cluster"]))
        return Outcome(
            found["policy"],
            cluster,
            found["round_s"],
            (found["window"][0], found["window"][1]),
            found["end_s"],
            found["reason"],
            tuple(_job_outcome(**row) for row in found["jobs"]),
            found["busy_s"],
            found["idle_kwh"],
            RoundSeries.of(**found["rounds"], num_types=len(cluster.workers)),
            DecisionSeries.of(**found["decisions"]),
            tuple(Snapshot(time_s, _frozen(Share, shares)) for time_s, shares in found["snapshots"]),
            tuple(Round(start_s, _frozen(Run, runs)) for start_s, runs in found["recorded"]),
        )
    except ClusterError:
        raise
    except (KeyError, TypeError, IndexError, ValueError) as cause:
        raise ClusterError(f"is not the outcome of a simulation ({cause!r}); simulate again") from None


def _plain(value: Any) -> Any:
    """Return records by the names of their fields, and arrays and tuples as lists."""
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _known(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a record; one that is None has its default, which is what None stands for."""
    return {name: _tuple(value) for name, value in row.items() if value is not None}


def _job_outcome(job: dict[str, Any], **row: Any) -> JobOutcome:
    return JobOutcome(Job(**_known(job)), **_known(row))


def _frozen(made: type[Record], rows: list[list[Any]]) -> tuple[Record, ...]:
    """Return records of rows, whose lists are tuples in them."""
    return tuple(made(*map(_tuple, row)) for row in rows)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
