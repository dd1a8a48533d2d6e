"""What the server answers, from which the schema of ``/docs`` is made."""

from __future__ import annotations

from pydantic import BaseModel

from runtime.server.tables import State
from runtime.server.workers import TaskProgress


class JobStatus(BaseModel):
    """What becomes of a job: its blocks without a profile, its progress, and why it failed."""

    id: str
    name: str
    state: State
    num_plans: int
    missing: list[str]
    progress: TaskProgress | None
    error: str | None
    version: int


class JobPage(BaseModel):
    """Jobs in the order of registration; `next`, if not null, is the next page's `after`."""

    jobs: list[JobStatus]
    next: str | None


class PlanAnswer(BaseModel):
    """A plan: its time and energy, and by block one clock in MHz per micro-batch."""

    time_ms: float
    energy_mj: float
    lower_bound_mj: float
    clock_mhz: dict[str, list[int]]


class DeployedPlanAnswer(PlanAnswer):
    """A plan that is deployed, and the number of the deployment."""

    version: int


class Deployed(BaseModel):
    """What is deployed after a message, and for which deadline; version 0 before the job is ready."""

    version: int
    time_ms: float | None
    deadline_ms: float | None
