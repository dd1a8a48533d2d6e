"""The tables of the server's database: jobs, their blocks and plans, and what is known of stragglers."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class State(StrEnum):
    """What becomes of a job."""

    WAITING = "waiting"
    COMPUTING = "computing"
    READY = "ready"
    FAILED = "failed"


class Table(DeclarativeBase):
    """Base of the tables."""


class JobRow(Table):
    """A job.

    Attributes:
        number: In the order of registration; never used twice.
        id: What clients call it.
        name: Name of its placement.
        schedule: As JSON text.
        num_plans: Deadlines of its frontier.
        num_devices: Number of devices of its placement.
        num_gpus: Number of GPUs of all devices; None for one each.
        state: See `State`.
        error: Why it failed, in one line.
        blocking_power_w: Power of a waiting device, from the profile.
        maximum_time_ms: Time of the plan with all clocks at maximum.
        maximum_energy_mj: Its energy.
        version: Number of the latest deployment; 0 before the first.
        plan: Position of the deployed plan in the frontier.
    """

    __tablename__ = "jobs"
    __table_args__ = ({"sqlite_autoincrement": True},)

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    schedule: Mapped[str] = mapped_column(deferred=True)
    num_plans: Mapped[int]
    num_devices: Mapped[int]
    num_gpus: Mapped[int | None]
    state: Mapped[str] = mapped_column(index=True)
    error: Mapped[str | None] = mapped_column(default=None)
    blocking_power_w: Mapped[float | None] = mapped_column(default=None)
    maximum_time_ms: Mapped[float | None] = mapped_column(default=None)
    maximum_energy_mj: Mapped[float | None] = mapped_column(default=None)
    version: Mapped[int] = mapped_column(default=0)
    plan: Mapped[int | None] = mapped_column(default=None)


def _job_key() -> Mapped[int]:
    return mapped_column(ForeignKey("jobs.number", ondelete="CASCADE"), primary_key=True)


class BlockRow(Table):
    """A block of a job's placement, and its profile once that is there.

    Attributes:
        position: In the placement.
        devices: On which it runs, as JSON text.
        points: ``[[MHz, ms, mJ], ...]`` as JSON text; None until it is uploaded.
    """

    __tablename__ = "blocks"

    job: Mapped[int] = _job_key()
    name: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    devices: Mapped[str]
    points: Mapped[str | None]


class PlanRow(Table):
    """A plan of a job's frontier, by increasing time.

    Attributes:
        clock_mhz: By block one clock per micro-batch, as JSON text.
    """

    __tablename__ = "plans"

    job: Mapped[int] = _job_key()
    position: Mapped[int] = mapped_column(primary_key=True)
    time_ms: Mapped[float]
    energy_mj: Mapped[float]
    lower_bound_mj: Mapped[float]
    clock_mhz: Mapped[str] = mapped_column(deferred=True)


class StragglerRow(Table):
    """What is known of an accelerator that is not normal; see `runtime.server.deployment`."""

    __tablename__ = "stragglers"

    job: Mapped[int] = _job_key()
    name: Mapped[str] = mapped_column(primary_key=True)
    degree: Mapped[float]
    next_degree: Mapped[float | None]
    due_s: Mapped[float | None]
