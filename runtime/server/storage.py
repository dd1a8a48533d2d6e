"""The server's memory: one SQLite file, which holds all that a restart needs.

Every change is one transaction, made before its request is answered, so that the server may be killed at any
time. `Database.writing` also waits for the disk: what it keeps outlasts the machine's end. `Database.noting`,
for what must be quick, leaves that to the system, and a thread has it on disk about a second later; if the
machine itself stops before that, the last notes are lost, and nothing else. One server at a time owns a file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DatabaseError, SQLAlchemyError
from sqlalchemy.orm import Session

from runtime.server.tables import Table

SCHEMA_VERSION = 1
"""Version of the tables; kept in SQLite's ``user_version``."""

SYNC_S = 1.0
"""Seconds from a note until it is written to disk, at most, where the disk keeps up."""

_MOST_PAGES = 4096
"""Largest size of the write-ahead log; a longer one is cut while nobody writes."""

_BUSY_MS = 30_000


class StorageError(ValueError):
    """The database cannot be used; the message says why and what to do, in one line."""


class Database:
    """Transactions on a file.

    Attributes:
        alone: Held by who writes. Hold it longer where something else must change together with the database.

    Args:
        path: Made if it is not there.

    Raises:
        StorageError: The file cannot be written, is none of ours, or another server owns it.
    """

    def __init__(self, path: Path) -> None:
        """Take the file, and make the tables that it lacks."""
        self.alone = threading.RLock()
        self._owner = _own(path)
        self._engine = _engine(path, "synchronous=FULL")
        self._immediate = self._engine.execution_options(schedsearch_begin="BEGIN IMMEDIATE")
        # Notes never wait for the disk, so the thread that syncs them also does their checkpoints.
        notes = _engine(path, "synchronous=NORMAL", "wal_autocheckpoint=0")
        self._notes = notes.execution_options(schedsearch_begin="BEGIN IMMEDIATE")
        self._has_notes, self._closing = False, threading.Event()
        self._syncing = threading.Thread(target=self._sync_often, name="database", daemon=True)
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
        self._syncing.start()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a session that sees one state of the database and changes nothing."""
        with Session(self._engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a session that is the only one to write; its changes are on disk if nothing is raised."""
        with self.alone, Session(self._immediate) as session, session.begin():
            yield session

    @contextmanager
    def noting(self) -> Iterator[Connection]:
        """Open a transaction like `writing` that does not wait for the disk."""
        with self.alone:
            with self._notes.begin() as connection:
                yield connection
            self._has_notes = True

    def close(self) -> None:
        """Close the file and let others own it."""
        self._closing.set()
        if self._syncing.is_alive():
            self._syncing.join()
        self._notes.dispose()
        self._engine.dispose()
        os.close(self._owner)

    def _sync_often(self) -> None:
        while not self._closing.wait(SYNC_S):
            if self._has_notes:
                self._has_notes = False
                try:
                    self._sync()
                except SQLAlchemyError as error:
                    self._has_notes = True
                    logging.getLogger(__name__).warning("notes are not on disk yet: %s", error)

    def _sync(self) -> None:
        """Have all on disk, beside who writes; where those never pause, ask them to wait once in a while."""
        pages, moved = self._checkpoint()
        if pages > _MOST_PAGES:
            with self.alone:
                pages, moved = self._checkpoint()
        if moved < pages:  # someone reads an older state, or wrote meanwhile
            self._has_notes = True

    def _checkpoint(self) -> tuple[int, int]:
        """Write the log to disk and its pages to the file; return how many it has, and how many are there."""
        connection = self._engine.raw_connection()
        try:
            cursor = connection.cursor()
            cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
            _, pages, moved = cursor.fetchone() or (0, 0, 0)
            return int(pages), int(moved)
        finally:
            connection.close()


def _engine(path: Path, *pragmas: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)), max_overflow=-1, connect_args={"timeout": _BUSY_MS / 1e3}
    )

    def set_up(connection: Any, record: object) -> None:
        """Let `_begin` begin transactions: the driver would begin some too late."""
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "foreign_keys=ON", *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("schedsearch_begin", "BEGIN"))


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


def _check_version(connection: Connection, path: Path) -> None:
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
    if version not in (0, SCHEMA_VERSION) or (version == 0 and tables):
        raise StorageError(
            f"database: {path} is not one of this server's, version {SCHEMA_VERSION}; give another file"
        )
    connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA_VERSION}")
