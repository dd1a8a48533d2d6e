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
    figures = json.loads((tmp_path / "out/result.json").read_text())["figures"]
    assert figures["inclusions"] == figures["inclusions_held"] == 33
    assert figures["rank_correlation"] > 0.9
    assert "inclusions that hold: 33 of 33" in done.stdout


@pytest.mark.slow
def test_one_model_of_a_large_vocabulary(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("reproduce", "experiment=large_vocabulary", "models=[mt5_1.8b]")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out/vocabulary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["shape"] for row in rows] == ["v_shape", "nn_shape", "v_shape"]
    figures = json.loads((tmp_path / "out/result.json").read_text())["figures"]
    assert list(figures) == ["mt5_1.8b_speedup"]
