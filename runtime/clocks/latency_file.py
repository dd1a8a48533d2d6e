"""Measured latencies of a GPU's clocks as a file, written by `runtime.clocks.latency`."""

from __future__ import annotations

from collections.abc import Sequence
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


def write_clock_latency(path: str | Path, gpu: str, measured: str, changes: Sequence[Change]) -> Path:
    """Write the changes of every pair of a GPU's clocks; `measured` is the method, in one line."""
    facts = {"gpu": gpu, "measured": measured, "changes": changes}
    return write_json(path, {"schema_version": LATENCY_SCHEMA_VERSION, **facts})


def read_clock_latency(path: str | Path) -> ClockLatency:
    """Return the table that plans and scripts use, from a file that `write_clock_latency` wrote.

    A change takes its median; to a clock from one that was not tried, as long as from the clock from
    which it takes longest. The dwell is assumed, as for the other tables.

    Raises:
        ProfileError: It cannot be read, or is not of that form.
    """
    with json_file(path, WANTED, ProfileError) as top:
        top.version(LATENCY_SCHEMA_VERSION, LATENCY_SCHEMA_VERSION)
        changes = top.get("changes").typed(tuple[Change, ...])
        if not changes or not all(change.latency_ms for change in changes):
            raise top["changes"].wrong("a list of measured changes", f"give {WANTED}")
    by_pair = {(change.from_mhz, change.to_mhz): median(change.latency_ms) for change in changes}
    by_target: dict[int, float] = {}
    for (_, to_mhz), ms in sorted(by_pair.items(), key=lambda row: row[0][1]):
        by_target[to_mhz] = max(ms, by_target.get(to_mhz, 0.0))
    return ClockLatency(
        median(by_pair.values()),
        DWELL_PER_LATENCY * max(by_target.values()),
        f"{path}, {top.get('gpu').value}: {top.get('measured').value}; dwell assumed",
        by_target,
        by_pair,
    )
