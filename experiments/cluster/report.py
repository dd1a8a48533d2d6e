"""The reports of a simulated cluster, and of policies side by side: facts with units, and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.cluster.loads import CONFIDENCE, LoadRow
from experiments.report.html_report import Fact, Picture, Section, html_report
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.simulator.outcome import PERCENTILES, Outcome

_HOUR_S = 3600.0

_PICTURES = {
    "completion_times": (
        "Completion times",
        "Share of the jobs that are done within a number of hours after their arrival; dotted: the mean.",
    ),
    "busy_gpus": ("Busy GPUs", "GPUs of each type that ran a job, over time, above each other."),
    "loads": ("Load", "Average job completion time by the jobs that arrive per hour."),
}
"""Title and description of each figure."""

FILES = {
    "cluster.json": "all figures, with the options and the seed",
    "jobs.csv": "each job: arrival, start, end, fairness, dollars and energy",
    "series.csv": "each round: busy GPUs by type, active and waiting jobs",
    "loads.csv": "the average completion time of each policy and load",
}


def cluster_page(found: Outcome, skipped: str, command: str, pictures: Mapping[str, bytes]) -> str:
    """Return the page of one simulation."""
    return html_report(
        f"{found.policy} on {cluster_in_words(found.cluster)}",
        [
            *_picture_sections(pictures),
            Section("All figures", tuple(_facts(found, skipped))),
            Section("Files", _files("cluster.json", "jobs.csv", "series.csv")),
            Section("Command", text=command),
        ],
        summary=_summary(found),
        introduction="A simulation, not a measurement. Prices and rounds are those of the options.",
    )


def loads_page(
    rows: Sequence[LoadRow],
    cluster: GpuCluster,
    command: str,
    pictures: Mapping[str, bytes],
) -> str:
    """Return the page of policies side by side."""
    return html_report(
        f"{', '.join(dict.fromkeys(row.policy for row in rows))} on {cluster_in_words(cluster)}",
        [
            *_picture_sections(pictures),
            Section("Average job completion time", tuple(map(load_fact, rows))),
            Section("Files", _files("loads.csv")),
            Section("Command", text=command),
        ],
        introduction=f"Simulations. Intervals: {CONFIDENCE:.0%} confidence over the seeds (Student's t).",
    )


def cluster_in_words(cluster: GpuCluster) -> str:
    """Return the GPUs of a cluster.

    >>> cluster_in_words(GpuCluster({"v100": 36, "k80": 8}))
    '36 v100, 8 k80'
    """
    return ", ".join(f"{count} {gpu_type}" for gpu_type, count in cluster.workers.items())


def hours(seconds: float) -> str:
    """Return a time for people.

    >>> hours(5400.0), hours(45e6)
    ('1.5 h', '12,500 h')
    """
    found = seconds / _HOUR_S
    return f"{found:,.0f} h" if found >= 1000 else f"{found:.4g} h"


def load_fact(row: LoadRow) -> Fact:
    """Return the average of a policy at one load, beside the first policy."""
    seeds = f"{row.seeds} seed{'s' if row.seeds > 1 else ''}"
    if row.average_jct_s is None:
        return Fact(row.name, "not known", f"{seeds}; with one of them no job is done")
    if row.low_s is not None and row.high_s is not None:
        seeds += f", {hours(row.low_s)} to {hours(row.high_s)}"
    if row.speedup is not None and row.baseline != row.policy:
        seeds += f"; {row.baseline} takes {row.speedup:.3g} times as long"
    return Fact(row.name, hours(row.average_jct_s), seeds)


def outcome_facts(found: Outcome) -> list[Fact]:
    """Return the figures of a simulation for people."""
    return [*_summary(found), *_facts(found, "")]


def _summary(found: Outcome) -> list[Fact]:
    measured = f"{len(found.jcts_s)} of {found.window[1] - found.window[0]} jobs are done"
    return [
        Fact(
            "Average job completion time",
            hours(found.figures["average_jct_s"]),
            measured,
            good=not found.missing or None,
        ),
        Fact("Utilisation", f"{found.figures['utilisation']:.1%}", "busy GPU time of all GPU time"),
        Fact("Cost", f"{found.figures['dollars']:,.2f} $", "of all jobs, at the prices of the cluster"),
    ]


def _facts(found: Outcome, skipped: str) -> list[Fact]:
    """Return the facts that apply."""
    figures, ratios = found.figures, found.finish_time_ratios
    facts = [
        Fact(f"Completion time, {one} % of the jobs", f"at most {hours(figures[f'jct_p{one}_s'])}")
        for one in PERCENTILES
    ]
    note = "from the first arrival to the last end of the measured jobs"
    facts.append(Fact("Makespan", hours(figures["makespan_s"]), note))
    if len(ratios):
        note = f"largest {ratios.max():.3g}; below 1 a job gains from sharing the cluster"
        facts.append(Fact("Finish-time fairness (rho), mean", f"{ratios.mean():.3g}", note))
    facts.append(
        Fact("Preemptions", f"{figures['preemptions']:,}", f"{figures['lease_renewals']:,} leases extended")
    )
    if figures["kwh"]:
        facts.append(
            Fact("Energy", f"{figures['kwh']:,.4g} kWh", "of all jobs and idle GPUs, where powers are known")
        )
    with_slo = sum(one.job.slo_s < float("inf") for one in found.measured)
    if with_slo:
        late = figures["slo_violations"]
        facts.append(Fact("SLO violations", f"{late} of {with_slo} jobs", f"{late / with_slo:.1%}", not late))
    facts.append(Fact("Simulated time", hours(found.end_s), f"{len(found.jobs)} jobs arrived"))
    if found.missing:
        facts.append(Fact("Not done", found.missing, good=False))
    if skipped:
        facts.append(Fact("Left out", skipped, good=False))
    return facts


def _picture_sections(pictures: Mapping[str, bytes]) -> list[Section]:
    return [
        Section(
            _PICTURES[name][0], pictures=(Picture(png, _PICTURES[name][1]),), introduction=_PICTURES[name][1]
        )
        for name, png in pictures.items()
    ]


def _files(*names: str) -> tuple[Fact, ...]:
    return tuple(Fact(name, FILES[name], link=name) for name in names)
