"""``search.replicas``: which replica gets which micro-batch, written and described, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import refusal

from placements.placement_file import placement_to_yaml
from placements.shapes import v_shape
from schedsearch.schedule_file import read_schedule


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    placement = tmp_path / "own.yaml"
    placement.write_text(placement_to_yaml(v_shape(2, 1, 2).with_memory(2)))
    table = tmp_path / "micro_batches.csv"
    lines = [f"{n},F0,{1 + n % 3 * 4}\n{n},B0,{2 + n % 3 * 8}\n" for n in range(8)]
    table.write_text("micro_batch,block,time_ms\n" + "".join(lines))
    return ["placement=file", f"placement.path={placement}", f"search.micro_batches={table}"]


def test_each_replica_has_its_schedule(command, files: list[str], tmp_path: Path) -> None:
    done = command(
        "search", *files, "search.replicas=2", "search.max_micro_batches=5", "search.work_limit=0.5"
    )
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    rows = list(csv.DictReader((out / "replicas.csv").read_text().splitlines()))
    assert sorted(int(row["micro_batch"]) for row in rows) == list(range(8))
    schedules = [read_schedule(out / f"replica_{r}" / "schedule.json") for r in (0, 1)]
    for r, schedule in enumerate(schedules):
        own = [row for row in rows if row["replica"] == str(r)]
        assert len(own) == schedule.num_micro_batches <= 5
    slowest = max(schedule.makespan for schedule in schedules)
    assert f"2 replicas: makespan {slowest} ms" in done.stdout
    assert read_schedule(out / "schedule.json").makespan == slowest


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["search.replicas=2", "search.max_micro_batches=3"],
            "2 replicas of 3 micro-batches cannot",
        ),
        (["search.replicas=2", "search.max_tokens=9"], "search.max_tokens: the tokens are not known; give a"),
        (["search.max_tokens=3"], "search.max_tokens: 3 is not used; give search.replicas"),
        (
            ["search.replicas=2", "search.max_tokens=9", "search.max_micro_batches=5"],
            "search.max_tokens: replaces search.max_micro_batches; leave one of the two out",
        ),
        (["search.max_micro_batches=3"], "search.max_micro_batches: 3 is not used; give search.replicas"),
        (["search.replicas=2", "schedule=one_f_one_b"], "schedule: is not for several replicas"),
    ],
)
def test_what_does_not_go_with_replicas_is_refused(
    files: list[str], tmp_path: Path, overrides: list[str], says: str
) -> None:
    assert says in refusal("search", [*files, *overrides], tmp_path / "out")
