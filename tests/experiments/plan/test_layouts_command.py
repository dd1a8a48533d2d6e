"""``schedsearch plan planner=layouts``: what it writes, says and refuses."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from placements.planners.hybrid.plan_file import read_plan_file
from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

SMALL = ["planner=layouts", "model=llama3_8b", "cluster=h100_8", "batch=16", "sequence_length=2048"]


def test_the_best_layouts_are_written(command: Any, tmp_path: Path) -> None:
    done = command("plan", *SMALL, "num_plans=2", "micro_batch_sizes=[1]")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    first = next(line for line in done.stdout.splitlines() if line.startswith("1. "))
    assert " ms, " in first and " samples/s, " in first and first.endswith(" GiB")
    assert " layouts fit by the formula; no schedule of one of them is shorter than " in done.stdout
    with (out / "layouts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    fits = [row["fits"] for row in rows]
    assert fits == sorted(fits, reverse=True), "those that fit come first"
    times = [float(row["formula_ms"]) for row in rows if row["fits"] == "True"]
    assert times == sorted(times)
    plan = read_plan_file(out / "plan.json")
    assert plan.num_gpus == 8
    assert plan.global_batch_size == 16
    schedule = validate(read_schedule(out / "schedule.json"))
    assert schedule.num_micro_batches == plan.num_micro_batches
    text = (out / "plan.md").read_text()
    assert any(
        line.startswith(("Without a pipeline", "The best has no pipeline")) for line in text.splitlines()
    )
    assert "| weights " in text and "| optimizer " in text and "placeholder of gradients" in text


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["batch=[8,16]"], "batch: [8, 16] is not one number, which planner=layouts needs; give one"),
        (["model=null"], "model: is missing; give one, such as llama31_405b or a config.json"),
        (["precision=bf8"], "precision: 'bf8' is not known; use one of half, bf16"),
        (["rank=energy"], "rank: energy does not apply here: it is not of planner=layouts; "),
        (["batch=1", "cluster=h100_7"], "cluster: no layout of llama3_8b divides 7 GPUs and the batch; "),
        (["machine=nowhere.csv"], "nowhere.csv: "),
        (["framework=mine"], "framework: 'mine' is not "),
        (
            ["micro_batch_sizes=[0]"],
            "micro_batch_sizes: [0] is not a list of whole numbers above 0; ",
        ),
        (["recompute=[all]"], "recompute: 'all' is not known; "),
        (
            ["num_stages=[2]"],
            "num_stages: [2] does not apply here: it is not of planner=layouts; leave it out",
        ),
        (
            ["planner=hybrid", "overlap_tensor_parallel=true"],
            "overlap_tensor_parallel: True does not apply here: it is of planner=layouts; ",
        ),
        (["planner=hybrid", "max_chunks=2"], "max_chunks: 2 does not apply here: it is of planner=layouts; "),
    ],
)
def test_what_is_wrong_is_told_in_a_line(refused: Any, overrides: list[str], message: str) -> None:
    assert message in refused("plan", *SMALL, *overrides)


def test_what_does_not_fit_is_told_with_what_it_needs(command: Any) -> None:
    done = command("plan", *SMALL, "model=llama31_405b")
    assert done.returncode == 2
    assert "cluster: no layout fits 76.0 GiB of each of the 8 GPUs; the smallest, TP 8, " in done.stderr
    assert done.stderr.rstrip().endswith(" GiB; use more GPUs or larger ones")


def test_rates_in_16_bits_are_not_for_other_precisions(refused: Any, tmp_path: Path) -> None:
    path = tmp_path / "h100_rates.csv"
    rows = [f"product,{each},0.5,64 64 64," for each in ("forward", "input_gradient", "weight_gradient")]
    path.write_text("\n".join(["operator,pass,share,sizes,latency_us", *rows]) + "\n")
    line = refused("plan", *SMALL, f"machine={path}", "precision=fp8")
    assert "machine: its rates were measured in 16 bits, not in fp8; leave it out, or use " in line
