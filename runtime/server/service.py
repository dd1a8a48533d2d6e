"""All requests, without HTTP: each method is one, answered from the database's rows.

Per accelerator there is a degree in force and at most one that is announced (Perseus, Table 2:
``set_straggler``). A new message withdraws the announced one, because the latest word counts; what is in
force stays until the new message is due. Nothing has to happen then: whoever asks next finds it in force.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection, Row
from typing import Annotated, Any

from pydantic import Field

from placements import OperatingPoint, Profile
from runtime.server.bodies import (
    NORMAL,
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
from runtime.server.storage import Database
from runtime.server.workers import Task, Workers
from schedsearch.energy.frontier import TIME_TOLERANCE, FrequencyPlan, Frontier

_JOBS = """
SELECT number, id, name, num_plans, num_devices, num_gpus, state, error, blocking_power_w, maximum_time_ms,
    maximum_energy_mj, version, plan
FROM jobs"""
"""All of a job but its schedule, which may be long."""


class Service:
    """The jobs of one database; each request raises `RequestError` if it cannot be met.

    Args:
        database: Its file; a `StorageError` if it cannot be used.
        num_workers: Frontiers computed at once; at least 1.
        now_s: The clock that delays are counted on; it must go on across restarts.

    Attributes:
        on_news: Called, in any thread, with the id of a job after it was changed.
    """

    def __init__(self, database: Path, num_workers: int = 1, now_s: Callable[[], float] = time.time) -> None:
        """Take up what an earlier server left: jobs that were being computed are computed again."""
        self.on_news: Callable[[str], object] = lambda job: None
        self.database, self._now_s = Database(database), now_s
        self._workers = Workers(num_workers, self._task, self._keep)
        with self.database.reading() as rows:
            unfinished = "SELECT id FROM jobs WHERE state = ? ORDER BY number"
            for (job,) in rows.execute(unfinished, [State.COMPUTING]):
                self._workers.submit(job)

    def close(self) -> None:
        """End the workers and let go of the database."""
        self._workers.close()
        self.database.close()

    def register(self, body: Registration) -> JobStatus:
        """Register a job."""
        placement, job = body.read().placement, secrets.token_hex(6)
        values = (
            job,
            placement.name,
            json.dumps(body.schedule),
            body.num_plans,
            placement.num_devices,
            sum(placement.gpus) if placement.num_gpus else None,
            State.WAITING,
        )
        with self.database.writing() as rows:
            number = rows.execute(
                "INSERT INTO jobs (id, name, schedule, num_plans, num_devices, num_gpus, state, version) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
                values,
            ).lastrowid
            rows.executemany(
                "INSERT INTO blocks (job, name, position) VALUES (?, ?, ?)",
                ((number, block.name, position) for position, block in enumerate(placement.blocks)),
            )
            return self._status(rows, _find(rows, job))

    def upload(self, job: str, body: ProfileUpload) -> JobStatus:
        """Upload the profile of some or all blocks; the frontier is computed once all are there."""
        profile = body.read()
        with self._changing(job) as rows:
            row = _find(rows, job)
            if row["state"] not in (State.WAITING, State.FAILED):
                raise RequestError(f"profile: job {job} is {row['state']} with one; register a new job", 409)
            for name, points in profile.points.items():
                text = json.dumps([(point.clock_mhz, point.time_ms, point.energy_mj) for point in points])
                own = text, row["number"], name
                if not rows.execute("UPDATE blocks SET points = ? WHERE job = ? AND name = ?", own).rowcount:
                    raise RequestError(
                        f"profile: {row['name']} has no block {name!r}; use those of its placement"
                    )
            state = State.WAITING if _missing(rows, row) else State.COMPUTING
            rows.execute(
                "UPDATE jobs SET blocking_power_w = ?, state = ?, error = NULL WHERE number = ?",
                [body.blocking_power_w, state, row["number"]],
            )
            status = self._status(rows, _find(rows, job))
        if state == State.COMPUTING:
            self._workers.submit(job)
        return status

    def status(self, job: str) -> JobStatus:
        """Return a job's state, its missing blocks or its progress, and why it failed."""
        with self.database.reading() as rows:
            return self._status(rows, _find(rows, job))

    def jobs(self) -> JobList:
        """List jobs in the order of registration."""
        with self.database.reading() as rows:
            return JobList(jobs=[self._status(rows, row) for row in rows.execute(f"{_JOBS} ORDER BY number")])

    def frontier(self, job: str) -> dict[str, Any]:
        """Return the content of a `frontier.json`."""
        with self.database.reading() as rows:
            row = _find_ready(rows, job)
            by_time = rows.execute("SELECT * FROM plans WHERE job = ? ORDER BY position", [row["number"]])
            plans = tuple(FrequencyPlan(**_plan_fields(plan)) for plan in by_time)
        maximum = FrequencyPlan({}, row["maximum_time_ms"], row["maximum_energy_mj"], 0.0)
        power_w = row["blocking_power_w"]
        return Frontier(plans, maximum, power_w, row["num_devices"], row["num_gpus"]).to_dict()

    def plan(
        self, job: str, deadline_ms: Annotated[float | None, Field(allow_inf_nan=False)] = None
    ) -> DeployedPlanAnswer | PlanAnswer | None:
        """Return the best plan for a deadline, by default the deployed one."""
        if deadline_ms is None:
            return self.deployed(job)
        with self.database.reading() as rows:
            number = _find_ready(rows, job)["number"]
            shortest_ms = _plan(rows, number, 0)["time_ms"]
            if not deadline_ms >= shortest_ms * (1 - TIME_TOLERANCE):
                raise RequestError(
                    f"deadline_ms: {deadline_ms:g} is below the shortest iteration of {shortest_ms:.6g} ms; "
                    "give at least that"
                )
            return PlanAnswer(**_plan_fields(_plan(rows, number, _position_at(rows, number, deadline_ms))))

    def deployed(self, job: str, newer_than: int = 0) -> DeployedPlanAnswer | None:
        """Return the deployed plan and its version; None if that is `newer_than`.

        Any other version is an older one, even if its number is higher: it may be of another database.
        """
        if self.due_in_s(job) <= 0:
            with self._changing(job, is_quick=True) as rows:
                self._deploy(rows, _find(rows, job)["number"])
        with self.database.reading() as rows:
            row = _find_ready(rows, job)
            if row["version"] == newer_than:
                return None
            plan = _plan_fields(_plan(rows, row["number"], row["plan"]))
        return DeployedPlanAnswer(**plan, version=row["version"])

    def due_in_s(self, job: str) -> float:
        """Return in how many seconds what is announced for a job comes into force; infinite if nothing is."""
        due = "SELECT min(due_s) FROM stragglers JOIN jobs ON number = job WHERE id = ?"
        with self.database.reading() as rows:
            (due_s,) = rows.execute(due, [job]).fetchone()
        return math.inf if due_s is None else due_s - self._now_s()

    def set_straggler(self, job: str, body: StragglerMessage) -> Deployed:
        """Tell of a straggler (Perseus, Table 2); before the job is ready it counts once it is."""
        with self._changing(job, is_quick=True) as rows:
            number = _find(rows, job)["number"]
            self._settle(rows, number)  # a degree that is due by now stays in force until this message is due
            rows.execute(
                "INSERT INTO stragglers (job, name, degree, next_degree, due_s) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET next_degree = excluded.next_degree, due_s = excluded.due_s",
                [number, body.id, NORMAL, body.degree, self._now_s() + body.delay_s],
            )
            deadline_ms = self._deploy(rows, number)
            row = _find(rows, job)
            time_ms = None if deadline_ms is None else _plan(rows, number, row["plan"])["time_ms"]
        return Deployed(version=row["version"], time_ms=time_ms, deadline_ms=deadline_ms)

    def delete(self, job: str) -> None:
        """Forget a job, and end the process that computes its frontier."""
        with self._changing(job) as rows:
            rows.execute("DELETE FROM jobs WHERE number = ?", [_find(rows, job)["number"]])
        self._workers.cancel(job)

    @contextmanager
    def _changing(self, job: str, *, is_quick: bool = False) -> Iterator[Connection]:
        """Write to a job, and let all know; see `Database.writing`."""
        with self.database.writing(is_quick=is_quick) as rows:
            yield rows
        self.on_news(job)

    def _settle(self, rows: Connection, number: int) -> None:
        """Put announced degrees that are due in force, and forget the accelerators that are normal."""
        rows.execute(
            "UPDATE stragglers SET degree = next_degree, next_degree = NULL, due_s = NULL "
            "WHERE job = ? AND due_s <= ?",
            [number, self._now_s()],
        )
        normal = "DELETE FROM stragglers WHERE job = ? AND degree = ? AND due_s IS NULL"
        rows.execute(normal, [number, NORMAL])

    def _deploy(self, rows: Connection, number: int) -> float | None:
        """Deploy the plan for min(T*, T') (Perseus, Sec. 3.1) as a new version, if it is another one.

        Returns:
            T', in ms: when the worst straggler in force ends its iteration, for which all others wait; None
            before the job is ready.
        """
        self._settle(rows, number)
        shortest = _plan(rows, number, 0)
        if shortest is None:
            return None
        (degree,) = rows.execute("SELECT max(degree) FROM stragglers WHERE job = ?", [number]).fetchone()
        deadline_ms = float((degree or NORMAL) * shortest["time_ms"])
        plan = _position_at(rows, number, deadline_ms)
        rows.execute(
            "UPDATE jobs SET plan = ?, version = version + 1 WHERE number = ? AND plan IS NOT ?",
            [plan, number, plan],
        )
        return deadline_ms

    def _status(self, rows: Connection, row: Row) -> JobStatus:
        return JobStatus(
            **{name: row[name] for name in ("id", "name", "num_plans", "error", "version")},
            state=State(row["state"]),
            missing=_missing(rows, row) if row["state"] == State.WAITING else [],
            progress=self._workers.progress.get(row["id"]) if row["state"] == State.COMPUTING else None,
        )

    def _task(self, job: str) -> Task | None:
        """Return the task of a job's worker; None if the job was deleted."""
        with self.database.reading() as rows, suppress(RequestError):
            row = _find(rows, job)
            blocks = rows.execute("SELECT name, points FROM blocks WHERE job = ?", [row["number"]])
            points = {
                name: tuple(OperatingPoint(*point) for point in json.loads(text)) for name, text in blocks
            }
            (text,) = rows.execute("SELECT schedule FROM jobs WHERE id = ?", [job]).fetchone()
            return text, Profile("uploaded", points, row["blocking_power_w"]), row["num_plans"]
        return None

    def _keep(self, job: str, outcome: Frontier | str) -> None:
        """Keep the outcome of a worker and deploy the shortest plan, unless the job was deleted."""
        with suppress(RequestError), self._changing(job) as rows:
            number = _find(rows, job)["number"]
            if isinstance(outcome, str):
                failed = State.FAILED, outcome, number
                rows.execute("UPDATE jobs SET state = ?, error = ? WHERE number = ?", failed)
                return
            rows.executemany(
                "INSERT INTO plans (job, position, time_ms, energy_mj, lower_bound_mj, clock_mhz) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (number, i, plan.time_ms, plan.energy_mj, plan.lower_bound_mj, _clocks_text(plan))
                    for i, plan in enumerate(outcome.plans)
                ),
            )
            maximum = outcome.all_maximum
            rows.execute(
                "UPDATE jobs SET state = ?, maximum_time_ms = ?, maximum_energy_mj = ? WHERE number = ?",
                [State.READY, maximum.time_ms, maximum.energy_mj, number],
            )
            self._deploy(rows, number)


def _find(rows: Connection, job: str) -> Row:
    """Return a job, or refuse its id."""
    row: Row | None = rows.execute(f"{_JOBS} WHERE id = ?", [job]).fetchone()
    if row is None:
        raise RequestError(f"job: {job[:60]!r} is not known; GET /jobs lists all", 404)
    return row


def _find_ready(rows: Connection, job: str) -> Row:
    """Return a job that has its frontier, or refuse it."""
    row = _find(rows, job)
    if row["state"] == State.FAILED:
        raise RequestError(f"frontier: job {job} failed ({row['error']}); upload another profile", 409)
    if row["state"] != State.READY:
        raise NotYetError(f"frontier: job {job} is {row['state']}; GET /jobs/{job} until it is ready", 409)
    return row


def _missing(rows: Connection, row: Row) -> list[str]:
    """Return the blocks without a profile."""
    missing = "SELECT name FROM blocks WHERE job = ? AND points IS NULL ORDER BY position"
    return [name for (name,) in rows.execute(missing, [row["number"]])]


def _plan(rows: Connection, number: int, position: int) -> Any:
    """Return a row of a job's plans, which are by increasing time; None before the job is ready."""
    return rows.execute("SELECT * FROM plans WHERE job = ? AND position = ?", [number, position]).fetchone()


def _position_at(rows: Connection, number: int, deadline_ms: float) -> int:
    """Return the position of the last plan that is not later than a deadline, or of the shortest."""
    in_time = "SELECT max(position) FROM plans WHERE job = ? AND time_ms <= ?"
    (position,) = rows.execute(in_time, [number, deadline_ms * (1 + TIME_TOLERANCE)]).fetchone()
    return position or 0


def _plan_fields(plan: Row) -> dict[str, Any]:
    fields = {name: plan[name] for name in ("time_ms", "energy_mj", "lower_bound_mj")}
    return fields | {"clock_mhz": json.loads(plan["clock_mhz"])}


def _clocks_text(plan: FrequencyPlan) -> str:
    return json.dumps({name: [int(clock) for clock in clocks] for name, clocks in plan.clock_mhz.items()})
