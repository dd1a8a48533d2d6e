"""The server's memory: one SQLite file, whose rows are all that it knows.

Every change is one transaction, made before its request is answered, so that the server may be killed at any
time. Most are on disk by then and outlast the machine's end; what must be quick gets there right afterwards.
Every transaction has a connection of its own. One server at a time owns a file.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

SCHEMA_VERSION = 2
"""Version of the tables; kept in SQLite's ``user_version``."""

# Schedules, points ([[MHz, ms, mJ], ...] once uploaded) and clocks are JSON. A job's number is never
# used twice. `plan` is the position of the deployed plan, which is the `version`-th deployment. A straggler's
# `next_degree` holds from `due_s` of the server's clock on.
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
    num_plans INTEGER NOT NULL, num_devices INTEGER NOT NULL, num_gpus INTEGER, state TEXT NOT NULL,
    error TEXT, blocking_power_w REAL, maximum_time_ms REAL, maximum_energy_mj REAL,
    version INTEGER NOT NULL, plan INTEGER, schedule TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS blocks (
    job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE, name TEXT NOT NULL,
    position INTEGER NOT NULL, points TEXT, PRIMARY KEY (job, name));
CREATE TABLE IF NOT EXISTS plans (
    job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE, position INTEGER NOT NULL,
    time_ms REAL NOT NULL, energy_mj REAL NOT NULL, lower_bound_mj REAL NOT NULL, clock_mhz TEXT NOT NULL,
    PRIMARY KEY (job, position));
CREATE TABLE IF NOT EXISTS stragglers (
    job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE, name TEXT NOT NULL,
    degree REAL NOT NULL, next_degree REAL, due_s REAL, PRIMARY KEY (job, name));
"""


class StorageError(ValueError):
    """The database cannot be used; the message says why and what to do, in one line."""


class Database:
    """Transactions on a file, which is made if it is not there.

    Raises:
        StorageError: The file cannot be written, is none of ours, or another server owns it.
    """

    def __init__(self, path: Path) -> None:
        """Take the file, and make the tables that it lacks."""
        self._alone = threading.Lock()
        self._disk, self._is_to_sync = ThreadPoolExecutor(1, "database"), threading.Event()
        self._path, self._owner = path, _own(path)
        # Held until the end: SQLite removes its log when the last connection is closed.
        self._first = self._connect()
        try:
            found = "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
            version, tables = self._first.execute(found).fetchone()
            if version not in (0, SCHEMA_VERSION) or (version == 0 and tables):
                wanted = f"one of this server's, version {SCHEMA_VERSION}"
                raise StorageError(f"database: {path} is not {wanted}; give another file")
            self._first.execute("PRAGMA journal_mode=WAL")
            self._first.executescript(f"BEGIN;{_TABLES}PRAGMA user_version={SCHEMA_VERSION};COMMIT")
        except (sqlite3.Error, StorageError) as error:
            self.close()
            unusable = StorageError(f"database: {path} cannot be used ({error}); give another file")
            raise error if isinstance(error, StorageError) else unusable from None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that sees one state of the database and changes nothing."""
        with closing(self._connect()) as rows:
            rows.execute("BEGIN")
            yield rows

    @contextmanager
    def writing(self, *, is_quick: bool = False) -> Iterator[sqlite3.Connection]:
        """Open a transaction that is the only one to write, and commit it if nothing is raised.

        It is on disk then; a quick one does not wait for that.
        """
        with self._alone, closing(self._connect()) as rows:
            rows.execute(f"PRAGMA synchronous={'NORMAL' if is_quick else 'FULL'}")
            rows.execute("BEGIN IMMEDIATE")
            yield rows
            rows.execute("COMMIT")
        if is_quick and not self._is_to_sync.is_set():
            self._is_to_sync.set()
            self._disk.submit(self._sync)

    def _sync(self) -> None:
        """Wait until the disk has all that was committed before; changes from now on ask for it again."""
        self._is_to_sync.clear()
        with Path(f"{self._path}-wal").open("rb") as log:
            os.fsync(log.fileno())

    def close(self) -> None:
        """Wait for the disk, close the file and let others own it."""
        self._disk.shutdown()
        self._first.close()
        self._owner.close()

    def _connect(self) -> sqlite3.Connection:
        rows = sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)
        rows.row_factory = sqlite3.Row
        rows.execute("PRAGMA foreign_keys=ON")
        return rows


def _own(path: Path) -> IO[bytes]:
    """Return a lock beside the database, which ends with the process that holds it."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        file = lock.open("ab")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(
            f"database: {path} is in use by another server; stop that one or give another file"
        ) from None
    except OSError as error:
        raise StorageError(
            f"database: {lock} cannot be written ({error.strerror}); give another file"
        ) from None
    return file
