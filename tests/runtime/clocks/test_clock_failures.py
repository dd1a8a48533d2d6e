"""What goes wrong besides: forks, other runs, GPUs that are lost, divided or without a meter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fake_driver import FakeDriver

from runtime.clocks.access.opening import open_clock
from runtime.clocks.clock import ClockError, NvmlClock
from runtime.clocks.nvml import NvmlError, NvmlGpu
from runtime.profiling import device_profiler
from runtime.profiling.profiler import Sweep

FORKS = """
import os, sys, time
from runtime.clocks.clock import NvmlClock
clock = NvmlClock("0")
clock.set(1335)
if (child := os.fork()) == 0:
    time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""


def test_a_fork_of_a_killed_script_does_not_keep_the_clock_locked(driver: FakeDriver) -> None:
    """A data loader's process has the pipe too, so the pipe does not end with the script."""
    script = subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE)
    assert script.stdout is not None
    child = int(script.stdout.readline())
    try:
        driver.wait_for("0 lock 1335 1335")
        script.kill()
        script.wait()
        driver.wait_for("0 reset", 2)
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        script.stdout.close()


def test_a_second_run_leaves_the_clock_to_the_first(driver: FakeDriver) -> None:
    """It would unlock what the first one locks; the other GPU is free."""
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


def test_a_killed_controller_does_not_keep_the_next_one_out(driver: FakeDriver) -> None:
    first = NvmlClock("0")
    first.set(1335)
    driver.wait_for("0 lock 1335 1335")
    os.kill(first.controller_pid, signal.SIGKILL)
    first.reset()
    NvmlClock("0").reset()
    assert driver.lines() == ["0 reset", "0 lock 1335 1335", "0 reset", "0 reset"]


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


def test_reset_goes_on_after_a_gpu_that_is_lost(driver: FakeDriver) -> None:
    driver.lose(0)
    done = subprocess.run([sys.executable, "-m", "runtime.clock", "reset"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "GPU 1: clocks are unlocked\n")
    assert done.stderr == "NVML refuses to control the clock of GPU 0 (GPU is lost)\n"
    assert driver.lines() == ["1 reset"]


@pytest.mark.parametrize("gpu", ["0", "fake-0", "MIG-fake", "fake"])
def test_a_divided_gpu_is_left_alone(driver: FakeDriver, gpu: str) -> None:
    """By its index or UUID, and by the UUID of a part, which CUDA gives without a prefix."""
    driver.divide()
    description = open_clock(gpu).description
    assert f"clocks are recorded only: GPU {gpu} is divided (MIG)" in description
    assert driver.lines() == []


def test_a_gpu_that_is_not_there_is_named(driver: FakeDriver) -> None:
    with pytest.raises(NvmlError, match=r"NVML finds no GPU fake-9 \(Not Found\); nvidia-smi -L lists them"):
        NvmlGpu("fake-9")


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


def test_without_a_meter_times_are_measured_at_every_clock(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.setup(1, range(900, 1200 + 1, 100))
    driver.remove_meter()
    monkeypatch.setattr(device_profiler, "gpu_uuid", lambda device: "fake-0")
    monkeypatch.setattr(device_profiler, "_synchronize", lambda: None)
    profiler, description = device_profiler._of_gpu(Sweep(iterations=1), torch.device("cpu"), None, False)
    for _ in range(5):
        profiler.begin_iteration()
        profiler.begin("F0")
        profiler.end("F0")
        profiler.end_iteration()
    assert profiler.clock is not None
    profiler.clock.reset()
    assert [(cost.clock_mhz, cost.energy_mj) for cost in profiler.costs] == [
        (mhz, None) for mhz in (1200, 1100, 1000, 900)
    ]
    assert "no energy: NVML refuses to read the energy of GPU fake-0 (Not Supported)" in description
    assert driver.lines()[-1] == "0 reset"
