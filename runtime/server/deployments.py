"""Which plan each job runs now, answered from memory; each change is in the database before it is answered.

Nothing has to happen when a straggler becomes due: whoever asks for the deployed plan finds it deployed then.
What is in memory can always be read again from the database, and is after a restart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from runtime.server.answers import Deployed, DeployedPlanAnswer, PlanAnswer
from runtime.server.deployment import Announced, Deployment, Straggler
from runtime.server.errors import NotYetError, RequestError
from runtime.server.requests import StragglerMessage
from runtime.server.storage import Database
from runtime.server.tables import BlockRow, JobRow, PlanRow, State, StragglerRow, Table

_KEPT_PLANS = 256
"""Plans kept in memory with all their clocks."""

_STRAGGLERS, _JOBS = (Table.metadata.tables[each.__tablename__] for each in (StragglerRow, JobRow))
_KEEP = insert(_STRAGGLERS).prefix_with("OR REPLACE")
_FORGET = delete(_STRAGGLERS).where(
    _STRAGGLERS.c.job == bindparam("of_job"), _STRAGGLERS.c.name == bindparam("of_name")
)
_DEPLOY = (
    update(_JOBS)
    .where(_JOBS.c.number == bindparam("of_job"))
    .values(version=bindparam("to_version"), plan=bindparam("to_plan"))
)


@dataclass(frozen=True)
class LiveJob:
    """A job as it is kept in memory.

    Attributes:
        row: What else is in its row; it belongs to no session.
        deployment: What it runs.
    """

    row: JobRow
    deployment: Deployment


class Deployments:
    """The deployments of all jobs of a database.

    Args:
        database: Theirs.
        now_s: The clock that delays are counted on.
        tell: Called with a job's id after another plan is deployed there.
    """

    def __init__(self, database: Database, now_s: Callable[[], float], tell: Callable[[str], None]) -> None:
        """Keep nothing in memory yet."""
        self._database, self._now_s, self._tell = database, now_s, tell
        self._live: dict[str, LiveJob] = {}
        # Neither ever changes: numbers of jobs are not used twice, and a frontier is not replaced.
        self._plan = lru_cache(_KEPT_PLANS)(self._read_plan)
        self._devices = lru_cache(_KEPT_PLANS)(self._read_devices)

    def set_straggler(self, job_id: str, message: StragglerMessage) -> Deployed:
        """Note what is said about an accelerator, and deploy what follows from it (Perseus, Table 2).

        Returns:
            What is deployed; before the job is ready nothing: the message counts once it is.

        Raises:
            RequestError: There is no such job.
        """
        with self._database.alone:
            live = self._find(job_id)
            after = live.deployment.told(message, self._now_s())
            self._change(live, after)
            if after.plan is None:
                return Deployed(version=0, time_ms=None, deadline_ms=None)
            time_ms = after.times_ms[after.plan]
            return Deployed(version=after.version, time_ms=time_ms, deadline_ms=after.deadline_ms)

    def deployed(
        self, job_id: str, device: int | None = None, newer_than: int = 0
    ) -> DeployedPlanAnswer | None:
        """Return what is deployed now: the plan, whole or a device's part, and its version.

        Args:
            job_id: Which job.
            device: Device whose blocks are returned; None for all.
            newer_than: A version; None is returned if it is the one deployed now. Any other is an older one,
                even if its number is higher: the server may have lost it with the machine it ran on.

        Raises:
            RequestError: There is no such job or device, or the job is not ready.
        """
        with self._database.alone:
            live = self._find(job_id)
            now = live.deployment.settled(self._now_s())
            self._change(live, now)
            _check_ready(live.row)
            if device is not None and not 0 <= device < live.row.num_devices:
                raise RequestError(
                    f"device: {device} is none of {live.row.name}; use 0 to {live.row.num_devices - 1}"
                )
            if now.version == newer_than:
                return None
            assert now.plan is not None, "a job that is ready has a plan"
            plan = self._plan(live.row.number, now.plan)
            own = plan.clock_mhz
            if device is not None:
                devices = self._devices(live.row.number)
                own = {name: each for name, each in own.items() if device in devices[name]}
            return DeployedPlanAnswer.model_construct(
                **{**dict(plan), "clock_mhz": own, "version": now.version}
            )

    def plan(self, job_id: str, deadline_ms: float) -> PlanAnswer:
        """Return the best plan for a deadline, which deploys nothing.

        Raises:
            RequestError: There is no such job, it is not ready, or no plan is as short.
        """
        with self._database.alone:
            live = self._find(job_id)
        _check_ready(live.row)
        return self._plan(live.row.number, live.deployment.position_for(deadline_ms))

    def due_in_s(self, job_id: str) -> float:
        """Return in how many seconds what is announced for a job comes into force; infinite if nothing is."""
        live = self._live.get(job_id)
        return math.inf if live is None else live.deployment.next_due_s - self._now_s()

    def begin(self, session: Session, job: JobRow) -> None:
        """Deploy the first plan of a job that has just become ready, in the transaction that makes it so."""
        before = _read_deployment(session, job)
        after = before.settled(self._now_s()).deployed()
        _write(session, job.number, before, after)

    def forget(self, job_id: str) -> None:
        """Look into the database for a job next time, because it was changed there."""
        self._live.pop(job_id, None)

    def _find(self, job_id: str) -> LiveJob:
        if job_id not in self._live:
            with self._database.reading() as session:
                job = find(session, job_id)
                self._live[job_id] = LiveJob(job, _read_deployment(session, job))
                session.expunge(job)
        return self._live[job_id]

    def _change(self, live: LiveJob, after: Deployment) -> None:
        """Write what is new, and only then let others see it."""
        before, job_id = live.deployment, live.row.id
        if after is before:
            return
        with self._database.noting() as connection:
            _write(connection, live.row.number, before, after)
        self._live[job_id] = LiveJob(live.row, after)
        if after.version != before.version or after.next_due_s != before.next_due_s:
            self._tell(job_id)

    def _read_plan(self, number: int, position: int) -> PlanAnswer:
        columns = select(PlanRow.time_ms, PlanRow.energy_mj, PlanRow.lower_bound_mj, PlanRow.clock_mhz)
        with self._database.reading() as session:
            key = PlanRow.job == number, PlanRow.position == position
            row = session.execute(columns.where(*key)).one_or_none()
        if row is None:
            raise RequestError("job: was deleted meanwhile; GET /jobs lists all", 404)
        return PlanAnswer(
            time_ms=row.time_ms,
            energy_mj=row.energy_mj,
            lower_bound_mj=row.lower_bound_mj,
            clock_mhz=json.loads(row.clock_mhz),
        )

    def _read_devices(self, number: int) -> dict[str, list[int]]:
        with self._database.reading() as session:
            rows = session.execute(select(BlockRow.name, BlockRow.devices).where(BlockRow.job == number))
            return {name: json.loads(devices) for name, devices in rows}


def find(session: Session, job_id: str) -> JobRow:
    """Return a job.

    Raises:
        RequestError: There is none of this id.
    """
    job = session.scalars(select(JobRow).where(JobRow.id == job_id)).one_or_none()
    if job is None:
        raise RequestError(f"job: {job_id[:60]!r} is not known; GET /jobs lists all", 404)
    return job


def find_ready(session: Session, job_id: str) -> JobRow:
    """Return a job that has its frontier.

    Raises:
        RequestError: There is none of this id, or it is not ready.
    """
    job = find(session, job_id)
    _check_ready(job)
    return job


def _check_ready(job: JobRow) -> None:
    if job.state == State.FAILED:
        raise RequestError(f"frontier: job {job.id} failed ({job.error}); upload another profile", 409)
    if job.state != State.READY:
        raise NotYetError(f"frontier: job {job.id} is {job.state}; GET /jobs/{job.id} until it is ready")


def _read_deployment(session: Session, job: JobRow) -> Deployment:
    times = select(PlanRow.time_ms).where(PlanRow.job == job.number).order_by(PlanRow.position)
    rows = session.scalars(select(StragglerRow).where(StragglerRow.job == job.number))
    stragglers = {row.name: _read_straggler(row) for row in rows}
    return Deployment(stragglers, tuple(session.scalars(times)), job.plan, job.version)


def _read_straggler(row: StragglerRow) -> Straggler:
    if row.due_s is None or row.next_degree is None:
        return Straggler(row.degree)
    return Straggler(row.degree, Announced(row.next_degree, row.due_s))


def _write(to: Session | Connection, number: int, before: Deployment, after: Deployment) -> None:
    """Write by what two deployments of a job differ."""
    old, new = before.stragglers, after.stragglers
    kept = [
        _straggler_values(number, name, known) for name, known in new.items() if old.get(name) is not known
    ]
    if kept:
        to.execute(_KEEP, kept)
    gone = [{"of_job": number, "of_name": name} for name in old if name not in new]
    if gone:
        to.execute(_FORGET, gone)
    if after.version != before.version:
        to.execute(_DEPLOY, [{"of_job": number, "to_version": after.version, "to_plan": after.plan}])


def _straggler_values(number: int, name: str, known: Straggler) -> dict[str, Any]:
    announced = known.announced
    return {
        "job": number,
        "name": name,
        "degree": known.degree,
        "next_degree": announced and announced.degree,
        "due_s": announced and announced.due_s,
    }
