"""The runs of ``examples/runs``, as README predicts them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest


def test_runs_of_mlperf_follow_from_one_of_them(command: Any, tmp_path: Path) -> None:
    """The one that is given is right; the others are nearly so, with other GPUs and another model."""
    done = command("predict", "data=examples/runs", "calibrate=llama_h100_512")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out/predictions.csv").open(newline="") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    shares = {name: float(row["predicted_ms"]) / float(row["measured_ms"]) for name, row in rows.items()}
    assert shares["llama_h100_512"] == pytest.approx(1, rel=1e-3)
    assert shares["llama_h100_2048"] == pytest.approx(1, abs=0.03)
    assert shares["gpt3_h100_256"] == pytest.approx(1, abs=0.05)
