"""What is on disk, and when."""

import time
from pathlib import Path

import pytest
from sqlalchemy import text

from runtime.server.storage import Database

ADD = text(
    "INSERT INTO jobs (id, name, schedule, num_plans, num_devices, state, version)"
    " VALUES (:id, 'v_shape', '{}', 1, 1, 'waiting', 0)"
)


def test_notes_do_not_wait_for_the_disk_and_all_else_does(tmp_path: Path) -> None:
    database = Database(tmp_path / "jobs.db")
    with database.noting() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 1
    with database.writing() as session:
        assert session.connection().exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
    database.close()


def test_notes_are_moved_to_the_file_without_another_word(tmp_path: Path) -> None:
    """Nothing else does that: the log is far too short for a checkpoint of SQLite's own."""
    path = tmp_path / "jobs.db"
    database = Database(path)
    with database.noting() as connection:
        connection.execute(ADD, {"id": "noted"})
    end_s = time.monotonic() + 60
    while b"noted" not in path.read_bytes() and time.monotonic() < end_s:
        time.sleep(0.05)
    assert b"noted" in path.read_bytes()
    database.close()


@pytest.mark.parametrize("kind", ["noting", "writing"])
def test_what_fails_is_undone(tmp_path: Path, kind: str) -> None:
    database = Database(tmp_path / "jobs.db")
    with pytest.raises(RuntimeError), getattr(database, kind)() as session:
        session.execute(ADD, {"id": "half"})
        raise RuntimeError
    with database.reading() as session:
        assert session.execute(text("SELECT count(*) FROM jobs")).scalar_one() == 0
    with database.alone, getattr(database, kind)() as session:
        session.execute(ADD, {"id": "whole"})
    database.close()
