"""The cases of the server's benchmark: how many jobs and messages, and what must be reached.

Limits are of CPU time, and of times that a machine with two cores keeps beside other work: a plan is to
follow a straggler quickly (Perseus, Sec. 3.2), and nothing may be lost.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.results import BenchmarkCase, CaseResult, true_of
from experiments.benchmarks.server.measuring import (
    Sent,
    ServerProcess,
    arrivals,
    busy,
    look_ups,
    lost,
    ready_jobs,
    storm,
)

CPU_MS = 2.0
"""Milliseconds of the server's CPU for a request."""

QUIET_MS = 10.0
"""Milliseconds until half of all requests are answered where nobody else asks."""

ARRIVAL_MS = 20.0
"""Likewise until a plan is where it is waited for, which takes a message and an answer."""

SENDERS = 8
"""Senders that tell of stragglers at once."""


def quiet_cases() -> Iterator[BenchmarkCase]:
    """Yield one request at a time."""
    must = f"p50 at most {QUIET_MS:g} ms, CPU at most {CPU_MS:g} ms each"
    yield BenchmarkCase("look-ups of the deployed plan", must, _look_ups, is_quick=True)
    yield BenchmarkCase("messages about stragglers", must, _messages)
    for number in (10, 200):
        name = f"until a plan is at one of {number} waiting clients"
        yield BenchmarkCase(name, f"p50 at most {ARRIVAL_MS:g} ms", partial(_arrivals, number), number == 10)


def storm_cases() -> Iterator[BenchmarkCase]:
    """Yield messages of many senders about many jobs, and a kill after them."""
    yield _storm_case(10, 1000)
    yield _storm_case(200, 20_000)
    yield _storm_case(200, 5_000, is_busy=True)


def long_cases() -> Iterator[BenchmarkCase]:
    """Yield a storm of some minutes."""
    yield _storm_case(200, 400_000)


def _storm_case(num_jobs: int, number: int, is_busy: bool = False) -> BenchmarkCase:
    beside, must = (", beside new jobs", "") if is_busy else ("", f"CPU at most {CPU_MS:g} ms each, ")
    name = f"{num_jobs} jobs, {number} messages of {SENDERS} senders{beside}"
    must += "lost: 0, also after a kill"
    return BenchmarkCase(name, must, partial(_storm, num_jobs, number, is_busy), is_quick=number <= 1000)


def _look_ups() -> CaseResult:
    with _server() as server:
        return _result(look_ups(server, ready_jobs(server.port, 1)[0], 2000), QUIET_MS, CPU_MS)


def _messages() -> CaseResult:
    with _server() as server:
        return _result(storm(server, ready_jobs(server.port, 1), 2000, 1), QUIET_MS, CPU_MS)


def _arrivals(number: int) -> CaseResult:
    with _server() as server:
        return _result(arrivals(server, ready_jobs(server.port, number)), ARRIVAL_MS)


def _storm(num_jobs: int, number: int, is_busy: bool) -> CaseResult:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "jobs.db"
        with ServerProcess(database) as server:
            jobs = ready_jobs(server.port, num_jobs)
            beside: AbstractContextManager[list[str]] = busy(server) if is_busy else nullcontext([])
            with beside as made:
                sent = storm(server, jobs, number, SENDERS)
            server.end(signal.SIGKILL)
        with ServerProcess(database) as server:
            gone = lost(server.port, [*jobs, *made], sent)
    return _result(sent, cpu_ms=None if is_busy else CPU_MS, gone=gone)


@contextmanager
def _server() -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "jobs.db") as server:
        yield server


def _result(
    sent: Sent, p50_ms: float | None = None, cpu_ms: float | None = None, gone: Sequence[str] | None = None
) -> CaseResult:
    wrong = dict.fromkeys(sent.faults[:1], True) | {
        f"p50 is {sent.at(50):.1f} ms": p50_ms is not None and sent.at(50) > p50_ms,
        f"CPU is {sent.cpu_ms:.1f} ms each": cpu_ms is not None and sent.cpu_ms > cpu_ms,
        f"{len(gone or ())} jobs are lost or run another plan": bool(gone),
    }
    note = str(sent) if gone is None else f"{sent}; lost: {len(gone)}"
    return CaseResult(sent.cpu_ms * len(sent.wall_ms) / 1e3, true_of(wrong), note=note)


BENCHMARK = Benchmark(
    "server",
    "Load the server of plans with requests.",
    {"quiet": quiet_cases, "storm": storm_cases, "long": long_cases},
)
