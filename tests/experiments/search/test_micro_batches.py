"""``search.micro_batches``: micro-batches that differ, from a file."""

from __future__ import annotations

from pathlib import Path

from commands import refusal

from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

OPTIONS = [
    *("placement=v_shape", "placement.num_devices=2", "placement.forward_time=1"),
    *("placement.backward_time=2", "search.memory=2", "search.work_limit=1"),
]

TABLE = "micro_batch,block,time_ms\n1,F0,4\n2,B1,6\n"


def test_the_schedule_has_the_times_of_the_file(ran, tmp_path: Path) -> None:
    path = tmp_path / "micro_batches.csv"
    path.write_text(TABLE)
    ran("search", *OPTIONS, f"search.micro_batches={path}")
    schedule = validate(read_schedule(tmp_path / "out" / "schedule.json"))
    assert schedule.num_micro_batches == 3
    tick_ms = schedule.placement.tick_ms
    assert [schedule.block("F0", n).time * tick_ms for n in range(3)] == [10, 4, 10]
    assert [schedule.block("B1", n).time * tick_ms for n in range(3)] == [20, 20, 6]


def test_wrong_tables_and_options_are_refused_before_the_search(tmp_path: Path) -> None:
    path, out = tmp_path / "micro_batches.csv", tmp_path / "out"
    path.write_text(TABLE)
    given = f"search.micro_batches={path}"
    assert "2 is not below search.num_micro_batches, 2" in refusal(
        "search", [*OPTIONS, given, "search.num_micro_batches=2"], out
    )
    assert "search.method: tessel knows no micro-batches" in refusal(
        "search", [*OPTIONS, given, "search.method=tessel"], out
    )
    path.write_text(TABLE.replace("B1", "B7"))
    assert "line 3, column block: B7 is not a block" in refusal("search", [*OPTIONS, given], out)
    missing = refusal("search", [*OPTIONS, f"search.micro_batches={tmp_path / 'none.csv'}"], out)
    assert "none.csv: cannot be read" in missing
