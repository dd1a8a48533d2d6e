"""Fields of requests and answers, and why a request is refused: the schema of ``/docs``, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from placements import OperatingPoint, Profile, ProfileError
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

    The status of HTTP is 422 for wrong contents, 404 for unknown names, 409 for a wrong time.
    """

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class NotYetError(RequestError):
    """A job is not ready, but it may be without another word about it."""


def refusal(error: Mapping[str, Any]) -> RequestError:
    """Return pydantic's first error in a request as one of one line.

    >>> print(refusal({"type": "missing", "loc": ("body", "degree"), "msg": "Field required"}))
    degree: is missing; give it
    """
    source, *rest = error["loc"]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest).removeprefix(".")
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
    """A request: no other fields than these, and each of its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Registration(RequestBody):
    """A job to register."""

    schedule: dict[str, Any] = Field(description="content of a schedule.json")
    num_plans: int = Field(200, ge=1, le=2000, description="deadlines of its frontier")

    def read(self) -> Schedule:
        """Return the schedule, validated; it may be too large to find out whether it breaks a rule."""
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
    """Cost of a block at a clock."""

    clock_mhz: int = Field(ge=1, le=10**9)
    time_ms: float = Field(gt=0, le=_LARGEST)
    energy_mj: float = Field(ge=0, le=_LARGEST)


class ProfileUpload(RequestBody):
    """The profile of some or all blocks; the frontier is computed once all are there."""

    blocking_power_w: float = Field(ge=0, le=_LARGEST, description="power of a GPU that waits, in W")
    blocks: dict[str, Annotated[list[ProfilePoint], Field(min_length=1)]]

    def read(self) -> Profile:
        """Return the profile, in which no block has a clock twice."""
        points = {
            block: tuple(sorted(OperatingPoint(**dict(row)) for row in rows))
            for block, rows in self.blocks.items()
        }
        try:
            return Profile("uploaded", points, self.blocking_power_w)
        except ProfileError as error:
            raise RequestError(f"blocks: {error}") from None


class StragglerMessage(RequestBody):
    """Message about an accelerator (Perseus, Table 2)."""

    id: Annotated[
        str,
        Field(min_length=1, max_length=200, description="name or number of the accelerator"),
        BeforeValidator(lambda value: str(value) if type(value) is int else value),
    ]
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
    """Progress of the current work on a frontier, for example "rounding"."""

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


class JobList(BaseModel):
    """Jobs in the order of registration."""

    jobs: list[JobStatus]


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
    """Deployment after a message, and its deadline; version 0 before the job is ready."""

    version: int
    time_ms: float | None
    deadline_ms: float | None
