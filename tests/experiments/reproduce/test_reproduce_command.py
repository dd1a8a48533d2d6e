"""`experiments.reproduce` as a user runs it, and what it refuses."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.always
def test_a_case_of_an_item_has_its_rows_manifest_and_figure(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    done = command("reproduce", "experiment=dissertation_figure4_6", "only=[n32_b32]")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out/dissertation_figure4_6_rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 and {row["case"] for row in rows} == {"n32_b32"}
    found = json.loads((tmp_path / "out/dissertation_figure4_6.json").read_text())
    assert found["rows_as_claimed"] == found["rows_compared"] == 6
    assert found["trends"][0]["holds"] and found["options"] == {"only": ["n32_b32"]}
    assert (tmp_path / "out/dissertation_figure4_6.svg").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["experiment=gavel_las"], "as in data=FOLDER; download scheduler/simulation_throughputs.json, "),
        ([], "experiment: has no value; give one of all, dissertation_figure4_6, "),
        (
            ["tables=[II]"],
            "tables: is not an option of schedsearch reproduce as it is called; choose the item that ",
        ),
        (
            ["experiment=galvatron_trends", "size=tiny"],
            "size: 'tiny' is not known; the options are full, small",
        ),
        (["experiment=galvatron_trends", "tables=[VII]"], "'VII' is not known; did you mean VI?"),
    ],
)
def test_wrong_input(overrides: list[str], message: str, refused: Callable[..., str]) -> None:
    assert message in refused("reproduce", *overrides)
