"""``python -m experiments.plan``, and the other commands on its best plan."""

from __future__ import annotations

import csv
import json
import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from perfetto_rules import read_events, thread_of

from experiments.config.command import run as run_command
from experiments.plan.options import PLANNERS, PlanCommandOptions, PlanQuestion, read_planner
from experiments.plan.task import task as plan_task
from experiments.report.result import Result
from placements.forms.meaning import option
from placements.placement_file import read_placement
from placements.planners.hybrid.plan_file import read_plan_file
from placements.trainers.files import read_any
from runtime.hooks.megatron import MegatronOrder
from runtime.torch_pipelining.csv import torch_order
from schedsearch.core.progress import PlanProgress
from schedsearch.metrics import peak_memory
from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

QUICK = "planner.rank=simulation"
NUMBERS = ("planner.gpus_per_stage=[2]", "planner.num_stages=[2]", "planner.num_micro_batches=[4]")
SMALL = ["model=gpt3_125m", "cluster=a100_4", "batch=16", *NUMBERS]
LAYOUTS = ["planner.uniform=true", "model=llama3_8b", "cluster=h100_8", "batch=16", "sequence_length=2048"]

SMALL_RUN = [
    *("runtime.hidden_size=32", "runtime.num_heads=4", "runtime.sequence_length=16", "runtime.num_layers=4"),
    *("runtime.vocab_size=256", "runtime.iterations=1", "energy.baselines=[]", "energy.num_plans=3"),
]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_plans_are_ranked_explained_and_written(command: Any, tmp_path: Path) -> None:
    shapes = "planner.shapes=[v_shape,m_shape]"
    done = command("plan", *SMALL, "planner.num_plans=2", shapes, "planner.time_limit_s=20")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    plans = rows(out / "plans.csv")
    assert "m_shape" in {row["shape"] for row in plans}
    rates = [float(row["samples_per_s"]) for row in plans]
    assert 1.01 * rates[0] >= max(rates)
    assert all(row["proved"] in ("makespan", "no") for row in plans)
    schedule = validate(read_schedule(out / "schedule.json"))
    assert len(thread_of(read_events(out / "trace.json"), 0, "planned")) == len(schedule.order(0))
    assert schedule.placement.ms(schedule.makespan) == pytest.approx(float(plans[0]["iteration_ms"]), 1e-3)
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


def test_an_m_shape_is_not_exported(command: Any, tmp_path: Path) -> None:
    done = command("plan", *SMALL, "planner.shapes=[m_shape]", QUICK, "planner.num_plans=1")
    assert done.returncode == 0, done.stderr
    assert "not exported: other systems have no m_shape of layers each in its own strategy" in done.stdout
    assert not (tmp_path / "out/export").exists()


def test_the_best_plan_of_bmw_is_exported_searched_and_run(command: Any, tmp_path: Path) -> None:
    """With the plan's micro-batches, layers and recomputation, at a small size; the table fits 80 columns."""
    done = command("plan", "planner=bmw", *SMALL, QUICK)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("plan  "))
    assert all(0 < len(line) <= 80 for line in lines[first : first + 2])
    assert lines[first].split() == ["plan", "ms", "tokens/s/GPU", "MFU", "J/token", "GiB", "proved"]
    export = tmp_path / "out/export"
    assert f"exported to Galvatron, Megatron-LM, torchtitan: {export}" in done.stdout
    galvatron = json.loads((export / "galvatron_config.json").read_text())
    assert (galvatron["pp_deg"], galvatron["world_size"], galvatron["chunks"]) == (2, 4, 4)
    assert "--num-layers 12" in (export / "megatron.txt").read_text()
    assert "--parallelism.pipeline_parallel_degree 2" in (export / "torchtitan.txt").read_text()
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
    figures = json.loads((tmp_path / "out/result.json").read_text())["figures"]
    best = rows(planned / "plans.csv")[0]
    for name in ("tokens_per_s_per_gpu", "mfu_percent"):
        work = float(best[name]) * float(best["iteration_ms"])
        assert figures[name] * figures["time_ms"] == pytest.approx(work)
    assert 0.5 < figures["j_per_token"] / float(best["j_per_token"]) < 1, (
        "the plan's is at the highest clocks"
    )


@pytest.mark.always
def test_the_best_layouts_are_written(command: Any, tmp_path: Path) -> None:
    few = ["planner.num_plans=2", "planner.micro_batch_sizes=[1]", "memory_gib=48"]
    done = command("plan", *LAYOUTS, *few, "planner.rank=simulation")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    said = "; no layout that fits takes less than "
    assert said in done.stdout and said in (out / "plan.md").read_text()
    rated = rows(out / "layouts.csv")
    fits = [row["fits"] for row in rated]
    assert fits == sorted(fits, reverse=True), "those that fit come first"
    times = [float(row["formula_ms"]) for row in rated if row["fits"] == "True"]
    assert times == sorted(times)
    plan = read_plan_file(out / "plan.json")
    assert (plan.num_gpus, plan.global_batch_size) == (8, 16)
    schedule = validate(read_schedule(out / "schedule.json"))
    placement = read_placement(out / "placement.yaml")
    assert placement.memory and (peak_memory(schedule) <= placement.memory).all()
    best = rows(out / "plans.csv")[0]
    assert float(best["iteration_ms"]) == pytest.approx(placement.ms(schedule.makespan), 0.01)


def test_a_searched_order_is_exported(command: Any, tmp_path: Path) -> None:
    """Megatron-LM and torchtitan can run the layers, the order and the memory that were priced."""
    few = ["planner.num_stages=[8]", "planner.max_chunks=1", "planner.micro_batch_sizes=[2]"]
    done = command("plan", *LAYOUTS[:3], "batch=16", *few)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    assert rows(out / "plans.csv")[0]["name"] == "PP8 uneven searched, 8x2"
    assert "order: without it an iteration takes " in done.stdout
    exported, whole = (read_schedule(out / name) for name in ("export/schedule.json", "schedule.json"))
    assert MegatronOrder(exported).num_stages == 8
    assert str(torch_order(whole)) == (out / "export/schedule.csv").read_text()
    layout = read_any(out / "export/megatron.txt").layout
    assert layout == read_any(out / "export/torchtitan.txt").layout
    of_layer = [exported.placement.by_name[f"F{i}"].time / layout.sizes[i] for i in range(1, 7)]
    assert max(of_layer) == pytest.approx(min(of_layer), 0.01), "the division that was priced"


def test_the_rates_of_a_machine_are_taken(command: Any, refused: Any, tmp_path: Path) -> None:
    """With half the rates an iteration takes longer, at most twice as long."""
    path, rated = tmp_path / "h100_rates.csv", []
    few = [*LAYOUTS[1:], QUICK, "planner.num_stages=[1,2]", f"machine={path}"]
    for share in (0.8, 0.4):
        products = [f"product,{kind},{share},64 64 64," for kind in ("forward", "input_gradient")]
        products.append(products[0].replace("forward", "weight_gradient"))
        path.write_text("\n".join(["operator,pass,share,sizes,latency_us", *products]) + "\n")
        done = command("plan", *few)
        assert done.returncode == 0, done.stderr
        assert f"costs: computed from shapes, and rates measured, of {path}" in done.stdout
        rated.append(min(float(row["formula_ms"]) for row in rows(tmp_path / "out/plans.csv")))
    assert rated[0] < rated[1] < 2.01 * rated[0]
    for wrong, message in (
        ("precision=fp8", "machine: its rates were measured in 16 bits, not in fp8; leave"),
        ("cluster=h100_8+a100_8", "machine: its rates are of one kind of GPU, not of several as in h100_8+"),
        (f"profiles={tmp_path}", "does not apply here: the profile has it, or has none; leave it out"),
    ):
        assert message in refused("plan", *few, wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["model=gpt3_125"], "model: 'gpt3_125' is not known; did you mean gpt3_125m?"),
        (["cluster=b100_4"], "cluster: 'b100_4' is not a known GPU and a number, as in a100_8; did"),
        (["memory_gib=1"], "memory_gib: 1 is not above reserve_gib 4"),
        (["planner.num_micro_batches=[5]"], "leave nothing to try for a batch of 16 on 4 GPUs"),
        (["cluster=a40_16"], "node_bandwidth_gb_s: is not known between nodes of a40_16"),
        (["planner=hybrid"], "planner=hybrid: is not there; the options are bmw, default, pipedream, "),
        (["planner.method=bmw"], "planner.method: is not an option of the planner that is chosen; choose "),
        (["planner.num_stages=[]"], "planner.num_stages: is empty; give at least one entry"),
        (["shapes=[m_shape]"], "shapes: is not an option of schedsearch plan; did you mean planner.shapes?"),
        (
            ["planner.sequence_parallel=false", "planner.uniform=true"],
            "uniform: layouts cannot be compared: sequence_parallel is false",
        ),
        (
            ["batch=1", "cluster=h100_7", "planner.uniform=true", "planner.num_stages=null"],
            "cluster, batch: no layout of gpt3_125m divides both 7 GPUs and ",
        ),
    ],
)
def test_wrong_input(refused: Any, wrong: list[str], said: str) -> None:
    line = refused("plan", *SMALL, *wrong)
    assert line.startswith("plan: error: ")
    assert said in line


def test_what_does_not_fit_is_told_with_what_it_needs(command: Any) -> None:
    done = command("plan", *LAYOUTS, "model=llama31_405b")
    assert done.returncode == 2
    assert "cluster: no layout fits 76.0 GiB of each of the 8 GPUs; the smallest, TP8, " in done.stderr
    assert done.stderr.rstrip().endswith(" GiB; use more GPUs or larger ones")


def test_the_gpu_of_a_plan_goes_with_it(command: Any, tmp_path: Path) -> None:
    """Clocks, power and latency come from the plan's GPU; they were once an A100's for every plan."""
    small = ["planner.num_stages=[2]", "planner.gpus_per_stage=[1]", "planner.num_micro_batches=[4]", QUICK]
    done = command("plan", "model=gpt3_125m", "cluster=h100_2", "batch=8", *small)
    assert done.returncode == 0, done.stderr
    planned = tmp_path / "planned"
    (tmp_path / "out").rename(planned)
    chosen = ["placement=planned", f"placement.path={planned}", "search.work_limit=0.5"]
    done = command("frontier", *chosen, "energy.baselines=[]", "energy.num_plans=3")
    assert done.returncode == 0, done.stderr
    clocks = [int(row["frequency"]) for row in rows(tmp_path / "out/profile.csv")]
    assert (min(clocks), max(clocks)) == (345, 1980)
    assert "power model of NVIDIA H100-SXM5-80GB" in done.stdout
    assert "gpt3_125m on 2 NVIDIA H100-SXM5-80GB" in done.stdout
    assert "NVIDIA A100" not in done.stdout
    done = command("frontier", *chosen, "energy.baselines=[]", "energy.num_plans=3", "profile.gpu=a40")
    assert "warning: profile.gpu is NVIDIA A40, but the plan in" in done.stdout + done.stderr


def test_a_folder_that_is_no_plan(refused: Any, tmp_path: Path) -> None:
    assert "plan.json" in refused("search", "placement=planned", f"placement.path={tmp_path}")


def test_an_interrupt_keeps_the_best_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C comes while layouts are rated: the best of them is written, and the rest is counted."""

    def press(_: PlanProgress, done: int, *__: object) -> None:
        if done:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(PlanProgress, "planner", press)
    monkeypatch.setattr(sys, "argv", ["plan", f"hydra.run.dir={tmp_path / 'out'}", *LAYOUTS])
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with pytest.raises(SystemExit) as end:
        run_command("plan")
    root.handlers[:] = handlers
    root.setLevel(level)
    printed = capfd.readouterr()
    assert end.value.code == 130
    assert f"plan: interrupted; the best plans found so far are in {tmp_path / 'out'}" in printed.err
    assert "interrupted: " in printed.out
    assert "were not looked at" in (tmp_path / "out/plan.md").read_text()
    assert read_plan_file(tmp_path / "out/plan.json").num_gpus == 8


def test_a_planner_is_a_file_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `docs/extending.md` says: a new option is a field."""

    @dataclass(frozen=True, kw_only=True)
    class DataParallelPlanner:
        module: ClassVar[str] = __name__
        kind: str = option("data_parallel", "set by planner=")
        copies: int = option(1, "GPUs that have all layers", min=1)

    monkeypatch.setitem(PLANNERS, "data_parallel", DataParallelPlanner)
    planner = read_planner({"kind": "data_parallel", "copies": 4})
    asked = PlanCommandOptions(cluster="a100_4", batch=8, planner=planner)
    assert plan_task(asked).figures == {"plan": "DP4 of a100_4"}
    with pytest.raises(ValueError, match="^planner.copies: 0 is not a whole number of 1 or more; give one$"):
        read_planner({"kind": "data_parallel", "copies": 0})


def task(question: PlanQuestion, planner: Any) -> Result:
    """Plan for the planner of the test above."""
    return Result(figures={"plan": f"DP{planner.copies} of {question.cluster}"})
