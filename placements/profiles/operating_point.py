"""Cost of a block at one clock, and the error of a wrong profile."""

from __future__ import annotations

from dataclasses import dataclass


class ProfileError(ValueError):
    """A profile is wrong; the message names the file, the field and the remedy in one line."""


class Clock(int):
    """A clock in MHz, and the configuration in which a block runs at it.

    It is a number wherever a number is asked for. Two are equal if clock and configuration are, so plans
    and tables that are kept by clock keep configurations apart. A clock without one is a plain number.

    >>> clock = Clock(1410, "8 SMs to communicate")
    >>> clock < 1500, clock == 1410, f"{clock} MHz"
    (True, False, '1410 MHz')

    Attributes:
        config: Name of the configuration.
    """

    config: str

    def __new__(cls, mhz: int, config: str) -> Clock:
        """Return a clock with a configuration."""
        clock = super().__new__(cls, mhz)
        clock.config = config
        return clock

    def __reduce__(self) -> tuple[type[Clock], tuple[int, str]]:
        """Return what makes it again, for pickle."""
        return Clock, (int(self), self.config)

    def __eq__(self, other: object) -> bool:
        """Tell whether clock and configuration are equal."""
        return super().__eq__(other) is True and self.config == config_of(other)

    def __ne__(self, other: object) -> bool:
        """Tell whether clock or configuration differ."""
        return not self == other

    def __hash__(self) -> int:
        """Return a hash of both."""
        return hash((int(self), self.config))


def config_of(clock: object) -> str:
    """Return the configuration of a clock; empty for a plain number."""
    return clock.config if isinstance(clock, Clock) else ""


@dataclass(frozen=True, order=True)
class OperatingPoint:
    """A block's cost at one clock, on one GPU.

    Attributes:
        clock_mhz: The clock.
        time_ms: How long the block runs.
        energy_mj: What one GPU uses meanwhile, everything included.
        config: What else is chosen for the block, such as the SMs that communicate, or whether it computes
            activations again. Empty where only the clock is.
    """

    clock_mhz: int
    time_ms: float
    energy_mj: float
    config: str = ""

    @property
    def clock(self) -> int:
        """The clock with its configuration, if it has one."""
        return Clock(self.clock_mhz, self.config) if self.config else self.clock_mhz
