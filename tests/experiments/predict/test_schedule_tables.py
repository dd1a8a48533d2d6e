"""Tables of schedules: throughput by schedule, beside ours of that name."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from experiments.predict.measured_folder import MeasuredFolderError
from experiments.predict.schedule_table import (
    COLUMNS,
    PredictedSchedule,
    ScheduleRow,
    orders,
    predict_schedule,
)
from placements.forms.tables import csv_records
from placements.models.memory import FRAMEWORKS

HEADER = "model,gpu,pp,vpp,schedule,tokens_per_s_per_gpu,tflops,num_micro_batches"
ROWS = (
    "llama2_7b,mi300x,4,1,1f1b,10000,235,8",
    "llama2_7b,mi300x,4,2,1F1B-interleaved,11000,257,8",
    "llama2_7b,mi300x,4,2,zbb,11500,268,",
    "llama2_7b,mi300x,4,2,v_half,10950,255,8",
    "llama2_7b,mi300x,4,2,best-of-all,12000,270,8",
)


def rows_of(path: Path) -> list[ScheduleRow]:
    return [row for _, row in csv_records(path, "schedule", MeasuredFolderError, ScheduleRow, others=True)]


def write(folder: Path, *rows: str) -> Path:
    path = folder / "some_schedules.csv"
    path.write_text("\n".join([HEADER, *(rows or ROWS)]) + "\n")
    return path


def test_schedules_beside_measured_ones(command: Any, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder)
    done = command("predict", f"data={folder}")
    assert done.returncode == 0, done.stderr
    assert " pairs of schedules in the measured order" in done.stdout
    assert "1f1b: " in done.stdout and " tokens/s of a GPU, measured 10,000" in done.stdout
    with (tmp_path / "out/schedules.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    ours = [row["our_schedule"] for row in rows[:4]]
    assert ours == ["one_f_one_b", "interleaved_one_f_one_b", "zb_h1", "v_half"]
    throughput = [float(row["predicted_tokens_per_s_per_gpu"]) for row in rows[:4]]
    assert throughput[0] < throughput[1], "interleaving has shorter ends"
    assert rows[2]["note"] == "16 micro-batches assumed"
    assert rows[4]["predicted_tokens_per_s_per_gpu"] == ""
    assert rows[4]["note"].startswith(
        "not predicted: schedule: 'best-of-all' is not known; use one of 1f1b, "
    )


def test_pairs_that_are_nearly_equal_do_not_count() -> None:
    def row(measured: float, predicted: float) -> PredictedSchedule:
        return PredictedSchedule(ScheduleRow("m", "g", 4, "1f1b", measured), predicted, "")

    found = [row(100, 1), row(100.5, 0.5), row(110, 3), row(120, 2)]
    # 100 and 100.5 are equal; 110 and 120 are the other way round.
    assert list(orders(found)) == ["m on 4 g: 4 of 5 pairs of schedules in the measured order"]


def test_more_micro_batches_have_more_throughput(tmp_path: Path) -> None:
    rows = rows_of(write(tmp_path, *(f"llama2_7b,mi300x,4,1,1f1b,1,1,{m}" for m in (4, 32))))
    few, many = (predict_schedule(row, FRAMEWORKS["megatron"]).predicted for row in rows)
    assert few is not None and many is not None
    assert many / few == pytest.approx((7 / 4) / (35 / 32), rel=0.1)
