"""What requests carry: models that check each field, from which the schema of ``/docs`` is made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from placements import OperatingPoint, Profile, ProfileError
from placements.files import read_json
from placements.plain_data import in_file
from placements.profiles.profile_csv import points_of_text
from runtime.server.errors import RequestError
from schedsearch.energy.frontier import Frontier
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import ScheduleFileError, schedule_from_dict

MOST_PLANS = 2000
"""Deadlines that a job may ask for."""

NORMAL = 1.0
"""Degree of an accelerator that is no straggler."""

_LARGEST = 1e12
"""Milliseconds, millijoules, watts, seconds or degrees beyond which a figure is a mistake."""


class RequestBody(BaseModel):
    """What a request carries: no other fields than these, and each of its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Registration(RequestBody):
    """A job to register."""

    schedule: dict[str, Any] = Field(description="content of a schedule.json")
    num_plans: int = Field(200, ge=1, le=MOST_PLANS, description="deadlines of its frontier")

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
            found = points if self.csv is None else points_of_text(self.csv)
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
            plan = {} if not isinstance(data, dict) else data
            if missing := {"clock_mhz", "time_ms", "energy_mj"} - plan.keys():
                raise RequestError(f"{min(missing)}: is missing; give the plan.json of schedsearch frontier")
            frontier = Frontier.from_dict({"plans": [plan], "all_maximum": plan, "blocking_power_w": 0.0})
    beside = path.with_name("schedule.json")
    schedule = read_json(beside, "the schedule.json of the plan", RequestError)
    with in_file(beside, RequestError):
        if not isinstance(schedule, dict):
            raise RequestError("is no mapping; give the schedule.json of schedsearch frontier")
        registration = Registration.model_validate({"schedule": schedule})
        registration.read()
    return registration, frontier
