"""What talks to `runtime.server`: `ServerClient` for users and infrastructure, `PlanClient` for scripts.

A `PlanClient` asks in a thread of its own, and hands a new plan over only when the script asks, between two
iterations. A server that is away never holds up training: the last plan stays. It needs neither torch nor any
package beyond Python's own.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from placements import Profile
from runtime.calls import ScriptError
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict

SERVER_VARIABLE, JOB_VARIABLE = "SCHEDSEARCH_SERVER", "SCHEDSEARCH_JOB"
"""Environment of a script: the server's URL, and the id of the job there."""

_LOG = logging.getLogger(__name__)
_NO_CONTENT, _CONFLICT = 204, 409


class ServerError(RuntimeError):
    """The server refused a request, or is not there; the message says why in one line.

    Args:
        message: The line.
        status: Of HTTP; None if there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        """Keep the status beside the message."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class DeployedPlan:
    """A plan that the server wants to be run.

    Attributes:
        version: Rises with each deployment of the job; at least 1.
        time_ms: How long an iteration takes.
        clock_mhz: For each block one clock per micro-batch.
    """

    version: int
    time_ms: float
    clock_mhz: Mapping[str, tuple[int, ...]]


class ServerClient:
    """Each method is one request; all raise `ServerError`.

    Args:
        url: Of the server, such as ``http://127.0.0.1:8080``.
        timeout_s: How long an answer may take.
    """

    def __init__(self, url: str, timeout_s: float = 30.0) -> None:
        """Ask nothing yet."""
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        # A proxy of the environment is for the world outside, not for a server of one's own.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def register(self, schedule: Schedule, num_plans: int = 200) -> str:
        """Register a job and return its id.

        Args:
            schedule: What an iteration runs.
            num_plans: Evenly spaced deadlines of its frontier.
        """
        body = {"schedule": schedule_to_dict(schedule), "num_plans": num_plans}
        return str(self._ask("POST", "/jobs", body)["id"])

    def upload(self, job: str, profile: Profile) -> dict[str, Any]:
        """Upload the profile of some or all blocks of a job, and return its status.

        Once all blocks have one, the server computes the frontier.
        """
        blocks = {
            block: [
                {"clock_mhz": point.clock_mhz, "time_ms": point.time_ms, "energy_mj": point.energy_mj}
                for point in points
            ]
            for block, points in profile.points.items()
        }
        body = {"blocking_power_w": profile.blocking_power_w, "blocks": blocks}
        return dict(self._ask("POST", f"{_path(job)}/profile", body))

    def status(self, job: str) -> dict[str, Any]:
        """Return a job's ``state``, ``missing`` blocks, ``progress``, ``error`` and ``version``."""
        return dict(self._ask("GET", _path(job)))

    def wait_until_ready(
        self, job: str, timeout_s: float = 3600.0, interval_s: float = 0.2
    ) -> dict[str, Any]:
        """Wait for the frontier and return the status; a failed job or the timeout is a `ServerError`."""
        deadline = time.monotonic() + timeout_s
        while (status := self.status(job))["state"] != "ready":
            if status["state"] == "failed":
                raise ServerError(f"job {job} failed: {status['error']}")
            if time.monotonic() > deadline:
                raise ServerError(f"job {job} is still {status['state']} after {timeout_s:g} s")
            time.sleep(interval_s)
        return status

    def frontier(self, job: str) -> dict[str, Any]:
        """Return the frontier in its file form; see `schedsearch.energy.Frontier.from_dict`."""
        return dict(self._ask("GET", f"{_path(job)}/frontier"))

    def plan(self, job: str, deadline_ms: float | None = None) -> dict[str, Any]:
        """Return the best plan for a deadline in milliseconds, by default the deployed one."""
        query = {} if deadline_ms is None else {"deadline_ms": repr(deadline_ms)}
        return dict(self._ask("GET", f"{_path(job)}/plan?{urlencode(query)}"))

    def set_straggler(self, job: str, id: int | str, delay_s: float, degree: float) -> dict[str, Any]:
        """Tell of a straggler (Perseus, Table 2), and return the ``version`` deployed now.

        Args:
            job: Whose plans are concerned.
            id: Of the accelerator.
            delay_s: From when on it is one, in seconds from now.
            degree: How many times the shortest iteration it takes; 1 if it is back to normal.
        """
        body = {"id": id, "delay_s": delay_s, "degree": degree}
        return dict(self._ask("POST", f"{_path(job)}/straggler", body))

    def deployed(self, job: str, device: int | None = None, newer_than: int = 0) -> DeployedPlan | None:
        """Return the deployed plan, whole or a device's part, or None if none is newer than a version."""
        query = {"newer_than": newer_than} | ({} if device is None else {"device": device})
        answer = self._ask("GET", f"{_path(job)}/deployed?{urlencode(query)}")
        if answer is None:
            return None
        try:
            clocks = {block: tuple(each) for block, each in answer["clock_mhz"].items()}
            return DeployedPlan(answer["version"], answer["time_ms"], clocks)
        except (AttributeError, KeyError, TypeError):
            raise ServerError(f"{self._url}: answers with something else than a plan") from None

    def delete(self, job: str) -> None:
        """Let the server forget a job."""
        self._ask("DELETE", _path(job))

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self._url + path, data, method=method)
            request.add_header("Content-Type", "application/json")
            with self._opener.open(request, timeout=self._timeout_s) as response:
                return None if response.status == _NO_CONTENT else json.load(response)
        except urllib.error.HTTPError as error:
            raise ServerError(_detail(error), error.code) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ServerError(f"{self._url}: does not answer ({reason}); is runtime.server there?") from None


class PlanSource(Protocol):
    """Where a script's plans come from."""

    def at_iteration_boundary(self) -> DeployedPlan | None:
        """Return a plan to run from now on, or None to go on as before; must not wait."""

    def close(self) -> None:
        """Ask for no more plans."""


class PlanClient:
    """Look for newer plans of a job, in a thread of its own.

    Args:
        url: Of the server.
        job: Its id there.
        device: Whose blocks' clocks are wanted; None for those of all.
        interval_s: Between two questions.
        timeout_s: How long an answer may take.
    """

    def __init__(
        self, url: str, job: str, device: int | None = None, interval_s: float = 1.0, timeout_s: float = 10.0
    ) -> None:
        """Begin to ask."""
        self._server = ServerClient(url, timeout_s)
        self._job, self._device, self._interval_s = job, device, interval_s
        self._asking = threading.Lock()
        self._newest: DeployedPlan | None = None
        self._handed_over: DeployedPlan | None = None
        self._is_away = False
        self._end = threading.Event()
        threading.Thread(target=self._poll_often, name="plan client", daemon=True).start()

    def at_iteration_boundary(self) -> DeployedPlan | None:
        """Return the newest plan that was not handed over yet, or None; never waits."""
        newest = self._newest  # The thread only ever replaces it, so no lock is needed.
        if newest is self._handed_over:
            return None
        self._handed_over = newest
        return newest

    def poll(self) -> None:
        """Ask once; trouble is logged when it begins, and the last plan stays."""
        with self._asking:
            try:
                version = self._newest.version if self._newest is not None else 0
                found = self._server.deployed(self._job, self._device, version)
            except ServerError as error:
                if error.status != _CONFLICT:  # which says that the job is not ready yet
                    self._complain(error)
                return
            self._is_away = False
            if found is not None:
                self._newest = found

    def close(self) -> None:
        """Ask no more; a question that is on its way is not waited for."""
        self._end.set()

    def _poll_often(self) -> None:
        while not self._end.is_set():
            self.poll()
            self._end.wait(self._interval_s)

    def _complain(self, error: ServerError) -> None:
        if not self._is_away:
            _LOG.warning("no news of plans, the last one stays: %s", error)
        self._is_away = True


def plans_from_environment() -> PlanSource | None:
    """Return the plans of the job that the environment names, or None if it names no server.

    Raises:
        ScriptError: There is a server but no job.
    """
    url, job = os.environ.get(SERVER_VARIABLE), os.environ.get(JOB_VARIABLE)
    if not url:
        return None
    if not job:
        raise ScriptError(f"{JOB_VARIABLE}: is not set, but {SERVER_VARIABLE} is; give the job's id there")
    return PlanClient(url, job)


def _path(job: str) -> str:
    return f"/jobs/{quote(job, safe='')}"


def _detail(error: urllib.error.HTTPError) -> str:
    """Return the one line that the server says."""
    try:
        return str(json.load(error)["detail"]).splitlines()[0]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return f"the server answered {error.code} ({error.reason})"
