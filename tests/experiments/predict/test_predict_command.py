from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_runs import COLUMNS, FAST, PLANS, SLOW, plan, table, write_runs
from places import SHARED_DATA

from experiments.predict.board import BoardRun, board_row, group_rows
from experiments.predict.measured_folder import predict_plan, read_measured_folder
from placements.forms.texts import write_text

Command = Callable[..., subprocess.CompletedProcess[str]]

SAILOR = SHARED_DATA / "sailor"
CONTEXT_MIB = 4.71 * 1024


def predicted(folder: Path) -> list[BoardRun]:
    return [predict_plan(run, CONTEXT_MIB, 1.0) for run in read_measured_folder(folder)]


@pytest.mark.always
def test_each_plan_has_a_row_with_what_was_measured_and_predicted(ran: Command, tmp_path: Path) -> None:
    """One stage: four micro-batches of 25 + 48 ms."""
    done = ran("predict", f"data={write_runs(tmp_path / 'runs')}", "context_gib=0")
    rows = table(tmp_path / "out/predictions.csv", COLUMNS)
    assert [row["run"] for row in rows] == ["one_stage", "two_types"]
    assert float(rows[0]["predicted_ms"]) == pytest.approx(292, abs=0.01)
    assert rows[0]["measured_ms"] == "1000.0"
    assert (rows[0]["measured_gib"], rows[0]["note"]) == ("1.0", "")
    assert float(rows[0]["predicted_gib"]) == pytest.approx(100e6 / 2**30, abs=0.002)
    assert "plans.csv     2 " in done.stdout


def test_two_types_of_gpu_in_one_plan(tmp_path: Path) -> None:
    """The slow replicas, which set the time: 16.5 + 33 ms, then 42 + 78 ms, of four micro-batches.

    The second stage has 120 ms to do of each, and the first one less.
    """
    folder = write_runs(tmp_path, {"two_types": PLANS["two_types"]})
    (row,) = predicted(folder)
    assert row.predicted_ms == pytest.approx(16.5 + 4 * 120 + 33, abs=0.1)


def test_a_plan_that_cannot_be_predicted_says_why_and_others_go_on(ran: Command, tmp_path: Path) -> None:
    plans = {
        "large": plan([[0, 1, 2, 3]], [[(FAST, 1)]], mbs=64, gbs=64),
        "wide": plan([[0, 1, 2, 3]], [[(FAST, 4)]]),
        "further": plan([[0, 1, 2, 9]], [[(FAST, 1)]]),
        "long": plan([[0, 1, 2, 3]], [[(FAST, 1)]], gbs=1_000_000),
        "between": plan([[0, 1, 2, 3]], [[(FAST, 1)]], mbs=2),
        "whole": PLANS["one_stage"],
    }
    rows = "".join(f"{name},toy,,,\n" for name in plans) + "other,unknown,1,,\n"
    folder = write_runs(tmp_path / "runs", {**plans, "other": PLANS["one_stage"]}, rows)
    done = ran("predict", f"data={folder}")
    runs = {row["run"]: row for row in table(tmp_path / "out/predictions.csv", COLUMNS)}
    notes = {
        "large": "not predicted: micro-batches of 64 are not within the 1 to 4 measured on fast",
        "wide": "not predicted: tensor parallelism 4 has no memory profile, only 1, 2",
        "further": "not predicted: layer 9 is not of the model",
        "long": "not predicted: 3000000 blocks are more than",
        "other": "not predicted: unknown lacks a file in memory/ or in profiles/",
    }
    for name, note in notes.items():
        assert runs[name]["predicted_ms"] == runs[name]["predicted_gib"] == "", name
        assert runs[name]["note"].startswith(note)
        assert f"plans.csv: 1 x {note.removeprefix('not predicted: ')}" in done.stdout
    assert runs["between"]["note"] == "micro-batches of 2 interpolated on fast with tensor parallelism 1"
    assert runs["between"]["predicted_ms"] and runs["whole"]["predicted_ms"] and not runs["whole"]["note"]


def test_what_has_a_note_is_predicted_but_not_counted(command: Command, tmp_path: Path) -> None:
    rows = "one_stage,toy,0.292,,odd clock\ntwo_types,toy,0.529,,\n"
    assert not command("predict", f"data={write_runs(tmp_path / 'runs', rows=rows)}").returncode
    noted, _ = table(tmp_path / "out/predictions.csv", COLUMNS)
    assert noted["note"] == "odd clock" and noted["predicted_ms"]
    assert "plans.csv,1,0,1," in (tmp_path / "out/board.csv").read_text()


def test_odd_layers_are_noted(tmp_path: Path) -> None:
    (row,) = predicted(write_runs(tmp_path, {"odd": plan([[0, 1], [1, 3]], [[(FAST, 1)], [(SLOW, 1)]])}))
    assert row.note == "layers in no stage: 2; layers named more than once: 1"


def test_plans_of_as_many_gpus_are_one_question(tmp_path: Path) -> None:
    """Of the same GPUs the plan of the slow ones was measured to be faster, which it is not."""
    plans = {
        "quick": PLANS["one_stage"],
        "slow": plan([[0, 1, 2, 3]], [[(SLOW, 1)]]),
        "two": PLANS["two_types"],
    }
    folder = write_runs(tmp_path, plans, "quick,toy,3,,\nslow,toy,2,,\ntwo,toy,1,,\n")
    (row,) = group_rows(predicted(folder))
    assert row["question"] == "model toy, gpus 1, global batch 4"
    assert (row["chosen"], row["best"], row["pairs"], row["pairs_in_order"]) == ("quick", "slow", 1, 0)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("plans.csv", None, "plans.csv: cannot be read (No such file or directory); give the path of a CSV"),
        (
            "plans.csv",
            "plan,model\n../one_stage,toy\n",
            "line 2, column plan: '../one_stage' is not the name",
        ),
        ("plans.csv", "plan,model\none_stage,toy\none_stage,toy\n", "plan one_stage is in line 2 too"),
        ("plans/one_stage.json", "{", "plans/one_stage.json: is not JSON"),
        ("profiles/toy/slow.json", "[]", "profiles/toy/slow.json: [] is not a mapping by micro-batch size"),
        ("memory/toy.json", "[]", "memory/toy.json: [] is not a mapping by tensor parallelism; give one"),
        (
            "bandwidth/intra_node.json",
            '{"fast": {"2": 1}}',
            "intra_node.json: fast.2: 1 is not [coefficients, max_bytes_per_s]; give",
        ),
    ],
)
def test_a_wrong_file_is_a_line(tmp_path: Path, file: str, text: str | None, message: str) -> None:
    path = write_runs(tmp_path) / file
    path.unlink()
    if text is not None:
        write_text(path, text)
    with pytest.raises(ValueError) as error:
        read_measured_folder(tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["context_gib=-1"], "context_gib: -1 is not a number from 0 to 10000"),
        (["data=nowhere"], "data: nowhere is not there; give a folder with a CSV of runs (columns run, "),
    ],
)
def test_a_wrong_option_is_a_line(
    refused: Callable[..., str], tmp_path: Path, overrides: list[str], message: str
) -> None:
    folder = write_runs(tmp_path / "runs")
    assert message in refused("predict", f"data={folder}", *overrides)
    assert not (tmp_path / "out/predictions.csv").exists()


needs_measurements = pytest.mark.skipif(not SAILOR.is_dir(), reason="needs the shared measurements")


@needs_measurements
def test_real_runs_are_predicted_within_8_percent_of_time_and_15_of_memory() -> None:
    """14 plans on up to 256 GH200; without GPT-Neo's one micro-batch, which is start-up for the most part."""
    doubted = {plan.row.plan for plan in read_measured_folder(SAILOR) if plan.row.note}
    runs = [run for run in predicted(SAILOR) if run.run not in doubted]
    usual = [run for run in runs if not run.run.endswith("GPT-Neo-2.7_N2_D1")]
    assert (len(runs), len(usual)) == (13, 12)
    assert board_row("", usual)["time_error_percent"] < 8
    assert board_row("", runs)["memory_error_percent"] < 15
    by_gpus = [replace(run, question=run.question.split(",")[1]) for run in runs]
    rows = group_rows(by_gpus)
    assert len(rows) == 5 and all(row["pairs"] == row["pairs_in_order"] > 0 for row in rows)
