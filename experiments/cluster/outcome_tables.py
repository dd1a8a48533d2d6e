"""The outcome of a simulation as data: its figures, its jobs and the cluster over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.report.result import Table
from schedsearch.cluster.simulator.outcome import PERCENTILES, Outcome

SCHEMA_VERSION = 1

_JOB_COLUMNS = (
    *("job", "type", "scale_factor", "weight", "entity", "is_measured", "arrival_s"),
    *("first_start_s", "finish_s", "jct_s", "isolated_s", "finish_time_ratio", "slo_s", "is_late"),
    *("steps", "steps_done", "gpu_s", "dollars", "kwh", "preemptions"),
)
"""Columns of the table of jobs; most are attributes of a `JobOutcome` or of its job."""


def figures_of(found: Outcome) -> dict[str, float]:
    """Return the figures of a simulation that are numbers, by names with their units."""
    return {name: value for name, value in found.figures.items() if math.isfinite(value)}


def jobs_table(found: Outcome) -> Table:
    """Return a row for each job, with its times, dollars and energy."""
    first, last = found.window
    rows = []
    for number, one in enumerate(found.jobs):
        row: dict[str, object] = {
            "job": one.job.name,
            "is_measured": int(first <= number < last),
            "is_late": int(found.is_late(one)),
        }
        for name in _JOB_COLUMNS:
            if name not in row:  # of its outcome, or of the job as submitted
                value = getattr(one if hasattr(one, name) else one.job, name)
                row[name] = _plain(value) if isinstance(value, float) else value
        rows.append(row)
    return Table(dict, rows, _JOB_COLUMNS)


def series_table(found: Outcome) -> Table:
    """Return a row for each round, with the busy GPUs of each type and the active and waiting jobs."""
    series, columns = found.rounds, ["start_s"]
    columns += [*(f"busy_{name}" for name in found.cluster.gpu_types), "active_jobs", "waiting_jobs"]
    cells = (series.start_s, *series.busy_gpus.T, series.active_jobs, series.waiting_jobs)
    rows = zip(*(values.tolist() for values in cells), strict=True)
    return Table(dict, [dict(zip(columns, row, strict=True)) for row in rows], tuple(columns))


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


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
