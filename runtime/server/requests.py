"""What requests carry, as typed records; a wrong one is refused by field, with the remedy, in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from placements import OperatingPoint, Profile, ProfileError
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
    body = _fields(data, "body", required=("schedule",), optional=("num_plans",))
    num_plans = body.get("num_plans", DEFAULT_NUM_PLANS)
    if type(num_plans) is not int or not 1 <= num_plans <= MOST_PLANS:
        raise RequestError(
            f"num_plans: {_short(num_plans)} is not a whole number of 1 to {MOST_PLANS}; give one"
        )
    _check_size(body["schedule"])
    try:
        schedule = schedule_from_dict(body["schedule"])
    except ScheduleFileError as error:
        raise RequestError(f"schedule: {error}") from None
    except OverflowError:
        raise RequestError("schedule: has a number out of all range; check its times and memory") from None
    return Registration(schedule, json.dumps(body["schedule"]), num_plans)


def read_profile(data: Any) -> Profile:
    """Return the profile of some blocks: ``{"blocking_power_w": ..., "csv": ... or "blocks": ...}``.

    Raises:
        RequestError: A field is missing, unknown or wrong, or a block lacks clocks.
    """
    body = _fields(data, "body", required=("blocking_power_w",), optional=("csv", "blocks"))
    power = _number(body["blocking_power_w"], "blocking_power_w")
    if ("csv" in body) == ("blocks" in body):
        raise RequestError("body: give either 'csv', the text of a profile, or 'blocks', its points by block")
    try:
        if "csv" not in body:
            return Profile("uploaded", _read_blocks(body["blocks"]), power)
        if not isinstance(body["csv"], str):
            raise RequestError(f"csv: {_short(body['csv'])} is not text; send the content of a profile.csv")
        return Profile.from_csv_text(body["csv"], device="uploaded", blocking_power_w=power)
    except ProfileError as error:
        where = "csv: " if str(error).startswith(("line", "is ", "has ")) else ""
        raise RequestError(f"{where}{error}") from None


def read_message(data: Any) -> Message:
    """Return the message of ``{"id": ..., "delay_s": ..., "degree": ...}``; the delay may be left out.

    Raises:
        RequestError: A field is missing, unknown or wrong: the name is empty or too long, the delay negative,
            or the degree below 1.
    """
    body = _fields(data, "body", required=("id", "degree"), optional=("delay_s",))
    name = str(body["id"]) if type(body["id"]) is int else body["id"]
    if not isinstance(name, str):
        raise RequestError(f"id: {_short(name)} is not the id of an accelerator; give text or a whole number")
    delay_s, degree = _number(body.get("delay_s", 0.0), "delay_s"), _number(body["degree"], "degree")
    if not 1 <= len(name) <= 200:
        raise RequestError(f"id: has {len(name)} characters; name the accelerator with 1 to 200")
    if delay_s < 0:
        raise RequestError(f"delay_s: {delay_s:g} is not a time to come; give 0 or more seconds")
    if degree < NORMAL:
        raise RequestError(f"degree: {degree:g} is below 1 or not finite; give 1 if it is back to normal")
    return Message(name, delay_s, degree)


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


def _read_blocks(data: Any) -> Mapping[str, tuple[OperatingPoint, ...]]:
    if not isinstance(data, dict) or not data:
        raise RequestError("blocks: is not an object with a list of points for each block; give one")
    return {block: _read_points(points, f"blocks.{block}") for block, points in data.items()}


def _read_points(data: Any, where: str) -> tuple[OperatingPoint, ...]:
    if not isinstance(data, list) or not data:
        raise RequestError(f"{where}: has no clocks; give a list of {{clock_mhz, time_ms, energy_mj}}")
    points = sorted(_read_point(point, f"{where}[{i}]") for i, point in enumerate(data))
    for point, after in pairwise(points):
        if point.clock_mhz == after.clock_mhz:
            raise RequestError(f"{where}: has {point.clock_mhz} MHz twice; keep one of them")
    return tuple(points)


def _read_point(data: Any, where: str) -> OperatingPoint:
    point = _fields(data, where, required=("clock_mhz", "time_ms", "energy_mj"), optional=())
    clock = point["clock_mhz"]
    if type(clock) is not int or not 0 < clock < 1e9:
        raise RequestError(f"{where}.clock_mhz: {_short(clock)} is not a clock; give whole MHz above 0")
    return OperatingPoint(
        clock,
        _number(point["time_ms"], f"{where}.time_ms"),
        _number(point["energy_mj"], f"{where}.energy_mj"),
    )


def _fields(data: Any, where: str, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise RequestError(f"{where}: is not an object; give one with {', '.join(required + optional)}")
    for name in required:
        if name not in data:
            raise RequestError(f"{where}: lacks the field {name!r}; add it")
    for name in data:
        if name not in required + optional:
            known = ", ".join(required + optional)
            raise RequestError(f"{where}: has an unknown field {_short(name)}; the fields are {known}")
    return data


def _number(value: Any, where: str) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
        raise RequestError(f"{where}: {_short(value)} is not a number; give a finite one")
    if abs(value) > _LARGEST:
        raise RequestError(f"{where}: {_short(value)} is out of all range; check its unit")
    return float(value)


def _short(value: Any) -> str:
    """Return a value as messages show it."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
