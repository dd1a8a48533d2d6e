"""What is on disk, and when."""

import os
import threading
from pathlib import Path

import pytest

from runtime.server.storage import Database

ADD = (
    "INSERT INTO jobs (id, name, schedule, num_plans, num_devices, state, version)"
    " VALUES (?, 'v_shape', '{}', 1, 1, 'waiting', 0)"
)


def test_quick_changes_do_not_wait_for_the_disk_and_all_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_synced = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda log: is_synced.set())
    database = Database(tmp_path / "jobs.db")
    with database.writing() as rows:
        assert tuple(rows.execute("PRAGMA synchronous").fetchone()) == (2,)
    with database.writing(is_lasting=False) as rows:
        assert tuple(rows.execute("PRAGMA synchronous").fetchone()) == (1,)
        rows.execute(ADD, ["noted"])
        assert not is_synced.is_set()
    assert is_synced.wait(60), "it is on disk without another word"
    database.close()


@pytest.mark.parametrize("is_lasting", [False, True])
def test_what_fails_is_undone(tmp_path: Path, is_lasting: bool) -> None:
    database = Database(tmp_path / "jobs.db")
    with pytest.raises(RuntimeError), database.writing(is_lasting) as rows:
        rows.execute(ADD, ["half"])
        raise RuntimeError
    with database.writing(is_lasting) as rows:
        rows.execute(ADD, ["whole"])
    with database.reading() as rows:
        assert [job for (job,) in rows.execute("SELECT id FROM jobs")] == ["whole"]
    database.close()
