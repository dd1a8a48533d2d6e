"""The server as a process of its own: killed and started again, under load, and started wrongly."""

import os
import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import one_line_error
from served import ROOT, ServerProcess, ask, profile_of, registration, small_schedule, upload_of

from placements.shapes import v_shape
from runtime.client import ServerClient, ServerError
from runtime.server.__main__ import main
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import Frontier, compute_frontier

PROFILE = profile_of(v_shape(2))
LONG = one_f_one_b(v_shape(4), 48)


def test_a_killed_server_goes_on_where_it_was(tmp_path: Path) -> None:
    database = tmp_path / "jobs.db"
    first = ServerProcess(database)
    server = ServerClient(first.url)
    ready, half, computing, queued = (
        server.register(schedule, 50) for schedule in (small_schedule(), small_schedule(), LONG, LONG)
    )
    server.upload(ready, PROFILE)
    server.wait_until_ready(ready, 60)
    now = server.set_straggler(ready, 1, 0, 1.2)
    server.set_straggler(ready, 2, 3600, 1.5)
    ask(f"{first.url}/jobs/{half}/profile", "POST", upload_of(PROFILE, "F0", "B0"))
    frontier = server.frontier(ready)
    for job in (computing, queued):
        assert server.upload(job, profile_of(LONG.placement))["state"] == "computing"
    while server.status(computing)["progress"] is None:
        time.sleep(0.005)
    first.kill()

    second = ServerProcess(database)
    server = ServerClient(second.url)
    assert [job["id"] for job in ask(f"{second.url}/jobs")[1]["jobs"]] == [ready, half, computing, queued]
    assert server.status(half)["missing"] == ["F1", "B1"]
    for job in (computing, queued):
        assert server.wait_until_ready(job, 60)["version"] == 1
    own = compute_frontier(LONG, profile_of(LONG.placement), 50)
    times_ms = [plan.time_ms for plan in Frontier.from_dict(server.frontier(computing)).plans]
    assert times_ms == [plan.time_ms for plan in own.plans]
    assert server.frontier(ready) == frontier
    assert server.plan(ready)["version"] == now["version"] == 2
    assert server.plan(ready)["time_ms"] == now["time_ms"]
    assert server.set_straggler(ready, 1, 0, 1)["version"] == 3
    assert second.end() in (0, -15)
    with sqlite3.connect(database) as rows:
        assert rows.execute("SELECT name, due_s > ? FROM stragglers", (time.time() + 3000,)).fetchall() == [
            ("2", 1)
        ], "the announced straggler is still to come"


NUM_JOBS = int(os.environ.get("SCHEDSEARCH_LOAD_JOBS", "100"))
NUM_MESSAGES = int(os.environ.get("SCHEDSEARCH_LOAD_MESSAGES", "600"))


@pytest.mark.slow
def test_many_jobs_and_storms_of_stragglers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = ServerProcess(tmp_path / "jobs.db")
    url = process.url
    bodies = registration(num_plans=5), upload_of(PROFILE)

    def make(_: int) -> str:
        status, answer = ask(f"{url}/jobs", "POST", bodies[0])
        assert status == 201
        assert ask(f"{url}/jobs/{answer['id']}/profile", "POST", bodies[1])[0] == 200
        return str(answer["id"])

    def storm(seed: int) -> list[tuple[str, int, float]]:
        """Send messages; return what was deployed after each, in this thread's order."""
        source, seen = random.Random(seed), []
        for _ in range(NUM_MESSAGES // 8):
            job = source.choice(jobs[:20])
            body = {"id": source.randrange(4), "degree": source.choice([1, 1, 1.1, 1.2, 1.4, 2])}
            status, answer = ask(f"{url}/jobs/{job}/straggler", "POST", body)
            assert status == 200, answer
            seen.append((job, answer["version"], answer["time_ms"]))
        return seen

    with ThreadPoolExecutor(8) as threads:
        start_s = time.perf_counter()
        jobs = list(threads.map(make, range(NUM_JOBS)))
        listed = [job["id"] for job in ask(f"{url}/jobs?limit=1000")[1]["jobs"]]
        assert set(listed) == set(jobs)
        assert len(listed) == NUM_JOBS
        for job in jobs:
            ServerClient(url).wait_until_ready(job, 300)
        ready_s = time.perf_counter() - start_s
        start_s = time.perf_counter()
        storms = list(threads.map(storm, range(8)))
        storm_s = time.perf_counter() - start_s
    plan_of: dict[tuple[str, int], set[float]] = defaultdict(set)
    for seen in storms:
        latest: dict[str, int] = {}
        for job, version, time_ms in seen:
            assert version >= latest.get(job, 1), "a version went back"
            latest[job] = version
            plan_of[job, version].add(time_ms)
    assert max(len(times) for times in plan_of.values()) == 1, "a version is of two plans"
    for job in jobs[:20]:
        versions = sorted(version for each, version in plan_of if each == job)
        next_to = [(a, b) for a, b in pairwise(versions) if b == a + 1]
        steps = [plan_of[job, a] != plan_of[job, b] for a, b in next_to]
        assert all(steps), "a version is the plan before"
        for id in range(4):
            last = ServerClient(url).set_straggler(job, id, 0, 1)
        assert last["version"] >= versions[-1]
        assert last["time_ms"] == last["deadline_ms"], "all are back to normal"
    figures = {
        "look-up, nothing new": median_ms(lambda: ask(f"{url}/jobs/{jobs[0]}/deployed?newer_than=100000")),
        "look-up of a plan": median_ms(lambda: ask(f"{url}/jobs/{jobs[0]}/plan?deadline_ms=200")),
        "straggler": median_ms(
            lambda: ServerClient(url).set_straggler(jobs[0], 0, 0, 1 + (time.perf_counter() * 97) % 1)
        ),
    }
    process.end()
    with capsys.disabled():
        sys.stdout.write(
            f"\n{NUM_JOBS} jobs ready in {ready_s:.1f} s, {8 * (NUM_MESSAGES // 8)} messages of 8 threads in "
            f"{storm_s:.1f} s; medians alone: {', '.join(f'{k} {v:.1f} ms' for k, v in figures.items())}\n"
        )


def median_ms(call: Any) -> float:
    times_ms = []
    for _ in range(30):
        start_s = time.perf_counter()
        call()
        times_ms.append((time.perf_counter() - start_s) * 1000)
    return statistics.median(times_ms)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that wrong arguments get."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return str(line)


def test_wrong_arguments_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("no database\n" * 100)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE mine (a)")
    line = refusal(capsys, "--port", 0, "--database", tmp_path / "notes.txt")
    assert line.endswith("cannot be used (file is not a database); give another file")
    line = refusal(capsys, "--port", 0, "--database", tmp_path / "other.db")
    assert line.endswith("is not one of this server's, version 1; give another file")
    line = refusal(capsys, "--port", 0, "--database", tmp_path / "no" / "jobs.db")
    assert line.endswith("cannot be written (No such file or directory); give another file")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(capsys, "--port", port, "--database", tmp_path / "jobs.db")
    start = f"runtime.server: error: port: 127.0.0.1:{port} cannot be used"
    assert line == f"{start} (Address already in use); choose another"
    line = refusal(capsys, "--port", 70000, "--database", tmp_path / "jobs.db")
    assert line.startswith("runtime.server: error: port: 70000 is not a port; give ")


def test_one_server_at_a_time_owns_a_database(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path / "jobs.db")
    command = [sys.executable, "-m", "runtime.server", "--port", "0", "--database", str(tmp_path / "jobs.db")]
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert one_line_error(second).endswith("is in use by another server; stop that one or give another file")
    process.end()
    with pytest.raises(ServerError, match=r"http://.*: does not answer \(.*\); is runtime.server there\?"):
        ServerClient(process.url).status("a")
