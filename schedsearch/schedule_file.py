"""The file form of a schedule and of its proofs: ``schedule.json``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from placements import PlacementError
from placements.forms.reading import Field, json_file
from placements.placement_file import placement_from_dict, placement_to_dict
from schedsearch.core.answer import Answer, Status, proved_text
from schedsearch.device_span import device_spans
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.passes.lowered import Lowered
from schedsearch.proof.check.certificate import (
    Certificate,
    CertificateError,
    certificate_from_dict,
    certificate_to_dict,
)
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule, ScheduledBlock
from schedsearch.searches.certificate import certificate_of
from schedsearch.searches.search_file import (
    modes_from_dict,
    modes_to_dict,
    repetend_from_dict,
    repetend_to_dict,
    search_from_dict,
    search_to_dict,
    whole_or_none,
)
from schedsearch.validate import InvalidScheduleError, validate

SCHEMA_VERSION = 1
"""Version of the schedule file form."""


class ScheduleFileError(ValueError):
    """A schedule file is wrong; the message names the file, the field and the remedy in one line."""


def schedule_to_dict(schedule: Schedule, result: Answer | None = None) -> dict[str, Any]:
    """Return the file form as plain data, with the result of the search that found the schedule.

    Without one nothing is proved, and the fields on the period are null.
    """
    placement = placement_to_dict(schedule.placement)
    placement["transfer"] = [list(triple) for triple in schedule.placement.transfer]
    repetend, around = None, None
    if result is not None and (repetend := result.repetend) is not None:
        around = repetend_to_dict(repetend) | {"span": repetend.span, "span_bound": result.span_bound}
    return {
        "schema_version": SCHEMA_VERSION,
        "placement": placement,
        "num_micro_batches": schedule.num_micro_batches,
        "search_status": (result.status if result else Status.FEASIBLE).value,
        "proved": result.proved if result else proved_text(),
        "period": repetend.period if repetend else None,
        "micro_batches_per_repetend": repetend.micro_batches if repetend else None,
        "period_bound": result.period_bound if result else None,
        "repetend": around,
        "certificate": _certificate_to_dict(schedule, result) if result else None,
        "makespan": schedule.makespan,
        "makespan_bound": result.makespan_bound if result else None,
        "device_span": int(device_spans(schedule).max()),
        "device_span_bound": result.device_span_bound if result else None,
        "bubble_rate": bubble_rate(schedule),
        "steady_bubble_rate": repetend.bubble_rate if repetend else None,
        "peak_memory": peak_memory(schedule).tolist(),
        "search_seconds": result.seconds if result else 0.0,
        **({"search": search_to_dict(result)} if result else {}),
        **modes_to_dict(schedule.placement, schedule.chosen),
        "blocks": [_block_to_list(schedule, run) for run in schedule.blocks],
    }


def _block_to_list(schedule: Schedule, run: ScheduledBlock) -> list[str | int]:
    """Return a block's row: name, micro-batch and start; with modes also its time."""
    row: list[str | int] = [run.block, run.micro_batch, run.start]
    return [*row, schedule.block(run.block, run.micro_batch).time] if schedule.chosen else row


def _certificate_to_dict(schedule: Schedule, result: Answer) -> dict[str, Any] | None:
    if result.repetend is None or schedule.placement.slowdown:
        return None
    lowered = _lanes_as_devices(schedule)
    if lowered is None:
        return certificate_to_dict(certificate_of(schedule.placement, result))
    answer = lowered.lower(result)
    assert isinstance(answer, Answer)
    return certificate_to_dict(certificate_of(lowered.plain, answer))


def _lanes_as_devices(schedule: Schedule) -> Lowered | None:
    """Return a schedule's placement with one device per stream; None if it has modes or slowdown."""
    placement = schedule.placement
    if placement.decisions or placement.slowdown:
        return None
    return Lowered.of(placement, ((),))


@dataclass(frozen=True)
class Claims:
    """The claims of a schedule file.

    Attributes:
        schedule: Validated.
        status: Status of the search's answer; see `Status`.
        makespan: Makespan of the schedule, in ticks.
        makespan_bound: Ticks that no schedule beats; None where nothing is claimed.
        period_bound: Ticks per micro-batch, as a float; None where nothing is claimed.
        certificate: Why; None for a hand-made schedule. What it claims is not checked yet.
        span_bound: Ticks that no repetend of its period beats; None where nothing is claimed.
        device_span: The longest of its devices' own spans, in ticks; None where nothing is claimed.
        device_span_bound: Ticks that no schedule beats in it; None where nothing is claimed.
    """

    schedule: Schedule
    status: Status
    makespan: int
    makespan_bound: int | None
    period_bound: float | None
    certificate: Certificate | None
    span_bound: int | None
    device_span: int | None
    device_span_bound: int | None

    @property
    def meets_a_bound(self) -> bool:
        """Whether the whole schedule is said to be the shortest: of its makespan, or its device span."""
        values = (self.makespan, self.makespan_bound), (self.device_span, self.device_span_bound)
        return any(value is not None and bound is not None and value <= bound for value, bound in values)


def read_schedule(path: str | Path) -> Schedule:
    """Read the placement and the blocks of a ``schedule.json``, and validate them.

    Raises:
        ScheduleFileError: The file cannot be read, lacks a field, or its schedule breaks a rule.
    """
    return _read_file(path, _read)


def read_claims(path: str | Path) -> Claims:
    """Read a ``schedule.json`` with all its claims, and validate its schedule.

    If a placement has streams but no modes, the claims are about the same one with a device for each stream.

    Raises:
        ScheduleFileError: The file cannot be read, lacks a field, or its schedule breaks a rule.
    """
    return _read_file(path, _read_claims)


def result_to_dict(result: Answer) -> dict[str, Any]:
    """Return the file form of a search's result, which may have no schedule."""
    if result.schedule is not None:
        return schedule_to_dict(result.schedule, result)
    return {
        "schema_version": SCHEMA_VERSION,
        "search_status": result.status.value,
        "proved": result.proved,
        "period_bound": result.period_bound,
        "makespan_bound": result.makespan_bound,
        "device_span_bound": result.device_span_bound,
        "search_seconds": result.seconds,
        "search": search_to_dict(result),
    }


def read_result(path: str | Path) -> Answer:
    """Read a search's answer, and validate its schedule; its bounds are not checked.

    Raises:
        ScheduleFileError: The file cannot be read, lacks a field, or its schedule breaks a rule.
    """
    return _read_file(path, _read_result)


def read_found(path: str | Path) -> Schedule | Answer:
    """Read a search's answer, or the schedule alone if the file has no search, and validate the schedule.

    Raises:
        ScheduleFileError: The file cannot be read, lacks a field, or its schedule breaks a rule.
    """
    return _read_file(path, lambda data: _read_result(data) if "search" in data.mapping() else _read(data))


def schedule_from_dict(data: object) -> Schedule:
    """Build the schedule of a ``schedule.json`` from its plain data, and validate it.

    Raises:
        ScheduleFileError: A field is missing, or the schedule breaks a rule.
    """
    return _in_words(data, _read)


Read = TypeVar("Read")


def _read_file(path: str | Path, read: Callable[[Field], Read]) -> Read:
    """Return a reader's result for a file's data; errors begin with the file's name."""
    with json_file(path, "a schedule.json", ScheduleFileError) as data:
        return _in_words(data.value, read)


def _in_words(data: Any, read: Callable[[Field], Read]) -> Read:
    """Return a reader's result for plain data; errors have one line."""
    try:
        return read(Field(data, "", ScheduleFileError))
    except InvalidScheduleError as error:
        raise ScheduleFileError(error.reason) from None
    except (PlacementError, CertificateError) as error:
        raise ScheduleFileError(str(error)) from None


def _read(data: Field) -> Schedule:
    data.mapping(remedy="give a schedule.json")
    data.version(SCHEMA_VERSION, SCHEMA_VERSION)
    number = data["num_micro_batches"].whole()
    placement = placement_from_dict(data["placement"].value)
    chosen = modes_from_dict(data, placement, number)
    wanted = f"[name, micro_batch, start{', time' if chosen else ''}] with whole ticks"
    rows = data["blocks"].items(f"a list of {wanted}")
    schedule = Schedule(
        placement, number, tuple(_read_block(row, wanted, 4 if chosen else 3) for row in rows), chosen
    )
    validate(schedule)
    for row in rows if chosen else ():
        name, micro_batch, _, time = row.value
        if time != schedule.block(name, micro_batch).time:
            raise row.wrong(f"{wanted}, of which {name} takes {schedule.block(name, micro_batch).time}")
    return schedule


def _read_result(data: Field) -> Answer:
    if "blocks" not in data.mapping():
        data.version(SCHEMA_VERSION)
        return search_from_dict(data, None, None, None)
    schedule = _read(data)
    repetend = None if data["repetend"].value is None else _read_repetend(data, schedule)
    return search_from_dict(data, schedule, repetend, schedule.placement)


def _read_claims(data: Field) -> Claims:
    whole = _read(data)
    lowered = _lanes_as_devices(whole)
    on_lanes = lowered is not None and not whole.placement.is_plain
    schedule = whole if lowered is None else lowered.lowered_schedule(whole)
    certificate = span_bound = None
    if (given := data.get("certificate").value) is not None:
        repetend = _read_repetend(data, whole)
        if lowered is not None and on_lanes:
            repetend = lowered.lowered_repetend(repetend)
        certificate = certificate_from_dict(given, schedule.placement, repetend)
        span_bound = whole_or_none(data["repetend"].get("span_bound"))
    return Claims(
        schedule,
        data["search_status"].typed(Status),
        data["makespan"].whole(),
        whole_or_none(data["makespan_bound"]),
        None if (bound := data["period_bound"]).value is None else bound.number(remedy="give one or null"),
        certificate,
        span_bound,
        whole_or_none(data.get("device_span")) if not on_lanes else None,
        whole_or_none(data.get("device_span_bound")) if not on_lanes else None,
    )


def _read_repetend(data: Field, schedule: Schedule) -> Repetend:
    """Return the repetend of a file without checking it."""
    repetend = data["repetend"]
    repetend.mapping(remedy="there is a certificate of it; give both")
    micro_batches = data["micro_batches_per_repetend"].whole()
    return repetend_from_dict(repetend, schedule.placement, micro_batches, data["period"].whole())


def _read_block(row: Field, wanted: str, length: int) -> ScheduledBlock:
    if [type(item.value) for item in row.items(wanted)] != [str, int, int, int][:length]:
        raise row.wrong(wanted)
    name, micro_batch, start = row.value[:3]
    return ScheduledBlock(start, micro_batch, name)
