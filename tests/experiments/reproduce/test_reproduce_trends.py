"""`experiments.reproduce` by our planner: one column of a table, as a user runs it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.always
def test_trends_of_a_column_of_table_6(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("reproduce", "experiment=galvatron_trends", "tables=[VI]", "models=[GPT3-39B]")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out/trends.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10 and {row["cluster"] for row in rows} == {"galvatron_a100_32"}
    for row in rows:
        assert (row["batch"] == "") == (row["throughput"] == "") == (row["out_of_memory"] == "true")
    trends = json.loads((tmp_path / "out/galvatron_trends.json").read_text())["trends"]
    assert (trends[0]["holds"], trends[0]["shown_by"]) == (True, "11 of 11 pairs")
    assert trends[-1]["holds"], "the rank correlation"
