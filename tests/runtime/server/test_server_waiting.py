"""Requests that wait at the server for a job's next plan."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from served import ServerProcess, ask, in_thread, profile_of, ready, small_schedule

from runtime.plans.plan_client import DeployedPlan, PlanClient, ServerClient, ServerError
from runtime.server.service import Service

SCHEDULE = small_schedule()
PROFILE = profile_of(SCHEDULE.placement)
LONG_S = 60.0
"""For longer than any test here takes."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    return Service(tmp_path_factory.mktemp("server") / "jobs")


@pytest.fixture(scope="module")
def url(service: Service) -> Iterator[str]:
    with in_thread(service) as url:
        yield url


@pytest.fixture
def server(url: str) -> ServerClient:
    return ServerClient(url)


@pytest.fixture
def job(server: ServerClient) -> str:
    return ready(server)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(200) as threads:
        yield threads


def waiting(
    threads: ThreadPoolExecutor, server: ServerClient, job: str, known: int = 1
) -> Future[DeployedPlan | None]:
    """Ask for the next plan, and return once the question has had time to arrive."""
    question = threads.submit(server.deployed, job, known, LONG_S)
    time.sleep(0.1)
    return question


def test_what_was_announced_ends_it_when_it_is_due(
    threads: ThreadPoolExecutor, server: ServerClient, job: str
) -> None:
    question = waiting(threads, server, job)
    server.set_straggler(job, 0, 0.3, 1.3)
    plan = question.result(30)
    assert plan.version == 2


def test_a_job_that_becomes_ready_ends_it(threads: ThreadPoolExecutor, server: ServerClient) -> None:
    job = server.register(SCHEDULE, 5)
    question = waiting(threads, server, job, 0)
    server.upload(job, PROFILE)
    plan = question.result(30)
    assert plan.version == 1


def test_a_job_that_is_deleted_ends_it(threads: ThreadPoolExecutor, server: ServerClient, job: str) -> None:
    question = waiting(threads, server, job)
    server.delete(job)
    with pytest.raises(ServerError, match="is not known"):
        question.result(30)


@pytest.mark.parametrize("wait_s", ["nan", "61"])
def test_a_wrong_time_is_refused(url: str, job: str, wait_s: str) -> None:
    status, answer = ask(f"{url}/jobs/{job}/deployed?wait_s={wait_s}")
    assert status == 422
    assert answer["detail"].startswith("wait_s: ")


def test_many_wait_at_once_and_the_end_of_the_server_answers_all(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    process = ServerProcess(tmp_path / "jobs")
    server = ServerClient(process.url)
    first = ready(server)
    others = [server.register(SCHEDULE, 5) for _ in range(20)]
    question = threads.submit(server.deployed, first, 1, LONG_S)
    questions = [threads.submit(server.deployed, job, 0, LONG_S) for job in others for _ in range(5)]
    time.sleep(0.5)
    server.set_straggler(first, 0, 0, 1.3)
    assert question.result(30) is not None
    assert not any(question.done() for question in questions)
    assert process.end() in (0, -15)
    for question in questions:
        with pytest.raises(ServerError, match="is waiting; GET"):
            question.result(30)


def test_a_plan_reaches_the_client_without_its_asking_again(
    url: str, server: ServerClient, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, arrived = [], threading.Event()
    original = ServerClient.deployed

    def deployed(self: ServerClient, *arguments: int, **named: float) -> DeployedPlan | None:
        asked.append(arguments)
        plan = original(self, *arguments, **named)  # type: ignore[arg-type]
        arrived.set()
        return plan

    monkeypatch.setattr(ServerClient, "deployed", deployed)
    client = PlanClient(url, job, interval_s=3600, wait_s=LONG_S)
    for version in (1, 2):
        while (plan := client.at_iteration_boundary()) is None:
            time.sleep(0.005)
        assert plan.version == version
        if version == 1:
            server.set_straggler(job, 0, 0, 1.3)
    assert len(asked) <= 3
    client.close()
