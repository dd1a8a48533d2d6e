"""A GPU whose clock, time and energy are virtual.

A block does the work of a profile at whatever clock is in force. Not known here: jitter, heat, and what the
blocks compute. Tests drive the NVML path with a subclass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from placements import OperatingPoint
from runtime.clocks.clock import ClockBackend


class VirtualGpu(ClockBackend):
    """A GPU whose time moves only when it is told to.

    It is a clock as well: the third backend, beside `NvmlClock` and `RecordingClock`.

    Attributes:
        clock_mhz: In force.

    Args:
        highest_mhz: Where it begins, and what a reset gives back.
        blocking_power_w: While it waits.
        latency_ms: From a request until the clock is in force.
    """

    def __init__(self, highest_mhz: int, blocking_power_w: float, latency_ms: float = 0.0) -> None:
        super().__init__("clocks are simulated, in virtual time; no GPU is controlled")
        self.clock_mhz = self._wanted_mhz = self._highest_mhz = highest_mhz
        self._blocking_power_w = blocking_power_w
        self._latency_ms = latency_ms
        self._in_force_ms = 0.0
        self._now_ms = 0.0
        self._energy_mj = 0.0

    def set(self, clock_mhz: int) -> None:
        """Ask for a clock; a request that is not in force yet is forgotten."""
        super().set(clock_mhz)
        self._want(clock_mhz)

    def reset(self) -> None:
        """Ask for the highest clock."""
        self._want(self._highest_mhz)

    def now_ms(self) -> float:
        """Return its time."""
        return self._now_ms

    def energy_mj(self) -> float:
        """Return the energy used so far."""
        return self._energy_mj

    def until_change_ms(self) -> float:
        """Return how long until the clock asked for is in force; infinity if it is already."""
        return math.inf if self._wanted_mhz == self.clock_mhz else self._in_force_ms - self._now_ms

    def wait(self, ms: float) -> None:
        """Let time pass at the blocking power."""
        self._spend(ms, self._blocking_power_w)

    def work(self, points: Sequence[OperatingPoint]) -> None:
        """Do a block's work, at the cost of the point of the nearest clock."""
        left = 1.0
        while left > 0:
            point = min(points, key=lambda point: abs(point.clock_mhz - self.clock_mhz))
            rest_ms, change_ms = left * point.time_ms, self.until_change_ms()
            left = left - change_ms / point.time_ms if change_ms < rest_ms else 0.0
            self._spend(min(rest_ms, change_ms), point.energy_mj / point.time_ms)

    def _want(self, clock_mhz: int) -> None:
        if clock_mhz != self._wanted_mhz:
            self._wanted_mhz, self._in_force_ms = clock_mhz, self._now_ms + self._latency_ms
            self._spend(0.0, 0.0)

    def _spend(self, ms: float, power_w: float) -> None:
        arrives = ms >= self.until_change_ms()
        self._now_ms += ms
        self._energy_mj += power_w * ms
        if arrives:
            self.clock_mhz = self._wanted_mhz
