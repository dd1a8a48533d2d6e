"""The server's answers, request by request, on a clock that the tests move."""

import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from served import ask, in_thread, profile_of, registration, small_schedule, upload_of

from placements import Profile
from placements.shapes import v_shape
from runtime.server.service import Service
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import compute_frontier

PROFILE = profile_of(v_shape(2))
FRONTIER = compute_frontier(small_schedule(), PROFILE, num_plans=20)
SHORTEST_MS = FRONTIER.shortest.time_ms
LONG = one_f_one_b(v_shape(4), 48)


@dataclass
class Server:
    url: str
    now_s: float = 0.0

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return ask(self.url + path, method, body)

    def register(self, **changes: object) -> str:
        status, answer = self.ask("POST", "/jobs", registration() | changes)
        assert status == 201, answer
        return str(answer["id"])

    def ready(self) -> str:
        """Return a job with its frontier."""
        job = self.register()
        status, answer = self.ask("POST", f"/jobs/{job}/profile", upload_of(PROFILE))
        assert (status, answer["state"]) == (200, "computing"), answer
        assert self.wait(job)["state"] == "ready"
        return job

    def long_job(self) -> str:
        """Return a job whose frontier takes its time."""
        job = self.register(**registration(LONG, 2000))
        self.ask("POST", f"/jobs/{job}/profile", upload_of(profile_of(LONG.placement)))
        return job

    def progress(self, job: str) -> dict[str, Any]:
        """Wait until a job is being computed, and return how far it is."""
        while (status := self.ask("GET", f"/jobs/{job}")[1])["progress"] is None:
            assert status["state"] == "computing"
            time.sleep(0.01)
        return dict(status["progress"])

    def wait(self, job: str) -> dict[str, Any]:
        while (status := self.ask("GET", f"/jobs/{job}")[1])["state"] == "computing":
            time.sleep(0.01)
        return dict(status)

    def tell(self, job: str, id: object, degree: float, delay_s: float = 0.0) -> dict[str, Any]:
        body = {"id": id, "degree": degree, "delay_s": delay_s}
        status, answer = self.ask("POST", f"/jobs/{job}/straggler", body)
        assert status == 200, answer
        return dict(answer)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests here; each makes jobs of its own."""
    running = Server("")
    service = Service(tmp_path_factory.mktemp("server") / "jobs", now_s=lambda: running.now_s)
    with in_thread(service) as running.url:
        yield running


def test_a_job_waits_for_all_blocks_and_then_has_the_frontier(server: Server) -> None:
    job = server.register()
    first = server.ask("POST", f"/jobs/{job}/profile", upload_of(PROFILE, "F0", "B0"))[1]
    assert (first["state"], first["missing"]) == ("waiting", ["F1", "B1"])
    assert server.ask("GET", f"/jobs/{job}/frontier")[0] == 409
    second = server.ask("POST", f"/jobs/{job}/profile", upload_of(PROFILE, "F1", "B1"))[1]
    assert (second["state"], second["missing"]) == ("computing", [])
    assert server.wait(job) == second | {"state": "ready", "progress": None, "version": 1}
    assert server.ask("GET", f"/jobs/{job}/frontier") == (200, FRONTIER.to_dict())


def test_the_fields_of_requests_and_answers_are_in_the_docs(server: Server) -> None:
    api = server.ask("GET", "/openapi.json")[1]
    fields = {name: set(kind.get("properties", {})) for name, kind in api["components"]["schemas"].items()}
    assert {"Registration", "ProfileUpload", "ProfilePoint", "JobStatus", "Deployed"} <= fields.keys()
    assert fields["StragglerMessage"] == {"id", "degree", "delay_s"}
    assert fields["DeployedPlanAnswer"] == {"version", "time_ms", "energy_mj", "lower_bound_mj", "clock_mhz"}
    assert "requestBody" in api["paths"]["/jobs/{job}/straggler"]["post"]


def test_plans_for_deadlines_are_those_of_the_frontier(server: Server) -> None:
    job = server.ready()
    for plan in FRONTIER.plans:
        for deadline_ms in (plan.time_ms, plan.time_ms + 0.5):
            answer = server.ask("GET", f"/jobs/{job}/plan?deadline_ms={deadline_ms!r}")[1]
            assert answer["time_ms"] == FRONTIER.at(deadline_ms).time_ms
    status, answer = server.ask("GET", f"/jobs/{job}/plan?deadline_ms=1")
    assert status == 422
    assert answer["detail"].startswith("deadline_ms: 1 is below the shortest iteration of ")


def test_a_straggler_is_heeded_when_it_is_due_and_forgotten_at_degree_1(server: Server) -> None:
    job = server.ready()
    assert server.tell(job, 3, 1.2, delay_s=10)["version"] == 1
    assert server.ask("GET", f"/jobs/{job}/deployed?newer_than=1") == (204, None)
    server.now_s += 9.9
    assert server.ask("GET", f"/jobs/{job}/deployed?newer_than=1") == (204, None)
    server.now_s += 0.1
    status, answer = server.ask("GET", f"/jobs/{job}/deployed?newer_than=1")
    assert (status, answer["version"]) == (200, 2)
    assert answer["time_ms"] == FRONTIER.at(1.2 * SHORTEST_MS).time_ms > SHORTEST_MS
    worse = server.tell(job, "rack 4", 1e6)
    assert (worse["version"], worse["time_ms"]) == (3, FRONTIER.plans[-1].time_ms)
    assert worse["deadline_ms"] == pytest.approx(1e6 * SHORTEST_MS), "the straggler's end, not the plan's"
    assert server.tell(job, 3, 1)["version"] == 3, "the worst one is still there"
    assert server.tell(job, "rack 4", 1) == {"version": 4, "time_ms": SHORTEST_MS, "deadline_ms": SHORTEST_MS}


def test_a_message_before_the_frontier_is_there_counts_once_it_is(server: Server) -> None:
    job = server.register()
    assert server.tell(job, 0, 1.3) == {"version": 0, "time_ms": None, "deadline_ms": None}
    server.ask("POST", f"/jobs/{job}/profile", upload_of(PROFILE))
    server.wait(job)
    answer = server.ask("GET", f"/jobs/{job}/deployed")[1]
    assert (answer["version"], answer["time_ms"]) == (1, FRONTIER.at(1.3 * SHORTEST_MS).time_ms)


def test_nothing_is_left_of_a_job_that_was_deleted(server: Server) -> None:
    job = server.ready()
    server.tell(job, 0, 1.3)
    assert server.ask("GET", f"/jobs/{job}/deployed")[0] == 200
    server.ask("DELETE", f"/jobs/{job}")
    for path in ("deployed", "plan", "plan?deadline_ms=1000", "frontier"):
        assert server.ask("GET", f"/jobs/{job}/{path}")[0] == 404
    assert server.ask("POST", f"/jobs/{job}/straggler", {"id": 0, "degree": 1})[0] == 404


def kill_worker() -> None:
    """Kill the process that computes frontiers, as the kernel does where memory runs out."""
    (worker,) = multiprocessing.active_children()
    worker.kill()


def test_a_job_whose_worker_dies_says_so_and_takes_another_profile(server: Server) -> None:
    job = server.long_job()
    server.progress(job)
    kill_worker()
    status = server.wait(job)
    assert status["state"] == "failed"
    assert status["error"] == "frontier: the process that computed it ended with -9; upload the profile again"
    assert server.ask("GET", f"/jobs/{job}/plan")[0] == 409
    fixed = {name: points[-1:] for name, points in profile_of(LONG.placement).points.items()}
    server.ask("POST", f"/jobs/{job}/profile", upload_of(Profile("one clock", fixed, 60.0)))
    assert server.wait(job) == status | {"state": "ready", "error": None, "version": 1}


def test_a_job_can_be_deleted_while_it_is_computed(server: Server) -> None:
    job = server.long_job()
    assert set(server.progress(job)) == {"what", "done", "total"}
    assert server.ask("DELETE", f"/jobs/{job}") == (204, None)
    assert server.ask("GET", f"/jobs/{job}")[0] == 404
    server.ready()


def test_jobs_are_listed_in_order_and_deleted(server: Server) -> None:
    made = [server.register() for _ in range(3)]
    seen = [job["id"] for job in server.ask("GET", "/jobs")[1]["jobs"]]
    assert seen[-3:] == made
    assert len(set(seen)) == len(seen)
    assert server.ask("DELETE", f"/jobs/{made[2]}") == (204, None)
    assert server.ask("GET", f"/jobs/{made[2]}")[0] == 404
    assert server.ask("DELETE", f"/jobs/{made[2]}")[0] == 404


def without(field: str) -> dict[str, Any]:
    schedule = registration()["schedule"]
    return {"schedule": {key: value for key, value in schedule.items() if key != field}}


POINT = {"clock_mhz": 1410, "time_ms": 1, "energy_mj": 1}


def of_blocks(**blocks: object) -> dict[str, object]:
    return {"blocking_power_w": 60, "blocks": blocks}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/jobs", "{", 400, "body: is not JSON"),
        ("/jobs", [], 422, "body: [] is wrong; input should be"),
        ("/jobs", {}, 422, "schedule: is missing; give it"),
        ("/jobs", {"schedule": 3}, 422, "schedule: 3 is wrong; input should be a valid dictionary"),
        ("/jobs", without("blocks"), 422, "schedule: lacks the field 'blocks'; add it"),
        (
            "/jobs",
            {"schedule": registration()["schedule"] | {"num_micro_batches": 10**12}},
            422,
            "schedule: num_micro_batches: is more than the 12 blocks; each micro-batch has at least one",
        ),
        ("/jobs", registration() | {"plans": 3}, 422, "plans: is not known; leave it out"),
        ("JOB/profile", {"blocks": {"F0": [POINT]}}, 422, "blocking_power_w: is missing; give it"),
        ("JOB/profile", {"blocking_power_w": 60}, 422, "blocks: is missing; give it"),
        ("JOB/profile", of_blocks() | {"blocking_power_w": -1}, 422, "blocking_power_w: -1 is wrong; in"),
        (
            "JOB/profile",
            of_blocks(F9=[POINT]),
            422,
            "profile: v_shape has no block 'F9'; use its placement",
        ),
        ("JOB/profile", of_blocks(F0=[]), 422, "blocks.F0: [] is wrong; list should have at least 1 item"),
        ("JOB/profile", of_blocks(F0=[POINT, POINT]), 422, "blocks: points.F0: 1410 MHz follows 1410 MHz"),
        ("JOB/profile", of_blocks(F0=[POINT | {"time_ms": 0}]), 422, "blocks.F0[0].time_ms: 0 is wrong; inp"),
        ("JOB/profile", of_blocks(F0=[POINT | {"time_ms": 10**400}]), 422, "blocks.F0[0].time_ms: 1000"),
        ("JOB/straggler", {"id": 1}, 422, "degree: is missing; give it"),
        ("JOB/straggler", '{"id": 1, "degree": NaN}', 422, "degree: nan is wrong; input should be"),
        ("JOB/straggler", {"id": 1, "degree": 2, "delay_s": -3}, 422, "delay_s: -3 is wrong; input"),
        ("JOB/straggler", {"id": 1, "degree": "2"}, 422, "degree: '2' is wrong; input should be"),
        ("JOB/straggler", {"id": True, "degree": 2}, 422, "id: True is wrong; input should be"),
        ("JOB/straggler", {"id": "n" * 201, "degree": 2}, 422, "id: 'nnn"),
        ("JOB/straggler", '{"id": "\\ud800", "degree": 2}', 422, "id: '\\ud800' is wrong; input"),
        ("/jobs/nobody/straggler", {"id": 1, "degree": 2}, 404, "job: 'nobody' is not known; GET /jobs"),
        ("/nowhere", {}, 404, "path: /nowhere is not known"),
        ("JOB", {}, 405, "method: POST is not for /jobs/"),
    ],
)
def test_bad_requests_get_one_line(
    server: Server, path: str, body: object, status: int, message: str
) -> None:
    job = server.register()
    answer = server.ask("POST", path.replace("JOB", f"/jobs/{job}"), body)
    assert answer[0] == status, answer
    assert set(answer[1]) == {"detail"}
    assert answer[1]["detail"].startswith(message)
    assert len(answer[1]["detail"].splitlines()) == 1
    state = server.ask("GET", f"/jobs/{job}")[1]
    assert (state["state"], len(state["missing"])) == ("waiting", 4), "nothing of it is kept"


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("plan?deadline_ms=nan", 422, "deadline_ms: 'nan' is wrong; input should be a finite number"),
        ("deployed?newer_than=-1", 422, "newer_than: "),
    ],
)
def test_bad_queries_get_one_line(server: Server, query: str, status: int, message: str) -> None:
    answer = server.ask("GET", f"/jobs/{server.ready()}/{query}")
    assert answer[0] == status
    assert answer[1]["detail"].startswith(message)


@pytest.mark.parametrize("path", ["frontier", "plan?deadline_ms=1000", "deployed"])
def test_what_is_not_ready_conflicts(server: Server, path: str) -> None:
    job = server.register()
    status, answer = server.ask("GET", f"/jobs/{job}/{path}")
    assert status == 409
    assert answer["detail"] == f"frontier: job {job} is waiting; GET /jobs/{job} until it is ready"


def test_a_profile_is_not_replaced_under_a_frontier(server: Server) -> None:
    job = server.ready()
    status, answer = server.ask("POST", f"/jobs/{job}/profile", upload_of(PROFILE))
    assert status == 409
    assert answer["detail"] == f"profile: job {job} is ready with one; register a new job"
