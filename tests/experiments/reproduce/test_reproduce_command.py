"""`experiments.reproduce` as a user runs it, and what it refuses."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.always
def test_cases_of_an_item_have_their_rows_and_manifest(ran: Callable[..., Any], tmp_path: Path) -> None:
    ran("reproduce", "experiment=dissertation_table2_2", "only=[vgg16,resnet50]")
    with (tmp_path / "out/dissertation_table2_2_rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["case"] for row in rows} == {"vgg16", "resnet50"}
    manifest = json.loads((tmp_path / "out/dissertation_table2_2.json").read_text())
    record = json.loads((tmp_path / "out/result.json").read_text())
    assert len(rows) == manifest["rows"] == record["figures"]["rows"] > manifest["rows_compared"] > 0
    assert manifest["trends"][0]["holds"]
    assert manifest["options"] == {"only": ["vgg16", "resnet50"]}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["experiment=gavel_las"], "as in data=FOLDER; download scheduler/simulation_throughputs.json, "),
        ([], "experiment: has no value; give one of adaptis, all, bigmac, dissertation_figure6_5, "),
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
