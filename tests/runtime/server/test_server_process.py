"""The server as a process of its own: killed and started again, under load, and started wrongly."""

import json
import resource
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from served import ServerProcess, ask, profile_of, ready, small_schedule, upload_of

from placements.forms.texts import write_text
from placements.shapes import v_shape
from runtime.plans.plan_client import ServerClient, ServerError
from runtime.server.__main__ import main
from runtime.server.app import listen
from runtime.server.job import JobFolder
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import Frontier, compute_frontier

PROFILE = profile_of(v_shape(2))
LONG = one_f_one_b(v_shape(4), 48)


@dataclass
class Restarted:
    """A server that was killed amid work, and the one that came after it.

    Attributes:
        folder: Their folder.
        process: The second one.
        ready: A job with its frontier.
        half: One that lacks profiles.
        computing: One whose frontier was being computed, and one that waited for that.
        frontier: Answer of the first server about the job that was ready.
        deployed: Its answer to the last message there.
    """

    folder: Path
    process: ServerProcess
    ready: str
    half: str
    computing: list[str]
    frontier: dict[str, Any]
    deployed: dict[str, Any]

    @property
    def client(self) -> ServerClient:
        return ServerClient(self.process.url)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    folder = tmp_path_factory.mktemp("restarted") / "jobs"
    first = ServerProcess(folder)
    server = ServerClient(first.url)
    job = ready(server)
    half, *computing = (server.register(s, 50) for s in (small_schedule(), LONG, small_schedule()))
    ask(f"{first.url}/jobs/{half}/profile", "POST", upload_of(PROFILE, "F0", "B0"))
    now = server.set_straggler(job, 1, 0, 1.2)
    server.set_straggler(job, 2, 3600, 1.5)
    frontier = server.frontier(job)
    for job_id, profile in zip(computing, (profile_of(LONG.placement), PROFILE), strict=True):
        assert server.upload(job_id, profile)["state"] == "computing"
    while (status := server.status(computing[0]))["state"] == "computing" and not status["progress"]:
        time.sleep(0.005)
    first.kill()
    second = ServerProcess(folder)
    yield Restarted(folder, second, job, half, computing, frontier, now)
    assert second.end() in (0, -15)


def test_a_killed_server_goes_on_where_it_was(restarted: Restarted) -> None:
    server, job = restarted.client, restarted.ready
    ids = [row["id"] for row in ask(f"{restarted.process.url}/jobs")[1]["jobs"]]
    assert ids == [job, restarted.half, *restarted.computing]
    assert server.status(restarted.half)["missing"] == ["F1", "B1"]
    for job_id in restarted.computing:
        assert server.wait_until_ready(job_id, 60)["version"] == 1
    expected = compute_frontier(LONG, profile_of(LONG.placement), 50)
    times_ms = [plan.time_ms for plan in Frontier.from_dict(server.frontier(restarted.computing[0])).plans]
    assert times_ms == [plan.time_ms for plan in expected.plans]
    assert server.frontier(job) == restarted.frontier
    assert server.plan(job)["version"] == restarted.deployed["version"] == 2
    assert server.plan(job)["time_ms"] == restarted.deployed["time_ms"]
    assert server.set_straggler(job, 1, 0, 1)["version"] == 3
    kept = json.loads((restarted.folder / job / "deployment.json").read_text())["stragglers"]
    assert kept.keys() == {"2"}, "the announced straggler is still to come"
    assert kept["2"]["due_s"] > time.time() + 3000


def test_a_full_disk_is_told_and_what_was_there_stays(restarted: Restarted) -> None:
    """The limit on the size of files stands in for the disk's end."""
    server, pid = restarted.client, restarted.process.process.pid
    job = ready(server)
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (16, limits[1]))
    for ask_for in (lambda: server.set_straggler(job, 0, 0, 1.3), lambda: server.register(small_schedule())):
        with pytest.raises(ServerError, match="jobs: .*; nothing of the request is kept") as caught:
            ask_for()
        assert caught.value.status == 503
    assert server.deployed(job, newer_than=1) is None
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    assert server.set_straggler(job, 0, 0, 1.3)["version"] == 2


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that wrong arguments get."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return str(line)


def test_wrong_arguments_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("no folder\n")
    line = refusal(capsys, "--port", 0, "--jobs", tmp_path / "notes")
    assert line.endswith("notes cannot be written (File exists); give another folder")
    line = refusal(capsys, "--port", 0, "--jobs", tmp_path / "no" / "jobs")
    assert line.endswith("cannot be written (No such file or directory); give another folder")
    write_text(tmp_path / "other" / "a" / "job.json", "{}")
    line = refusal(capsys, "--port", 0, "--jobs", tmp_path / "other")
    assert line.endswith("other/a is not as this server writes it; remove it, or give another folder")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(capsys, "--port", port, "--jobs", tmp_path / "jobs")
    start = f"runtime.server: error: port: 127.0.0.1:{port} cannot be used"
    assert line == f"{start} (Address already in use); choose another"
    line = refusal(capsys, "--port", 70000, "--jobs", tmp_path / "jobs")
    assert line.startswith("runtime.server: error: port: 70000 is not a port; give ")


def test_one_server_at_a_time_owns_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    owner = JobFolder(tmp_path / "jobs")
    line = refusal(capsys, "--port", 0, "--jobs", tmp_path / "jobs")
    assert line.endswith("is in use by another server; stop that one or give another folder")
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
