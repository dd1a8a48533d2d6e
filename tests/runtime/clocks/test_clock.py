"""Clock control through the real pynvml against the simulated driver, and its failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_driver import FakeDriver
from places import ROOT

from runtime.clocks import clock as clock_module
from runtime.clocks.clock import ClockError, NvmlClock, open_clock
from runtime.clocks.controller import Follower

SCRIPT = """
import sys, time
from runtime.clocks.clock import NvmlClock
clock = NvmlClock("0")
clock.set(1335)
print(clock.controller_pid, flush=True)
sys.stdin.readline()
{end}
"""


def test_controller_locks_skips_repeats_and_unlocks(driver: FakeDriver) -> None:
    clock = NvmlClock("fake-0")
    for clock_mhz in (1410, 1410, 900):
        clock.set(clock_mhz)
        driver.wait_for(f"0 lock {clock_mhz} {clock_mhz}")
    clock.reset()
    assert driver.lines() == ["0 reset", "0 lock 1410 1410", "0 lock 900 900", "0 reset"]
    assert clock.requests == [1410, 1410, 900]


def test_latest_of_many_requests_wins(driver: FakeDriver) -> None:
    clock = NvmlClock("1")
    os.kill(clock.controller_pid, signal.SIGSTOP)
    for clock_mhz in range(600, 1200):
        clock.set(clock_mhz)
    os.kill(clock.controller_pid, signal.SIGCONT)
    clock.reset()
    assert driver.lines()[-2:] == ["1 lock 1199 1199", "1 reset"]
    assert len(driver.lines()) < 20


@pytest.mark.parametrize(
    ("end", "number"),
    [("1 / 0", None), ("time.sleep(600)", signal.SIGTERM), ("time.sleep(600)", signal.SIGKILL)],
)
def test_gpu_is_unlocked_however_the_script_ends(
    driver: FakeDriver, end: str, number: signal.Signals | None
) -> None:
    line = [sys.executable, "-c", SCRIPT.format(end=end)]
    script = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    controller = int(script.stdout.readline())
    driver.wait_for("0 lock 1335 1335")  # one that ends before that may never lock it
    script.stdin.write(b"end\n")
    script.stdin.close()
    if number is not None:
        script.send_signal(number)
    script.wait()
    driver.wait_for("0 reset", 2)
    assert driver.lines()[-1] == "0 reset"
    deadline = time.monotonic() + 300
    while Path(f"/proc/{controller}/cmdline").exists() and Path(f"/proc/{controller}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the controller outlives its script"
        time.sleep(0.01)
    script.stdout.close()


def test_terminated_controller_unlocks_and_the_script_learns_of_it(driver: FakeDriver) -> None:
    clock = NvmlClock("0")
    clock.set(1335)
    driver.wait_for("0 lock 1335 1335")
    os.kill(clock.controller_pid, signal.SIGTERM)
    driver.wait_for("0 reset", 2)
    with pytest.raises(ClockError, match="controller has ended before"):
        for _ in range(30_000):
            clock.set(900)
            time.sleep(0.01)
    clock.reset()


def test_without_the_right_clocks_are_recorded(driver: FakeDriver) -> None:
    driver.deny()
    clock = open_clock("0")
    clock.set(1410)
    assert clock.requests == [1410]
    assert clock.description == (
        "clocks are recorded only: no right to control the clock of GPU 0; run as root, or grant "
        "CAP_SYS_ADMIN (docker: --cap-add=SYS_ADMIN; systemd: AmbientCapabilities=CAP_SYS_ADMIN)"
    )


def test_without_a_driver_clocks_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError(Exception): ...\ndef nvmlInit(): raise NVMLError('Shared Library Not Found')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    description = open_clock("0").description
    assert "NVML does not start (Shared Library Not Found)" in description


FAKE_MODULE = """
import time
NVML_ERROR_NO_PERMISSION = 4
resets = []
class NVMLError(Exception): ...
def nvmlInit(): {init}
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return "GPU-of-a-module"
def nvmlDeviceResetGpuLockedClocks(handle):
    resets.append(handle)
    if len(resets) > 1: {last_reset}
"""


@pytest.fixture
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `pynvml` can be faked; controllers have half a second for each answer."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(clock_module, "START_TIMEOUT_S", 0.5)
    return tmp_path


def test_controller_that_never_answers_is_killed(impatient: Path) -> None:
    (impatient / "pynvml.py").write_text(FAKE_MODULE.format(init="time.sleep(30)", last_reset="pass"))
    with pytest.raises(ClockError, match=r"no answer within 0\.5 s"):
        NvmlClock("0")


def test_controller_that_hangs_at_the_end_is_killed(
    impatient: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (impatient / "pynvml.py").write_text(FAKE_MODULE.format(init="pass", last_reset="time.sleep(30)"))
    monkeypatch.setattr(clock_module, "START_TIMEOUT_S", 20)
    clock = NvmlClock("0")
    monkeypatch.setattr(clock_module, "START_TIMEOUT_S", 0.5)
    clock.reset()
    assert clock._process.returncode == -signal.SIGKILL
    assert "if a clock stays locked, run: python -m runtime.clock reset" in caplog.text


def test_last_reset_that_fails_says_how_to_repair_it(tmp_path: Path) -> None:
    fake = FAKE_MODULE.format(init="pass", last_reset="raise NVMLError('GPU is lost')")
    (tmp_path / "pynvml.py").write_text(fake)
    done = subprocess.run(
        [sys.executable, "-m", "runtime.clocks.controller", "0", str(os.getpid())],
        input="",
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "TMPDIR": str(tmp_path)},
    )
    assert done.stdout == "ready\n"
    assert done.stderr == (
        "NVML refuses to control the clock of GPU 0 (GPU is lost); run: python -m runtime.clock reset\n"
    )


def test_a_lowering_waits_for_the_dwell_and_a_raise_does_not() -> None:
    follower = Follower(dwell_s=0.02)
    assert follower.wait_s(5.0) is None, "nothing was asked for"
    follower.wanted_mhz = 1410
    assert follower.wait_s(5.0) == 0
    follower.current_mhz, follower.since_s = 1410, 5.0
    assert follower.wait_s(5.0) is None, "it is set already"
    follower.wanted_mhz = 900
    assert follower.wait_s(5.005) == pytest.approx(0.015)
    assert follower.wait_s(5.5) == 0
    follower.wanted_mhz = 1500
    assert follower.wait_s(5.001) == 0
    follower.wanted_mhz = 1410
    assert follower.wait_s(5.001) is None, "the latest request is for the clock that is set"


def test_a_second_run_leaves_the_clock_to_the_first(driver: FakeDriver) -> None:
    """The second run would unlock the first one's clock; the other GPU is free."""
    first, other = NvmlClock("0"), NvmlClock("1")
    first.set(1335)
    driver.wait_for("0 lock 1335 1335")
    second = open_clock("GPU-fake-0")
    second.set(900)
    second.reset()
    assert second.description == (
        f"clocks are recorded only: the clock of GPU GPU-fake-0 is controlled by process "
        f"{first.controller_pid} already; end that run first, or use another GPU"
    )
    assert driver.lines() == ["0 reset", "1 reset", "0 lock 1335 1335"]
    first.reset()
    other.reset()
    third = NvmlClock("fake-0")
    third.reset()


def test_the_script_learns_why_a_clock_cannot_be_set_any_more(driver: FakeDriver) -> None:
    clock = NvmlClock("0")
    driver.lose(0)
    clock.set(1335)
    os.waitid(os.P_PID, clock.controller_pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ClockError, match=r"before 900 MHz could be set: NVML refuses .* \(GPU is lost\)"):
        clock.set(900)
    clock.reset()


def test_a_controller_that_hangs_does_not_hold_up_the_script(driver: FakeDriver) -> None:
    clock = NvmlClock("0")
    os.kill(clock.controller_pid, signal.SIGSTOP)
    with pytest.raises(ClockError, match="takes no requests; does the driver hang"):
        for clock_mhz in range(1, 1 << 20):
            clock.set(clock_mhz)
    os.kill(clock.controller_pid, signal.SIGCONT)
    clock.reset()
    assert driver.lines()[-1] == "0 reset"


def test_reset_command_goes_on_after_a_gpu_that_is_lost(driver: FakeDriver) -> None:
    driver.lose(0)
    done = subprocess.run([sys.executable, "-m", "runtime.clock", "reset"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "GPU 1: clocks are unlocked\n")
    assert done.stderr == "NVML refuses to control the clock of GPU 0 (GPU is lost)\n"
    assert driver.lines() == ["1 reset"]


@pytest.mark.parametrize("gpu", ["fake-0", "fake"])
def test_a_divided_gpu_is_left_alone(driver: FakeDriver, gpu: str) -> None:
    """By its index or UUID, and by the UUID of a part, which CUDA gives without a prefix."""
    driver.divide()
    description = open_clock(gpu).description
    assert f"clocks are recorded only: GPU {gpu} is divided (MIG)" in description
    assert driver.lines() == []


OLD_MODULE = """
NVML_ERROR_NO_PERMISSION = 4
class NVMLError(Exception): ...
def nvmlInit(): pass
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return "GPU-old"
"""


def test_a_package_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text(OLD_MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    description = open_clock("0").description
    assert "pynvml cannot control the clock (" in description
    assert description.endswith("run: pip install -U nvidia-ml-py")
