"""The server of plans: latency and processor time of requests.

The server is a process of its own on this machine. Its CPU seconds are the system's account of that process,
so neither who asks nor the workers count. Each sender keeps its connection and waits for each answer; with
several of them a latency has the others' requests in it.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.inputs.clock_tasks import made_up
from runtime.plans.plan_client import ServerClient

DEGREES = (1.0, 1.0, 1.05, 1.1, 1.2, 1.4, 2.0)
"""Slowdowns of stragglers, as factors."""


def requests(*, ask: str, number: int, jobs: int = 1, senders: int = 1) -> dict[str, Any]:
    """Send requests about random jobs: ``look-ups`` of the deployed plan, or messages about ``stragglers``.

    Each sender speaks of an accelerator of its own. ``server_s`` are CPU seconds for one request.
    """
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder) / "jobs.db") as process:
        port = int(process.stdout.readline().split()[1].rstrip(",").rpartition(":")[2])  # it says where it is
        names = _ready_jobs(port, jobs)
        began_s, before_s = time.perf_counter(), _cpu_s(process.pid)
        with ThreadPoolExecutor(senders) as threads:
            share = number // senders
            sending = [threads.submit(_send, port, names, ask, share, sender) for sender in range(senders)]
            took_s = [each_s for done in sending for each_s in done.result()]
        all_s, cpu_s = time.perf_counter() - began_s, _cpu_s(process.pid) - before_s
    p50_s, p99_s = np.percentile(took_s, (50, 99)).tolist()
    rates = {"server_s": cpu_s / len(took_s), "per_s": len(took_s) / all_s}
    return {"requests": len(took_s), "p50_s": p50_s, "p99_s": p99_s} | rates


@contextmanager
def _server(database: Path) -> Iterator[Any]:
    command = [sys.executable, "-m", "runtime.server", "--port", "0", "--workers", "1"]
    with subprocess.Popen(
        [*command, "--database", str(database)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far, without its workers'."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ready_jobs(port: int, number: int) -> list[str]:
    """Register jobs with their profiles, and wait until all have their frontiers."""
    client = ServerClient(f"http://127.0.0.1:{port}")
    task = made_up(shape="v_shape", num_devices=4, micro_batches=8, clocks=3, seed=0, noise=0.0)
    jobs = [client.register(task.schedule, 50) for _ in range(number)]
    for job in jobs:
        client.upload(job, task.profile)
    for job in jobs:
        client.wait_until_ready(job, 600)
    return jobs


def _send(port: int, jobs: Sequence[str], ask: str, number: int, accelerator: int) -> list[float]:
    """Return the seconds of each request."""
    source, sender, took_s = random.Random(accelerator), Sender(port), []
    for _ in range(number):
        job, degree = source.choice(jobs), source.choice(DEGREES)
        began_s = time.perf_counter()
        if ask == "look-ups":
            sender.ask("GET", f"/jobs/{job}/plan")
        else:
            body = {"id": accelerator, "delay_s": 0, "degree": degree}
            sender.ask("POST", f"/jobs/{job}/straggler", body)
        took_s.append(time.perf_counter() - began_s)
    return took_s


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
