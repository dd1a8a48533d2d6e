"""All requests, without HTTP: each method is one, answered from the jobs in memory."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from runtime.server.bodies import (
    Deployed,
    DeployedPlanAnswer,
    JobList,
    JobStatus,
    NotYetError,
    PlanAnswer,
    ProfileUpload,
    Registration,
    RequestError,
    State,
    StragglerMessage,
)
from runtime.server.job import Job, JobFolder, Straggler
from runtime.server.workers import Task, Workers
from schedsearch.energy.frontier import FrequencyPlan, Frontier
from schedsearch.energy.graph import EnergyError


class Service:
    """The jobs of one folder; each request raises `RequestError` if it cannot be met.

    Args:
        folder: Where they are kept; a `StorageError` if it cannot be used.
        num_workers: Frontiers computed at once; at least 1.
        now_s: The clock that delays are counted on; it must go on across restarts.

    Attributes:
        on_news: Called, in any thread, with the id of a job after it was changed.
    """

    def __init__(self, folder: Path, num_workers: int = 1, now_s: Callable[[], float] = time.time) -> None:
        """Load an earlier server's jobs; compute unfinished jobs again."""
        self.on_news: Callable[[str], object] = lambda job: None
        self._folder, self._now_s = JobFolder(folder), now_s
        self._alone = threading.Lock()  # held by whoever changes a job
        self._jobs = {job.id: job for job in self._folder.jobs()}
        self._workers = Workers(num_workers, self._task, self._keep_outcome)
        for job in self._jobs.values():
            if job.state is State.COMPUTING:
                self._workers.submit(job.id)

    def close(self) -> None:
        """End the workers and let go of the folder."""
        self._workers.close()
        self._folder.close()

    def register(self, body: Registration) -> JobStatus:
        """Register a job."""
        placement = body.read().placement
        with self._alone:
            job = Job(
                id=secrets.token_hex(6),
                number=1 + max((job.number for job in self._jobs.values()), default=0),
                name=placement.name,
                schedule=body.schedule,
                num_plans=body.num_plans,
                blocks={block.name: [] for block in placement.blocks},
            )
            return self._status(self._kept(job))

    def upload(self, job: str, body: ProfileUpload) -> JobStatus:
        """Upload the profile of some or all blocks; the frontier is computed once all are there."""
        body.read()
        with self._alone:
            entry = self._find(job)
            if entry.state not in (State.WAITING, State.FAILED):
                raise RequestError(f"profile: job {job} is {entry.state} with one; register a new job", 409)
            for name in body.blocks:
                if name not in entry.blocks:
                    raise RequestError(
                        f"profile: {entry.name} has no block {name!r}; use its placement's blocks"
                    )
            blocks = entry.blocks | body.blocks
            change = {
                "blocks": blocks,
                "blocking_power_w": body.blocking_power_w,
                "state": State.COMPUTING if all(blocks.values()) else State.WAITING,
                "error": None,
            }
            status = self._status(self._kept(entry.model_copy(update=change)))
        if status.state is State.COMPUTING:
            self._workers.submit(job)
        return status

    def status(self, job: str) -> JobStatus:
        """Return a job's state, its missing blocks or its progress, and why it failed."""
        return self._status(self._find(job))

    def jobs(self) -> JobList:
        """List jobs in the order of registration."""
        return JobList(jobs=[self._status(job) for job in list(self._jobs.values())])

    def frontier(self, job: str) -> dict[str, Any]:
        """Return the content of a `frontier.json`."""
        return self._find_ready(job).frontier_data or {}

    def plan(
        self, job: str, deadline_ms: Annotated[float | None, Field(allow_inf_nan=False)] = None
    ) -> DeployedPlanAnswer | PlanAnswer | None:
        """Return the best plan for a deadline, by default the deployed one."""
        if deadline_ms is None:
            return self.deployed(job)
        frontier = self._find_ready(job).frontier
        try:
            return PlanAnswer(**_fields(frontier.at(deadline_ms)))
        except EnergyError as error:
            raise RequestError(str(error)) from None

    def deployed(self, job: str, newer_than: int = 0) -> DeployedPlanAnswer | None:
        """Return the deployed plan and its version; None if that is `newer_than`.

        Any other version is an older one, even if its number is higher: it may be of another folder.
        """
        if self.due_in_s(job) <= 0:
            with self._alone:
                self._kept(self._find(job).at(self._now_s()), is_quick=True)
        entry = self._find_ready(job)
        version = entry.deployment.version
        return None if version == newer_than else DeployedPlanAnswer(**_fields(entry.plan), version=version)

    def due_in_s(self, job: str) -> float:
        """Return the seconds until a job's announced change comes into force; infinity without one."""
        entry = self._jobs.get(job)
        return math.inf if entry is None else entry.deployment.due_s - self._now_s()

    def set_straggler(self, job: str, body: StragglerMessage) -> Deployed:
        """Tell of a straggler (Perseus, Table 2); before the job is ready it counts once it is."""
        with self._alone:
            entry, now_s = self._find(job), self._now_s()
            # A degree that is due by now stays in force until this message is due.
            before = entry.deployment.at(now_s)
            degree = before.stragglers.get(body.id, Straggler()).degree
            straggler = Straggler(degree=degree, next_degree=body.degree, due_s=now_s + body.delay_s)
            after = before.model_copy(update={"stragglers": before.stragglers | {body.id: straggler}})
            kept = self._kept(entry.model_copy(update={"deployment": after}).at(now_s), is_quick=True)
        deadline_ms = kept.deployment.deadline_ms
        time_ms = None if deadline_ms is None else kept.plan.time_ms
        return Deployed(version=kept.deployment.version, time_ms=time_ms, deadline_ms=deadline_ms)

    def delete(self, job: str) -> None:
        """Forget a job, and end the process that computes its frontier."""
        with self._alone:
            self._folder.forget(self._find(job))
            del self._jobs[job]
        self.on_news(job)
        self._workers.cancel(job)

    def _kept(self, job: Job, *, is_quick: bool = False) -> Job:
        """Keep a job that is new or has changed, and let all know; a quick change does not await the disk."""
        (self._folder.keep_deployment if is_quick else self._folder.keep)(job)
        self._jobs[job.id] = job
        self.on_news(job.id)
        return job

    def _find(self, job: str) -> Job:
        """Return a job, or refuse its id."""
        if job not in self._jobs:
            raise RequestError(f"job: {job[:60]!r} is not known; GET /jobs lists all", 404)
        return self._jobs[job]

    def _find_ready(self, job: str) -> Job:
        """Return a job that has its frontier, or refuse it."""
        entry = self._find(job)
        if entry.state is State.FAILED:
            raise RequestError(f"frontier: job {job} failed ({entry.error}); upload another profile", 409)
        if entry.state is not State.READY:
            remedy = f"GET /jobs/{job} until it is ready"
            raise NotYetError(f"frontier: job {job} is {entry.state}; {remedy}", 409)
        return entry

    def _status(self, job: Job) -> JobStatus:
        missing = [name for name, points in job.blocks.items() if not points]
        return JobStatus(
            **{name: getattr(job, name) for name in ("id", "name", "state", "num_plans", "error")},
            version=job.deployment.version,
            missing=missing if job.state is State.WAITING else [],
            progress=self._workers.progress.get(job.id) if job.state is State.COMPUTING else None,
        )

    def _task(self, job: str) -> Task | None:
        """Return the task of a job's worker; None if the job was deleted."""
        entry = self._jobs.get(job)
        if entry is None:
            return None
        profile = ProfileUpload(blocking_power_w=entry.blocking_power_w, blocks=entry.blocks).read()
        return entry.schedule, profile, entry.num_plans

    def _keep_outcome(self, job: str, outcome: Frontier | str) -> None:
        """Keep the outcome of a worker and deploy the shortest plan, unless the job was deleted."""
        if isinstance(outcome, str):
            result: dict[str, Any] = {"state": State.FAILED, "error": outcome}
        else:
            result = {"state": State.READY, "frontier_data": outcome.to_dict()}
        with self._alone:
            if job in self._jobs:
                self._kept(self._jobs[job].model_copy(update=result).at(self._now_s()))


def _fields(plan: FrequencyPlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in PlanAnswer.model_fields}
