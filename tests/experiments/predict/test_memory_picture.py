"""The picture of what runs hold: a panel for each GPU, a row for each run, marks where it was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.predict.run_prediction import predict_run
from experiments.predict.run_table import read_run_folder
from experiments.predict.task import memory_panels
from placements.models.memory import FRAMEWORKS

HEAD = "run,model,gpu,gpus,tp,pp,dp,num_micro_batches,sequence_length,measured_gib\n"


def test_each_gpu_has_a_panel_and_each_run_a_row(tmp_path: Path) -> None:
    rows = (
        "one,llama3_8b,h100,8,8,1,1,4,2048,30.5",
        "two,llama3_8b,b200,8,2,2,2,8,2048,",
        "three,llama3_8b,h100,8,2,4,1,8,2048,",
    )
    (tmp_path / "runs.csv").write_text(HEAD + "\n".join(rows) + "\n")
    folder = read_run_folder(tmp_path)
    found = [predict_run(folder, run, FRAMEWORKS["megatron"]) for run in folder.runs]
    first, second = memory_panels(found)
    assert (first.title, list(first.rows), first.measured_gib) == ("h100", ["one", "three"], {"one": 30.5})
    assert (second.title, list(second.rows), second.measured_gib) == ("b200", ["two"], {})
    assert (first.capacity_gib, second.capacity_gib) == (80, 179)
    for each in found:
        row = (first.rows | second.rows)[each.run.run]
        assert sum(row.values()) == pytest.approx(max(each.gib_by_stage))


def test_nothing_predicted_makes_no_picture() -> None:
    assert memory_panels([]) == []
