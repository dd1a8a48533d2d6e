"""The file form of an outcome: JSON with a row for each job, round, decision and kept allocation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from placements.files import read_json, write_json
from placements.plain_data import Field, in_file
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

_JOB = tuple(one.name for one in fields(Job))
_JOB_OUTCOME = (
    *("steps_done", "first_start_s", "finish_s", "isolated_s", "gpu_s", "dollars", "kwh"),
    *("starts", "renewals", "failures"),
)
_ROUNDS = ("start_s", "busy_gpus", "active_jobs", "waiting_jobs")
_DECISIONS = ("time_s", "jobs", "error", "shortfall")


def write_outcome(outcome: Outcome, path: str | Path) -> Path:
    """Write an outcome as JSON; return its path."""
    return write_json(path, outcome_to_json(outcome))


def read_outcome(path: str | Path) -> Outcome:
    """Return the outcome of a file.

    Raises:
        ClusterError: The file cannot be read, or is not an outcome; the message begins with its path.
    """
    data = read_json(path, "the cluster.json of a simulation", ClusterError)
    with in_file(path, ClusterError):
        return outcome_from_json(data)


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data; None stands for nan and for infinite numbers.

    The metrics stand at the top, so that the file can be read without this module; they are not read back.
    """
    cluster = outcome.cluster
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": outcome.policy,
        "reason": outcome.reason,
        "missing": outcome.missing,
        **{name: none_for_odd(value) for name, value in outcome.metrics.items()},
        "end_s": outcome.end_s,
        "round_s": outcome.round_s,
        "window": list(outcome.window),
        "cluster": {
            "workers": dict(cluster.workers),
            "dollars_per_hour": dict(cluster.dollars_per_hour),
            "gpus_per_server": dict(cluster.gpus_per_server),
            "power_cap_w": none_for_odd(cluster.power_cap_w),
            "idle_power_w": dict(cluster.idle_power_w),
        },
        "busy_s": dict(outcome.busy_s),
        "idle_kwh": outcome.idle_kwh,
        "jobs": _table((*_JOB, *_JOB_OUTCOME), [_job_row(one) for one in outcome.jobs]),
        "rounds": {name: getattr(outcome.rounds, name).tolist() for name in _ROUNDS},
        "decisions": {
            name: [none_for_odd(value) for value in getattr(outcome.decisions, name).tolist()]
            for name in _DECISIONS
        },
        "snapshots": [snapshot_to_json(one) for one in outcome.snapshots],
        "recorded": recorded_to_json(outcome.recorded),
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
        cluster = found["cluster"] | {"power_cap_w": _infinite(found["cluster"]["power_cap_w"])}
        columns = found["jobs"]["columns"]
        return Outcome(
            found["policy"],
            GpuCluster(**cluster),
            found["round_s"],
            (found["window"][0], found["window"][1]),
            found["end_s"],
            found["reason"],
            tuple(_job_outcome(dict(zip(columns, row, strict=True))) for row in found["jobs"]["rows"]),
            found["busy_s"],
            found["idle_kwh"],
            _round_series(found["rounds"], len(cluster["workers"])),
            _decision_series(found["decisions"]),
            tuple(snapshot_from_json(one) for one in found["snapshots"]),
            tuple(recorded_from_json(found["recorded"])),
        )
    except ClusterError:
        raise
    except (KeyError, TypeError, IndexError, ValueError) as cause:
        raise ClusterError(f"is not the outcome of a simulation ({cause!r}); simulate again") from None


def none_for_odd(value: float) -> float | None:
    """Return None for nan and infinite numbers, which JSON does not have."""
    return value if math.isfinite(value) else None


def snapshot_to_json(one: Snapshot) -> dict[str, Any]:
    """Return an allocation that was kept as plain data."""
    rows = [
        [list(share.jobs), share.gpu_type, share.gpus, share.clock_mhz, share.share] for share in one.shares
    ]
    return {"time_s": one.time_s, "shares": rows}


def snapshot_from_json(data: Any) -> Snapshot:
    """Return what `snapshot_to_json` gave."""
    shares = (Share(tuple(jobs), *others) for jobs, *others in data["shares"])
    return Snapshot(data["time_s"], tuple(shares))


def recorded_to_json(rounds: Sequence[Round]) -> list[Any]:
    """Return recorded rounds as plain data."""
    return [[one.start_s, [list(run) for run in one.runs]] for one in rounds]


def recorded_from_json(data: Any) -> list[Round]:
    """Return what `recorded_to_json` gave."""
    return [Round(start_s, tuple(_run(row) for row in rows)) for start_s, rows in data]


def _run(row: list[Any]) -> Run:
    return Run._make(tuple(value) if isinstance(value, list) else value for value in row)


def _table(columns: Sequence[str], rows: list[list[Any]]) -> dict[str, Any]:
    return {"columns": list(columns), "rows": rows}


def _job_row(one: JobOutcome) -> list[Any]:
    values = [getattr(one.job, name) for name in _JOB] + [getattr(one, name) for name in _JOB_OUTCOME]
    return [none_for_odd(value) if isinstance(value, float) else value for value in values]


def _job_outcome(values: dict[str, Any]) -> JobOutcome:
    """Return an outcome by the names of its columns; those that an older file lacks have their defaults."""
    values["slo_s"] = _infinite(values["slo_s"])
    values["other_scale_factors"] = tuple(values.get("other_scale_factors", ()))
    for name in ("first_start_s", "finish_s"):
        values[name] = math.nan if values[name] is None else values[name]
    job = Job(**{name: values.pop(name) for name in _JOB})
    return JobOutcome(job, **values)


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value


def _round_series(data: Any, num_types: int) -> RoundSeries:
    return RoundSeries(
        np.array(data["start_s"], dtype=np.float64),
        np.array(data["busy_gpus"], dtype=np.int64).reshape(-1, num_types),
        np.array(data["active_jobs"], dtype=np.int64),
        np.array(data["waiting_jobs"], dtype=np.int64),
    )


def _decision_series(data: Any) -> DecisionSeries:
    return DecisionSeries(
        np.array(data["time_s"], dtype=np.float64),
        np.array(data["jobs"], dtype=np.int64),
        np.array(data["error"], dtype=np.float64),  # None becomes nan
        np.array(data["shortfall"], dtype=np.float64),
    )
