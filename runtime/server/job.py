"""A job: its schedule, profile and frontier, its stragglers, and the plan that it runs.

A job never changes: a request makes a new one of it, so that what cannot be kept on disk is nowhere else.

Per accelerator there is a degree in force and at most one that is announced (Perseus, Table 2:
``set_straggler``). A new message withdraws the announced one, because the latest word counts; what is in
force stays until the new message is due. Nothing has to happen then: whoever asks next finds it in force.

Jobs are kept in a folder with two files of JSON for each. Every change is in a file before its request is
answered, so that the server may be killed at any time. Most are on the disk itself by then, and outlast the
machine's end; messages about stragglers must be quick, and may be lost with it.
"""

from __future__ import annotations

import fcntl
import math
import shutil
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from placements.forms.texts import flush_folder, write_bytes
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
        stragglers = {}
        for name, straggler in self.stragglers.items():
            is_due = straggler.due_s is not None and straggler.due_s <= now_s
            stragglers[name] = Straggler(degree=straggler.next_degree) if is_due else straggler
        present = {name: straggler for name, straggler in stragglers.items() if straggler != Straggler()}
        return self.model_copy(update={"stragglers": present})

    def with_plan(self, frontier: Frontier) -> Deployment:
        """Return it with the plan for min(T*, T') (Perseus, Sec. 3.1), a new version if it is another one."""
        degree = max((straggler.degree for straggler in self.stragglers.values()), default=NORMAL)
        deadline_ms = degree * frontier.shortest.time_ms
        is_new = self.deadline_ms is None or frontier.at(deadline_ms) is not frontier.at(self.deadline_ms)
        return self.model_copy(update={"version": self.version + is_new, "deadline_ms": deadline_ms})

    @property
    def due_s(self) -> float:
        """When the next announced degree comes into force; infinite if nothing is announced."""
        due_s = (straggler.due_s for straggler in self.stragglers.values() if straggler.due_s is not None)
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


_JOB, _DEPLOYMENT = "job.json", "deployment.json"


class StorageError(ValueError):
    """The folder cannot be used; the message gives the reason and a remedy in one line."""


class JobFolder:
    """The jobs of a folder, which is made if it is not there; called by one thread at a time.

    Every change raises an `OSError` if it cannot be kept, and is then as if it had not been asked for.

    Raises:
        StorageError: The folder cannot be written, a file of it not be read, or another server owns it.
    """

    def __init__(self, path: Path) -> None:
        """Take the folder, by a lock that ends with the process."""
        self._path = path
        try:
            path.mkdir(exist_ok=True)
            self._owner = (path / "lock").open("ab")
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"jobs: {path} is in use by another server; stop that one or give another folder"
            ) from None
        except OSError as error:
            raise StorageError(
                f"jobs: {path} cannot be written ({error.strerror}); give another folder"
            ) from None

    def jobs(self) -> list[Job]:
        """Return all jobs, in the order of registration."""
        stored = []
        for path in self._path.glob(f"*/{_JOB}"):
            try:
                job = Job.model_validate_json(path.read_bytes())
            except (OSError, ValueError):
                raise StorageError(
                    f"jobs: {path.parent} is not as this server writes it; remove it, or give another folder"
                ) from None
            with suppress(OSError, ValueError):  # lost with the machine
                newer = Deployment.model_validate_json(path.with_name(_DEPLOYMENT).read_bytes())
                job = job.model_copy(update={"deployment": newer})
            stored.append(job)
        return sorted(stored, key=lambda job: job.number)

    def keep(self, job: Job) -> None:
        """Keep a new job, or one that has changed; it is on the disk then."""
        self.keep_deployment(job)  # a job whose outcome is not kept is computed again, and deployed alike
        write_bytes(self._path / job.id / _JOB, job.model_dump_json().encode(), durable=True)
        flush_folder(self._path)

    def keep_deployment(self, job: Job) -> None:
        """Keep the deployment of a job, without waiting for the disk."""
        write_bytes(self._path / job.id / _DEPLOYMENT, job.deployment.model_dump_json().encode())

    def forget(self, job: Job) -> None:
        """Delete a job."""
        (self._path / job.id / _JOB).unlink()
        shutil.rmtree(self._path / job.id)

    def close(self) -> None:
        """Let others own the folder."""
        self._owner.close()
