"""The profiler of a process: the meter and the clock of its device, and its power while it waits."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from placements import Placement
from placements.hardware import ASSUMED_LATENCY, ClockLatency
from runtime.clocks.clock import ClockError, lock_clock
from runtime.clocks.gpu_clock import gpu_uuid
from runtime.clocks.nvml import NvmlError, NvmlGpu
from runtime.profiling.observer import DeviceObserver
from runtime.profiling.profiler import DeviceProfile, Meter, Profiler, Sweep
from runtime.program.instructions import Run
from runtime.transport.protocol import Channel, Transport

WAIT_S = 1.0
"""Wait in which a device's blocking power is measured: a hundred steps of the energy counter."""

MOST_ITERATIONS = 1_000_000
"""Iterations of a run that profiles; it ends when the sweep does."""


class ThreadMeter(Meter):
    """Measures the time that this thread computes: while it waits, other devices have their turn."""

    def now_ms(self) -> float:
        """Return the time."""
        return time.thread_time() * 1000


class NvmlMeter(Meter):
    """Measures the energy of a GPU too."""

    def __init__(self, gpu: NvmlGpu) -> None:
        self._gpu = gpu

    def energy_mj(self) -> float:
        """Return the energy that the GPU has used."""
        return self._gpu.energy_mj()

    def align(self) -> None:
        """Wait until the counter has just moved, or not at all for so long that it will not."""
        before_mj, give_up_ms = self.energy_mj(), self.now_ms() + 1000
        while self.energy_mj() == before_mj and self.now_ms() < give_up_ms:
            time.sleep(0.0002)


class DeviceProfiler(DeviceObserver):
    """Profiles the device of this process; see `open_profiler`.

    Attributes:
        profiler: Profiler of the device's blocks.
        description: One line: at which clocks, and whether energy is measured.
        is_closed: Whether the clock was given back, so that nothing is measured any more.
    """

    def __init__(
        self,
        sweep: Sweep,
        placement: Placement,
        transport: Transport,
        channels: Sequence[Channel],
        device: int,
        latency: ClockLatency | None = None,
    ) -> None:
        self.profiler, self.description = open_profiler(
            transport.device, sweep, latency, takes_turns=not transport.has_own_process
        )
        self.is_closed = False
        self.profiler.meet = lambda kind: transport.meet(placement.by_name[kind].devices)
        self._transport, self._channels, self._device = transport, channels, device

    def begin(self, iteration: int) -> None:
        """Go to the clock of an iteration."""
        if not self.is_closed:
            self.profiler.begin_iteration()

    def start(self, run: Run, arrived: Sequence[Tensor]) -> None:
        """Begin to measure a block."""
        if not self.is_closed:
            self.profiler.begin(run.block)

    def stop(self, run: Run, made: Iterable[Tensor]) -> None:
        """End the measurement of a block."""
        if not self.is_closed:
            self.profiler.end(run.block)

    def end(self) -> None:
        """Choose the clock of the next iteration."""
        if not self.is_closed:
            self.profiler.end_iteration()

    def all_done(self) -> bool:
        """Return whether the sweeps of all devices have ended; all ask together."""
        return all(self._transport.collect(self.profiler.is_done))

    def result(self) -> DeviceProfile:
        """Return the measurements, with blocking power where energy is measured; all ask together."""
        powers = [(clock_mhz, self._blocking_w(clock_mhz)) for clock_mhz in self._waiting_clocks()]
        waits = tuple((clock_mhz, power_w) for clock_mhz, power_w in powers if power_w is not None)
        description = "; ".join(filter(None, [self.description, self.profiler.limit]))
        return DeviceProfile(tuple(self.profiler.costs), waits, description)

    def close(self) -> None:
        """Give the clock back, once."""
        if self.profiler.clock is not None and not self.is_closed:
            self.profiler.clock.reset()
        self.is_closed = True

    def _waiting_clocks(self) -> list[int | None]:
        """Return the clocks at which the blocking power is measured, the same on all devices.

        They are of those that all have gone down to; None is the highest or only one of each. On a GPU that
        devices share there are none: others compute meanwhile.
        """
        mhz = {cost.clock_mhz for cost in self.profiler.costs} if self.profiler.clock is not None else set()
        is_shared = self._transport.shares_gpu
        if is_shared or not any(self._transport.collect(self.profiler.measures_energy)):
            return []
        common = sorted(set.intersection(*self._transport.collect(mhz)), reverse=True)
        number = min(self.profiler.sweep.blocking_clocks, len(common))
        if number < 2:
            return [max(common, default=None)]
        return [common[round(i * (len(common) - 1) / (number - 1))] for i in range(number)]

    def _blocking_w(self, clock_mhz: int | None) -> float | None:
        """Let each device wait, at a clock, for a message that its source sends late."""
        power_w = None
        if self.profiler.clock is not None:
            self.profiler.clock.set(max(self.profiler.clocks_mhz) if clock_mhz is None else clock_mhz)
            self.profiler.settle()
        into: dict[int, Channel] = {channel[1]: channel for channel in self._channels}
        for channel in into.values():
            token = torch.zeros(1, device=self._transport.device)
            self._transport.barrier()
            if self._device == channel[0]:
                time.sleep(WAIT_S)
                self._transport.send(token, channel).wait()
            elif self._device == channel[1]:
                received = partial(self._transport.receive, token, channel)
                power_w = self.profiler.power_w(lambda received=received: received().wait())  # type: ignore[misc]
        return power_w


def open_profiler(
    device: torch.device, sweep: Sweep, latency: ClockLatency | None = None, takes_turns: bool = False
) -> tuple[Profiler, str]:
    """Return the profiler of a device, and in one line at which clocks it measures times, or energies too.

    It has a meter where there is one, and a clock where there is the right to one: not where devices take
    turns, computing in this process while others wait, on one GPU if on any.
    """
    if device.type != "cuda":
        profiler = Profiler(ThreadMeter() if takes_turns else Meter(), sweep, current_mhz=cpu_mhz)
        return profiler, "no GPU: times at the current clock of the processor, no energy"
    # Only the compute stream is waited for: the others may hold receives that are not due yet.
    profiler = Profiler(Meter(), sweep, synchronize=lambda: torch.cuda.current_stream().synchronize())
    uuid = gpu_uuid(device)
    try:
        gpu = NvmlGpu(uuid)
    except NvmlError as error:
        return profiler, f"times at the current clock, no energy: {error}"
    profiler = replace(profiler, current_mhz=gpu.clock_mhz)
    measured = "times and energies"
    try:
        gpu.energy_mj()
        meter = NvmlMeter(gpu)
        profiler = replace(profiler, meter=meter, align=meter.align)
    except NvmlError as error:  # some GPUs count no energy
        measured = f"times, no energy: {error}"
    try:
        if takes_turns:
            raise ClockError("all devices share one GPU")
        clocks, clock = gpu.clocks_mhz(), lock_clock(uuid)
    except (ClockError, NvmlError) as error:
        return profiler, f"{measured}, at the current clock only: {error}"
    longest_s = (latency or ASSUMED_LATENCY).longest_ms / 1000
    profiler = replace(profiler, clock=clock, clocks_mhz=clocks, settle=lambda: time.sleep(5 * longest_s))
    return profiler, f"{measured}, from the highest clock down; {clock.description}"


def cpu_mhz() -> int | None:
    """Return the mean clock of the processors now; None if the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    clocks = [float(value) for value in re.findall(r"^cpu MHz\s*:\s*([0-9.]+)", text, re.MULTILINE)]
    return round(sum(clocks) / len(clocks)) if clocks else None
