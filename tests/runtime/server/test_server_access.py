"""Who may ask the server, and how much they may send."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import ask, in_thread, registration, small_schedule

from runtime.plans.plan_client import TOKEN_VARIABLE, PlanClient, ServerClient, ServerError
from runtime.server.__main__ import main
from runtime.server.access import read_token
from runtime.server.service import Service

TOKEN = "0123456789abcdef"
LIMIT = 40_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    service = Service(tmp_path_factory.mktemp("server") / "jobs.db")
    with in_thread(service, token=TOKEN, max_body_mb=LIMIT / 1e6) as url:
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
    assert answer(url, RIGHT) == (200, {"jobs": [], "next": None})


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/jobs", ()),
        ("/docs", ()),
        ("/nowhere", ()),
        ("/health/", ()),
        ("/jobs", (("Authorization", TOKEN),)),
        ("/jobs", (("Authorization", f"bearer {TOKEN}"),)),
        ("/jobs/a/plan", (("Authorization", f"Bearer {TOKEN[:-1]}"),)),
        ("/jobs", (("Authorization", f"Bearer {TOKEN}0"),)),
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


def test_without_a_token_all_may_ask(tmp_path: Path) -> None:
    with in_thread(Service(tmp_path / "jobs.db")) as url:
        assert answer(url)[0] == 200


TOO_LARGE = "body: has more than 0.04 MB; send less, or start the server with a larger --max-body-mb"


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(LIMIT, 201), (LIMIT + 1, 413), (2 * LIMIT, 413)])
def test_a_body_may_be_as_large_as_the_limit(url: str, size: int, status: int, is_chunked: bool) -> None:
    body = json.dumps(registration()).encode().ljust(size)
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    parts = (body[i : i + 7000] for i in range(0, size, 7000))
    connection.request(
        "POST", "/jobs", parts if is_chunked else body, dict([RIGHT]), encode_chunked=is_chunked
    )
    response = connection.getresponse()
    data = json.load(response)
    connection.close()
    assert response.status == status
    assert status == 201 or data == {"detail": TOO_LARGE}


def head_of(url: str, head: str) -> bytes:
    """Send the beginning of a request, and return all of the answer, after which the server hangs up."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(f"POST /jobs HTTP/1.1\r\nHost: a\r\n{head}".encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_what_says_that_it_is_too_large_is_refused_before_it_is_sent(url: str) -> None:
    text = head_of(url, f"{RIGHT[0]}: {RIGHT[1]}\r\nContent-Length: 1000000000000\r\n\r\n")
    assert text.startswith(b"HTTP/1.1 413 ")
    assert text.endswith(json.dumps({"detail": TOO_LARGE}, separators=(",", ":")).encode())


def test_what_never_ends_is_refused_on_the_way(url: str) -> None:
    chunk = f"2710\r\n{'x' * 10_000}\r\n"
    text = head_of(url, f"{RIGHT[0]}: {RIGHT[1]}\r\nTransfer-Encoding: chunked\r\n\r\n" + 9 * chunk)
    assert text.startswith(b"HTTP/1.1 413 ")


def test_the_token_is_of_the_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, f"of the environment{TOKEN}".replace(" ", "-"))
    assert read_token(None) == f"of-the-environment{TOKEN}"
    assert read_token(tmp_path / "token") == TOKEN


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory); write the token there"),
        (b"\xff" * 20, "cannot be read (not text); write the token there"),
        (b"", ": is no token; use one of at least 16 letters and digits"),
        (b"short", ": is no token; use one of at least 16 letters and digits"),
        (b"two words of enough length", ": is no token; use one of at least 16 letters and digits"),
    ],
)
def test_a_wrong_token_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as caught:
        main(["--port", "0", "--database", str(tmp_path / "jobs.db"), "--token-file", str(path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2
    assert line.startswith(f"runtime.server: error: token-file: {path}")
    assert message in line


@pytest.mark.parametrize("size", ["0", "-1", "nan", "1e9"])
def test_a_wrong_limit_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: str
) -> None:
    with pytest.raises(SystemExit):
        main(["--port", "0", "--database", str(tmp_path / "jobs.db"), "--max-body-mb", size])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" is not a size; give millions of bytes above 0")


def test_answers_stay_one_line_whatever_names_are_in_them(tmp_path: Path) -> None:
    body = registration()
    body["schedule"]["placement"]["name"] = "two\nlines"
    with in_thread(Service(tmp_path / "jobs.db")) as url:
        job = ask(f"{url}/jobs", "POST", body)[1]["id"]
        csv = "block,frequency,time,energy\nF9,1410,1,1\n"
        refusal = ask(f"{url}/jobs/{job}/profile", "POST", {"blocking_power_w": 60, "csv": csv})
    assert refusal == (
        422,
        {"detail": "profile: two lines has no block 'F9'; use those of its placement"},
    )
