import json
from pathlib import Path

import pytest
from one_line_errors import raises_line

from placements.forms.texts import write_json
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.schedule_file import ScheduleFileError, read_schedule, schedule_to_dict

SCHEDULE = one_f_one_b(v_shape(2), 3)


def test_reads_back(tmp_path: Path) -> None:
    path = write_json(tmp_path / "schedule.json", schedule_to_dict(SCHEDULE))
    assert read_schedule(path) == SCHEDULE
    without_version = {k: v for k, v in schedule_to_dict(SCHEDULE).items() if k != "schema_version"}
    assert read_schedule(write_json(path, without_version)) == SCHEDULE


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
    with raises_line(ScheduleFileError, f"{path}: ", match=message):
        read_schedule(path)


@pytest.mark.parametrize("text", ["", "[", "[1, 2]", json.dumps({"blocks": []})])
def test_not_a_schedule(text: str, tmp_path: Path) -> None:
    (tmp_path / "schedule.json").write_text(text)
    with pytest.raises(ScheduleFileError, match="schedule.json: "):
        read_schedule(tmp_path / "schedule.json")
    with pytest.raises(ScheduleFileError, match="cannot be read"):
        read_schedule(tmp_path / "none.json")
