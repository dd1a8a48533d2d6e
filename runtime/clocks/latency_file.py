"""Measured latencies of a GPU's clocks as a file, written by `runtime.clocks.latency`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from placements import ProfileError
from placements.files import read_json, write_json
from placements.hardware import DWELL_PER_LATENCY, ClockLatency
from placements.plain_data import Field, in_file

LATENCY_SCHEMA_VERSION = 1
"""Version of the form of ``clock_latency.json``."""

WANTED = "the file that python -m runtime.clock latency writes"


class Change(NamedTuple):
    """A change of clock, measured several times.

    Attributes:
        from_mhz: The clock before.
        to_mhz: The clock asked for.
        latency_ms: Time from each request until the clock was in force.
    """

    from_mhz: int
    to_mhz: int
    latency_ms: tuple[float, ...]


@dataclass(frozen=True)
class MeasuredLatency:
    """What was measured on a GPU.

    Attributes:
        gpu: Its name.
        measured: How, in one line.
        changes: Every pair of clocks that was tried.
    """

    gpu: str
    measured: str
    changes: Sequence[Change]

    def table(self, source: str) -> ClockLatency:
        """Return it as the table that plans and scripts use.

        A change takes its median; to a clock from one that was not tried, as long as from the clock from
        which it takes longest. The dwell is assumed, as for the other tables.

        Args:
            source: Where it was read.
        """
        by_pair = {(change.from_mhz, change.to_mhz): median(change.latency_ms) for change in self.changes}
        medians = [(to, ms) for (_, to), ms in by_pair.items()]
        by_target = {target: max(ms for to, ms in medians if to == target) for target, _ in sorted(medians)}
        longest_ms = max(by_target.values())
        return ClockLatency(
            median(ms for _, ms in medians),
            DWELL_PER_LATENCY * longest_ms,
            f"{source}, {self.gpu}: {self.measured}; dwell assumed",
            by_target,
            by_pair,
        )

    def save(self, path: str | Path) -> Path:
        """Write the file; return its path."""
        changes = [[*change[:2], list(change.latency_ms)] for change in self.changes]
        facts = {"gpu": self.gpu, "measured": self.measured, "changes": changes}
        return write_json(path, {"schema_version": LATENCY_SCHEMA_VERSION, **facts})


def read_clock_latency(path: str | Path) -> ClockLatency:
    """Return the table of a file that `MeasuredLatency.save` wrote.

    Raises:
        ProfileError: It cannot be read, or is not of that form.
    """
    top = Field(read_json(path, WANTED, ProfileError), "", ProfileError)
    with in_file(path, ProfileError):
        top.version(LATENCY_SCHEMA_VERSION, LATENCY_SCHEMA_VERSION)
        listed = top.get("changes")
        changes = [_change(row) for row in listed.items("a list of measured changes", f"give {WANTED}")]
        if not changes:
            raise listed.wrong("a list of measured changes", f"give {WANTED}")
    return MeasuredLatency(str(top.get("gpu").value), str(top.get("measured").value), changes).table(
        str(path)
    )


def _change(row: Field) -> Change:
    wanted, remedy = "a change of clock", "give [MHz before, MHz asked for, [ms, ...]]"
    fields = row.items(wanted, remedy)
    if len(fields) != 3 or not fields[2].items(wanted, remedy):
        raise row.wrong(wanted, remedy)
    before, after = (clock.whole("a clock", remedy, min=1) for clock in fields[:2])
    times = (ms.number("a time", remedy, 0, sys.float_info.max) for ms in fields[2].items())
    return Change(before, after, tuple(float(ms) for ms in times))
