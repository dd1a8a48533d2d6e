"""What a case of the server's benchmark measures: how long requests take, what they cost, and what is lost.

The server is a process of its own on this machine. Its CPU seconds are the system's account of that process,
so neither who asks nor the workers count. Each sender keeps its connection and waits for each answer; with
several of them a latency has the others' requests in it.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.schedule_file import schedule_to_dict

DEGREES = (1.0, 1.0, 1.05, 1.1, 1.2, 1.4, 2.0)
"""What a storm says of accelerators."""

_ARRIVE_S = 2.0
"""Until questions that are on their way have arrived."""

_SCHEDULE = one_f_one_b(v_shape(4), 8)
_COSTS = ((900, 20.0, 2000.0), (1200, 15.0, 2500.0), (1410, 12.0, 3300.0))
"""Made-up clocks in MHz, with ms and mJ."""


class ServerProcess:
    """A server of its own, on a free port, until the end of a ``with`` block at the latest."""

    def __init__(self, database: Path) -> None:
        """Start it and wait until it takes connections."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "runtime.server", "--port", str(self.port), "--workers", "1"]
        self._process = subprocess.Popen([*command, "--database", str(database)], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():  # it says that it listens
            raise RuntimeError("the server does not start")

    def __enter__(self) -> ServerProcess:
        """Give it as it is."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it, if it was not ended otherwise."""
        if self._process.poll() is None:
            self.end()

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process so far, without those of its workers."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End it: as a user would, or by another signal."""
        self._process.send_signal(by)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Sender:
    """One connection to a server, kept open."""

    def __init__(self, port: int) -> None:
        """Connect with the first request."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the data of an answer; None if it has none."""
        self._connection.request(method, path, None if body is None else json.dumps(body))
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:200]!r}")
        return json.loads(text) if text else None


@dataclass
class Sent:
    """What was measured of some requests.

    Attributes:
        wall_ms: Time of each request, until its answer was there.
        cpu_ms: CPU time of the server for each request, on average.
        wall_s: Time of all together.
        last: By job and accelerator the last degree that was said.
        faults: What was wrong with answers, in words.
    """

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0
    wall_s: float = 0.0
    last: dict[tuple[str, int], float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def at(self, percent: float) -> float:
        """Return the milliseconds within which a share of the requests, in percent, was answered."""
        return float(np.percentile(self.wall_ms, percent))

    def __str__(self) -> str:
        """Return the figures as a note shows them."""
        rate = len(self.wall_ms) / self.wall_s
        return (
            f"p50 {self.at(50):.2f} ms, p99 {self.at(99):.2f} ms, "
            f"server's CPU {self.cpu_ms:.2f} ms each, {rate:.0f}/s"
        )


def register(sender: Sender) -> str:
    """Register a small job with its profile, and return its id."""
    points = {
        block.name: [
            {"clock_mhz": mhz, "time_ms": ms * (1.5 if 0 in block.devices else 1.0), "energy_mj": mj}
            for mhz, ms, mj in _COSTS
        ]
        for block in _SCHEDULE.placement.blocks
    }
    job = sender.ask("POST", "/jobs", {"schedule": schedule_to_dict(_SCHEDULE), "num_plans": 50})["id"]
    sender.ask("POST", f"/jobs/{job}/profile", {"blocking_power_w": 60, "blocks": points})
    return str(job)


def ready_jobs(port: int, number: int) -> list[str]:
    """Register jobs and wait until all have their frontiers."""
    sender = Sender(port)
    jobs = [register(sender) for _ in range(number)]
    _wait_until_ready(sender, jobs)
    return jobs


def _wait_until_ready(sender: Sender, jobs: Sequence[str]) -> None:
    for job in jobs:
        while (state := sender.ask("GET", f"/jobs/{job}")["state"]) != "ready":
            if state == "failed":
                raise RuntimeError(f"job {job} has failed")
            time.sleep(0.02)


def look_ups(server: ServerProcess, job: str, number: int) -> Sent:
    """Ask for a job's plan again and again."""
    sender = Sender(server.port)
    return _timed(
        server, lambda sent: [_ask(sender, sent, "GET", f"/jobs/{job}/plan") for _ in range(number)]
    )


def storm(server: ServerProcess, jobs: Sequence[str], number: int, num_senders: int, seed: int = 0) -> Sent:
    """Tell of stragglers of all jobs, from several senders at once.

    Each sender speaks of an accelerator of its own in every job, so the last word on each is known.
    """

    def send(sent: Sent, accelerator: int) -> None:
        source, sender = random.Random(seed * 1000 + accelerator), Sender(server.port)
        versions: dict[str, int] = {}
        for _ in range(number // num_senders):
            job, degree = source.choice(jobs), source.choice(DEGREES)
            body = {"id": accelerator, "delay_s": 0, "degree": degree}
            answer = _ask(sender, sent, "POST", f"/jobs/{job}/straggler", body)
            if answer["version"] < versions.get(job, 1):
                sent.faults.append(f"{job}: version {answer['version']} comes after {versions[job]}")
            versions[job] = answer["version"]
            sent.last[job, accelerator] = degree

    def send_all(sent: Sent) -> None:
        with ThreadPoolExecutor(num_senders) as senders:
            for done in [senders.submit(send, sent, accelerator) for accelerator in range(num_senders)]:
                done.result()

    return _timed(server, send_all)


def lost(port: int, jobs: Sequence[str], sent: Sent) -> list[str]:
    """Return the jobs that are not there, or do not run the plan for the last words on their accelerators."""
    sender, wrong = Sender(port), list[str]()
    there = {job["id"] for job in sender.ask("GET", "/jobs?limit=1000")["jobs"]}
    for job in jobs:
        if job not in there:
            wrong.append(job)
            continue
        _wait_until_ready(sender, [job])
        worst = max((degree for (each, _), degree in sent.last.items() if each == job), default=1.0)
        shortest_ms = min(plan["time_ms"] for plan in sender.ask("GET", f"/jobs/{job}/frontier")["plans"])
        right = sender.ask("GET", f"/jobs/{job}/plan?deadline_ms={worst * shortest_ms!r}")["time_ms"]
        if sender.ask("GET", f"/jobs/{job}/plan")["time_ms"] != right:
            wrong.append(job)
    return wrong


def arrivals(server: ServerProcess, jobs: Sequence[str]) -> Sent:
    """Let a client of each job wait for its next plan, and tell of stragglers, one job after the other.

    Returns:
        How long it took from each message until the plan was at the client that waited.
    """

    def arrival_s(job: str) -> float:
        sender = Sender(server.port)
        version = sender.ask("GET", f"/jobs/{job}/plan")["version"]
        all_know.wait()
        sender.ask("GET", f"/jobs/{job}/deployed?newer_than={version}&wait_s=60")
        return time.perf_counter()

    def tell(sent: Sent) -> None:
        sender = Sender(server.port)
        for job, client in zip(jobs, waiting, strict=True):
            start_s = time.perf_counter()
            sender.ask("POST", f"/jobs/{job}/straggler", {"id": 0, "degree": 1.2})
            sent.wall_ms.append((client.result() - start_s) * 1e3)

    all_know = threading.Barrier(len(jobs) + 1)
    with ThreadPoolExecutor(len(jobs)) as clients:
        waiting = [clients.submit(arrival_s, job) for job in jobs]
        all_know.wait()
        time.sleep(_ARRIVE_S)
        return _timed(server, tell)


@contextmanager
def busy(server: ServerProcess) -> Iterator[list[str]]:
    """Register jobs, one after the other, while something else is measured."""
    is_over, made = False, list[str]()

    def go_on() -> None:
        sender = Sender(server.port)
        while not is_over:
            made.append(register(sender))

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(go_on)
        try:
            yield made
        finally:
            is_over = True
            running.result()


def _ask(sender: Sender, sent: Sent, method: str, path: str, body: object = None) -> Any:
    start_s = time.perf_counter()
    answer = sender.ask(method, path, body)
    sent.wall_ms.append((time.perf_counter() - start_s) * 1e3)
    return answer


def _timed(server: ServerProcess, send: Callable[[Sent], object]) -> Sent:
    sent = Sent()
    cpu_s, start_s = server.cpu_s(), time.perf_counter()
    send(sent)
    sent.wall_s = time.perf_counter() - start_s
    sent.cpu_ms = (server.cpu_s() - cpu_s) * 1e3 / len(sent.wall_ms)
    return sent
