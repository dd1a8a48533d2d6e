"""Tables of runs: predictions for a made-up folder, and their distance from measured runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_machine import MACHINE_CSV, machine_json
from made_up_runs import COLUMNS, table
from one_line_errors import raises_line

from experiments.predict.board import StageTensor
from experiments.predict.modelled_run import Calibration, as_modelled, calibration_of
from experiments.predict.run_prediction import predict_run, stage_memory
from experiments.predict.run_table import MODELS_FILE, RunFolder, read_run_folder, shape_of
from experiments.predict.runs.run import Run
from placements.forms.texts import write_json, write_text
from placements.models.memory import FRAMEWORKS, Framework

Command = Callable[..., subprocess.CompletedProcess[str]]

MEGATRON = FRAMEWORKS["megatron"]
HEADER = (
    "run,model,layers,gpu,gpus,tp,pp,vp,cp,ep,num_micro_batches,sequence_length,precision,measured_ms,"
    "measured_gib,note,measured_gib_by_stage"
)
ROWS = (
    "one,tiny,4,a100,1,1,1,1,1,1,4,64,bf16,2.0,0.1,,x",
    "pipeline,tiny,,a100,8,2,2,2,1,1,4,64,bf16,3.0,,by hand,x",
    "experts,routed,3,a100,4,1,2,1,1,2,4,64,bf16,,,,x",
)
TINY: dict[str, Any] = {
    "hidden_size": 64,
    "head_num": 8,
    "head_size": 8,
    "intermediate_size": 160,
    "layer_num": 8,
    "vocab_size": 500,
}
ROUTED = TINY | {"expert_num": 4, "topk": 2, "moe_ffn_hidden_size": 32, "dense_layers": 1}


def write_folder(
    folder: Path, *rows: str, models: dict[str, Any] | None = None, machine: str = "a100"
) -> Path:
    write_text(folder / "runs.csv", "\n".join([HEADER, *(rows or ROWS)]) + "\n")
    write_json(folder / MODELS_FILE, {"tiny": TINY, "routed": ROUTED} if models is None else models)
    write_json(folder / f"{machine}_rates.json", machine_json())
    return folder


def test_each_run_has_a_row_and_its_memory_by_tensors(ran: Command, tmp_path: Path) -> None:
    done = ran("predict", f"data={write_folder(tmp_path / 'runs')}")
    rows = table(tmp_path / "out/predictions.csv", COLUMNS)
    assert [row["run"] for row in rows] == ["one", "pipeline", "experts"]
    assert [(row["measured_ms"], row["measured_gib"]) for row in rows] == [
        *(("2.0", "0.1"), ("3.0", ""), ("", ""))
    ]
    assert [row["note"] for row in rows] == ["", "by hand", ""]
    assert all(float(row["predicted_ms"]) > 0 for row in rows)
    assert [len(row["gib_by_stage"].split(";")) for row in rows] == [1, 2, 2]
    assert "\nruns.csv     3 " in done.stdout.replace("\x1b[0m", "")
    assert (tmp_path / "out/board.csv").read_text().splitlines()[1].startswith("runs.csv,3,0,2,")
    memory = table(tmp_path / "out/memory.csv", StageTensor._fields)
    for row in rows:
        tensors = [tensor for tensor in memory if tensor["run"] == row["run"]]
        stages = row["gib_by_stage"].split(";")
        fullest = [float(stages[int(tensor["stage"])]) for tensor in tensors]
        assert fullest == pytest.approx([float(row["predicted_gib"])] * len(tensors), abs=0.006)
        assert sum(float(tensor["gib"]) for tensor in tensors) == pytest.approx(
            float(row["predicted_gib"]), abs=0.0005 * len(tensors) + 0.005
        )


def read(folder: Path) -> tuple[RunFolder, dict[str, Run]]:
    run_folder = read_run_folder(folder)
    return run_folder, {run.run: run for run in run_folder.runs}


@pytest.mark.parametrize("framework", [FRAMEWORKS["plain"], MEGATRON], ids=["plain", "megatron"])
def test_the_tensors_of_a_stage_are_its_peak(tmp_path: Path, framework: Framework) -> None:
    """Of a model that is larger: layers of 4096, stages that hold several micro-batches."""
    large = {"hidden_size": 4096, "head_num": 32, "head_size": 128, "intermediate_size": 14_336}
    rows = [
        *("a,large,,a100,8,2,2,2,1,1,4,2048,bf16,,,,", "b,large,,a100,8,1,4,1,1,1,8,2048,bf16,,,,"),
        *("c,large,,a100,8,2,1,1,2,1,2,2048,half,,,,", "d,large,,a100,1,1,1,1,1,1,1,2048,bf16,,,,"),
    ]
    folder, runs = read(write_folder(tmp_path, *rows, models={"large": TINY | large}))
    for run in runs.values():
        model = as_modelled(folder, run, framework)
        for stage, gib in enumerate(model.gib_by_stage):
            assert sum(part.gib for part in stage_memory(model, stage)) == pytest.approx(gib, rel=0.001)


def test_vocabulary_layers_and_groups_of_a_run(tmp_path: Path) -> None:
    folder, runs = read(write_folder(tmp_path))
    assert list(folder.machines) == ["a100"]
    model = shape_of(runs["pipeline"], folder.models)
    assert model.layers[0].vocab_size == 512  # type: ignore[attr-defined]
    assert len(model.layers) == 10
    assert runs["pipeline"].degrees.data == 2
    names = [layer.name for layer in shape_of(runs["experts"], folder.models).layers]
    assert names == ["embedding", "dense layer", "layer", "layer", "output"]
    padded = shape_of(replace(runs["pipeline"], tp=8), folder.models).layers[0]
    assert padded.vocab_size == 1024  # type: ignore[attr-defined]


def test_low_precision_weights_stand_alone_unless_a_table_says_otherwise(tmp_path: Path) -> None:
    """In 8 bits as they are and transposed; runs on 80 GB would not fit with 16-bit ones beside."""
    folder, runs = read(write_folder(tmp_path))
    fp8 = replace(runs["one"], precision="fp8")
    sizes = [
        shape_of(replace(fp8, weights_16_bit=choice), folder.models).precision.weight_bytes
        for choice in (False, True)
    ]
    assert sizes == [2, 4]
    assert shape_of(runs["one"], folder.models).precision.weight_bytes == 2, "of 16 bits there is one copy"


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        *(("a100_rates", "a100"), ("a100_pcie_own", "a100_pcie"), ("rtx_4090_bf16", "rtx_4090")),
        *(("a100", "a100"), ("a1000_rates", ""), ("rates", "")),
    ],
)
def test_a_machines_file_begins_with_the_name_of_its_gpu(tmp_path: Path, name: str, gpu: str) -> None:
    folder = write_folder(tmp_path)
    (folder / "a100_rates.json").unlink()
    write_text(folder / f"{name}.csv", MACHINE_CSV)
    assert list(read_run_folder(folder).machines) == ([gpu] if gpu else [])


def test_a_run_fixes_the_factor(ran: Command, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "runs")
    done = ran("predict", f"data={folder}", "calibrate=pipeline")
    assert "times on a100 are multiplied with " in done.stdout
    run_folder, runs = read(folder)
    calibration = calibration_of("pipeline", run_folder, MEGATRON)
    assert calibration.compute == calibration.communication
    plain, fixed = (
        {name: predict_run(run_folder, run, MEGATRON, factors) for name, run in runs.items()}
        for factors in (None, calibration)
    )
    assert fixed["pipeline"].predicted_ms == pytest.approx(3.0, rel=0.005)
    assert fixed["one"].predicted_ms == pytest.approx(2.0, rel=0.5)
    assert fixed["one"].gib_by_stage == plain["one"].gib_by_stage


def test_several_runs_fix_computing_and_communication(tmp_path: Path) -> None:
    """Times of a machine that computes 1.3 and communicates 2 times as long give these factors back."""
    header = "run,model,layers,gpu,gpus,tp,num_micro_batches,sequence_length,measured_ms"
    rows = [f"t{tp}m{m},llama2_7b,4,a100,16,{tp},{m},4096," for tp in (1, 8) for m in (1, 16)]
    table = tmp_path / "mine.csv"
    write_text(table, "\n".join([header, *rows]) + "\n")
    folder, runs = read(tmp_path)
    slow = Calibration("a100", 1.3, 2.0, "")
    measured = [predict_run(folder, run, MEGATRON, slow).predicted_ms for run in runs.values()]
    lines = [f"{row}{time_ms}" for row, time_ms in zip(rows, measured, strict=True)]
    write_text(table, "\n".join([header, *lines]) + "\n")
    calibration = calibration_of(str(table), folder, MEGATRON)
    assert calibration.gpu == "a100"
    assert (calibration.compute, calibration.communication) == pytest.approx((1.3, 2.0), rel=0.02)
    assert "(clocks, kernels), communication" in calibration.in_words and "\n" not in calibration.in_words


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("a,gone,,a100,8,1,1,1,1,1,4,64,bf16,,,,", "model: 'gone' is not known"),
        ("a,resnet50,,a100,8,1,1,1,1,1,4,64,bf16,,,,", "model: resnet50 is no language model; name one"),
        ("a,tiny,,a100,8,1,1,1,1,3,4,64,bf16,,,,", "expert_parallel: 3 does not divide the 8"),
        ("a,tiny,,a100,8,1,8,2,1,1,4,64,bf16,,,,", "stages: 8 layers of tiny are too few for 16 chunks"),
    ],
)
def test_a_run_that_cannot_be_predicted_says_why(tmp_path: Path, row: str, why: str) -> None:
    folder, runs = read(write_folder(tmp_path, row))
    prediction = predict_run(folder, runs["a"], MEGATRON)
    assert (prediction.predicted_ms, prediction.predicted_gib, prediction.memory) == (None, None, ())
    assert prediction.note.startswith("not predicted: "), prediction.note
    assert why in prediction.note
    assert "\n" not in prediction.note


def test_a_run_that_does_not_fit_says_so(tmp_path: Path) -> None:
    folder, runs = read(write_folder(tmp_path, "a,tiny,,a100,8,1,1,1,1,1,4,9000000000,bf16,,,,"))
    prediction = predict_run(folder, runs["a"], MEGATRON)
    assert prediction.note.startswith("does not fit: ") and prediction.note.endswith(" GiB of 80")


def test_rates_that_were_not_measured_are_a_note(tmp_path: Path) -> None:
    rows = ["a,tiny,,v100,8,1,1,1,1,1,4,64,half,,,mine,", "b,tiny,,mi300x,8,1,1,1,1,1,4,64,fp8,,,,"]
    folder, runs = read(write_folder(tmp_path, *rows, machine="mi300x"))
    notes = [predict_run(folder, run, MEGATRON).note for run in runs.values()]
    assert notes == [
        "mine; rates of v100 assumed, not measured",
        "rates of mi300x in fp8 assumed, not measured",
    ]


def test_a_row_without_a_prediction_is_empty(ran: Command, tmp_path: Path) -> None:
    rows = ["a,gone,,a100,8,1,1,1,1,1,4,64,bf16,5,1,,", ROWS[0]]
    done = ran("predict", f"data={write_folder(tmp_path / 'runs', *rows)}")
    empty, full = table(tmp_path / "out/predictions.csv", COLUMNS)
    assert [empty[name] for name in COLUMNS[4:10]] == ["5.0", "", "", "1.0", "", ""]
    assert "\nruns.csv: 1 x model: 'gone' is not known" in done.stdout.replace("\x1b[0m", "")
    assert full["predicted_ms"]
    assert {row["run"] for row in table(tmp_path / "out/memory.csv", StageTensor._fields)} == {"one"}


@pytest.mark.parametrize(
    ("rows", "overrides", "why"),
    [
        (("a,tiny,,a100,8,1,1,1,1,1,4,64,bf16,fast,,,",), [], "line 2, column measured_ms: 'fast'"),
        (("a,tiny,,a100,-8,1,1,1,1,1,4,64,bf16,5,,,",), [], "line 2, column gpus: '-8' is not"),
        (("a,tiny,,,8,1,1,1,1,1,4,64,bf16,5,,,",), [], "line 2, column gpu: is empty; fill the cell"),
        (("a,tiny,,a101,8,1,1,1,1,1,4,64,bf16,5,,,",), [], "line 2, column gpu: 'a101' is not known; did"),
        (("a,tiny,,a100,8,3,1,1,1,1,4,64,bf16,5,,,",), [], "line 2, column gpus: 8 are not tp 3 x pp 1 x"),
        (
            ("a,tiny,,a100,8,1,1,1,1,1,4,64,bf61,5,,,",),
            [],
            "line 2, column precision: 'bf61' is not known; did",
        ),
        (("a,tiny,,a100,8,1,1,1,1,1,4,64,bf16,1e400,,,",), [], "column measured_ms: '1e400' is not a number"),
        (
            ("a,tiny,,a100,8,1,1,1,1,1,4,64,bf16,9e9,,,",),
            ["calibrate=a"],
            "times as long as predicted; check",
        ),
        (ROWS, ["calibrate=none"], "calibrate: 'none' is no run of the tables, and no table of runs; name a"),
        (ROWS, ["calibrate=experts"], "calibrate: 'experts' has no measured_ms; name a measured run"),
    ],
)
def test_a_wrong_table_is_told_in_a_line(
    refused: Callable[..., str], tmp_path: Path, rows: tuple[str, ...], overrides: list[str], why: str
) -> None:
    assert why in refused("predict", f"data={write_folder(tmp_path / 'runs', *rows)}", *overrides)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hidden_size": None}, "tiny: lacks the field 'hidden_size'; add it"),
        ({"head_num": "eight"}, "tiny.heads: 'eight' is not a whole number"),
    ],
)
def test_a_wrong_file_of_models_is_told_in_a_line(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    sizes = {name: value for name, value in (TINY | changes).items() if value is not None}
    with raises_line(ValueError, match="models.json", has=why):
        read_run_folder(write_folder(tmp_path, models={"tiny": sizes}))
