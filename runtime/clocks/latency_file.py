"""Measured latencies of a GPU's clocks as a file, written by `runtime.clocks.latency`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

from placements import ProfileError
from placements.forms.meaning import Meaning
from placements.forms.reading import json_file
from placements.forms.texts import write_json
from placements.hardware import DWELL_PER_LATENCY, ClockLatency

LATENCY_SCHEMA_VERSION = 1
"""Version of the form of ``clock_latency.json``."""

WANTED = "the file that python -m runtime.clock latency writes"


class Change(NamedTuple):
    """A change of clock, measured several times."""

    from_mhz: Annotated[int, Meaning("clock before", "MHz", min=1)]
    to_mhz: Annotated[int, Meaning("clock asked for", "MHz", min=1)]
    latency_ms: Annotated[
        tuple[float, ...], Meaning("times from each request until the clock was in force", "ms", min=0)
    ]


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
    with json_file(path, WANTED, ProfileError) as top:
        top.version(LATENCY_SCHEMA_VERSION, LATENCY_SCHEMA_VERSION)
        changes = top.get("changes").typed(tuple[Change, ...])
        if not changes or not all(change.latency_ms for change in changes):
            raise top["changes"].wrong("a list of measured changes", f"give {WANTED}")
    found = MeasuredLatency(str(top.get("gpu").value), str(top.get("measured").value), changes)
    return found.table(str(path))
