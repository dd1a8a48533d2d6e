"""What tells a GPU's speed at a time, while its clock changes; here from the clock that the driver shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from runtime.clocks.nvml import NvmlGpu

BLOCK_MS = 0.25
"""How long a probe computes at the slower of two clocks: so exact is a latency."""


class ProbeAnswer(NamedTuple):
    """What a probe says.

    Attributes:
        begin_ms: When it began to look, from any start.
        speed: Speed in proportion to the clock.
    """

    begin_ms: float
    speed: float


class Probe(NamedTuple):
    """Says how fast a GPU is.

    Attributes:
        now_ms: Returns the time.
        look: Does a little work, which takes `BLOCK_MS` at a clock in MHz, and says how fast.
        description: What it looks at.
    """

    now_ms: Callable[[], float]
    look: Callable[[int], ProbeAnswer]
    description: str


def clock_probe(gpu: NvmlGpu) -> Probe:
    """Return a probe that reads the clock that the driver shows; it needs no work, and knows only that."""

    def look(slower_mhz: int) -> ProbeAnswer:
        time.sleep(BLOCK_MS / 1000)
        begin_ms = now_ms()
        return ProbeAnswer(begin_ms, gpu.clock_mhz())

    return Probe(now_ms, look, "the SM clock that NVML shows, since torch does not see this GPU")


def now_ms() -> float:
    """Return the time, from any start."""
    return time.perf_counter() * 1000
