"""`experiments.reproduce` by our planner: one column of a table, and one model, as a user runs them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_trends_of_table_6(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("reproduce", "experiment=galvatron_trends", "tables=[VI]")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out/trends.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 30 and {row["cluster"] for row in rows} == {"galvatron_a100_32"}
    for row in rows:
        assert (row["batch"] == "") == (row["throughput"] == "") == (row["out_of_memory"] == "true")
    trends = json.loads((tmp_path / "out/galvatron_trends.json").read_text())["trends"]
    assert (trends[0]["holds"], trends[0]["shown_by"]) == (True, "33 of 33 pairs")
    assert trends[-1]["holds"], "the rank correlation"


@pytest.mark.slow
def test_one_model_of_a_large_vocabulary(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("reproduce", "experiment=large_vocabulary", "models=[mt5_1.8b]", "work_limit=1")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out/vocabulary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["shape"] for row in rows] == ["v_shape", "nn_shape", "v_shape"]
    assert "mt5_1.8b  nn_shape over v_shape  speedup " in done.stdout
