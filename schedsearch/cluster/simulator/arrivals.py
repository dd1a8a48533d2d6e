"""The jobs of a trace as they arrive, each checked then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.throughputs import Throughputs


def arriving(trace: Iterable[Job], cluster: GpuCluster, throughputs: Throughputs) -> Iterator[Job]:
    """Yield the jobs of a trace, which may be without end; a sequence is checked as a whole before.

    Raises:
        ClusterError: A job cannot run anywhere, arrives before the one above it, or has a name again.
    """
    if isinstance(trace, Sequence):
        for _ in _checked(trace, cluster, throughputs):
            pass
    yield from _checked(trace, cluster, throughputs)


def _checked(trace: Iterable[Job], cluster: GpuCluster, throughputs: Throughputs) -> Iterator[Job]:
    names, last_s = set[str](), 0.0
    for job in trace:
        if job.name in names:
            raise ClusterError(f"job {job.name} is there twice in the trace; give each job its own name")
        if job.arrival_s < last_s:
            raise ClusterError(
                f"job {job.name}: arrival_s: {job.arrival_s!r} is before the job above it; sort the trace"
            )
        names.add(job.name)
        last_s = job.arrival_s
        largest = max(cluster.workers, key=lambda gpu_type: cluster.workers[gpu_type])
        if job.scale_factor > cluster.workers[largest]:
            raise ClusterError(
                f"job {job.name}: scale_factor: {job.scale_factor} GPUs are more than any type has; "
                f"{largest} has most, {cluster.workers[largest]}; ask for fewer, or give more"
            )
        if not throughputs.can_run(cluster, job.type, job.scale_factor):
            fitting = [name for name, workers in cluster.workers.items() if workers >= job.scale_factor]
            raise ClusterError(
                f"job {job.name}: {job.type!r} on {job.scale_factor} GPUs has no throughput on "
                f"{', '.join(fitting)}; add one, or leave the job out"
            )
        yield job
