"""Servers for tests, in this process or one of their own, and small jobs for them."""

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from places import ROOT

from placements import OperatingPoint, Placement, Profile
from placements.shapes import v_shape
from runtime.plans.plan_client import ServerClient
from runtime.server.app import Server, create_app, listen
from runtime.server.service import Service
from schedsearch.baselines import one_f_one_b
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict


def small_schedule(num_micro_batches: int = 3) -> Schedule:
    return one_f_one_b(v_shape(2), num_micro_batches)


def profile_of(placement: Placement, slower: float = 1.0) -> Profile:
    """Three clocks for each block; the first device is the busier one."""
    points = {}
    for block in placement.blocks:
        longer = slower * (1.5 if 0 in block.devices else 1.0)
        costs = ((900, 20.0, 2000.0), (1200, 15.0, 2500.0), (1410, 12.0, 3300.0))
        points[block.name] = tuple(OperatingPoint(mhz, ms * longer, mj) for mhz, ms, mj in costs)
    return Profile("made up", points, 60.0)


def registration(schedule: Schedule | None = None, num_plans: int = 20) -> dict[str, Any]:
    return {"schedule": schedule_to_dict(schedule or small_schedule()), "num_plans": num_plans}


def upload_of(profile: Profile, *blocks: str) -> dict[str, Any]:
    """Return the body with the points of some blocks, of all if none are named."""
    points = {
        name: [{"clock_mhz": p.clock_mhz, "time_ms": p.time_ms, "energy_mj": p.energy_mj} for p in points]
        for name, points in profile.points.items()
        if name in blocks or not blocks
    }
    return {"blocking_power_w": profile.blocking_power_w, "blocks": points}


def ready(server: ServerClient) -> str:
    """Return a small job that has its frontier."""
    schedule = small_schedule()
    job = server.register(schedule, 20)
    server.upload(job, profile_of(schedule.placement))
    server.wait_until_ready(job, 60)
    return job


def ask(url: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
    """Return the status and the data of an answer; text is sent as it is."""
    data = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, data, method=method), timeout=300) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@contextmanager
def in_thread(service: Service, **options: Any) -> Iterator[str]:
    """Serve from a thread of this process and give the URL; the service is closed at the end."""
    listener = listen("127.0.0.1", 0)
    server = Server(create_app(service, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class ServerProcess:
    """A server of its own, on a free port."""

    def __init__(self, jobs: Path, environment: Mapping[str, str] | None = None, workers: int = 1) -> None:
        command = [sys.executable, "-m", "runtime.server", "--port", "0", "--jobs", str(jobs)]
        self.process = subprocess.Popen(
            [*command, "--workers", str(workers)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        line = self.process.stdout.readline()
        assert line.startswith("runtime.server: http://"), line
        self.url = line.split()[1].rstrip(",")
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """End it as an accident would."""
        self.process.kill()
        self._forget()

    def end(self) -> int:
        """End it as a user would, and return its exit code."""
        self.process.terminate()
        return self._forget()

    def _forget(self) -> int:
        code = self.process.wait()
        self.process.stdout.close()
        return code
