"""Probes of a GPU's speed while its clock changes: by a kernel that spins, or by the clock of NVML."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import NamedTuple

from runtime.clocks.nvml import NvmlGpu

BLOCK_MS = 0.25
"""How long a probe computes at the slower of two clocks: so exact is a latency."""


class ProbeAnswer(NamedTuple):
    """Speed of a GPU, in proportion to its clock, and when the probe began to look, from any start."""

    begin_ms: float
    speed: float


class Probe(NamedTuple):
    """Says how fast a GPU is.

    Attributes:
        look: Does a little work, which takes `BLOCK_MS` at a clock in MHz, and says how fast.
        description: How it finds the speed.
    """

    now_ms: Callable[[], float]
    look: Callable[[int], ProbeAnswer]
    description: str


def probe_of(gpu: NvmlGpu) -> Probe:
    """Return the probe of a GPU: by work if torch sees it."""
    by_work = _cycle_probe(gpu.uuid) if importlib.util.find_spec("torch") is not None else None
    return by_work or clock_probe(gpu)


def clock_probe(gpu: NvmlGpu) -> Probe:
    """Return a probe that reads the clock that the driver shows; it needs no work, and knows only that."""

    def look(slower_mhz: int) -> ProbeAnswer:
        time.sleep(BLOCK_MS / 1000)
        return ProbeAnswer(_now_ms(), gpu.clock_mhz())

    return Probe(_now_ms, look, "the SM clock that NVML shows, since torch does not see this GPU")


def _cycle_probe(uuid: str) -> Probe | None:
    """Return a probe that times a kernel which counts an SM's cycles; None if torch does not see the GPU."""
    import torch

    from runtime.clocks.gpu_clock import gpu_uuid

    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    device = next((device for device in devices if uuid.endswith(gpu_uuid(device))), None)
    if device is None:
        return None
    torch.cuda.set_device(device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def look(slower_mhz: int) -> ProbeAnswer:
        begin_ms, cycles = _now_ms(), int(BLOCK_MS * slower_mhz * 1000)
        begin.record()
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        end.record()
        end.synchronize()
        return ProbeAnswer(begin_ms, cycles / begin.elapsed_time(end) / 1000)

    return Probe(_now_ms, look, "the time of a kernel that spins for a number of cycles")


def _now_ms() -> float:
    return time.perf_counter() * 1000
