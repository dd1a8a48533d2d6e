"""The server's memory: tables in one SQLite file, which hold all that a restart needs.

Every change is one transaction, on disk before the request is answered. Nothing is cached elsewhere, so
there is nothing to get out of step. One server at a time owns a file.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import ForeignKey, create_engine, event
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

SCHEMA_VERSION = 1
"""Version of the tables; kept in SQLite's ``user_version``."""

_BUSY_MS = 30_000


class StorageError(ValueError):
    """The database cannot be used; the message says why and what to do, in one line."""


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
        name: Of its placement.
        schedule: As JSON text.
        num_plans: Deadlines of its frontier.
        num_devices: Of its placement.
        num_gpus: Of all devices; None for one each.
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
    """What is known of an accelerator that is not normal; see `runtime.server.stragglers`."""

    __tablename__ = "stragglers"

    job: Mapped[int] = _job_key()
    name: Mapped[str] = mapped_column(primary_key=True)
    degree: Mapped[float]
    next_degree: Mapped[float | None]
    due_s: Mapped[float | None]


class Database:
    """Transactions on a file.

    Args:
        path: Made if it is not there.

    Raises:
        StorageError: The file cannot be written, is none of ours, or another server owns it.
    """

    def __init__(self, path: Path) -> None:
        """Take the file, and make the tables that it lacks."""
        self._writer = threading.Lock()
        self._owner = _own(path)
        self._engine = create_engine(
            URL.create("sqlite", database=str(path)),
            max_overflow=-1,
            connect_args={"timeout": _BUSY_MS / 1e3},
        )
        event.listen(self._engine, "connect", _set_up)
        event.listen(self._engine, "begin", _begin)
        self._immediate = self._engine.execution_options(schedsearch_begin="BEGIN IMMEDIATE")
        try:
            with self._immediate.begin() as connection:
                _check_version(connection, path)
                Table.metadata.create_all(connection)
        except DatabaseError as error:
            self.close()
            raise StorageError(f"database: {path} cannot be used ({error.orig}); give another file") from None
        except StorageError:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a session that sees one state of the database and changes nothing."""
        with Session(self._engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a session that is the only one to write; its changes are kept if nothing is raised."""
        with self._writer, Session(self._immediate) as session, session.begin():
            yield session

    def close(self) -> None:
        """Close the file and let others own it."""
        self._engine.dispose()
        os.close(self._owner)


def _own(path: Path) -> int:
    """Return the descriptor of a lock beside the database, which ends with the process that holds it."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorageError(
            f"database: {lock} cannot be written ({error.strerror}); give another file"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StorageError(
            f"database: {path} is in use by another server; stop that one or give another file"
        ) from None
    return descriptor


def _set_up(connection: Any, record: object) -> None:
    """Set up a connection: `_begin` begins transactions, not the driver, which would begin some too late."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("schedsearch_begin", "BEGIN"))


def _check_version(connection: Connection, path: Path) -> None:
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
    if version not in (0, SCHEMA_VERSION) or (version == 0 and tables):
        raise StorageError(
            f"database: {path} is not one of this server's, version {SCHEMA_VERSION}; give another file"
        )
    connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA_VERSION}")
