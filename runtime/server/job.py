"""A job: its schedule, profile and frontier, its stragglers, and the plan that it runs.

A job never changes: a request makes a new one of it, so that what cannot be kept on disk is nowhere else.

Per accelerator there is a degree in force and at most one that is announced (Perseus, Table 2:
``set_straggler``). A new message withdraws the announced one, because the latest word counts; what is in
force stays until the new message is due. Nothing has to happen then: whoever asks next finds it in force.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from runtime.server.bodies import NORMAL, ProfilePoint, State
from schedsearch.energy.frontier import FrequencyPlan, Frontier


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Straggler(_Record):
    """An accelerator's degree in force, and the announced one, which holds from `due_s` on."""

    degree: float = NORMAL
    next_degree: float = NORMAL
    due_s: float | None = None


class Deployment(_Record):
    """State of a job that changes while it runs.

    Attributes:
        version: Number of deployments so far; 0 before the job is ready.
        deadline_ms: T': when the worst straggler in force ends its iteration, for which all others wait; None
            before the job is ready.
        stragglers: Accelerators that are not normal, or of which something is announced.
    """

    version: int = 0
    deadline_ms: float | None = None
    stragglers: dict[str, Straggler] = {}

    def at(self, now_s: float) -> Deployment:
        """Return it with the announced degrees in force that are due."""
        found = {}
        for name, each in self.stragglers.items():
            is_due = each.due_s is not None and each.due_s <= now_s
            found[name] = Straggler(degree=each.next_degree) if is_due else each
        present = {name: each for name, each in found.items() if each != Straggler()}
        return self.model_copy(update={"stragglers": present})

    def with_plan(self, frontier: Frontier) -> Deployment:
        """Return it with the plan for min(T*, T') (Perseus, Sec. 3.1), a new version if it is another one."""
        degree = max((each.degree for each in self.stragglers.values()), default=NORMAL)
        deadline_ms = degree * frontier.shortest.time_ms
        is_new = self.deadline_ms is None or frontier.at(deadline_ms) is not frontier.at(self.deadline_ms)
        return self.model_copy(update={"version": self.version + is_new, "deadline_ms": deadline_ms})

    @property
    def due_s(self) -> float:
        """When the next announced degree comes into force; infinite if nothing is announced."""
        due_s = (each.due_s for each in self.stragglers.values() if each.due_s is not None)
        return min(due_s, default=math.inf)


class Job(_Record):
    """A job.

    Attributes:
        number: Its place in the order of registration.
        schedule: Content of its ``schedule.json``.
        num_plans: Deadlines of its frontier.
        blocks: Its blocks, each with its uploaded points; empty where there are none yet.
        error: Why there is no frontier.
        frontier_data: Content of its ``frontier.json`` once it is ready.
    """

    id: str
    number: int
    name: str
    schedule: dict[str, Any]
    num_plans: int
    blocks: dict[str, list[ProfilePoint]]
    blocking_power_w: float = 0.0
    state: State = State.WAITING
    error: str | None = None
    frontier_data: dict[str, Any] | None = None
    deployment: Deployment = Deployment()

    @cached_property
    def frontier(self) -> Frontier:
        """The plans of a job that is ready."""
        return Frontier.from_dict(self.frontier_data)

    @property
    def plan(self) -> FrequencyPlan:
        """The deployed plan of a job that is ready."""
        assert self.deployment.deadline_ms is not None, "a job that is ready has one"
        return self.frontier.at(self.deployment.deadline_ms)

    def at(self, now_s: float) -> Job:
        """Return the job at a time, with the plan that is to run then."""
        now = self.deployment.at(now_s)
        now = now if self.frontier_data is None else now.with_plan(self.frontier)
        return self.model_copy(update={"deployment": now})
