"""Plans on their way from the server to the devices of a run."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import ServerProcess, in_thread, ready, small_schedule
from small_runs import SMALL_GPT, launched, trained

from runtime.codegen.codegen import generate
from runtime.execution.results import Progress
from runtime.launching.launch import LaunchError
from runtime.plans.plan_client import (
    DeployedPlan,
    PlanClient,
    ServerClient,
    ServerError,
    plans_from_environment,
)
from runtime.plans.shared_plans import SharedPlans
from runtime.program.calls import ScriptError
from runtime.program.lower import lower
from runtime.server.service import Service

SCHEDULE = small_schedule()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("server") / "jobs")
    yield process
    process.end()


@pytest.fixture
def server(process: ServerProcess) -> ServerClient:
    return ServerClient(process.url)


@pytest.fixture
def job(server: ServerClient) -> str:
    return ready(server)


def requests_of(device: int, *plans: DeployedPlan) -> tuple[int, ...]:
    """The clocks that a device asks for in iterations of these plans, one after the other."""
    order = SCHEDULE.order(device)
    return tuple(plan.clock_mhz[block][micro_batch] for plan in plans for block, micro_batch in order)


def deployed(server: ServerClient, job: str) -> DeployedPlan:
    plan = server.deployed(job)
    assert plan is not None
    return plan


def test_all_devices_go_over_to_a_plan_at_the_same_iteration(
    process: ServerProcess, server: ServerClient, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = deployed(server, job)
    original = PlanClient.at_iteration_boundary
    asked: list[int] = []

    def at_iteration_boundary(self: PlanClient) -> DeployedPlan | None:
        """Be in time for each iteration, and announce a straggler before the third."""
        asked.append(len(asked))
        if len(asked) == 3:
            server.set_straggler(job, "rack 4", 0, 1.3)
        self.poll()
        return original(self)

    monkeypatch.setattr(PlanClient, "at_iteration_boundary", at_iteration_boundary)
    monkeypatch.setenv("SCHEDSEARCH_SERVER", process.url)
    monkeypatch.setenv("SCHEDSEARCH_JOB", job)
    lines: list[Progress] = []
    options = {"verify": "all", "progress": lines.append}
    measurement = trained(lower(SCHEDULE), SMALL_GPT, None, 4, "fork", **options)
    second = deployed(server, job)
    assert (first.version, second.version) == (1, 2)
    for device in (0, 1):
        assert requests_of(device, first) != requests_of(device, second)
        assert measurement.clock_requests[device] == requests_of(device, first, first, second, second)
    assert measurement.comparison.bitwise_equal
    assert len(lines) == 4


def test_a_run_goes_on_while_no_server_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDSEARCH_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("SCHEDSEARCH_JOB", "any")
    measurement = trained(lower(SCHEDULE), SMALL_GPT, launcher="fork", verify="none")
    assert measurement.clock_requests == {0: (), 1: ()}


def test_a_script_with_clocks_follows_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an edited clock would have no effect, or none after the first plan."""
    monkeypatch.setenv("SCHEDSEARCH_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("SCHEDSEARCH_JOB", "any")
    clocks = {block.name: [600 + 15 * n for n in range(3)] for block in SCHEDULE.placement.blocks}
    generate(lower(SCHEDULE), clocks, SMALL_GPT, tmp_path)
    message = (
        r"device_(0.py: F0|1.py: F1) of micro-batch 0 has clock_mhz=600, but the run follows the plans of a "
        r"server; unset SCHEDSEARCH_SERVER, or make scripts without clocks \(runtime.clocks=false\)$"
    )
    with pytest.raises(LaunchError, match=message):
        launched(tmp_path, 2, 2, launcher="in_process", verify="none")


@pytest.mark.parametrize(
    ("number", "more", "reason"),
    [
        (4, {}, "has clocks of F0 for 4 micro-batches, not 3"),
        (3, {"F2": (900,) * 2}, "has clocks of F2, which v_shape has not"),
        (3, {"O0": (900,)}, None),
    ],
    ids=["other micro-batches", "more blocks", "optimizer"],
)
def test_a_plan_must_have_the_blocks_and_micro_batches_of_the_run(
    number: int, more: dict[str, tuple[int, ...]], reason: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    plan = DeployedPlan(7, 1.0, dict.fromkeys(("F0", "F1", "B1", "B0"), (900,) * number) | more)

    class Source:
        def at_iteration_boundary(self) -> DeployedPlan:
            return plan

        def close(self) -> None:
            """Nothing is open."""

    class Alone:
        def collect(self, value: object) -> list[object]:
            return [value]

    plans = SharedPlans(Source(), SCHEDULE.placement, 3, Alone())  # type: ignore[arg-type]
    assert plans.at_iteration_boundary() == (plan if reason is None else None)
    said = [] if reason is None else [f"plan 7 is not run: it {reason}; is it for this schedule?"]
    assert [record.getMessage() for record in caplog.records] == said


def test_trouble_is_logged_when_it_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "runtime.client")
    with in_thread(Service(tmp_path / "jobs")) as url:
        waiting = ServerClient(url).register(SCHEDULE, 5)
        client = PlanClient(url, waiting, interval_s=3600)
        client.poll()
        assert not caplog.messages, "a job that is not ready yet is no trouble"
    for _ in range(3):
        client.poll()
        assert client.at_iteration_boundary() is None
    (line,) = caplog.messages
    assert line.startswith(
        f"newer plans cannot be asked for, the last one stays in use: {url}: does not answer ("
    )
    client.close()


def test_a_server_without_a_job_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHEDSEARCH_JOB", raising=False)
    monkeypatch.delenv("SCHEDSEARCH_SERVER", raising=False)
    assert plans_from_environment() is None
    monkeypatch.setenv("SCHEDSEARCH_SERVER", "http://127.0.0.1:9")
    with pytest.raises(ScriptError, match="SCHEDSEARCH_JOB: is not set, but SCHEDSEARCH_SERVER is; give"):
        plans_from_environment()


@pytest.mark.parametrize("clocks", [[1410], {"F0": 1410}, {"F0": ["fast"]}, None])
def test_what_is_no_plan_is_not_run(monkeypatch: pytest.MonkeyPatch, clocks: object) -> None:
    answer = {"version": 1, "time_ms": 1, "clock_mhz": clocks} if clocks else []
    monkeypatch.setattr(ServerClient, "_ask", lambda *arguments, **named: answer)
    with pytest.raises(ServerError, match="http://a: answers with something else than a plan"):
        ServerClient("http://a").deployed("any")
    client = PlanClient("http://a", "any", interval_s=3600)
    assert not client.poll()
    assert client.at_iteration_boundary() is None
    client.close()
