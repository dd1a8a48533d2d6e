"""The profiler of a process: the meter and the clock of its device, and its power while it waits."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from placements import Placement
from placements.hardware import clock_latency_of
from runtime.channels import Channel, Transport
from runtime.clock import ClockError, NvmlClock
from runtime.nvml import NvmlError, NvmlGpu
from runtime.profiler import DeviceProfile, Profiler, Sweep

WAIT_S = 1.0
"""How long a device waits while its blocking power is measured: a hundred steps of the energy counter."""

MOST_ITERATIONS = 1_000_000
"""Of a run that profiles; it ends when the sweep does."""


class WallMeter:
    """Measures time only."""

    def now_ms(self) -> float:
        """Return the time."""
        return time.perf_counter() * 1000

    def energy_mj(self) -> None:
        """Return nothing."""


class NvmlMeter(WallMeter):
    """Measures the energy of a GPU too."""

    def __init__(self, gpu: NvmlGpu) -> None:
        """Measure this GPU."""
        self._gpu = gpu

    def energy_mj(self) -> float:  # type: ignore[override]
        """Return the energy that the GPU has used."""
        return self._gpu.energy_mj()

    def align(self) -> None:
        """Wait until the counter has just moved, or not at all for so long that it will not."""
        before_mj, give_up_ms = self.energy_mj(), self.now_ms() + 1000
        while self.energy_mj() == before_mj and self.now_ms() < give_up_ms:
            time.sleep(0.0002)


class DeviceProfiler:
    """Profiles the device of this process.

    Attributes:
        profiler: Measures.
        description: One line: at which clocks, and whether energy is measured.

    Args:
        sweep: How much to measure.
        placement: Whose blocks.
        transport: Reaches the other devices.
        channels: All that messages take, in the same order on every device.
        device: This one.
    """

    def __init__(
        self,
        sweep: Sweep,
        placement: Placement,
        transport: Transport,
        channels: Sequence[Channel],
        device: int,
    ) -> None:
        """Open what there is: a meter, and a clock where there is the right to one."""
        here = transport.device
        is_cuda, is_shared = here.type == "cuda", transport.shares_gpu
        self._measures_waiting = is_cuda and not is_shared  # a shared GPU is never one that waits
        self.profiler, self.description = _of_gpu(sweep, here, is_shared) if is_cuda else _of_cpu(sweep)
        self.profiler.meet = lambda kind: transport.meet(placement.by_name[kind].devices)
        self._transport, self._channels, self._device = transport, channels, device

    def all_done(self) -> bool:
        """Return whether the sweeps of all devices have ended; all ask together."""
        return all(self._transport.collect(self.profiler.is_done))

    def result(self) -> DeviceProfile:
        """Return what was measured, the blocking power too where energy is; all ask together."""
        power_w = self._blocking_power_w() if self._measures_waiting else None
        return DeviceProfile(tuple(self.profiler.costs), power_w, self.description)

    def close(self) -> None:
        """Give the clock back."""
        if self.profiler.clock is not None:
            self.profiler.clock.reset()

    def _blocking_power_w(self) -> float | None:
        """Let each device wait, at its highest clock, for a message that its source sends late."""
        found = None
        if self.profiler.clock is not None:
            self.profiler.clock.set(max(self.profiler.clocks_mhz))
            self.profiler.settle()
        into: dict[int, Channel] = {channel[1]: channel for channel in self._channels}
        for channel in into.values():
            token = torch.zeros(1, device=self._transport.device)
            self._transport.barrier()
            if self._device == channel[0]:
                time.sleep(WAIT_S)
                self._transport.send(token, channel).wait()
            elif self._device == channel[1]:
                found = self.profiler.power_w(partial(self._receive, token, channel))
        return found

    def _receive(self, token: Tensor, channel: Channel) -> None:
        self._transport.receive(token, channel).wait()


def _of_cpu(sweep: Sweep) -> tuple[Profiler, str]:
    profiler = Profiler(WallMeter(), sweep, current_mhz=cpu_mhz)
    return profiler, "no GPU: times at the current clock of the processor, no energy"


def _of_gpu(sweep: Sweep, device: torch.device, is_shared: bool) -> tuple[Profiler, str]:
    uuid = gpu_uuid(device)
    try:
        gpu = NvmlGpu(uuid)
        gpu.energy_mj()  # some have no counter
    except NvmlError as error:
        profiler = Profiler(WallMeter(), sweep, synchronize=_synchronize)
        return profiler, f"times at the current clock, no energy: {error}"
    meter = NvmlMeter(gpu)
    try:
        clock = _own_clock(uuid, is_shared)
    except ClockError as error:
        profiler = Profiler(
            meter, sweep, current_mhz=gpu.clock_mhz, synchronize=_synchronize, align=meter.align
        )
        return profiler, f"times and energies at the current clock only: {error}"
    latency_s = clock_latency_of(gpu.name).typical_ms / 1000
    profiler = Profiler(
        meter,
        sweep,
        clock,
        gpu.clocks_mhz(),
        settle=lambda: time.sleep(5 * latency_s),
        synchronize=_synchronize,
        align=meter.align,
    )
    return profiler, f"times and energies from the highest clock down; {clock.description}"


def _own_clock(uuid: str, is_shared: bool) -> NvmlClock:
    if is_shared:
        raise ClockError("all devices share one GPU")
    return NvmlClock(uuid)


def _synchronize() -> None:
    """Wait for the compute stream only: the others may hold receives that are not due yet."""
    torch.cuda.current_stream().synchronize()


def gpu_uuid(device: torch.device) -> str:
    """Return the name by which NVML knows torch's GPU."""
    return str(torch.cuda.get_device_properties(device).uuid)


def cpu_mhz() -> int | None:
    """Return the mean clock of the processors now; None if the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    clocks = [float(value) for value in re.findall(r"^cpu MHz\s*:\s*([0-9.]+)", text, re.MULTILINE)]
    return round(sum(clocks) / len(clocks)) if clocks else None
