"""Cost of a block at one clock, and the error of a wrong profile."""

from __future__ import annotations

from dataclasses import dataclass


class ProfileError(ValueError):
    """A profile is wrong; the message names the file, the field and the remedy in one line."""


@dataclass(frozen=True, order=True)
class OperatingPoint:
    """A block's cost at one clock, on one GPU.

    Attributes:
        clock_mhz: The clock.
        time_ms: How long the block runs.
        energy_mj: What one GPU uses meanwhile, everything included.
    """

    clock_mhz: int
    time_ms: float
    energy_mj: float
