"""Jobs drawn at random from a table of planned models: arrivals, sizes, deadlines.

Gavel's generator draws types of its own tables (`schedsearch.cluster.generator`); here a job may run on any
number of GPUs that its model was planned for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster, require
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.throughputs import Throughputs


@dataclass(frozen=True)
class DrawOptions:
    """Options of the jobs that are drawn.

    Attributes:
        seed: Seed of all draws.
        days: Time in which jobs arrive.
        jobs_per_day: On average; times between arrivals are exponential.
        hours: Least and most that a job takes on its usual number of GPUs of the reference type; the
            logarithm is uniform.
        slo_share: Share of jobs that have an SLO.
        slo_factors: Least and most that it is of the job's hours, uniform.
        reference: GPU type of these hours; where a model does not run there, the first on which it does.

    Raises:
        ClusterError: A number is out of its range.
    """

    seed: int = 0
    days: float = 7.0
    jobs_per_day: float = 12.0
    hours: tuple[float, float] = (1.0, 24.0)
    slo_share: float = 0.5
    slo_factors: tuple[float, float] = (1.5, 4.0)
    reference: str = "a100"

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, wanted, is_right in (
            ("days", "above 0", 0 < self.days < math.inf),
            ("jobs_per_day", "above 0", 0 < self.jobs_per_day < math.inf),
            ("hours", "two times above 0 in order", 0 < self.hours[0] <= self.hours[1] < math.inf),
            ("slo_share", "from 0 to 1", 0 <= self.slo_share <= 1),
            (
                "slo_factors",
                "two above 0 in order",
                0 < self.slo_factors[0] <= self.slo_factors[1] < math.inf,
            ),
        ):
            require(is_right, f"trace.{name}", getattr(self, name), f"{wanted}; correct it")


def drawn_jobs(table: Throughputs, cluster: GpuCluster, options: DrawOptions) -> tuple[Job, ...]:
    """Return jobs in the order of their arrival.

    Each is of a model of the table, and its usual number of GPUs is one of those on which the model runs in
    the cluster; it may run on the others too.

    Raises:
        ClusterError: No model of the table runs in the cluster.
    """
    counts = _counts(table, cluster)
    if not counts:
        raise ClusterError("models: none runs in the cluster; give more GPUs of a type, or smaller models")
    rng = np.random.default_rng(options.seed)
    models, jobs, arrival_s = sorted(counts), list[Job](), 0.0
    while True:
        arrival_s += float(rng.exponential(86400 / options.jobs_per_day))
        if arrival_s >= options.days * 86400:
            return tuple(jobs)
        model = models[rng.integers(len(models))]
        gpus = counts[model][rng.integers(len(counts[model]))]
        duration_s = 3600 * float(np.exp(rng.uniform(*np.log(options.hours))))
        has_slo, factor = rng.random() < options.slo_share, float(rng.uniform(*options.slo_factors))
        jobs.append(
            Job(
                f"{len(jobs)}_{model}",
                model,
                duration_s * _reference_rate(table, model, gpus, options.reference),
                gpus,
                arrival_s=arrival_s,
                slo_s=duration_s * factor if has_slo else math.inf,
                other_scale_factors=tuple(other for other in counts[model] if other != gpus),
            )
        )


def _counts(table: Throughputs, cluster: GpuCluster) -> dict[str, tuple[int, ...]]:
    """Return the numbers of GPUs on which each model runs in a cluster, ascending."""
    found: dict[str, list[int]] = {}
    for (model, gpus), of_type in sorted(table.alone.items()):
        if any(cluster.workers.get(gpu_type, 0) >= gpus for gpu_type in of_type):
            found.setdefault(model, []).append(gpus)
    return {model: tuple(counts) for model, counts in found.items()}


def _reference_rate(table: Throughputs, model: str, gpus: int, reference: str) -> float:
    of_type = table.alone[model, gpus]
    return table.rate(model, gpus, reference if reference in of_type else next(iter(of_type)))
