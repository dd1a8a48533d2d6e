"""``schedsearch plan planner=layouts``: what it writes, says and refuses."""

from __future__ import annotations

import csv
import logging
import signal
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments.config.command import run as run_command
from placements.placement_file import read_placement
from placements.planners.hybrid.plan_file import read_plan_file
from schedsearch.core.progress import PlanProgress
from schedsearch.metrics import peak_memory
from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

SMALL = ["planner=layouts", "model=llama3_8b", "cluster=h100_8", "batch=16", "sequence_length=2048"]


@pytest.mark.always
def test_the_best_layouts_are_written(command: Any, tmp_path: Path) -> None:
    done = command("plan", *SMALL, "num_plans=2", "micro_batch_sizes=[1]")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    head, first = next(pairwise(done.stdout.splitlines()[1:]))
    assert head.split() == ["plan", "ms", "samples/s", "tokens/s/GPU", "MFU", "GiB", "proved"]
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
    placement = read_placement(out / "placement.yaml")
    assert placement.memory and (peak_memory(schedule) <= placement.memory).all()
    assert float(first.split()[-7].replace(",", "")) == pytest.approx(placement.ms(schedule.makespan), 0.01)
    with (out / "memory.csv").open(newline="") as file:
        memory = list(csv.DictReader(file))
    assert {int(row["stage"]) for row in memory} == set(range(plan.num_stages))
    by_stage = [
        sum(float(row["gib"]) for row in memory if int(row["stage"]) == stage)
        for stage in range(plan.num_stages)
    ]
    assert max(by_stage) == pytest.approx(float(first.split()[-2]), abs=0.1), first
    assert (out / "memory.png").exists() and (out / "memory.svg").exists()
    assert {"weights", "optimizer", "kept"} <= {row["kind"] for row in memory}
    assert " layouts fit by the formula; " in (out / "plan.md").read_text()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["batch=[8,16]", "explain={tp: 2}"], "batch: [8, 16] is not one number, which explain needs; "),
        (
            ["planner=null", "method=bmw", "explain={tp: 2}"],
            "explain: layouts cannot be compared: method, stage_method or pipeline is given",
        ),
        (["batch=1", "cluster=h100_7"], "cluster, batch: no layout of llama3_8b divides both 7 GPUs and "),
        (
            ["num_chunks=3"],
            "num_chunks: 3 does not apply here: it is not of planner=layouts; leave it out",
        ),
        (["explain={tp: 3}"], "explain: TP 3 x PP 1 x CP 1 is 3, which does not make 8 GPUs; give degrees "),
        (
            ["explain=[{tp: 8}, {tp: 4, micro_batch_size: 3}]"],
            "explain[1]: micro_batch_size: DP 2 x 3 samples do not divide the batch of 16; use one of 1",
        ),
        (
            ["batch=12", "explain={pp: 4, micro_batch_size: 2}"],
            "explain: micro_batch_size: with 2 there are 3 micro-batches, fewer than PP 4; use smaller ones",
        ),
        (["explain={recomputed_layers: 2}"], "explain: recomputed_layers: nothing is computed again; give "),
        (["explain={ep: 2}"], "EP 2, DP 8, micro-batches 2 x 1: ep: llama3_8b has no experts to share; "),
        (
            ["explain={pp: 8, vp: 9}"],
            "PP 8, VP 9, micro-batches 16 x 1: stages: 32 layers of llama3_8b are too few for 72 chunks",
        ),
        (["planner=hybrid", "explain={tp: 2}"], "it is not of planner=hybrid; leave it out"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(refused: Any, overrides: list[str], message: str) -> None:
    assert message in refused("plan", *SMALL, *overrides)


def test_what_does_not_fit_is_told_with_what_it_needs(command: Any) -> None:
    done = command("plan", *SMALL, "model=llama31_405b")
    assert done.returncode == 2
    assert "cluster: no layout fits 76.0 GiB of each of the 8 GPUs; the smallest, TP 8, " in done.stderr
    assert done.stderr.rstrip().endswith(" GiB; use more GPUs or larger ones")


def rates(tmp_path: Path, share: float = 0.5) -> Path:
    path = tmp_path / "h100_rates.csv"
    passes = ("forward", "input_gradient", "weight_gradient")
    rows = [f"product,{each},{share},64 64 64," for each in passes]
    path.write_text("\n".join(["operator,pass,share,sizes,latency_us", *rows]) + "\n")
    return path


HYBRID = [*SMALL[1:], "rank=formula", "num_stages=[1,2]"]


def test_the_hybrid_planner_takes_the_rates_of_a_machine(command: Any, tmp_path: Path) -> None:
    """With half the rates an iteration takes longer, at most twice as long."""
    rated = []
    for share in (0.8, 0.4):
        path = rates(tmp_path, share)
        done = command("plan", *HYBRID, f"machine={path}")
        assert done.returncode == 0, done.stderr
        assert f"costs: computed from shapes, and rates measured, of {path}" in done.stdout
        with (tmp_path / "out/plans.csv").open(newline="") as file:
            rated.append(min(float(row["formula_ms"]) for row in csv.DictReader(file)))
    assert rated[0] < rated[1] < 2.01 * rated[0]


def test_the_hybrid_planner_refuses_what_the_machine_has(refused: Any, tmp_path: Path) -> None:
    path = rates(tmp_path)
    for overrides, message in (
        (
            [f"machine={path}", "layer_times=x.csv"],
            "layer_times: x.csv does not apply here: machine has rates ",
        ),
        (
            [f"machine={path}", "precision=fp8"],
            "machine: its rates were measured in 16 bits, not in fp8; leave",
        ),
        (
            [f"machine={path}", "cluster=h100_8+a100_8"],
            "machine: its rates are of one kind of GPU, not of several as in h100_8+a100_8; leave it out",
        ),
        (
            [f"machine={path}", f"profiles={tmp_path}"],
            "does not apply here: the profile has it, or has none; leave it out",
        ),
    ):
        assert message in refused("plan", *HYBRID, *overrides)


def test_an_interrupt_keeps_the_best_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C comes while layouts are rated: the best of them is written, and what was left out is told."""

    def press(_: PlanProgress, done: int, total: int) -> None:
        if done:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(PlanProgress, "layouts", press)
    monkeypatch.setattr(sys, "argv", ["plan", f"hydra.run.dir={tmp_path / 'out'}", *SMALL])
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with pytest.raises(SystemExit) as end:
        run_command("plan")
    root.handlers[:] = handlers
    root.setLevel(level)
    printed = capfd.readouterr()
    assert end.value.code == 130
    assert f"plan: interrupted; the best plans found so far are in {tmp_path / 'out'}" in printed.err
    assert "interrupted: " in printed.out and " were not looked at; the bound is that of " in printed.out
    assert "were not looked at" in (tmp_path / "out/plan.md").read_text()
    assert read_plan_file(tmp_path / "out/plan.json").num_gpus == 8


def test_own_layouts_are_told_part_by_part(command: Any, tmp_path: Path) -> None:
    """One that does not fit is told with what it needs."""
    own = "explain=[{tp: 8}, {pp: 2, micro_batch_size: 2}]"
    done = command("plan", *SMALL, "micro_batch_sizes=[1]", "num_plans=2", "memory_gib=48", own)
    assert done.returncode == 0, done.stderr
    names = ["TP 8, micro-batches 16 x 1", "PP 2, DP 4, micro-batches 2 x 2"]
    why = next(line for line in done.stdout.splitlines() if line.startswith(f"own {names[0]}: "))
    assert "%) longer: tensor-parallel exchanges +" in why
    assert "it does not fit: a GPU holds " in done.stdout
    assert " GiB, of 44.0 that it may\n" in done.stdout
    text = (tmp_path / "out/plan.md").read_text()
    assert f"\nown {names[1]}: " in text
    assert text.count("\niteration ") == text.count("\nmemory of a GPU ") == 2
