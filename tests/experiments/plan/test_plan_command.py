"""``python -m experiments.plan``, and what the other commands make of its best plan."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from placements.placement_file import read_placement
from placements.planners.hybrid.plan_file import read_plan_file
from schedsearch.metrics import peak_memory
from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

SMALL = [
    *("model=gpt3_125m", "cluster=a100_4", "batch=16", "gpus_per_stage=[2]", "num_stages=[2]"),
    "planner=hybrid",
]


SMALL_RUN = [
    *("runtime.hidden_size=32", "runtime.num_heads=4", "runtime.sequence_length=16", "runtime.num_layers=4"),
    *("runtime.vocab_size=256", "runtime.iterations=1", "energy.baselines=[]", "energy.num_plans=3"),
]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_plans_are_ranked_explained_and_written(command, tmp_path: Path) -> None:
    done = command("plan", *SMALL, "num_plans=2", "shapes=[v_shape,wave_shape]", "time_limit_s=20")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    plans = rows(out / "plans.csv")
    assert {row["shape"] for row in plans} == {"v_shape", "wave_shape"}
    rates = [float(row["samples_per_s"]) for row in plans]
    assert 1.01 * rates[0] >= max(rates)
    assert all(row["proved"] in ("makespan", "no") for row in plans)
    schedule = validate(read_schedule(out / "schedule.json"))
    assert schedule.placement.ms(schedule.makespan) == pytest.approx(float(plans[0]["iteration_ms"]))
    placement = read_placement(out / "placement.yaml")
    assert placement.memory is not None
    assert (peak_memory(schedule) <= placement.memory).all()
    plan = read_plan_file(out / "plan.json")
    assert (plan.num_stages, plan.global_batch_size) == (2, 16)
    said = (out / "plan.md").read_text()
    assert f"Best plan: {plans[0]['name']}." in said
    assert "\n- stage 1 on GPUs 2-3: " in said
    result = json.loads((out / "result.json").read_text())
    assert result["figures"]["samples_per_s"] == pytest.approx(rates[0])
    assert {path.name for path in out.glob("plan.*")} >= {"plan.png", "plan.svg"}


def test_a_wave_is_run_with_layers_of_its_own_and_not_exported(command, tmp_path: Path) -> None:
    """Its blocks are not the pieces of the plan, whose numbers of layers once were given to them."""
    shaped = ["shapes=[wave_shape]", "rank=formula", "num_micro_batches=[4]", "num_plans=1"]
    done = command("plan", *SMALL, *shaped)
    assert done.returncode == 0, done.stderr
    assert "not exported: other systems have no wave_shape of layers each in its own strategy" in done.stdout
    assert "exported to" not in done.stdout
    assert not (tmp_path / "out/export").exists()
    planned = tmp_path / "planned"
    (tmp_path / "out").rename(planned)
    chosen = ["placement=planned", f"placement.path={planned}", "search.work_limit=2.5"]
    done = command("run", *chosen, *SMALL_RUN)
    assert done.returncode == 0, done.stderr
    assert "bitwise equal to a replay in one process: yes" in done.stdout


def test_the_table_fits_in_80_columns(command) -> None:
    """It was 92 wide. Also of the longest name of a shape, and with many GPUs."""
    done = command("plan", "model=gpt3_1.3b", "cluster=a100_16", "batch=1024", "rank=formula", "num_plans=2")
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("plan  "))
    assert all(0 < len(line) <= 80 for line in lines[first : first + 4])
    assert lines[first].split() == ["plan", "ms", "samples/s", "tokens/s/GPU", "MFU", "GiB", "proved"]
    assert sum(" formula" in line for line in lines) >= 2


def test_the_best_plan_is_exported_searched_and_run(command, tmp_path: Path) -> None:
    """With the plan's micro-batches, layers and recomputation, at a small size."""
    done = command("plan", *SMALL, "rank=formula", "num_micro_batches=[4]")
    export = tmp_path / "out/export"
    assert f"exported to Galvatron, Megatron-LM, torchtitan: {export}" in done.stdout
    galvatron = json.loads((export / "galvatron_config.json").read_text())
    assert (galvatron["pp_deg"], galvatron["world_size"], galvatron["chunks"]) == (2, 4, 4)
    assert "--num-layers 12" in (export / "megatron.txt").read_text()
    torchtitan = (export / "torchtitan.txt").read_text()
    assert "--parallelism.pipeline_parallel_degree 2" in torchtitan
    planned = tmp_path / "planned"
    (tmp_path / "out").rename(planned)
    chosen = ["placement=planned", f"placement.path={planned}", "search.work_limit=2.5"]
    done = command("search", *chosen)
    assert done.returncode == 0, done.stderr
    assert "times: cost model of schedsearch plan, gpt3_125m on 4 NVIDIA A100" in done.stdout
    assert f"for the plan in {planned}" in done.stdout
    schedule = read_schedule(tmp_path / "out/schedule.json")
    assert (schedule.num_micro_batches, schedule.placement.gpus) == (4, (2, 2))
    done = command("run", *chosen, *SMALL_RUN)
    assert done.returncode == 0, done.stderr
    assert "bitwise equal to a replay in one process: yes" in done.stdout


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["model=gpt3_125"], "model: 'gpt3_125' is not known; did you mean gpt3_125m?"),
        (["cluster=b100_4"], "cluster: 'b100' is not a known GPU; did you mean v100? The GPUs are a100, "),
        (["memory_gib=1"], "memory_gib: 1 is not above reserve_gib 4"),
        (["num_micro_batches=[5]"], "leave nothing to try for a batch of 16 on 4 GPUs"),
        (["cluster=a40_16"], "node_bandwidth_gb_s: is not known between nodes of a40_16"),
    ],
)
def test_wrong_input(refused, wrong: list[str], said: str) -> None:
    line = refused("plan", *SMALL, *wrong)
    assert line.startswith("plan: error: ")
    assert said in line


@pytest.mark.parametrize(
    ("cluster", "clocks", "gpus"),
    [
        ("h100_2", {(345, 1980)}, ["NVIDIA H100-SXM5-80GB"]),
        ("h100_1+v100_1", {(345, 1980), (135, 1530)}, ["NVIDIA H100-SXM5-80GB", "NVIDIA V100-SXM2-32GB"]),
    ],
)
def test_the_gpu_of_a_plan_goes_with_it(
    command, tmp_path: Path, cluster: str, clocks: set[tuple[int, int]], gpus: list[str]
) -> None:
    """Clocks, power and latency were once those of an A100, whatever the plan was for."""
    small = ["num_stages=[2]", "gpus_per_stage=[1]", "num_micro_batches=[4]", "rank=formula"]
    done = command("plan", "model=gpt3_125m", f"cluster={cluster}", "batch=8", *small, *SLOW_LINK)
    assert done.returncode == 0, done.stderr
    planned = tmp_path / "planned"
    (tmp_path / "out").rename(planned)
    chosen = ["placement=planned", f"placement.path={planned}", "search.work_limit=0.5"]
    done = command("frontier", *chosen, "energy.baselines=[]", "energy.num_plans=3")
    assert done.returncode == 0, done.stderr
    points = rows(tmp_path / "out/profile.csv")
    by_block: dict[str, list[int]] = {}
    for row in points:
        by_block.setdefault(row["block"], []).append(int(row["frequency"]))
    found = {(min(own), max(own)) for name, own in by_block.items()}
    assert found == clocks
    for gpu in gpus:
        assert f"power model of {gpu}" in done.stdout
        assert f"gpt3_125m on 1 {gpus[0]}" in done.stdout or f"gpt3_125m on 2 {gpu}" in done.stdout
    assert "NVIDIA A100" not in done.stdout
    if cluster != "h100_2":  # one of them is enough for what does not depend on the GPU
        return
    done = command("frontier", *chosen, "energy.baselines=[]", "energy.num_plans=3", "profile.gpu=a40")
    assert "warning: profile.gpu is NVIDIA A40, but the plan in" in done.stdout + done.stderr


SLOW_LINK = ("node_bandwidth_gb_s=50",)


def test_a_folder_that_is_no_plan(refused, tmp_path: Path) -> None:
    line = refused("search", "placement=planned", f"placement.path={tmp_path}")
    assert "plan.json" in line
