"""Training jobs as submitted, and the progress of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from placements.forms.meaning import Meaning
from schedsearch.cluster.gpu_cluster import require


@dataclass(frozen=True)
class Job:
    """A training job.

    Raises:
        ClusterError: A number is out of its range.
    """

    name: Annotated[str, Meaning("unique name")]
    type: Annotated[str, Meaning("job type, as in the throughputs")]
    steps: Annotated[float, Meaning("total mini-batches, over all its GPUs; may be a fraction")]
    scale_factor: Annotated[int, Meaning("number of GPUs")] = 1
    weight: Annotated[float, Meaning("weight in fair policies")] = 1.0
    arrival_s: Annotated[float, Meaning("arrival time", "s")] = 0.0
    slo_s: Annotated[float, Meaning("deadline, counted from its arrival", "s")] = math.inf
    entity: Annotated[str, Meaning("owner in hierarchical policies")] = ""
    other_scale_factors: Annotated[
        tuple[int, ...], Meaning("other numbers of GPUs that it may run on; a step stays the same work")
    ] = ()

    def __post_init__(self) -> None:
        """Check the numbers."""
        counts = self.scale_factors
        has_right_counts = min(counts) >= 1 and len({*counts}) == len(counts)
        for name, wanted, is_right in (
            ("steps", "a number of steps above 0", 0 < self.steps < math.inf),
            ("scale_factor", "a number of GPUs above 0", self.scale_factor >= 1),
            ("other_scale_factors", "other numbers of GPUs above 0", has_right_counts),
            ("weight", "a weight above 0", 0 < self.weight < math.inf),
            ("arrival_s", "a time of 0 s or later", 0 <= self.arrival_s < math.inf),
            ("slo_s", "a time above 0 s after the arrival", self.slo_s > 0),
        ):
            require(is_right, f"job {self.name}: {name}", getattr(self, name), f"{wanted}; correct it")

    @property
    def scale_factors(self) -> tuple[int, ...]:
        """Return all numbers of GPUs that the job may run on, the usual number first."""
        return (self.scale_factor, *self.other_scale_factors)


@dataclass(frozen=True)
class ActiveJob:
    """A job that has arrived and is not done, at the moment of a decision.

    Attributes:
        job: The job as submitted.
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
        """Return the seconds until the job's SLO; below 0 once the SLO is past."""
        return self.job.slo_s - self.waited_s
