"""Changes on disk."""

import os
import threading
import time
from pathlib import Path

import pytest

from runtime.server.storage import Database

ADD = (
    "INSERT INTO jobs (id, name, schedule, num_plans, num_devices, state, version)"
    " VALUES (?, 'v_shape', '{}', 1, 1, 'waiting', 0)"
)


def test_changes_wait_for_the_disk_and_a_failed_one_is_undone(tmp_path: Path) -> None:
    database = Database(tmp_path / "jobs.db")
    with pytest.raises(RuntimeError), database.writing() as rows:
        rows.execute(ADD, ["half"])
        raise RuntimeError
    with database.writing() as rows:
        assert tuple(rows.execute("PRAGMA synchronous").fetchone()) == (2,)
        rows.execute(ADD, ["whole"])
    with database.reading() as rows:
        assert [job for (job,) in rows.execute("SELECT id FROM jobs")] == ["whole"]
    database.close()


def test_quick_changes_reach_the_disk_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come while the disk is busy are written by one more wait for it."""
    waits, goes_on = list[int](), threading.Event()
    monkeypatch.setattr(os, "fsync", lambda file: waits.append(file) or goes_on.wait(60))
    database = Database(tmp_path / "jobs.db")
    for number in range(5):
        with database.writing(is_quick=True) as rows:
            rows.execute(ADD, [str(number)])
        while not waits:
            time.sleep(0.001)
    assert len(waits) == 1
    goes_on.set()
    database.close()
    assert len(waits) == 2
