"""The server as a process of its own: killed and started again, under load, and started wrongly."""

import http.client
import random
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import one_line_error
from served import ROOT, ServerProcess, ask, profile_of, small_schedule, upload_of

from experiments.benchmarks.server.measuring import Sender, Sent, busy, lost, ready_jobs, storm
from experiments.benchmarks.server.measuring import ServerProcess as LoadedServer
from placements.shapes import v_shape
from runtime.plans.plan_client import ServerClient, ServerError
from runtime.server.__main__ import main
from runtime.server.serving import listen
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import Frontier, compute_frontier

PROFILE = profile_of(v_shape(2))
FRONTIER = compute_frontier(small_schedule(), PROFILE, 20)
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


DEGREES = (1, 1.1, 1.2, 1.4, 2)


def test_what_was_answered_is_there_after_a_kill_in_the_midst_of_a_storm(tmp_path: Path) -> None:
    first = ServerProcess(tmp_path / "jobs.db")
    server = ServerClient(first.url)
    jobs = [ready(server) for _ in range(3)]
    allowed: dict[tuple[str, int], set[float]] = {}

    def send(accelerator: int) -> None:
        """Send until the server is gone; a message without an answer may have been heeded or not."""
        source, sender = random.Random(accelerator), Sender(first.port)
        while True:
            key = source.choice(jobs), accelerator
            degree = source.choice(DEGREES)
            allowed[key] = allowed.get(key, {1}) | {degree}
            try:
                sender.ask("POST", f"/jobs/{key[0]}/straggler", {"id": accelerator, "degree": degree})
            except (OSError, http.client.HTTPException):
                return
            allowed[key] = {degree}

    with ThreadPoolExecutor(4) as threads:
        sending = [threads.submit(send, accelerator) for accelerator in range(4)]
        time.sleep(0.5)
        first.kill()
        for each in sending:
            each.result()
    second = ServerProcess(tmp_path / "jobs.db")
    running = {job: deployed(ServerClient(second.url), job) for job in jobs}
    second.end()
    with sqlite3.connect(tmp_path / "jobs.db") as rows:
        query = "SELECT jobs.id, stragglers.name, degree FROM stragglers JOIN jobs ON number = job"
        kept = {(job, int(name)): degree for job, name, degree in rows.execute(query)}
    assert len(allowed) == 12
    for key, degrees in allowed.items():
        assert kept.get(key, 1) in degrees
    for job, time_ms in running.items():
        worst = max(degree for key, degree in [*kept.items(), ((job, 0), 1)] if key[0] == job)
        assert time_ms == FRONTIER.at(worst * FRONTIER.shortest.time_ms).time_ms


def ready(server: ServerClient) -> str:
    job = server.register(small_schedule(), 20)
    server.upload(job, PROFILE)
    server.wait_until_ready(job, 60)
    return job


def deployed(server: ServerClient, job: str) -> float:
    plan = server.deployed(job)
    assert plan is not None
    return plan.time_ms


def test_a_full_disk_is_told_and_what_was_there_stays(tmp_path: Path) -> None:
    """The limit on the size of files stands in for the disk's end."""
    process = ServerProcess(tmp_path / "jobs.db")
    server = ServerClient(process.url)
    job = ready(server)
    limits = resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
    for ask_for in (lambda: server.set_straggler(job, 0, 0, 1.3), lambda: server.register(small_schedule())):
        with pytest.raises(ServerError, match="database: .*; nothing of the request is kept") as caught:
            ask_for()
        assert caught.value.status == 503
    assert server.deployed(job, newer_than=1) is None
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, limits)
    assert server.set_straggler(job, 0, 0, 1.3)["version"] == 2
    assert process.end() in (0, -15)


@pytest.mark.slow
def test_many_jobs_and_storms_of_stragglers(tmp_path: Path) -> None:
    with LoadedServer(tmp_path / "jobs.db") as process:
        jobs = ready_jobs(process.port, 12)
        sent = storm(process, jobs[:6], 400, 8)
        with busy(process) as made:
            more = storm(process, jobs[6:], 200, 8, seed=1)
        assert len(sent.wall_ms) + len(more.wall_ms) == 600
        assert not sent.faults + more.faults
        sent.last.update(more.last)
        assert not lost(process.port, jobs, sent)
        process.end(signal.SIGKILL)
    with LoadedServer(tmp_path / "jobs.db") as process:
        assert not lost(process.port, jobs + made, sent)
        wrong = {key: 1.0 if degree > 1 else 2.0 for key, degree in sent.last.items()}
        assert lost(process.port, jobs, Sent(last=wrong)), "it would be seen"
        assert lost(process.port, ["another"], Sent()) == ["another"], "it would be seen"


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


def test_answers_are_sent_without_delay() -> None:
    """Nagle's algorithm would hold the second part of each answer back for 40 ms."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
