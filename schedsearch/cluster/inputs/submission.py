"""A job as a trace file tells of it, before the throughputs are known that turn durations into steps."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Submission:
    """A row of a trace.

    Attributes:
        line: Line of the file, from 1.
        name: Name of the job.
        arrival_s: When it is submitted; infinite where the file does not say, of a job that did not run.
        scale_factor: GPUs that it asks for; 0 where it ran without.
        job_type: Type of job as tables of throughputs name it; "" where the file does not say.
        steps: Steps that the job runs; 0 where only the duration is known.
        duration_s: How long it ran, in seconds; 0 where it did not.
        gpu_type: Type of GPU on which it ran so long; "" where the file does not say.
        weight: Weight of its share in fair policies.
        slo_s: Seconds after its arrival in which it should be done.
        slo_factor: The same as a multiple of its duration where it runs fastest.
        entity: Owner of the job.
    """

    line: int
    name: str
    arrival_s: float
    scale_factor: int
    job_type: str = ""
    steps: float = 0.0
    duration_s: float = 0.0
    gpu_type: str = ""
    weight: float = 1.0
    slo_s: float = math.inf
    slo_factor: float = math.inf
    entity: str = ""

    @property
    def kind(self) -> tuple[str, int]:
        """Return its type and scale factor, by which throughputs are found."""
        return self.job_type, self.scale_factor

    @property
    def is_run(self) -> bool:
        """Return whether it used GPUs, for some time or steps."""
        return self.scale_factor > 0 and (self.steps > 0 or self.duration_s > 0)
