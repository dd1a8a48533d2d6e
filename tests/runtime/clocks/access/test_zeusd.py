"""Clocks through Zeus's daemon; a stand-in answers as its documents say, on the same simulated GPUs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from urllib.parse import parse_qs, urlsplit

import pytest
from fake_driver import FakeDriver

from runtime.clocks.access.opening import lock_clock, open_clock
from runtime.clocks.access.zeusd import TOKEN_VARIABLE, ZEUSD_VARIABLE
from runtime.clocks.nvml import NvmlGpu


class StandIn(BaseHTTPRequestHandler):
    """What zeusd 0.4 and 0.5 document: POST, numbers in the query, 200 or a status with a text."""

    asked: list[tuple[str, str | None]] = []  # noqa: RUF012
    status = 200

    def do_POST(self) -> None:
        StandIn.asked.append((self.path, self.headers["Authorization"]))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if StandIn.status == 200:
            gpu = NvmlGpu(query["gpu_ids"])
            if parts.path == "/gpu/set_gpu_locked_clocks":
                assert query["min_clock_mhz"] == query["max_clock_mhz"] and query["block"] == "true"
                gpu.lock(int(query["min_clock_mhz"]))
            else:
                assert parts.path == "/gpu/reset_gpu_locked_clocks"
                gpu.unlock()
        self.send_response(StandIn.status)
        self.end_headers()
        if StandIn.status != 200:
            self.wfile.write(b'{"errors": {"1": "Insufficient Permissions"}}')

    def address_string(self) -> str:
        return "a client"

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture
def daemon(driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "zeusd.sock"
    monkeypatch.setenv(ZEUSD_VARIABLE, str(path))
    monkeypatch.setattr(StandIn, "asked", [])
    monkeypatch.setattr(StandIn, "status", 200)
    with ThreadingUnixStreamServer(str(path), StandIn) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def test_clocks_are_set_and_given_back_through_the_daemon(daemon: Path, driver: FakeDriver) -> None:
    clock = lock_clock("fake-1")
    assert clock.description.startswith(f"clocks of GPU fake-1 are locked through Zeus's daemon at {daemon}")
    for clock_mhz in (1335, 900):
        clock.set(clock_mhz)
        driver.wait_for(f"1 lock {clock_mhz} {clock_mhz}")
    clock.reset()
    assert driver.lines() == ["1 reset", "1 lock 1335 1335", "1 lock 900 900", "1 reset"]
    assert StandIn.asked[1] == (
        "/gpu/set_gpu_locked_clocks?gpu_ids=1&min_clock_mhz=1335&max_clock_mhz=1335&block=true",
        None,
    )


def test_the_token_of_zeus_is_borne(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a-token")
    lock_clock("0").reset()
    assert {token for _, token in StandIn.asked} == {"Bearer a-token"}


def test_a_daemon_that_refuses_leaves_clocks_recorded(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandIn, "status", 403)
    assert open_clock("1").description == (
        f"clocks are recorded only: Zeus's daemon at {daemon} refuses to reset gpu locked clocks of GPU 1 "
        '(403 {"errors": {"1": "Insufficient Permissions"}}); needed is zeusd 0.4 or later with gpu-control'
    )


def test_a_daemon_that_is_away_leaves_clocks_recorded(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ZEUSD_VARIABLE, "/nowhere/zeusd.sock")
    assert "Zeus's daemon at /nowhere/zeusd.sock does not answer" in open_clock("0").description
