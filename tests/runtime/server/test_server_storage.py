"""Changes on disk."""

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
