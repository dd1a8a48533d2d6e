"""Cost of a block at one clock, and its file form, as in Zeus and Perseus.

The form is a CSV file with a row for each block and clock. In the file clocks are in MHz, times in seconds
and energies in joules on one GPU; inside the program times are milliseconds and energies millijoules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from placements.forms.meaning import Meaning
from placements.forms.tables import keys_of
from placements.forms.texts import csv_text, write_text

Frequency = Annotated[int, Meaning("clock", "MHz", min=1)]
Seconds = Annotated[float, Meaning("time of the block", "s", above=0)]
Joules = Annotated[float, Meaning("energy of the block on one GPU", "J", min=0)]


class ProfileError(ValueError):
    """A profile is wrong; the message names the file, the field and the remedy in one line."""


class Clock(int):
    """A clock in MHz, and the configuration in which a block runs at this clock.

    It is an `int` wherever a number is needed. Two are equal if clock and configuration are, so plans
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
        """Return constructor and arguments that rebuild the clock, for pickle."""
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
        energy_mj: Energy of one GPU meanwhile, everything included.
        config: Other choices for the block, such as the SMs that communicate, or recomputation. Empty where
            only the clock is chosen.
    """

    clock_mhz: int
    time_ms: float
    energy_mj: float
    config: str = ""

    @property
    def clock(self) -> int:
        """The clock, as a `Clock` with its configuration if the point has one."""
        return Clock(self.clock_mhz, self.config) if self.config else self.clock_mhz


@dataclass(frozen=True)
class ProfileRow:
    """A row of a profile by block."""

    block: Annotated[str, Meaning("block; with a mode as `B0@recompute`")]
    frequency: Frequency
    time: Seconds
    energy: Joules
    config: Annotated[str, Meaning("configuration, such as the number of SMs for communication")] = ""


@dataclass(frozen=True)
class StageRow:
    """A row of a profile by stage, as Zeus and Perseus write profiles, for V-shapes."""

    stage: Annotated[int, Meaning("stage number", min=0)]
    instruction: Annotated[Literal["forward", "backward"], Meaning("block of the stage")]
    frequency: Frequency
    time: Seconds
    energy: Joules
    config = ""

    @property
    def block(self) -> str:
        """Name of the block."""
        return f"{self.instruction[0].upper()}{self.stage}"


def write_profile_rows(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write a profile that may lack energies, all rows or no file.

    Args:
        path: The CSV file.
        rows: Block, clock in MHz, time in milliseconds, energy in millijoules, perhaps configuration; None
            leaves the cell empty, which `Profile.from_csv` rejects. Where no row has a configuration there is
            no column of them.

    Raises:
        ProfileError: The file cannot be written.
    """
    cells = [
        (block, clock_mhz, repr(time_ms / 1e3), None if energy_mj is None else repr(energy_mj / 1e3), *config)
        for block, clock_mhz, time_ms, energy_mj, *config in rows
    ]
    num_columns = 5 if any(any(row[4:]) for row in cells) else 4
    try:
        write_text(path, csv_text(keys_of(ProfileRow)[:num_columns], (row[:num_columns] for row in cells)))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror}); give another path") from None
