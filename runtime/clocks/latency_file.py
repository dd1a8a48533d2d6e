"""Measured latencies of a GPU's clocks as a file, written by `runtime.clocks.latency`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from placements import ProfileError
from placements.files import read_json, write_json
from placements.hardware import DWELL_PER_LATENCY, ClockLatency

LATENCY_SCHEMA_VERSION = 1
"""Version of the form of ``clock_latency.json``."""

WANTED = "the file that python -m runtime.clock latency writes"


class Change(NamedTuple):
    """A change of clock, measured several times.

    Attributes:
        from_mhz: The clock before.
        to_mhz: The clock asked for.
        latency_ms: From each request until the clock was in force.
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

        A change takes its median; to a clock, as long as from the clock from which it takes longest. The
        dwell is assumed, as for the other tables.

        Args:
            source: Where it was read.
        """
        medians = [(change.to_mhz, median(change.latency_ms)) for change in self.changes]
        by_target = {target: max(ms for to, ms in medians if to == target) for target, _ in sorted(medians)}
        longest_ms = max(by_target.values())
        return ClockLatency(
            median(ms for _, ms in medians),
            DWELL_PER_LATENCY * longest_ms,
            f"{source}, {self.gpu}: {self.measured}; dwell assumed",
            by_target,
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
    data = read_json(path, WANTED, ProfileError)
    if not isinstance(data, dict) or not isinstance(data.get("changes"), list) or not data["changes"]:
        raise ProfileError(f"{path}: changes: is not a list of measured changes; give {WANTED}")
    version = data.get("schema_version", LATENCY_SCHEMA_VERSION)
    if version != LATENCY_SCHEMA_VERSION:
        raise ProfileError(
            f"{path}: schema_version: {version!r} is not {LATENCY_SCHEMA_VERSION}; give {WANTED}"
        )
    changes = [_change(row, f"{path}: changes[{index}]") for index, row in enumerate(data["changes"])]
    found = MeasuredLatency(str(data.get("gpu")), str(data.get("measured")), changes)
    return found.table(str(path))


def _change(row: Any, where: str) -> Change:
    remedy = "give [MHz before, MHz asked for, [ms, ...]]"
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], list) or not row[2]:
        raise ProfileError(f"{where}: {row!r} is not a change of clock; {remedy}")
    for clock in row[:2]:
        if type(clock) is not int or clock < 1:
            raise ProfileError(f"{where}: {clock!r} is not a clock; {remedy}")
    for ms in row[2]:
        if isinstance(ms, bool) or not isinstance(ms, (int, float)) or not 0 <= ms < math.inf:
            raise ProfileError(f"{where}: {ms!r} is not a time; {remedy}")
    return Change(row[0], row[1], tuple(float(ms) for ms in row[2]))
