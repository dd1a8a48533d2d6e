"""The jobs of a trace one by one, each checked when it is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.throughputs import Throughputs


class Arrivals:
    """Jobs in the order of their arrival, of which the next can be looked at.

    A trace may be without end; one that is a sequence is checked as a whole before it is used.

    Attributes:
        next: The next job; None at the end.
        num_read: How many were taken.
    """

    def __init__(self, trace: Iterable[Job], cluster: GpuCluster, throughputs: Throughputs) -> None:
        """Begin at the first job.

        Raises:
            ClusterError: As `take`.
        """
        self._cluster, self._throughputs = cluster, throughputs
        self._names: set[str] = set()
        self._last_s = 0.0
        if isinstance(trace, Sequence):
            for job in trace:
                self._check(job)
            self._names.clear()
            self._last_s = 0.0
        self._jobs: Iterator[Job] = iter(trace)
        self.num_read = 0
        self.next = self._checked_next()

    def take(self) -> Job:
        """Return the next job, and look at the one after it.

        Raises:
            ClusterError: That one cannot run anywhere, arrives before this one, or has a name again.
        """
        assert self.next is not None, "no jobs are left"
        job = self.next
        self.num_read += 1
        self.next = self._checked_next()
        return job

    def _checked_next(self) -> Job | None:
        job = next(self._jobs, None)
        if job is not None:
            self._check(job)
        return job

    def _check(self, job: Job) -> None:
        if job.name in self._names:
            raise ClusterError(f"job {job.name} is there twice in the trace; give each job its own name")
        if job.arrival_s < self._last_s:
            raise ClusterError(
                f"job {job.name}: arrival_s: {job.arrival_s!r} is before the job above it; sort the trace"
            )
        self._names.add(job.name)
        self._last_s = job.arrival_s
        check_job_fits(job, self._cluster, self._throughputs)


def check_job_fits(job: Job, cluster: GpuCluster, throughputs: Throughputs) -> None:
    """Check that a job can run on at least one type of GPU.

    Raises:
        ClusterError: It asks for more GPUs than any type has, or has no throughput on those that suffice.
    """
    largest = max(cluster.workers, key=lambda gpu_type: cluster.workers[gpu_type])
    if job.scale_factor > cluster.workers[largest]:
        raise ClusterError(
            f"job {job.name}: scale_factor: {job.scale_factor} GPUs are more than any type has; "
            f"{largest} has most, {cluster.workers[largest]}; ask for fewer, or give more"
        )
    if not can_run(job, cluster, throughputs):
        fitting = [name for name, workers in cluster.workers.items() if workers >= job.scale_factor]
        raise ClusterError(
            f"job {job.name}: {job.type!r} on {job.scale_factor} GPUs has no throughput on "
            f"{', '.join(fitting)}; add one, or leave the job out"
        )


def can_run(job: Job, cluster: GpuCluster, throughputs: Throughputs) -> bool:
    """Return whether a job has a throughput on a type with enough GPUs, in servers as they are there."""
    return throughputs.can_run(cluster, job.type, job.scale_factor)
