"""What the server can do, without HTTP: each method is one request, and at most one transaction."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session, undefer

from placements import OperatingPoint, Profile
from runtime.server.answers import JobPage, JobStatus
from runtime.server.deployments import Deployments, find, find_ready
from runtime.server.errors import RequestError
from runtime.server.requests import Registration
from runtime.server.storage import Database
from runtime.server.tables import BlockRow, JobRow, PlanRow, State
from runtime.server.workers import FrontierTask, TaskFailure, Workers
from schedsearch.energy.frontier import FrequencyPlan, Frontier


class Service:
    """The jobs of one database.

    Args:
        database: Its file.
        num_workers: Frontiers computed at once; at least 1.
        now_s: The clock that delays are counted on; it must go on across restarts.

    Attributes:
        on_news: Called, in any thread, with the id of a job that has another plan or will have one, or that
            has become ready, has failed or was deleted.
        deployments: Which plan each job runs now.

    Raises:
        StorageError: The database cannot be used.
    """

    def __init__(self, database: Path, num_workers: int = 1, now_s: Callable[[], float] = time.time) -> None:
        """Take up what an earlier server left: jobs that were being computed are computed again."""
        self.on_news: Callable[[str], None] = lambda job: None
        self._database = Database(database)
        self.deployments = Deployments(self._database, now_s, lambda job: self.on_news(job))
        self._workers = Workers(num_workers, self._task, self._keep)
        with self._database.reading() as session:
            unfinished = select(JobRow.id).where(JobRow.state == State.COMPUTING).order_by(JobRow.number)
            for job in session.scalars(unfinished):
                self._workers.submit(job)

    @property
    def alone(self) -> threading.RLock:
        """Held by the request that writes, while others that need it wait."""
        return self._database.alone

    def close(self) -> None:
        """End the workers and let go of the database."""
        self._workers.close()
        self._database.close()

    def register(self, registration: Registration) -> JobStatus:
        """Make a job and return its status.

        Raises:
            RequestError: Its schedule breaks a rule.
        """
        placement = registration.read().placement
        with self._database.writing() as session:
            job = JobRow(
                id=secrets.token_hex(6),
                name=placement.name,
                schedule=json.dumps(registration.schedule),
                num_plans=registration.num_plans,
                num_devices=placement.num_devices,
                num_gpus=sum(placement.gpus) if placement.num_gpus else None,
                state=State.WAITING,
            )
            session.add(job)
            session.flush()
            session.add_all(
                BlockRow(job=job.number, name=block.name, position=i, devices=json.dumps(block.devices))
                for i, block in enumerate(placement.blocks)
            )
            session.flush()
            return self._status(session, job)

    def register_solution(self, registration: Registration, frontier: Frontier) -> JobStatus:
        """Make a job whose plans are known, deploy the shortest, and return its status.

        Raises:
            RequestError: Its schedule breaks a rule, or has other blocks than the plans.
        """
        placement = registration.read().placement
        for plan in frontier.plans:
            if other := plan.clock_mhz.keys() ^ placement.by_name.keys():
                raise RequestError(f"solution: only plan or schedule has block {min(other)!r}; give its own")
        job = self.register(registration).id
        with self._changing(job) as session:
            row = find(session, job)
            row.state, row.blocking_power_w = State.COMPUTING, frontier.blocking_power_w
        self._keep(job, frontier)
        return self.status(job)

    def upload(self, job_id: str, profile: Profile) -> JobStatus:
        """Keep the profile of some blocks, compute the frontier once all are there, and return the status.

        Raises:
            RequestError: There is no such job or block, or the frontier is already computed from others.
        """
        power = profile.blocking_power_w
        if isinstance(power, tuple):
            raise RequestError("blocking_power_w: is one for each clock; give one number in W")
        points = {name: _points_text(each) for name, each in profile.points.items()}
        with self._changing(job_id) as session:
            job = find(session, job_id)
            if job.state not in (State.WAITING, State.FAILED):
                raise RequestError(f"profile: job {job_id} is {job.state} with one; register a new job", 409)
            blocks = {row.name: row for row in session.scalars(_blocks(job))}
            for name, text in points.items():
                if name not in blocks:
                    raise RequestError(
                        f"profile: {job.name} has no block {name!r}; use those of its placement"
                    )
                blocks[name].points = text
            job.blocking_power_w = power
            is_complete = all(row.points is not None for row in blocks.values())
            if is_complete:
                job.state, job.error = State.COMPUTING, None
            status = self._status(session, job)
        if is_complete:
            self._workers.submit(job_id)
        return status

    def status(self, job_id: str) -> JobStatus:
        """Return what becomes of a job.

        Raises:
            RequestError: There is no such job.
        """
        with self._database.reading() as session:
            return self._status(session, find(session, job_id))

    def jobs(self, after: str | None, limit: int) -> JobPage:
        """Return the status of the jobs that were registered after another one, and where to go on.

        Raises:
            RequestError: There is no such other job.
        """
        with self._database.reading() as session:
            first = find(session, after).number if after is not None else 0
            rows = session.scalars(
                select(JobRow).where(JobRow.number > first).order_by(JobRow.number).limit(limit + 1)
            ).all()
            more = rows[limit - 1].id if len(rows) > limit else None
            return JobPage(jobs=[self._status(session, job) for job in rows[:limit]], next=more)

    def frontier(self, job_id: str) -> dict[str, Any]:
        """Return the frontier in its file form; see `Frontier.to_dict`.

        Raises:
            RequestError: There is no such job, or it is not ready.
        """
        with self._database.reading() as session:
            job = find_ready(session, job_id)
            every = select(PlanRow).where(PlanRow.job == job.number).order_by(PlanRow.position)
            rows = session.scalars(every.options(undefer(PlanRow.clock_mhz))).all()
            plans = tuple(
                FrequencyPlan(json.loads(row.clock_mhz), row.time_ms, row.energy_mj, row.lower_bound_mj)
                for row in rows
            )
            assert job.maximum_time_ms is not None and job.maximum_energy_mj is not None
            maximum = FrequencyPlan({}, job.maximum_time_ms, job.maximum_energy_mj, 0.0)
            power = job.blocking_power_w or 0.0
            return Frontier(plans, maximum, power, job.num_devices, job.num_gpus).to_dict()

    def delete(self, job_id: str) -> None:
        """Forget a job, and end the process that computes its frontier.

        Raises:
            RequestError: There is no such job.
        """
        with self._changing(job_id) as session:
            session.delete(find(session, job_id))
        self._workers.cancel(job_id)

    @contextmanager
    def _changing(self, job_id: str) -> Iterator[Session]:
        """Write to a job, and let all know once that is done."""
        with self._database.alone:
            with self._database.writing() as session:
                yield session
            self.deployments.forget(job_id)
        self.on_news(job_id)

    def _status(self, session: Session, job: JobRow) -> JobStatus:
        return JobStatus(
            id=job.id,
            name=job.name,
            state=State(job.state),
            num_plans=job.num_plans,
            missing=_missing(session, job) if job.state == State.WAITING else [],
            progress=self._workers.progress(job.id) if job.state == State.COMPUTING else None,
            error=job.error,
            version=job.version,
        )

    def _task(self, job_id: str) -> FrontierTask | None:
        """Return what to compute for a job; None if it was deleted."""
        with self._database.reading() as session:
            job = session.scalars(
                select(JobRow).where(JobRow.id == job_id).options(undefer(JobRow.schedule))
            ).one_or_none()
            if job is None or job.state != State.COMPUTING or job.blocking_power_w is None:
                return None
            points: Mapping[str, tuple[OperatingPoint, ...]] = {
                row.name: tuple(OperatingPoint(*point) for point in json.loads(row.points or "[]"))
                for row in session.scalars(_blocks(job))
            }
            return FrontierTask(
                job.schedule, Profile("uploaded", points, job.blocking_power_w), job.num_plans
            )

    def _keep(self, job_id: str, outcome: Frontier | TaskFailure) -> None:
        """Keep what a worker found, and deploy the first plan."""
        plans = [] if isinstance(outcome, TaskFailure) else [_plan_values(plan) for plan in outcome.plans]
        with self._changing(job_id) as session:
            job = session.scalars(select(JobRow).where(JobRow.id == job_id)).one_or_none()
            if job is None or job.state != State.COMPUTING:
                return
            if isinstance(outcome, TaskFailure):
                job.state, job.error = State.FAILED, outcome.line
                return
            rows = [{"job": job.number, "position": i} | plan for i, plan in enumerate(plans)]
            session.execute(insert(PlanRow), rows)
            job.state = State.READY
            job.maximum_time_ms = outcome.all_maximum.time_ms
            job.maximum_energy_mj = outcome.all_maximum.energy_mj
            self.deployments.begin(session, job)


def _blocks(job: JobRow) -> Any:
    return select(BlockRow).where(BlockRow.job == job.number).order_by(BlockRow.position)


def _missing(session: Session, job: JobRow) -> list[str]:
    """Return the blocks without a profile."""
    missing = select(BlockRow.name).where(BlockRow.job == job.number, BlockRow.points.is_(None))
    return list(session.scalars(missing.order_by(BlockRow.position)))


def _points_text(points: Iterable[OperatingPoint]) -> str:
    return json.dumps([(point.clock_mhz, point.time_ms, point.energy_mj) for point in points])


def _plan_values(plan: FrequencyPlan) -> dict[str, Any]:
    """Return a plan as a row of `PlanRow` holds it."""
    clocks = {name: [int(clock) for clock in each] for name, each in plan.clock_mhz.items()}
    return {
        "time_ms": plan.time_ms,
        "energy_mj": plan.energy_mj,
        "lower_bound_mj": plan.lower_bound_mj,
        "clock_mhz": json.dumps(clocks),
    }
