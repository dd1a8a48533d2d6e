"""The real driver: its readings, and a missing right, which ends nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from runtime.clocks.clock import RecordingClock, open_clock
from runtime.clocks.gpu_clock import gpu_uuid
from runtime.clocks.nvml import NvmlError, NvmlGpu
from runtime.profiling.device_profiler import NvmlMeter
from runtime.profiling.profiler import Profiler

pytestmark = pytest.mark.gpu


def compute(seconds: float, device: str) -> None:
    """Keep the GPU busy."""
    value = torch.ones(2048, 2048, device=device) / 2048
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = value @ value
        if device == "cuda":
            torch.cuda.synchronize()


def test_torch_and_the_driver_name_the_same_gpu(nvml_gpu: NvmlGpu, device: str) -> None:
    if device == "cuda":
        assert nvml_gpu.name == torch.cuda.get_device_name(0)
    clocks = nvml_gpu.clocks_mhz()
    assert clocks == sorted(clocks) and clocks[0] > 0
    assert 0 < nvml_gpu.clock_mhz() <= 1.1 * clocks[-1]
    with pytest.raises(NvmlError):
        NvmlGpu("GPU-00000000-0000-0000-0000-000000000000")


def test_the_energy_counter_only_rises_and_counts_millijoules(metered_gpu: NvmlGpu, device: str) -> None:
    readings = [(time.monotonic(), metered_gpu.energy_mj())]
    for _ in range(5):
        compute(0.3, device)
        readings.append((time.monotonic(), metered_gpu.energy_mj()))
    assert all(before[1] <= after[1] for before, after in pairwise(readings))
    mean_w = (readings[-1][1] - readings[0][1]) / 1000 / (readings[-1][0] - readings[0][0])
    assert 5 < mean_w < 2000


def test_a_device_that_waits_uses_less_than_one_that_computes(metered_gpu: NvmlGpu, device: str) -> None:
    profiler = Profiler(NvmlMeter(metered_gpu))
    waiting = profiler.power_w(lambda: time.sleep(1.0))
    computing = profiler.power_w(lambda: compute(1.0, device))
    assert waiting is not None and computing is not None
    assert 0 < waiting < computing


def test_the_counter_is_waited_for(metered_gpu: NvmlGpu) -> None:
    """After the wait it has just moved: it stands still for a moment, and moves on later."""
    meter = NvmlMeter(metered_gpu)
    readings = []
    for _ in range(3):
        meter.align()
        readings.append(meter.energy_mj())
    assert readings[0] < readings[1] < readings[2]


def test_without_the_right_clocks_are_recorded(nvml_gpu: NvmlGpu, device: str, refused: Path) -> None:
    """The controller finds the real GPU; only its changes are refused."""
    uuid = gpu_uuid(torch.device("cuda", 0)) if device == "cuda" else "0"
    clock = open_clock(uuid)
    assert isinstance(clock, RecordingClock)
    wanted = f"no right to control the clock of GPU {uuid}; run as root, or grant CAP_SYS_ADMIN"
    assert wanted in clock.description
    assert refused.read_text().splitlines() == ["nvmlDeviceResetGpuLockedClocks"]
    clock.set(900)
    clock.reset()
    assert clock.requests == [900]
    assert len(refused.read_text().splitlines()) == 1, "recording asks the driver for nothing"


def test_the_guard_of_these_tests_holds_in_every_process(refused: Path) -> None:
    """Else the tests before this one prove nothing, and could change the clocks of the machine."""
    pynvml = pytest.importorskip("pynvml")
    code = "import pynvml; pynvml.nvmlDeviceSetGpuLockedClocks(None, 900, 900)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "Insufficient Permissions" in done.stderr
    with pytest.raises(pynvml.NVMLError_NoPermission):
        pynvml.nvmlDeviceResetGpuLockedClocks(None)
    asked = ["nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"]
    assert refused.read_text().splitlines() == asked
