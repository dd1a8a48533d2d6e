"""The server as a process of its own: killed and started again, under load, and started wrongly."""

import http.client
import random
import resource
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from served import ServerProcess, ask, profile_of, ready, small_schedule, upload_of
from storms import Sent, busy, lost, ready_jobs, storm

from experiments.benchmarks.measures.server import Sender
from placements.shapes import v_shape
from runtime.plans.plan_client import ServerClient, ServerError
from runtime.server.__main__ import main
from runtime.server.app import listen
from runtime.server.storage import Database
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import Frontier, compute_frontier

PROFILE = profile_of(v_shape(2))
FRONTIER = compute_frontier(small_schedule(), PROFILE, 20)
LONG = one_f_one_b(v_shape(4), 48)


DEGREES = (1, 1.1, 1.2, 1.4, 2)


@dataclass
class Restarted:
    """A server that was killed amid work and a storm of messages, and the one that came after it.

    Attributes:
        database: Their file.
        process: The second one.
        ready: A job with its frontier.
        half: One that lacks profiles.
        computing: One whose frontier was being computed, and one that waited for that.
        stormy: Jobs with their frontiers, of which the storm told.
        frontier: What the first server answered of the job that was ready.
        deployed: What it answered there to the last message.
        sent: Storms that the first server answered to their end.
        told: Jobs that these told of, and those that were registered beside them.
        allowed: By job and accelerator the degrees that may hold: the last, and one without an answer.
    """

    database: Path
    process: ServerProcess
    ready: str
    half: str
    computing: list[str]
    stormy: list[str]
    frontier: dict[str, Any]
    deployed: dict[str, Any]
    sent: Sent
    told: list[str]
    allowed: dict[tuple[str, int], set[float]]

    @property
    def client(self) -> ServerClient:
        return ServerClient(self.process.url)

    def rows(self, query: str, *values: object) -> list[Any]:
        with sqlite3.connect(self.database) as rows:
            return rows.execute(query, values).fetchall()


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    database = tmp_path_factory.mktemp("restarted") / "jobs.db"
    first = ServerProcess(database)
    url = first.url
    server = ServerClient(url)
    told = ready_jobs(first.port, 4)
    sent = storm(first.port, told[:2], 80, 4)
    with busy(first.port) as made:
        more = storm(first.port, told[2:], 40, 4, seed=1)
    assert sent.number + more.number == 120
    assert not sent.faults + more.faults
    sent.last.update(more.last)
    told += made
    job, stormy = ready(server), [ready(server) for _ in range(3)]
    half, *computing = (server.register(each, 50) for each in (small_schedule(), LONG, small_schedule()))
    ask(f"{url}/jobs/{half}/profile", "POST", upload_of(PROFILE, "F0", "B0"))
    now = server.set_straggler(job, 1, 0, 1.2)
    server.set_straggler(job, 2, 3600, 1.5)
    frontier = server.frontier(job)
    allowed: dict[tuple[str, int], set[float]] = {}
    with ThreadPoolExecutor(2) as threads:
        sending = [threads.submit(tell_until_the_end, first.port, stormy, i, allowed) for i in range(2)]
        while len(allowed) < 6:
            time.sleep(0.01)
        for each, profile in zip(computing, (profile_of(LONG.placement), PROFILE), strict=True):
            assert server.upload(each, profile)["state"] == "computing"
        while (status := server.status(computing[0]))["state"] == "computing" and not status["progress"]:
            time.sleep(0.005)
        first.kill()
        for each in sending:
            each.result()
    second = ServerProcess(database)
    yield Restarted(database, second, job, half, computing, stormy, frontier, now, sent, told, allowed)
    assert second.end() in (0, -15)


def tell_until_the_end(
    port: int, jobs: Sequence[str], accelerator: int, allowed: dict[tuple[str, int], set[float]]
) -> None:
    """Tell of an accelerator until the server is gone; without an answer it may have heeded it or not."""
    source, sender = random.Random(accelerator), Sender(port)
    while True:
        key = source.choice(jobs), accelerator
        degree = source.choice(DEGREES)
        allowed[key] = allowed.get(key, {1}) | {degree}
        try:
            sender.ask("POST", f"/jobs/{key[0]}/straggler", {"id": accelerator, "degree": degree})
        except (OSError, http.client.HTTPException):
            return
        allowed[key] = {degree}


def deployed(server: ServerClient, job: str) -> float:
    plan = server.deployed(job)
    assert plan is not None
    return plan.time_ms


def test_a_killed_server_goes_on_where_it_was(restarted: Restarted) -> None:
    server, job = restarted.client, restarted.ready
    found = [each["id"] for each in ask(f"{restarted.process.url}/jobs?limit=1000")[1]["jobs"]]
    assert found == [*restarted.told, job, *restarted.stormy, restarted.half, *restarted.computing]
    assert server.status(restarted.half)["missing"] == ["F1", "B1"]
    for each in restarted.computing:
        assert server.wait_until_ready(each, 60)["version"] == 1
    own = compute_frontier(LONG, profile_of(LONG.placement), 50)
    times_ms = [plan.time_ms for plan in Frontier.from_dict(server.frontier(restarted.computing[0])).plans]
    assert times_ms == [plan.time_ms for plan in own.plans]
    assert server.frontier(job) == restarted.frontier
    assert server.plan(job)["version"] == restarted.deployed["version"] == 2
    assert server.plan(job)["time_ms"] == restarted.deployed["time_ms"]
    assert server.set_straggler(job, 1, 0, 1)["version"] == 3
    announced = restarted.rows(
        "SELECT stragglers.name, due_s > ? FROM stragglers JOIN jobs ON number = job WHERE jobs.id = ?",
        time.time() + 3000,
        job,
    )
    assert announced == [("2", 1)], "the announced straggler is still to come"


def test_what_was_answered_is_there_after_a_kill_in_the_midst_of_a_storm(restarted: Restarted) -> None:
    rows = restarted.rows("SELECT jobs.id, stragglers.name, degree FROM stragglers JOIN jobs ON number = job")
    kept = {(job, int(name)): degree for job, name, degree in rows if job in restarted.stormy}
    assert len(restarted.allowed) == 6
    for key, degrees in restarted.allowed.items():
        assert kept.get(key, 1) in degrees
    for job in restarted.stormy:
        worst = max([1, *(degree for key, degree in kept.items() if key[0] == job)])
        found_ms = deployed(restarted.client, job)
        assert found_ms == FRONTIER.at(worst * FRONTIER.shortest.time_ms).time_ms


def test_a_full_disk_is_told_and_what_was_there_stays(restarted: Restarted) -> None:
    """The limit on the size of files stands in for the disk's end."""
    server, pid = restarted.client, restarted.process.process.pid
    job = ready(server)
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
    for ask_for in (lambda: server.set_straggler(job, 0, 0, 1.3), lambda: server.register(small_schedule())):
        with pytest.raises(ServerError, match="database: .*; nothing of the request is kept") as caught:
            ask_for()
        assert caught.value.status == 503
    assert server.deployed(job, newer_than=1) is None
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    assert server.set_straggler(job, 0, 0, 1.3)["version"] == 2


def test_after_storms_each_job_runs_the_plan_for_the_last_word(restarted: Restarted) -> None:
    port, sent, told = restarted.process.port, restarted.sent, restarted.told
    assert not lost(port, told, sent)
    wrong = {key: 1.0 if degree > 1 else 2.0 for key, degree in sent.last.items()}
    assert lost(port, told[:4], Sent(last=wrong)), "it would be seen"
    assert lost(port, ["another"], Sent()) == ["another"], "it would be seen"


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
    assert line.endswith("is not one of this server's, version 2; give another file")
    line = refusal(capsys, "--port", 0, "--database", tmp_path / "no" / "jobs.db")
    assert line.endswith("cannot be written (No such file or directory); give another file")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(capsys, "--port", port, "--database", tmp_path / "jobs.db")
    start = f"runtime.server: error: port: 127.0.0.1:{port} cannot be used"
    assert line == f"{start} (Address already in use); choose another"
    line = refusal(capsys, "--port", 70000, "--database", tmp_path / "jobs.db")
    assert line.startswith("runtime.server: error: port: 70000 is not a port; give ")


def test_one_server_at_a_time_owns_a_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    owner = Database(tmp_path / "jobs.db")
    line = refusal(capsys, "--port", 0, "--database", tmp_path / "jobs.db")
    assert line.endswith("is in use by another server; stop that one or give another file")
    owner.close()


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # without listening, so that no other process gets the port
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(ServerError, match=rf"{url}: does not answer \(.*\); is runtime.server there\?"):
            ServerClient(url).status("a")


def test_answers_are_sent_without_delay() -> None:
    """Nagle's algorithm would hold the second part of each answer back for 40 ms."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
