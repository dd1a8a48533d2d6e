"""The clock helper and its clients, each a process, on simulated GPUs."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clock_helper import Helper
from fake_driver import FakeDriver
from one_line_errors import raises_line
from places import ROOT

from runtime.clocks import helper as serve
from runtime.clocks.clock import SOCKET_VARIABLE, ClockError, HelperClock, NvmlClock, lock_clock, open_clock

READY = ["0 reset", "0 reset", "1 reset", "1 reset"]
"""What a helper for all GPUs does first, by a controller for each: it gives back what is locked."""

OWN = str(os.geteuid())

CLIENT = """
import os, sys, time
from runtime.clocks.clock import HelperClock
clock = HelperClock("0", sys.argv[1])
clock.set(1335)
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clock.sock"


@pytest.fixture
def helper(driver: FakeDriver, path: Path) -> Iterator[Helper]:
    started = Helper(path)
    yield started
    if started.process.returncode is None:
        started.end()


def ended(clock: HelperClock) -> str:
    """Ask for an allowed clock until the helper has said why it takes no more."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            clock.set(900)
        except ClockError as error:
            return str(error)
        time.sleep(0.01)
    raise AssertionError("the helper takes clocks still")


def test_a_client_sets_clocks_and_gives_them_back(helper: Helper, driver: FakeDriver) -> None:
    assert helper.said == f"clock helper: {helper.path}, for users {OWN}\n"
    clock = HelperClock("fake-1", helper.path)
    for clock_mhz in (1335, 1335, 900):
        clock.set(clock_mhz)
        driver.wait_for(f"1 lock {clock_mhz} {clock_mhz}")
    clock.reset()
    assert clock.requests == [1335, 1335, 900]
    assert driver.lines() == [*READY, "1 reset", "1 lock 1335 1335", "1 lock 900 900", "1 reset"]
    clock.reset()


def test_a_killed_client_keeps_nothing_nor_does_its_fork(helper: Helper, driver: FakeDriver) -> None:
    """A data loader's process has the socket too, so the socket does not end with the client."""
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(helper.path)], stdout=subprocess.PIPE)
    child = int(client.stdout.readline())
    try:
        driver.wait_for("0 lock 1335 1335")
        client.kill()
        client.wait()
        driver.wait_for("0 reset", 4)
        os.kill(child, 0)
        HelperClock("0", helper.path).reset()
    finally:
        os.kill(child, signal.SIGKILL)
        client.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_helper_that_ends_gives_all_back(
    helper: Helper, driver: FakeDriver, number: signal.Signals, path: Path
) -> None:
    clocks = [HelperClock(gpu, path) for gpu in "01"]
    for gpu, clock in enumerate(clocks):
        clock.set(1335)
        driver.wait_for(f"{gpu} lock 1335 1335")
    helper.end(number)
    for gpu, clock in enumerate(clocks):
        driver.wait_for(f"{gpu} reset", 4)
        assert f"the clock helper at {path} has ended" in ended(clock)
        clock.reset()
    assert path.exists() == (number == signal.SIGKILL)
    with pytest.raises(ClockError, match=r"clock\.sock: .*; have it started: python -m runtime\.clock serve"):
        HelperClock("0", path)
    after = Helper(path)  # what a killed one left is no hindrance
    assert after.said.startswith("clock helper: ")
    after.end()


def test_a_killed_controller_leaves_the_gpu_to_the_helper(helper: Helper, driver: FakeDriver) -> None:
    clock = HelperClock("0", helper.path)
    clock.set(1335)
    driver.wait_for("0 lock 1335 1335")
    (controller,) = _children(helper.process.pid)
    os.kill(controller, signal.SIGKILL)
    driver.wait_for("0 reset", 4)
    assert "the clock controller has ended" in ended(clock)
    clock.reset()
    assert driver.lines()[-1] == "0 reset"


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def test_a_gpu_has_one_client(helper: Helper, driver: FakeDriver) -> None:
    first, other = HelperClock("0", helper.path), HelperClock("1", helper.path)
    with raises_line(ClockError, match="the clock of GPU GPU-fake-0 is controlled by process .* already"):
        HelperClock("GPU-fake-0", helper.path)
    first.reset()
    again = HelperClock("0", helper.path)
    again.reset()
    other.reset()


def test_a_run_that_needs_no_helper_keeps_its_gpu(driver: FakeDriver, path: Path) -> None:
    clock = NvmlClock("0")
    helper = Helper(path)
    assert helper.said == ""
    assert helper.process.wait() == 1
    assert "the clock of GPU GPU-fake-0 is controlled by process" in helper.process.communicate()[1]
    clock.reset()


def test_a_foreign_gpu_is_refused(driver: FakeDriver, path: Path) -> None:
    helper = Helper(path, "--allow", f"{OWN}:1")
    with raises_line(ClockError, match=f"user {OWN} may not set the clock of GPU GPU-fake-0; use GPU-fake-1"):
        HelperClock("0", path)
    with pytest.raises(ClockError, match="NVML finds no GPU 7"):
        HelperClock("7", path)
    clock = HelperClock("1", path)
    clock.reset()
    assert "0 reset" not in driver.lines(), "the helper leaves a GPU alone that is none of its own"
    helper.end()


def test_another_user_is_refused(driver: FakeDriver, path: Path) -> None:
    """The kernel names the client's user; the client's own claim does not count."""
    other = os.geteuid() + 1
    helper = Helper(path, "--allow", str(other))
    with raises_line(ClockError, has=f"user {OWN} may not set clocks; have the helper started with --allow"):
        HelperClock("0", path)
    with socket.socket(socket.AF_UNIX) as liar:
        liar.connect(str(path))
        with contextlib.suppress(OSError):  # it may have been sent away before
            liar.sendall(f"0 0 {other}\n".encode())
        assert f"user {OWN} may not".encode() in liar.recv(4096)
    helper.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
def test_a_user_without_rights_sets_clocks_and_another_does_not(driver: FakeDriver) -> None:
    def as_user(uid: int) -> str:
        """Return the helper's answer to a user's process, which imports nothing, as it may lack the right."""
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                with contextlib.suppress(OSError):  # the helper may have gone
                    client.sendall(b"0 0\n")
                os.write(write, client.recv(4096))
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read) as answer:
            return answer.read()

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # the tests' own are for one user
        Path(folder).chmod(0o755)
        path = Path(folder) / "clock.sock"
        helper = Helper(path, "--allow", "65534:0")
        assert as_user(65534) == "ready\n"
        assert as_user(65533).startswith("user 65533 may not set clocks")
        assert as_user(0).startswith("user 0 may not set clocks"), "root is a user like any other"
        helper.end()
    assert driver.lines()[-1] == "0 reset"


@pytest.mark.parametrize("line", [b"0\n", b"0 -1\n", b"x" * 5000])
def test_a_line_that_is_no_request_is_refused(helper: Helper, driver: FakeDriver, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(helper.path))
        client.sendall(line)
        assert b"is no request; use the client of the same version" in client.recv(4096)
    assert driver.lines() == READY


def test_without_the_right_there_is_no_helper(driver: FakeDriver, path: Path) -> None:
    driver.deny()
    helper = Helper(path)
    assert helper.process.wait() == 1
    assert "no right to control the clock" in helper.process.communicate()[1]
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--allow", "nobody-of-that-name"], "is no user of this machine; give a name or an id"),
        (["--allow", "0:9"], "NVML finds no GPU 9"),
        (["--socket", "/dev/null"], "/dev/null: is no socket"),
    ],
)
def test_wrong_options_are_one_line(driver: FakeDriver, path: Path, options: list[str], message: str) -> None:
    helper = Helper(path, *options)
    said = helper.process.communicate()[1]
    assert (helper.process.returncode, said.count("\n")) == (1, 1)
    assert message in said


def test_a_socket_has_one_helper(helper: Helper) -> None:
    with pytest.raises(serve.RefusedError, match="another helper serves it"):
        serve.clear(helper.path)
    assert helper.path.exists()


def test_runs_find_the_helper(
    helper: Helper, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, str(path))
    clock = lock_clock("0")
    assert clock.description == f"clocks of GPU 0 are locked by the helper at {path}"
    clock.reset()
    monkeypatch.setenv(SOCKET_VARIABLE, "/nowhere/clock.sock")
    recorded = open_clock("0")
    assert recorded.description.startswith(
        "clocks are recorded only: the clock helper at /nowhere/clock.sock: "
    )
    monkeypatch.setenv(SOCKET_VARIABLE, "")
    locked = lock_clock("0")
    assert isinstance(locked, NvmlClock)
    locked.reset()


def test_the_unit_of_the_page_starts_a_helper() -> None:
    page = (ROOT / "docs" / "concepts" / "clocks.md").read_text(encoding="utf-8")
    (unit,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    _, _, _, module, command, *options = shlex.split(line)
    assert (module, command) == ("runtime.clock", "serve")
    parser = argparse.ArgumentParser()
    serve.add_options(parser)
    parsed = parser.parse_args(options)
    assert parsed.allow == ["alice:0,1", "bob:2,3"]
    assert str(parsed.socket) == f"/run/{re.search('RuntimeDirectory=(.*)', unit)[1]}/clock.sock"  # type: ignore[index]
