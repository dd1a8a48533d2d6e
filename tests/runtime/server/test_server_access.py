"""Who may ask the server."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import ask, in_thread, registration, small_schedule

from runtime.plans.plan_client import TOKEN_VARIABLE, PlanClient, ServerClient, ServerError
from runtime.server.__main__ import main
from runtime.server.service import Service

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    service = Service(tmp_path_factory.mktemp("server") / "jobs")
    with in_thread(service, token=TOKEN) as url:
        yield url


def answer(url: str, *headers: tuple[str, str], path: str = "/jobs", method: str = "GET") -> tuple[int, Any]:
    """Ask with these headers, more than one of a name too."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    connection.putrequest(method, path)
    for header in headers:
        connection.putheader(*header)
    connection.endheaders()
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text) if text else None


RIGHT = "Authorization", f"Bearer {TOKEN}"


def test_the_right_token_is_let_in(url: str) -> None:
    assert answer(url, RIGHT) == (200, {"jobs": []})


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/jobs", ()),
        ("/nowhere", ()),
        ("/jobs", (("Authorization", TOKEN),)),
        ("/jobs/a/plan", (("Authorization", f"Bearer {TOKEN[:-1]}"),)),
        ("/openapi.json", (("Authorization", "Bearer \xff"),)),
        ("/jobs", (("X-Authorization", f"Bearer {TOKEN}"),)),
        ("/jobs", (RIGHT, ("Authorization", "Bearer other"))),
    ],
)
def test_others_are_told_so_in_one_line(url: str, path: str, headers: tuple[tuple[str, str], ...]) -> None:
    status, refusal = answer(url, *headers, path=path)
    assert status == 401
    assert refusal["detail"] == (
        "token: is missing or wrong; set SCHEDSEARCH_SERVER_TOKEN, or send 'Authorization: Bearer TOKEN'"
    )


def test_health_needs_no_token(url: str) -> None:
    assert answer(url, path="/health") == (200, {"status": "ok"})


def test_clients_take_the_token_of_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(ServerError, match="token: is missing or wrong") as caught:
        ServerClient(url).register(small_schedule())
    assert caught.value.status == 401
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    job = ServerClient(url).register(small_schedule())
    assert ServerClient(url, token=TOKEN).status(job)["state"] == "waiting"
    client = PlanClient(url, job, interval_s=3600, wait_s=0)
    assert not client.poll()
    client.close()


@pytest.mark.parametrize("token", ["short", "two words of enough length"])
def test_a_wrong_token_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], token: str
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with pytest.raises(SystemExit) as caught:
        main(["--port", "0", "--jobs", str(tmp_path / "jobs")])
    (line,) = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2
    assert line.startswith(f"runtime.server: error: {TOKEN_VARIABLE}: is no token; use one of at least 16")


def test_answers_stay_one_line_whatever_names_are_in_them(tmp_path: Path) -> None:
    body = registration()
    body["schedule"]["placement"]["name"] = "two\nlines"
    with in_thread(Service(tmp_path / "jobs")) as url:
        job = ask(f"{url}/jobs", "POST", body)[1]["id"]
        blocks = {"F9": [{"clock_mhz": 1410, "time_ms": 1, "energy_mj": 1}]}
        refusal = ask(f"{url}/jobs/{job}/profile", "POST", {"blocking_power_w": 60, "blocks": blocks})
    assert refusal == (422, {"detail": "profile: two lines has no block 'F9'; use its placement's blocks"})
