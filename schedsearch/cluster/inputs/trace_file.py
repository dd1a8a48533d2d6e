"""The jobs of a trace file, with steps, and files of jobs: Gavel's two tab-separated forms, and CSV.

A job of which only the duration is known has as many steps as it does in that time on the GPU type that the
file names, or else where its type is fastest. One without a type gets one by a seeded draw among those that
have a throughput at its number of GPUs, one draw for each such row in the order of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from placements.plain_data import in_file
from placements.tables import read_csv
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.inputs.cells import nearest
from schedsearch.cluster.inputs.trace_rows import Submission, submissions
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.throughputs import Throughputs


@dataclass(frozen=True)
class Trace:
    """The jobs of a trace that can run.

    Attributes:
        jobs: By arrival; each is named as in the file, or after its place there, from 0.
        skipped: How many were left out because their (type, scale factor) has no throughput.
        not_run: How many rows of a CSV trace were left out that used no GPU, or for no time.
    """

    jobs: tuple[Job, ...]
    skipped: Mapping[tuple[str, int], int] = field(default_factory=dict)
    not_run: int = 0

    @property
    def num_skipped(self) -> int:
        """Return how many jobs have no throughput."""
        return sum(self.skipped.values())

    def skipped_text(self) -> str:
        """Return what was left out, on one line; empty where nothing was."""
        found = sorted(self.skipped.items(), key=lambda item: (-item[1], item[0]))
        kinds = ", ".join(f"{count} of {_shown(kind)}" for kind, count in found)
        texts = [f"{self.num_skipped} jobs have no throughput and are skipped: {kinds}"] if found else []
        texts += [f"{self.not_run} rows used no GPU or no time and are skipped"] if self.not_run else []
        return "; ".join(texts)


def read_trace(
    path: str | Path,
    throughputs: Throughputs,
    *,
    strict: bool = False,
    seed: int = 0,
    cluster: GpuCluster | None = None,
) -> Trace:
    """Return the jobs of a trace file.

    Args:
        path: The file; see `trace_rows` for its forms.
        throughputs: Throughputs of all types of jobs.
        strict: A job whose type has no throughput at its scale factor, or that used no GPU, is an error.
        seed: Draws the types of jobs that have none.
        cluster: Where given, a job that needs more GPUs than it has of any type is an error.

    Raises:
        ClusterError: The file cannot be read, a row is wrong, or the throughputs do not know a type of job at
            all.
    """
    with in_file(path, ClusterError):
        text = read_csv(path, ClusterError, "a trace of Gavel or a CSV file")
        return _trace(submissions(text), throughputs, strict=strict, random=Random(seed), cluster=cluster)


def _trace(
    rows: Iterable[Submission],
    throughputs: Throughputs,
    *,
    strict: bool,
    random: Random,
    cluster: GpuCluster | None,
) -> Trace:
    types = _types_by_scale_factor(throughputs)
    names = {job_type for job_type, _ in throughputs.alone}
    jobs: dict[str, Job] = {}
    skipped: Counter[tuple[str, int]] = Counter()
    not_run = 0
    for row in rows:
        with in_file(f"line {row.line}", ClusterError):
            if not row.is_run:
                not_run += 1
                _skip("used no GPU, or for no time", strict)
                continue
            _check(row, names, jobs)
            typed = row if row.job_type else _drawn(row, types, random)
            if typed.job_type not in types.get(typed.scale_factor, ()):
                skipped[typed.kind] += 1
                _skip(f"{_shown(typed.kind)} has no throughput", strict)
                continue
            _check_fits(typed, throughputs, cluster)
            jobs[typed.name] = _job(typed, throughputs)
    return Trace(tuple(sorted(jobs.values(), key=lambda job: job.arrival_s)), dict(skipped), not_run)


def _skip(reason: str, strict: bool) -> None:
    if strict:
        raise ClusterError(f"{reason}; remove the row, or read the trace without strict")


def _shown(kind: tuple[str, int]) -> str:
    job_type, gpus = kind
    return f"{job_type or 'any type'} on {gpus} GPU{'s' if gpus > 1 else ''}"


def _types_by_scale_factor(throughputs: Throughputs) -> dict[int, dict[str, str]]:
    """Return by scale factor the types of jobs that can run, with the GPU type on which each is fastest."""
    found: dict[int, dict[str, str]] = {}
    for job_type, gpus in throughputs.alone:
        fastest = _fastest(job_type, gpus, throughputs)
        if fastest:
            found.setdefault(gpus, {})[job_type] = fastest
    return found


def _fastest(job_type: str, gpus: int, throughputs: Throughputs) -> str:
    """Return the GPU type on which a type of job is fastest; "" where it runs on none."""
    rates = {
        gpu_type: throughputs.rate(job_type, gpus, gpu_type) for gpu_type in throughputs.alone[job_type, gpus]
    }
    fastest = max(rates, key=rates.__getitem__, default="")
    return fastest if fastest and rates[fastest] > 0 else ""


def _check(row: Submission, names: AbstractSet[str], jobs: Mapping[str, Job]) -> None:
    if row.name in jobs:
        raise ClusterError(f"the name {row.name!r} is given twice; rename one of the jobs")
    if row.job_type and row.job_type not in names:
        raise ClusterError(
            f"the throughputs have no type of job {row.job_type!r}; add it to them, or "
            f"write {nearest(row.job_type, names)!r}"
        )


def _drawn(row: Submission, types: Mapping[int, Mapping[str, str]], random: Random) -> Submission:
    """Return a row with a type; one number is drawn even where there is nothing to choose from."""
    choices = [*types.get(row.scale_factor, ())] or [""]
    return replace(row, job_type=choices[int(random.random() * len(choices))])


def _check_fits(row: Submission, throughputs: Throughputs, cluster: GpuCluster | None) -> None:
    if cluster is None:
        return
    fits = [
        gpu_type
        for gpu_type, workers in cluster.workers.items()
        if workers >= row.scale_factor and throughputs.rate(*row.kind, gpu_type) > 0
    ]
    if not fits:
        has = ", ".join(f"{workers} {gpu_type}" for gpu_type, workers in cluster.workers.items())
        raise ClusterError(
            f"{_shown(row.kind)} does not run on any type of which the cluster has enough ({has}); "
            f"give it more GPUs, or remove the job"
        )


def _job(row: Submission, throughputs: Throughputs) -> Job:
    fastest = _fastest(*row.kind, throughputs)
    ran_on = row.gpu_type if throughputs.rate(*row.kind, row.gpu_type) > 0 else fastest
    steps = row.steps or row.duration_s * throughputs.rate(*row.kind, ran_on)
    slo_s = min(row.slo_s, row.slo_factor * steps / throughputs.rate(*row.kind, fastest))
    return Job(
        row.name,
        row.job_type,
        float(steps),
        row.scale_factor,
        float(row.weight),
        float(row.arrival_s),
        slo_s,
        row.entity,
    )
