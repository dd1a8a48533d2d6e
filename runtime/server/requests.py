"""What requests carry, as typed records; a wrong one is refused by field, with the remedy, in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from placements import OperatingPoint, Profile, ProfileError
from placements.plain_data import Field
from placements.profiles.profile_csv import points_of_text
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import ScheduleFileError, schedule_from_dict

DEFAULT_NUM_PLANS = 200
"""Deadlines of a frontier where a job does not say."""

MOST_PLANS = 2000
"""Deadlines that a job may ask for."""

DEFAULT_MAX_BODY_MB = 32.0
"""Millions of bytes that a request may carry; a schedule of 100 000 blocks takes a few."""

NORMAL = 1.0
"""Degree of an accelerator that is no straggler."""

_LARGEST = 1e12
"""Milliseconds, millijoules, watts, seconds or degrees beyond which a figure is a mistake."""

_LONGEST_ID = 200
"""Characters of an accelerator's id."""


class RequestError(ValueError):
    """A request cannot be met; the message names the field, the problem and the remedy in one line.

    Args:
        message: The line.
        status: Of HTTP: 422 for what is wrong in itself, 404 for what is not there, 409 for what comes at
            the wrong time, 413 for what is too large.
    """

    def __init__(self, message: str, status: int = 422) -> None:
        """Keep the status beside the message."""
        super().__init__(message)
        self.status = status


class NotYetError(RequestError):
    """A job is not ready, but it may be without another word about it."""

    def __init__(self, message: str) -> None:
        """Refuse as what comes too early."""
        super().__init__(message, 409)


@dataclass(frozen=True)
class Registration:
    """A job to register.

    Attributes:
        schedule: Validated.
        text: The schedule's file form as JSON text.
        num_plans: Deadlines of its frontier.
    """

    schedule: Schedule
    text: str
    num_plans: int


@dataclass(frozen=True)
class Message:
    """What is said about an accelerator (Perseus, Table 2).

    Attributes:
        name: The accelerator's id.
        delay_s: From when on, counted from now.
        degree: By how much it slows the shortest iteration; 1 if it is back to normal.
    """

    name: str
    delay_s: float
    degree: float


def read_json(raw: bytes) -> Any:
    """Return the data of a body.

    Raises:
        RequestError: It is not JSON.
    """
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else "nested too deep"
        raise RequestError(f"body: is not JSON ({reason}); send an object", 400) from None


def read_registration(data: Any) -> Registration:
    """Return the job of ``{"schedule": ..., "num_plans": ...}``.

    Raises:
        RequestError: A field is missing, unknown or wrong, or the schedule breaks a rule.
    """
    body = _body(data, required=("schedule",), optional=("num_plans",))
    num_plans = body.get("num_plans", DEFAULT_NUM_PLANS).whole(
        f"a whole number of 1 to {MOST_PLANS}", "give one", 1, MOST_PLANS
    )
    data = body["schedule"].value
    _check_size(data)
    try:
        schedule = schedule_from_dict(data)
    except ScheduleFileError as error:
        raise RequestError(f"schedule: {error}") from None
    except OverflowError:
        raise RequestError("schedule: has a number out of all range; check its times and memory") from None
    return Registration(schedule, json.dumps(data), num_plans)


def read_profile(data: Any) -> Profile:
    """Return the profile of some blocks: ``{"blocking_power_w": ..., "csv": ... or "blocks": ...}``.

    Raises:
        RequestError: A field is missing, unknown or wrong, or a block lacks clocks.
    """
    body = _body(data, required=("blocking_power_w",), optional=("csv", "blocks"))
    power = _number(body["blocking_power_w"])
    if ("csv" in data) == ("blocks" in data):
        raise RequestError("body: give either 'csv', the text of a profile, or 'blocks', its points by block")
    points = _read_csv(body["csv"]) if "csv" in data else _read_blocks(body["blocks"])
    try:
        return Profile("uploaded", points, power)
    except ProfileError as error:
        raise RequestError(str(error)) from None


def _read_csv(field: Field) -> Mapping[str, tuple[OperatingPoint, ...]]:
    text = field.text("text", "send the content of a profile.csv")
    try:
        return points_of_text(text)
    except ProfileError as error:
        raise RequestError(f"csv: {error}") from None


def read_message(data: Any) -> Message:
    """Return the message of ``{"id": ..., "delay_s": ..., "degree": ...}``; the delay may be left out.

    Raises:
        RequestError: A field is missing, unknown or wrong: the name is empty or too long, the delay negative,
            or the degree below 1.
    """
    body = _body(data, required=("id", "degree"), optional=("delay_s",))
    name = body["id"].value
    name = str(name) if type(name) is int else body["id"].text("the id of an accelerator", "name it")
    if len(name) > _LONGEST_ID:
        raise RequestError(f"id: has {len(name)} characters; give {_LONGEST_ID} at most")
    delay = body.get("delay_s", 0.0).number("a time to come", "give 0 or more seconds", 0.0, _LARGEST)
    remedy = "give 1 if it is back to normal"
    return Message(name, float(delay), float(body["degree"].number("1 or more", remedy, NORMAL, _LARGEST)))


def _check_size(schedule: Any) -> None:
    """Refuse a schedule that would take all memory to find out that it is wrong."""
    if not isinstance(schedule, dict):
        return
    rows, number = schedule.get("blocks"), schedule.get("num_micro_batches")
    if isinstance(rows, list) and isinstance(number, int) and number > len(rows):
        raise RequestError(
            f"schedule: num_micro_batches: is more than the {len(rows)} blocks; "
            "each micro-batch has at least one"
        )


def _read_blocks(field: Field) -> Mapping[str, tuple[OperatingPoint, ...]]:
    wanted = "an object with a list of points for each block"
    if not field.mapping(wanted):
        raise field.wrong(wanted)
    return {block: _read_points(field[block]) for block in field.value}


def _read_points(field: Field) -> tuple[OperatingPoint, ...]:
    points = sorted(map(_read_point, field.items("a list of {clock_mhz, time_ms, energy_mj}")))
    if not points:
        raise field.wrong("a list with a clock")
    for point, after in pairwise(points):
        if point.clock_mhz == after.clock_mhz:
            raise RequestError(f"{field.where}: has {point.clock_mhz} MHz twice; keep one of them")
    return tuple(points)


def _read_point(field: Field) -> OperatingPoint:
    point = field.only(("clock_mhz", "time_ms", "energy_mj"))
    clock = point["clock_mhz"].whole("a clock", "give whole MHz above 0", 1, 1e9)
    return OperatingPoint(clock, _number(point["time_ms"]), _number(point["energy_mj"]))


def _body(data: Any, required: tuple[str, ...], optional: tuple[str, ...]) -> Field:
    return Field(data, "body", RequestError, is_root=True).only(required, optional)


def _number(field: Field) -> float:
    return float(field.number("a number", f"give one of {_LARGEST:g} at most", -_LARGEST, _LARGEST))
