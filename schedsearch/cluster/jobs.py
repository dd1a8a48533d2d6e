"""Jobs: what is asked of the cluster, and how far each one is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from schedsearch.cluster.gpu_cluster import require


@dataclass(frozen=True)
class Job:
    """A training job.

    Attributes:
        name: Its own among all jobs.
        type: What it trains, as tables of throughputs name it.
        steps: Mini-batches until it is done, of all its GPUs together; may be a fraction.
        scale_factor: GPUs that it runs on at once; what is its fair share is counted for these.
        weight: Weight of its share in fair policies: twice the weight, twice the throughput. Above 0.
        arrival_s: When it is submitted, in seconds.
        slo_s: Seconds after its arrival in which it should be done; infinite for none.
        entity: Owner of the job in hierarchical policies; "" for nobody.
        other_scale_factors: Further numbers of GPUs that it may run on instead; a step stays the same work.

    Raises:
        ClusterError: A number is out of its range.
    """

    name: str
    type: str
    steps: float
    scale_factor: int = 1
    weight: float = 1.0
    arrival_s: float = 0.0
    slo_s: float = math.inf
    entity: str = ""
    other_scale_factors: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, wanted, is_right in (
            ("steps", "a number of steps above 0", math.isfinite(self.steps) and self.steps > 0),
            ("scale_factor", "a number of GPUs above 0", self.scale_factor >= 1),
            ("other_scale_factors", "other numbers of GPUs above 0", self._has_right_counts),
            ("weight", "a weight above 0", math.isfinite(self.weight) and self.weight > 0),
            ("arrival_s", "a time of 0 s or later", math.isfinite(self.arrival_s) and self.arrival_s >= 0),
            ("slo_s", "a time above 0 s after the arrival", self.slo_s > 0),
        ):
            require(is_right, f"job {self.name}: {name}", getattr(self, name), f"{wanted}; correct it")

    @property
    def scale_factors(self) -> tuple[int, ...]:
        """Return all numbers of GPUs that it may run on, the usual one first."""
        return (self.scale_factor, *self.other_scale_factors)

    @property
    def _has_right_counts(self) -> bool:
        counts = self.scale_factors
        return min(counts) >= 1 and len({*counts}) == len(counts)


@dataclass(frozen=True)
class ActiveJob:
    """A job that has arrived and is not done, at the moment of a decision.

    Attributes:
        job: What was submitted.
        steps_left: Above 0.
        waited_s: Seconds since it arrived.
        isolated_s: Seconds that its steps so far would have taken on its own share of the cluster, in
            finish-time fairness (dissertation, Sec. 5.4.2).
    """

    job: Job
    steps_left: float
    waited_s: float = 0.0
    isolated_s: float = 0.0

    @property
    def name(self) -> str:
        """Return the name of the job."""
        return self.job.name

    @property
    def slo_left_s(self) -> float:
        """Return the seconds until it should be done; below 0 where that is past."""
        return self.job.slo_s - self.waited_s
