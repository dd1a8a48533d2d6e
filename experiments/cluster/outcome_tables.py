"""The outcome of a simulation: figures, jobs and the cluster over time as data, and facts for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from experiments.report.html_report import Fact
from experiments.report.result import Table
from schedsearch.cluster.simulator.outcome import PERCENTILES, Outcome

SCHEMA_VERSION = 1

_JOB_COLUMNS = (
    *("job", "type", "scale_factor", "weight", "entity", "is_measured", "arrival_s"),
    *("first_start_s", "finish_s", "jct_s", "isolated_s", "finish_time_ratio", "slo_s", "is_late"),
    *("steps", "steps_done", "gpu_s", "dollars", "kwh", "preemptions"),
)
"""Columns of the table of jobs; most are attributes of a `JobOutcome` or of its job."""


def jobs_table(outcome: Outcome) -> Table:
    """Return a row for each job, with its times, dollars and energy."""
    first, last = outcome.window
    rows = []
    for number, one in enumerate(outcome.jobs):
        row = {name: getattr(one if hasattr(one, name) else one.job, name, None) for name in _JOB_COLUMNS}
        row |= {name: _plain(value) for name, value in row.items() if isinstance(value, float)}
        flags = {"is_measured": int(first <= number < last), "is_late": int(outcome.is_late(one))}
        rows.append(row | flags | {"job": one.job.name})
    return Table(dict, rows, _JOB_COLUMNS)


def series_table(outcome: Outcome) -> Table:
    """Return a row for each round, with the busy GPUs of each type and the active and waiting jobs."""
    series, columns = outcome.rounds, ["start_s"]
    columns += [*(f"busy_{name}" for name in outcome.cluster.gpu_types), "active_jobs", "waiting_jobs"]
    cells = (series.start_s, *series.busy_gpus.T, series.active_jobs, series.waiting_jobs)
    rows = zip(*(values.tolist() for values in cells), strict=True)
    return Table(dict, [dict(zip(columns, row, strict=True)) for row in rows], tuple(columns))


def outcome_to_dict(outcome: Outcome, skipped: Mapping[tuple[str, int], int]) -> dict[str, object]:
    """Return the figures of a simulation as plain data; null where there is no value."""
    figures = {name: _plain(value) for name, value in outcome.figures.items()}
    names = ("average_jct_s", "makespan_s", "utilisation", "average_finish_time_ratio", "dollars", "kwh")
    gpu_s = {name: count * outcome.end_s for name, count in outcome.cluster.workers.items()}
    busy = {name: busy_s / gpu_s[name] for name, busy_s in outcome.busy_s.items() if gpu_s[name]}
    first, last = outcome.window
    ratios: dict[str, float | None] = dict.fromkeys(map(str, PERCENTILES))
    if len(outcome.finish_time_ratios):
        percentiles = np.percentile(outcome.finish_time_ratios, PERCENTILES).tolist()
        ratios = dict(zip(ratios, percentiles, strict=True))
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": outcome.policy,
        **{name: figures[name] for name in names},
        "jct_percentiles_s": {str(one): figures[f"jct_p{one}_s"] for one in PERCENTILES},
        "finish_time_ratio_percentiles": ratios,
        "utilisation_by_type": busy,
        "slo": {
            "jobs": sum(math.isfinite(one.job.slo_s) for one in outcome.measured),
            "violations": figures["slo_violations"],
            "violation_share": figures["slo_violation_share"],
        },
        "preemptions": figures["preemptions"],
        "lease_renewals": figures["lease_renewals"],
        "share_error": figures["share_error"],
        "jobs": {
            "measured": last - first,
            "window": [first, last],
            "arrived": len(outcome.jobs),
            "done": len(outcome.jcts_s),
            "missing": outcome.missing,
            "skipped": [
                {"type": name, "scale_factor": gpus, "count": count}
                for (name, gpus), count in sorted(skipped.items())
            ],
        },
        "end_s": outcome.end_s,
        "ended_early": outcome.reason,
        "workers": dict(outcome.cluster.workers),
        "dollars_per_hour": dict(outcome.cluster.dollars_per_hour),
    }


def hours(seconds: float) -> str:
    """Return a time for people.

    >>> hours(5400.0), hours(45e6)
    ('1.5 h', '12,500 h')
    """
    time_h = seconds / 3600
    return f"{time_h:,.0f} h" if time_h >= 1000 else f"{time_h:.4g} h"


def outcome_facts(outcome: Outcome) -> Iterator[Fact]:
    """Yield the facts of a simulation that apply."""
    figures, ratios = outcome.figures, outcome.finish_time_ratios
    measured = f"{len(outcome.jcts_s)} of {outcome.window[1] - outcome.window[0]} jobs are done"
    yield Fact("Average job completion time", hours(figures["average_jct_s"]), measured)
    yield Fact("Utilisation", f"{figures['utilisation']:.1%}", "busy GPU time of all GPU time")
    yield Fact("Cost", f"{figures['dollars']:,.2f} $", "of all jobs, at the prices of the cluster")
    for one in PERCENTILES:
        yield Fact(f"Completion time, {one} % of the jobs", f"at most {hours(figures[f'jct_p{one}_s'])}")
    note = "from the first arrival to the last end of the measured jobs"
    yield Fact("Makespan", hours(figures["makespan_s"]), note)
    if len(ratios):
        note = f"largest {ratios.max():.3g}; below 1 a job gains from sharing the cluster"
        yield Fact("Finish-time fairness (rho), mean", f"{ratios.mean():.3g}", note)
    yield Fact("Preemptions", f"{figures['preemptions']:,}", f"{figures['lease_renewals']:,} leases extended")
    if figures["kwh"]:
        note = "of all jobs and idle GPUs, where powers are known"
        yield Fact("Energy", f"{figures['kwh']:,.4g} kWh", note)
    if with_slo := sum(one.job.slo_s < float("inf") for one in outcome.measured):
        late = figures["slo_violations"]
        yield Fact("SLO violations", f"{late} of {with_slo} jobs", f"{late / with_slo:.1%}")
    yield Fact("Simulated time", hours(outcome.end_s), f"{len(outcome.jobs)} jobs arrived")
    if outcome.missing:
        yield Fact("Not done", outcome.missing)


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
