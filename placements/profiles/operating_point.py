"""Cost of a block at one clock, also of a block of several partitions, and the error of a wrong profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce


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


def joined(partitions: Sequence[Sequence[OperatingPoint]]) -> tuple[OperatingPoint, ...]:
    """Return the operating points of a block that runs partitions one after another.

    Kareus cuts a block into partitions, each some computation beside some communication, and chooses for each
    how many SMs communicate and when that begins, together with the clock. Changing the clock takes longer
    than a partition, so a block has one clock for all of them.

    >>> joined([
    ...     [OperatingPoint(1410, 2.0, 500.0, "4 SMs"), OperatingPoint(1410, 1.8, 560.0, "8 SMs")],
    ...     [OperatingPoint(1410, 1.0, 300.0)],
    ... ])
    (OperatingPoint(clock_mhz=1410, time_ms=3.0, energy_mj=800.0, config='4 SMs'), \
OperatingPoint(clock_mhz=1410, time_ms=2.8, energy_mj=860.0, config='8 SMs'))

    Returns:
        By clock, those that all partitions have; and by configuration, the partitions' in their order with
        `` + `` between. A point that another one of its clock beats in time and energy is left out.

    Raises:
        ProfileError: There are no partitions, or no clock is common to all.
    """
    if not partitions:
        raise ProfileError("partitions: has none; give at least one")
    common = set.intersection(*({point.clock_mhz for point in points} for points in partitions))
    if not common:
        raise ProfileError("partitions: have no clock in common; give each the same clocks")
    found: list[OperatingPoint] = []
    for clock in sorted(common):
        at_clock = [[point for point in points if point.clock_mhz == clock] for points in partitions]
        whole = reduce(_one_after_another, at_clock, [OperatingPoint(clock, 0.0, 0.0)])
        found += sorted(whole, key=lambda point: point.config)
    return tuple(found)


def _one_after_another(before: list[OperatingPoint], after: list[OperatingPoint]) -> list[OperatingPoint]:
    """Return the sums of two partitions at one clock that no other beats."""
    sums = [
        OperatingPoint(
            a.clock_mhz,
            a.time_ms + b.time_ms,
            a.energy_mj + b.energy_mj,
            " + ".join(filter(None, (a.config, b.config))),
        )
        for a in before
        for b in after
    ]
    kept: list[OperatingPoint] = []
    for point in sorted(sums, key=lambda point: (point.time_ms, point.energy_mj)):
        if not kept or point.energy_mj < kept[-1].energy_mj:
            kept.append(point)
    return kept
