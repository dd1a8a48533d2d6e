"""Clients of `runtime.server`: `ServerClient` for users and infrastructure, `PlanClient` for scripts.

A `PlanClient` asks in a thread of its own. Its question waits at the server until there is a new plan, which
is handed over only when the script asks, between two iterations. A server that is away never holds up
training: the last plan stays. It needs neither torch nor any package beyond Python's own.
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
from runtime.program.calls import ScriptError
from schedsearch.schedule import Schedule

SERVER_VARIABLE, JOB_VARIABLE = "SCHEDSEARCH_SERVER", "SCHEDSEARCH_JOB"
"""Environment of a script: the server's URL, and the id of the job there."""

TOKEN_VARIABLE = "SCHEDSEARCH_SERVER_TOKEN"
"""Environment of a client, and of the server: the token that requests bear, if the server wants one."""

_LOG = logging.getLogger(__name__)
_NO_CONTENT, _CONFLICT = 204, 409

_PAUSE_S = 0.05
"""From one question to the next while plans change all the time, so that training goes on beside them."""


class ServerError(RuntimeError):
    """The server refused a request, or is not there; the message says why in one line.

    Attributes:
        status: Status of HTTP; None if there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
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
        url: Address of the server, such as ``http://127.0.0.1:8080``.
        timeout_s: Longest time of an answer.
        token: Token of the server, if it wants one; by default the environment's.
    """

    def __init__(self, url: str, timeout_s: float = 30.0, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if token := token or os.environ.get(TOKEN_VARIABLE):
            self._headers["Authorization"] = f"Bearer {token}"
        # A proxy of the environment is for the world outside, not for a server of one's own.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def register(self, schedule: Schedule, num_plans: int = 200) -> str:
        """Register a job with `num_plans` evenly spaced deadlines of its frontier, and return its id."""
        from schedsearch.schedule_file import schedule_to_dict  # loads scipy, which no script needs

        body = {"schedule": schedule_to_dict(schedule), "num_plans": num_plans}
        return str(self._ask("POST", "/jobs", body)["id"])

    def upload(self, job: str, profile: Profile) -> dict[str, Any]:
        """Upload the profile of some or all blocks of a job, and return its status.

        Once all blocks have one, the server computes the frontier.
        """
        fields = ("clock_mhz", "time_ms", "energy_mj")
        blocks = {
            block: [{name: getattr(point, name) for name in fields} for point in points]
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
            job: Id of the job.
            id: Name of the accelerator; 3 and "3" are the same one.
            delay_s: Seconds from now until it is a straggler.
            degree: Its iteration time over the shortest one; 1 if it is back to normal.
        """
        body = {"id": id, "delay_s": delay_s, "degree": degree}
        return dict(self._ask("POST", f"{_path(job)}/straggler", body))

    def deployed(self, job: str, newer_than: int = 0, wait_s: float = 0.0) -> DeployedPlan | None:
        """Return the deployed plan, or None if none is newer than a version.

        Args:
            job: Id of the job.
            newer_than: The version that is known already; 0 for none.
            wait_s: Seconds that the server may wait for such a plan, at most 60.
        """
        query = {"newer_than": newer_than} | ({"wait_s": wait_s} if wait_s else {})
        answer = self._ask("GET", f"{_path(job)}/deployed?{urlencode(query)}", wait_s=wait_s)
        if answer is None:
            return None
        try:
            clocks = {block: tuple(map(int, mhz)) for block, mhz in answer["clock_mhz"].items()}
            return DeployedPlan(int(answer["version"]), float(answer["time_ms"]), clocks)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ServerError(f"{self._url}: answers with something else than a plan") from None

    def delete(self, job: str) -> None:
        """Let the server forget a job."""
        self._ask("DELETE", _path(job))

    def _ask(self, method: str, path: str, body: object = None, wait_s: float = 0.0) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self._url + path, data, self._headers, method=method)
            with self._opener.open(request, timeout=self._timeout_s + wait_s) as response:
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
        url: Address of the server.
        job: Its id there.
        interval_s: Seconds between questions that the server does not let wait: it is away, or the job has no
            frontier.
        wait_s: Seconds that each question waits at the server for a new plan, which it gets at once; at most
            60.
    """

    def __init__(self, url: str, job: str, interval_s: float = 1.0, wait_s: float = 30.0) -> None:
        self._server = ServerClient(url, timeout_s=10.0)
        self._job, self._interval_s, self._wait_s = job, interval_s, wait_s
        self._lock = threading.Lock()
        self._newest: DeployedPlan | None = None
        self._handed_over: DeployedPlan | None = None
        self._is_away = False
        self._end = threading.Event()
        threading.Thread(target=self._ask_again_and_again, name="plan client", daemon=True).start()

    def at_iteration_boundary(self) -> DeployedPlan | None:
        """Return the newest plan that was not handed over yet, or None; never waits."""
        newest = self._newest  # The thread only ever replaces it, so no lock is needed.
        if newest is self._handed_over:
            return None
        self._handed_over = newest
        return newest

    def poll(self, wait_s: float = 0.0) -> bool:
        """Ask once and return whether there is a newer plan; trouble is logged when it begins."""
        version = self._newest.version if self._newest is not None else 0
        try:
            deployed = self._server.deployed(self._job, version, wait_s)
        except ServerError as error:
            if error.status != _CONFLICT:  # which says that the job is not ready yet
                with self._lock:
                    is_known, self._is_away = self._is_away, True
                if not is_known:
                    _LOG.warning("newer plans cannot be asked for, the last one stays in use: %s", error)
            return False
        with self._lock:
            self._is_away = False
            newest = self._newest
            if deployed is not None and (newest is None or newest.version < deployed.version):
                self._newest = deployed
        return deployed is not None

    def close(self) -> None:
        """Ask no more; a question that is on its way is not waited for."""
        self._end.set()

    def _ask_again_and_again(self) -> None:
        while not self._end.is_set():
            start_s = time.monotonic()
            least_s = _PAUSE_S if self.poll(self._wait_s) else self._interval_s
            self._end.wait(max(start_s + least_s - time.monotonic(), 0))


def plans_from_environment() -> PlanSource | None:
    """Return the plans of the job that the environment names, or None if it names no server."""
    url, job = os.environ.get(SERVER_VARIABLE), os.environ.get(JOB_VARIABLE)
    if not url:
        return None
    if not job:
        raise ScriptError(f"{JOB_VARIABLE}: is not set, but {SERVER_VARIABLE} is; give the job's id there")
    return PlanClient(url, job)


def upload_from_environment(profile: Profile) -> None:
    """Upload a profile of the job that the environment names."""
    ServerClient(os.environ[SERVER_VARIABLE]).upload(os.environ[JOB_VARIABLE], profile)


def _path(job: str) -> str:
    return f"/jobs/{quote(job, safe='')}"


def _detail(error: urllib.error.HTTPError) -> str:
    """Return the one line that the server says."""
    try:
        return str(json.load(error)["detail"]).splitlines()[0]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return f"the server answered {error.code} ({error.reason})"
