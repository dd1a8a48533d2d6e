"""Torch's GPU: its name for NVML, the events of its compute stream, and its clock, which follows these."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from placements.hardware import ASSUMED_LATENCY, ClockLatency
from runtime.clocks.clock import ClockBackend, RecordingClock, open_clock
from runtime.clocks.stream_clock import StreamClock
from runtime.program.instructions import Run


def open_gpu_clock(
    runs: Sequence[Run], device: torch.device, latency: ClockLatency | None = None, is_shared: bool = False
) -> ClockBackend:
    """Return the clock of a GPU, or one that records where there is none.

    Args:
        runs: The blocks of an iteration in their order, with their clocks.
        device: The GPU, or the CPU.
        latency: Duration of clock changes; None for the assumed one.
        is_shared: Whether other devices of the run compute on the GPU too; then its clock is only recorded.
    """
    if device.type != "cuda":
        return open_clock(None)
    latency = latency or ASSUMED_LATENCY
    shared = RecordingClock("all devices share one GPU") if is_shared else None
    clock = shared or open_clock(gpu_uuid(device), latency.dwell_ms)
    stream = StreamClock(clock, runs, lambda clock_mhz: latency.to_ms(clock_mhz) / 1000)
    stream.start(lambda: torch.cuda.set_device(device))  # a new thread would look at the first GPU
    return stream


def record_event(*, timed: bool = True, sleeps: bool = False) -> torch.cuda.Event:
    """Record an event at the present end of the compute stream.

    Args:
        timed: Whether it can tell when it was reached; one that cannot costs less.
        sleeps: Whether a thread that waits for it sleeps until the GPU interrupts, rather than asking the
            GPU again and again.
    """
    event = torch.cuda.Event(enable_timing=timed, blocking=sleeps)  # type: ignore[no-untyped-call]
    event.record()
    return event


def gpu_uuid(device: torch.device) -> str:
    """Return the name by which NVML knows torch's GPU."""
    return str(torch.cuda.get_device_properties(device).uuid)
