"""The figures of a simulated cluster for people: facts with units."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.report.html_report import Fact
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.simulator.outcome import PERCENTILES, Outcome


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
    found = seconds / 3600
    return f"{found:,.0f} h" if found >= 1000 else f"{found:.4g} h"


def outcome_facts(found: Outcome) -> Iterator[Fact]:
    """Yield the facts of a simulation that apply."""
    figures, ratios = found.figures, found.finish_time_ratios
    measured = f"{len(found.jcts_s)} of {found.window[1] - found.window[0]} jobs are done"
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
    with_slo = sum(one.job.slo_s < float("inf") for one in found.measured)
    if with_slo:
        late = figures["slo_violations"]
        yield Fact("SLO violations", f"{late} of {with_slo} jobs", f"{late / with_slo:.1%}")
    yield Fact("Simulated time", hours(found.end_s), f"{len(found.jobs)} jobs arrived")
    if found.missing:
        yield Fact("Not done", found.missing)
