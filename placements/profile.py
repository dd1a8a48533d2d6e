"""What each block costs at each clock, measured or modelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class ProfileError(ValueError):
    """A profile is wrong; the message names the file, the field and the remedy in one line."""


@dataclass(frozen=True, order=True)
class OperatingPoint:
    """A block's cost at one clock, on one device.

    Attributes:
        clock_mhz: The clock.
        time_ms: How long the block runs.
        energy_mj: What one of its devices uses meanwhile, everything included.
    """

    clock_mhz: int
    time_ms: float
    energy_mj: float


@dataclass(frozen=True)
class Profile:
    """The cost of every block at every clock (Perseus, Sec. 5), per device.

    Attributes:
        device: Name of the GPU.
        points: For each block name its operating points by increasing clock.
        blocking_power_w: Power of a device that waits for a transfer (Perseus, Sec. 4.1).
    """

    device: str
    points: Mapping[str, tuple[OperatingPoint, ...]]
    blocking_power_w: float

    def fastest(self, block: str) -> OperatingPoint:
        """Return a block's point at its highest clock."""
        return self.points[block][-1]
