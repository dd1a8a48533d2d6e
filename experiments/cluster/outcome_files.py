"""Results of a simulation as files: its numbers, its jobs and the cluster over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from placements.forms.texts import csv_text, write_json, write_text
from schedsearch.cluster.simulator.outcome import PERCENTILES, JobOutcome, Outcome

SCHEMA_VERSION = 1

CLUSTER, JOBS, SERIES = "cluster.json", "jobs.csv", "series.csv"

_JOB_COLUMNS = (
    *("job", "type", "scale_factor", "weight", "entity", "is_measured", "arrival_s"),
    *("first_start_s", "finish_s", "jct_s", "isolated_s", "finish_time_ratio", "slo_s", "is_late"),
    *("steps", "steps_done", "gpu_s", "dollars", "kwh", "preemptions"),
)
"""Columns of the table of jobs; most are attributes of a `JobOutcome` or of its job."""


def figures_of(found: Outcome) -> dict[str, float]:
    """Return the figures of a simulation that are numbers, by names with their units."""
    return {name: value for name, value in found.figures.items() if math.isfinite(value)}


def save_outcome(
    found: Outcome, skipped: Mapping[tuple[str, int], int], more: dict[str, object], directory: Path
) -> None:
    """Write ``jobs.csv``, ``series.csv``, and last ``cluster.json``, by which one sees that all is there."""
    jobs = (_job_row(number, found) for number in range(len(found.jobs)))
    write_text(directory / JOBS, csv_text(_JOB_COLUMNS, jobs))
    columns = (
        "start_s",
        *(f"busy_{name}" for name in found.cluster.gpu_types),
        "active_jobs",
        "waiting_jobs",
    )
    series = found.rounds
    counts = np.column_stack([series.busy_gpus, series.active_jobs, series.waiting_jobs]).tolist()
    rows = [[start_s, *each] for start_s, each in zip(series.start_s.tolist(), counts, strict=True)]
    write_text(directory / SERIES, csv_text(columns, rows))
    write_json(directory / CLUSTER, outcome_to_dict(found, skipped) | more)


def outcome_to_dict(found: Outcome, skipped: Mapping[tuple[str, int], int]) -> dict[str, object]:
    """Return the figures of a simulation as plain data; null where there is no value."""
    figures = {name: _plain(value) for name, value in found.figures.items()}
    names = ("average_jct_s", "makespan_s", "utilisation", "average_finish_time_ratio", "dollars", "kwh")
    busy = {
        name: busy_s / (found.cluster.workers[name] * found.end_s)
        for name, busy_s in found.busy_s.items()
        if found.cluster.workers[name] and found.end_s
    }
    first, last = found.window
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": found.policy,
        **{name: figures[name] for name in names},
        "jct_percentiles_s": {str(one): figures[f"jct_p{one}_s"] for one in PERCENTILES},
        "finish_time_ratio_percentiles": _percentiles(found.finish_time_ratios.tolist()),
        "utilisation_by_type": busy,
        "slo": {
            "jobs": sum(math.isfinite(one.job.slo_s) for one in found.measured),
            "violations": figures["slo_violations"],
            "violation_share": figures["slo_violation_share"],
        },
        "preemptions": figures["preemptions"],
        "lease_renewals": figures["lease_renewals"],
        "share_error": figures["share_error"],
        "jobs": {
            "measured": last - first,
            "window": [first, last],
            "arrived": len(found.jobs),
            "done": len(found.jcts_s),
            "missing": found.missing,
            "skipped": [
                {"type": name, "scale_factor": gpus, "count": count}
                for (name, gpus), count in sorted(skipped.items())
            ],
        },
        "end_s": found.end_s,
        "ended_early": found.reason,
        "workers": dict(found.cluster.workers),
        "dollars_per_hour": dict(found.cluster.dollars_per_hour),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float | None]:
    found = np.percentile(values, PERCENTILES) if values else [None] * len(PERCENTILES)
    return {
        str(one): None if value is None else float(value)
        for one, value in zip(PERCENTILES, found, strict=True)
    }


def _job_row(number: int, found: Outcome) -> list[object]:
    """Return the cells of a job: fields of the row, of its outcome, or of the job as submitted."""
    one = found.jobs[number]
    own: dict[str, object] = {
        "job": one.job.name,
        "is_measured": int(found.window[0] <= number < found.window[1]),
        "is_late": int(found.is_late(one)),
    }
    values = (own[name] if name in own else _field(one, name) for name in _JOB_COLUMNS)
    return [_plain(value) if isinstance(value, float) else value for value in values]


def _field(one: JobOutcome, name: str) -> object:
    return getattr(one if hasattr(one, name) else one.job, name)


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
