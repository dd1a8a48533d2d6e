"""What requests and answers carry, and why a request is refused: the schema of ``/docs``, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from placements import OperatingPoint, Profile, ProfileError
from placements.forms.reading import in_file
from placements.forms.texts import read_json
from placements.profiles.operating_point import points_of
from schedsearch.energy.frontier import Frontier
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import ScheduleFileError, schedule_from_dict

NORMAL = 1.0
"""Degree of an accelerator that is no straggler."""

_LARGEST = 1e12
"""Milliseconds, millijoules, watts, seconds or degrees beyond which a figure is a mistake."""

_LONGEST = 60
"""Characters of a value that a refusal shows."""


class RequestError(ValueError):
    """A request cannot be met; the message names the field, the problem and the remedy in one line.

    Args:
        message: The line.
        status: Of HTTP: 422 for what is wrong in itself, 404 for what is not there, 409 for what comes at
            the wrong time.
    """

    def __init__(self, message: str, status: int = 422) -> None:
        """Keep the status beside the message."""
        super().__init__(message)
        self.status = status


class NotYetError(RequestError):
    """A job is not ready, but it may be without another word about it."""


def refusal(error: Mapping[str, Any]) -> RequestError:
    """Return what pydantic finds wrong in a request as an error of one line.

    >>> print(refusal({"type": "missing", "loc": ("body", "degree"), "msg": "Field required"}))
    degree: is missing; give it
    """
    source, *rest = error["loc"]
    where = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in rest).removeprefix(".")
    where, message = where or source, error["msg"]
    match error["type"]:
        case "json_invalid":
            return RequestError(f"body: is not JSON ({error['ctx']['error']}); send an object", 400)
        case "missing":
            return RequestError(f"{where}: is missing; give it")
        case "extra_forbidden":
            return RequestError(f"{where}: is not known; leave it out")
        case "value_error":
            return RequestError(f"{where}: {error['ctx']['error']}")
    shown = repr(error["input"])
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    return RequestError(f"{where}: {shown} is wrong; {message[0].lower()}{message[1:]}")


class RequestBody(BaseModel):
    """What a request carries: no other fields than these, and each of its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Registration(RequestBody):
    """A job to register."""

    schedule: dict[str, Any] = Field(description="content of a schedule.json")
    num_plans: int = Field(200, ge=1, le=2000, description="deadlines of its frontier")

    def read(self) -> Schedule:
        """Return the schedule, validated.

        Raises:
            RequestError: It breaks a rule, or is too large to find out whether it does.
        """
        rows, number = self.schedule.get("blocks"), self.schedule.get("num_micro_batches")
        if isinstance(rows, list) and isinstance(number, int) and number > len(rows):
            raise RequestError(
                f"schedule: num_micro_batches: is more than the {len(rows)} blocks; "
                "each micro-batch has at least one"
            )
        try:
            return schedule_from_dict(self.schedule)
        except ScheduleFileError as error:
            raise RequestError(f"schedule: {error}") from None
        except OverflowError:
            raise RequestError(
                "schedule: has a number out of all range; check its times and memory"
            ) from None


class ProfilePoint(RequestBody):
    """What a block costs at a clock."""

    clock_mhz: int = Field(ge=1, le=10**9)
    time_ms: float = Field(gt=0, le=_LARGEST)
    energy_mj: float = Field(ge=0, le=_LARGEST)


class ProfileUpload(RequestBody):
    """The profile of some or all blocks; the frontier is computed once all are there."""

    blocking_power_w: float = Field(ge=0, le=_LARGEST, description="power of a GPU that waits, in W")
    csv: str | None = Field(
        None, description="block,frequency,time,energy in MHz, s and J, or blocks", examples=["block,..."]
    )
    blocks: dict[str, Annotated[list[ProfilePoint], Field(min_length=1)]] | None = None

    @model_validator(mode="after")
    def _has_one_form(self) -> ProfileUpload:
        if (self.csv is None) == (self.blocks is None):
            raise ValueError("give either 'csv', the text of a profile, or 'blocks', its points by block")
        return self

    def read(self) -> Profile:
        """Return the profile.

        Raises:
            RequestError: The table is wrong, or a block has a clock twice.
        """
        points = {
            block: tuple(sorted(OperatingPoint(**dict(each)) for each in rows))
            for block, rows in (self.blocks or {}).items()
        }
        try:
            found = points if self.csv is None else points_of(self.csv)
            return Profile("uploaded", found, self.blocking_power_w)
        except ProfileError as error:
            raise RequestError(f"{'blocks' if self.csv is None else 'csv'}: {error}") from None


def _name_of(value: object) -> object:
    """Return an accelerator's number as its name."""
    return str(value) if type(value) is int else value


class StragglerMessage(RequestBody):
    """What is said about an accelerator (Perseus, Table 2)."""

    id: Annotated[str, Field(min_length=1, max_length=200), BeforeValidator(_name_of)] = Field(
        description="name or number of the accelerator"
    )
    degree: float = Field(
        ge=NORMAL, le=_LARGEST, description="factor on the shortest iteration; 1: back to normal"
    )
    delay_s: float = Field(0.0, ge=0, le=_LARGEST, description="from when on, in s from now")


class State(StrEnum):
    """Where a job stands: it lacks profiles, its frontier is computed or there, or cannot be had."""

    WAITING = "waiting"
    COMPUTING = "computing"
    READY = "ready"
    FAILED = "failed"


class TaskProgress(BaseModel):
    """How much of the current work on a frontier, such as "rounding", is done."""

    what: str
    done: int
    total: int


class JobStatus(BaseModel):
    """A job's state: its blocks without a profile, its progress, and why it failed."""

    id: str
    name: str
    state: State
    num_plans: int
    missing: list[str]
    progress: TaskProgress | None
    error: str | None
    version: int


class JobPage(BaseModel):
    """Jobs in the order of registration; `next`, if not null, is the next page's `after`."""

    jobs: list[JobStatus]
    next: str | None


class PlanAnswer(BaseModel):
    """A plan: its time and energy, and by block one clock in MHz per micro-batch."""

    time_ms: float
    energy_mj: float
    lower_bound_mj: float
    clock_mhz: dict[str, list[int]]


class DeployedPlanAnswer(PlanAnswer):
    """A plan that is deployed, and the number of the deployment."""

    version: int


class Deployed(BaseModel):
    """What is deployed after a message, and for which deadline; version 0 before the job is ready."""

    version: int
    time_ms: float | None
    deadline_ms: float | None


def read_solution(path: Path) -> tuple[Registration, Frontier]:
    """Return the job of a plan that was chosen, or of a frontier, with the ``schedule.json`` beside it.

    Args:
        path: A ``plan.json``, whose clocks are then all that the job has, or a ``frontier.json``.

    Raises:
        ValueError: A file cannot be read or is wrong; one line that begins with its path.
    """
    data = read_json(path, "a plan.json or frontier.json", RequestError)
    if isinstance(data, dict) and "plans" in data:
        frontier = Frontier.from_json(path)
    else:
        with in_file(path, RequestError):
            chosen = data if isinstance(data, dict) else {}
            if missing := {"clock_mhz", "time_ms", "energy_mj"} - chosen.keys():
                raise RequestError(f"{min(missing)}: is missing; give the plan.json of schedsearch frontier")
            frontier = Frontier.from_dict({"plans": [chosen], "all_maximum": chosen, "blocking_power_w": 0.0})
    beside = path.with_name("schedule.json")
    schedule = read_json(beside, "the schedule.json of the plan", RequestError)
    with in_file(beside, RequestError):
        if not isinstance(schedule, dict):
            raise RequestError("is no mapping; give the schedule.json of schedsearch frontier")
        registration = Registration.model_validate({"schedule": schedule})
        blocks = registration.read().placement.by_name.keys()
    for plan in frontier.plans:
        if other := plan.clock_mhz.keys() ^ blocks:
            raise RequestError(f"solution: only plan or schedule has block {min(other)!r}; give its own")
    return registration, frontier
