import json
from dataclasses import replace
from pathlib import Path

import pytest
from told import told

from placements.files import write_json
from placements.shapes import m_shape, v_shape
from schedsearch.baselines import one_f_one_b, one_f_one_b_plus
from schedsearch.schedule_file import ScheduleFileError, read_schedule, schedule_to_dict

SCHEDULE = one_f_one_b(v_shape(2), 3)


def test_reads_back(tmp_path: Path) -> None:
    path = write_json(tmp_path / "schedule.json", schedule_to_dict(SCHEDULE))
    assert read_schedule(path) == SCHEDULE
    without_version = {k: v for k, v in schedule_to_dict(SCHEDULE).items() if k != "schema_version"}
    assert read_schedule(write_json(path, without_version)) == SCHEDULE


def test_memory_by_device_reads_back(tmp_path: Path) -> None:
    """JSON's keys are text, devices are not."""
    schedule = one_f_one_b_plus(m_shape(2, embedding_memory=1, stage_memory=2), 3)
    path = write_json(tmp_path / "schedule.json", schedule_to_dict(schedule))
    assert json.loads(path.read_text())["placement"]["blocks"][0]["memory"] == {"0": 1}
    assert read_schedule(path) == schedule


def test_gpus_of_devices_read_back(tmp_path: Path) -> None:
    schedule = one_f_one_b(replace(v_shape(2), num_gpus=(1, 8)), 3)
    path = write_json(tmp_path / "schedule.json", schedule_to_dict(schedule))
    assert read_schedule(path) == schedule
    assert read_schedule(path).placement.num_gpus == (1, 8)
    assert "num_gpus" not in schedule_to_dict(SCHEDULE)["placement"], "files of one GPU each are as they were"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 99}, "schema_version: 99 is not known; write 1"),
        ({"num_micro_batches": "3"}, "num_micro_batches: '3' is not a whole number"),
        ({"blocks": 3}, r"blocks: 3 is not a list of \[name, micro_batch, start\]"),
        ({"blocks": [["F0", 0, 0.9]]}, r"blocks\[0\]: \['F0', 0, 0.9\] is not \[name, micro_batch, start\]"),
        ({"blocks": []}, "never runs"),
    ],
)
def test_wrong_files(change: dict[str, object], message: str, tmp_path: Path) -> None:
    path = write_json(tmp_path / "schedule.json", schedule_to_dict(SCHEDULE) | change)
    with told(ScheduleFileError, f"{path}: ", match=message):
        read_schedule(path)


@pytest.mark.parametrize("text", ["", "[", "[1, 2]", json.dumps({"blocks": []})])
def test_not_a_schedule(text: str, tmp_path: Path) -> None:
    (tmp_path / "schedule.json").write_text(text)
    with pytest.raises(ScheduleFileError, match="schedule.json: "):
        read_schedule(tmp_path / "schedule.json")
    with pytest.raises(ScheduleFileError, match="cannot be read"):
        read_schedule(tmp_path / "none.json")
