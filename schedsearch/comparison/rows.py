"""The rows of a comparison: the figures of each schedule in ms and MiB, and the file form of all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from placements import Kind
from placements.forms.reading import Field, json_file
from placements.stages.stage_chain import PlacedStages
from schedsearch.core.answer import proved_text
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.metrics import bubble_rate, peak_memory, steady_period
from schedsearch.results import FileResult
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import ScheduleFileError, schedule_from_dict, schedule_to_dict

SCHEMA_VERSION = 1
"""Version of the file form of a comparison."""

DOES_NOT_FIT = "does not fit"
"""Word beside a hand-made schedule that needs more memory than its devices have."""

NOT_APPLICABLE = "not applicable"
"""Word beside a schedule that is not defined for the model, the devices or the number of micro-batches."""

WHOLE = " with whole backwards"
"""Words behind a proof that holds only for schedules with whole backwards."""


@dataclass(frozen=True)
class ComparedRow:
    """One schedule of a comparison, in ms and MiB; None where a figure does not apply.

    Attributes:
        schedule: Its name, as asked for.
        placement: The shape that it is on; empty where there is none.
        proved: ``makespan proved`` where the makespan meets its bound, with `WHOLE` behind it where it may be
            shorter with split backwards, ``not proved`` where it does not, `DOES_NOT_FIT`, `NOT_APPLICABLE`;
            of a search also ``infeasible`` and ``unknown``.
        makespan_ms: Time from the first start to the last end.
        makespan_bound_ms: No schedule of these micro-batches on the same shape, or for ``searched`` on any
            shape tried, is shorter.
        bubble_rate: Idle share of makespan times devices.
        period_ms: Time that one more micro-batch adds to the makespan in steady state: of a rule, once all
            devices are filled; else of this very schedule, None where its middle repeats nothing.
        device_span_ms: The longest time from a device's own first start to its last end, with the orders of
            the schedule and its devices' first starts chosen for it: an iteration's time without a barrier.
        peak_memory_mib: Peak memory of the device that holds most, weights included.
        energy_j: Energy of all devices from the first start to the last end; None where their power is not
            known.
        search_seconds: Wall-clock time of the search.
        note: Assumptions, cuts, choices or missing memory, in words.
        solution: The schedule itself; None where there is none.
    """

    schedule: str
    placement: str = ""
    proved: str = NOT_APPLICABLE
    makespan_ms: float | None = None
    makespan_bound_ms: float | None = None
    bubble_rate: float | None = None
    period_ms: float | None = None
    device_span_ms: float | None = None
    peak_memory_mib: float | None = None
    energy_j: float | None = None
    search_seconds: float | None = None
    note: str = ""
    solution: Schedule | None = field(default=None, compare=False, repr=False)

    @property
    def quality(self) -> tuple[float, float, float]:
        """Sort key: makespan (ms), peak memory (MiB), energy (J); less is better, a missing one is worst."""
        time_ms, mib, joules = (
            math.inf if figure is None else figure
            for figure in (self.makespan_ms, self.peak_memory_mib, self.energy_j)
        )
        return time_ms, mib, joules

    @property
    def title(self) -> str:
        """The title of its timeline."""
        assert self.makespan_ms is not None and self.bubble_rate is not None, "a schedule has these"
        figures = f"{self.makespan_ms:,.6g} ms, {self.bubble_rate:.1%} bubble"
        return f"{self.schedule} ({self.placement}): {figures}"

    def to_dict(self) -> dict[str, Any]:
        """Return its figures as plain data, without the schedule."""
        return {name: getattr(self, name) for name in COLUMNS}


COLUMNS = tuple(column.name for column in fields(ComparedRow) if column.name != "solution")
"""Columns of the table, in order."""


@dataclass(frozen=True)
class Comparison(FileResult):
    """Schedules of one model side by side.

    Attributes:
        num_micro_batches: Micro-batches of each schedule.
        rows: Rows in the order in which they were asked for.
        interrupted: Whether Ctrl-C ended the searches; then these have what they found until then.
    """

    num_micro_batches: int
    rows: tuple[ComparedRow, ...]
    interrupted: bool = False

    @property
    def by_title(self) -> dict[str, Schedule]:
        """The schedules that fit, by the titles of their timelines."""
        return {row.title: row.solution for row in self.rows if row.solution is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return the file form as plain data; schedules by the name of their row."""
        return {
            "schema_version": SCHEMA_VERSION,
            "num_micro_batches": self.num_micro_batches,
            "interrupted": self.interrupted,
            "rows": [row.to_dict() for row in self.rows],
            "schedules": {row.schedule: schedule_to_dict(row.solution) for row in self.rows if row.solution},
        }

    @classmethod
    def from_json(cls, path: str | Path) -> Comparison:
        """Read a comparison from a JSON file, and validate its schedules.

        Raises:
            ScheduleFileError: The file cannot be read or is wrong; the message begins with its path.
        """
        with json_file(path, "a compare.json", ScheduleFileError) as top:
            top.version(SCHEMA_VERSION)
            schedules = top.get("schedules", {})
            return cls(
                top["num_micro_batches"].whole(),
                tuple(_read_row(row, schedules) for row in top["rows"].items()),
                top.get("interrupted").value is True,
            )


def _read_row(row: Field, schedules: Field) -> ComparedRow:
    schedule = schedules.get(str(row["schedule"].value)).value
    return row.record(ComparedRow, solution=None if schedule is None else schedule_from_dict(schedule))


def row_of(name: str, placed: PlacedStages, schedule: Schedule, note: str) -> ComparedRow:
    """Return the row of a schedule: the figures of the schedule alone, without bound and energy."""
    back_to_back, steady = with_least_device_span(schedule), steady_period(schedule)
    return ComparedRow(
        name,
        placed.placement.name,
        proved_text(),
        makespan_ms=placed.placement.ms(schedule.makespan),
        bubble_rate=bubble_rate(schedule),
        period_ms=None if steady is None else placed.placement.ms(Fraction(steady)) / placed.num_samples,
        device_span_ms=placed.placement.ms(int(device_spans(back_to_back).max())),
        peak_memory_mib=placed.placement.mib(int(peak_memory(schedule).max())),
        note=note,
        solution=schedule,
    )


def judged(row: ComparedRow, bound_ms: float) -> ComparedRow:
    """Return a row with the better of two makespan bounds, and with the proof that follows from this bound.

    `bound_ms` is for split backwards on the same shape: whole backwards are never faster.
    """
    if row.makespan_ms is None or row.makespan_bound_ms is None or row.solution is None:
        return row
    is_split = any(block.kind is Kind.W for block in row.solution.placement.blocks)
    whole = "" if is_split or row.makespan_ms <= bound_ms else WHOLE
    bound_ms = max(bound_ms, row.makespan_bound_ms)
    proved = proved_text("makespan") + whole if row.makespan_ms <= bound_ms else proved_text()
    return replace(row, makespan_bound_ms=bound_ms, proved=proved)


def compared(value: float, other: float, what: str = "") -> str:
    """Return the difference of two values in words, as a share of the second one.

    >>> compared(1, 2), compared(2, 1.9999, "energy"), compared(3, 2, "energy"), compared(2, 2)
    ('50.0% less than', 'as much energy as', '50.0% more energy than', 'as long as')
    """
    share = f"{abs(value / other - 1):.1%}"
    if share == "0.0%":
        return f"as much {what} as" if what else "as long as"
    return " ".join(filter(None, (share, "less" if value < other else "more", what, "than")))


def joined(*notes: str) -> str:
    """Return one note made of several; empty ones are left out."""
    return "; ".join(filter(None, notes))


def missing_memory(placed: PlacedStages, needed: Sequence[int]) -> str:
    """Return in words which device lacks most memory, and how much it needs; empty if all have enough."""
    memory = placed.placement.memory or needed
    device = max(range(len(needed)), key=lambda device: needed[device] - memory[device])
    if needed[device] <= memory[device]:
        return ""
    needs, has = placed.placement.mib(needed[device]), placed.placement.mib(memory[device])
    return f"needs {needs:,.10g} MiB on device {device}, which has {has:,.10g} MiB"
