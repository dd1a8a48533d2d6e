"""`experiments.plan` by measured profiles, and with PipeDream's planner."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import one_line_error
from small_profiles import write_galvatron, write_profile

from placements.copies.replicas import as_stages
from placements.forms.texts import write_text
from placements.placement_file import read_placement
from placements.planners.hybrid.plan_file import read_plan_file

Command = Callable[..., subprocess.CompletedProcess[str]]


NODES = """node,operator,forward_ms,backward_ms,activation_bytes,parameter_bytes,inputs
first,Conv,1,5,8e6,0,
second,Conv,1,5,1e6,1e5,first
third,Linear,1,3,0,8e7,second
"""
"""For which three replicas and a last stage are best on four workers with links of 1 GB/s."""

FOUR = ("cluster=v100_4", "link_bandwidth_gb_s=1", "batch=32")


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    return write_text(tmp_path / "model.csv", NODES)


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def test_a_profile_of_layers_is_planned(command: Command, tmp_path: Path) -> None:
    folder = write_profile(tmp_path / "profile")
    quick = ("planner.num_plans=2", "planner.time_limit_s=20")
    done = command("plan", f"profiles={folder}", "model=toy", "cluster=A100-40_4", "batch=8", *quick)
    assert done.returncode == 0, done.stderr
    said = f"costs: as measured, layers of toy on A100-40 and links of {folder}; data parallelism computed"
    assert said in done.stdout.splitlines()
    out = tmp_path / "out"
    assert f"\nC{said[1:]}.\n" in (out / "plan.md").read_text()
    plan = read_plan_file(out / "plan.json")
    assert [layer.name for layer in plan.model.layers] == ["embedding", "block", "block", "head"]
    assert read_placement(out / "placement.yaml").num_devices == plan.num_stages
    assert json.loads((out / "export/galvatron_config.json").read_text())["global_bsz"] == 8
    done = command(
        "search", "placement=planned", f"placement.path={out}", f"hydra.run.dir={tmp_path / 'next'}"
    )
    assert done.returncode == 0, done.stderr


def test_a_profile_of_galvatron_is_planned(command: Command, tmp_path: Path) -> None:
    given = ("model=toy-1b", "cluster=a100_4", "batch=16", "planner.rank=simulation")
    folder = write_galvatron(tmp_path / "profile")
    assert "num_layers: is not in the profile, and 'toy-1b' is not" in one_line_error(
        command("plan", f"profiles={folder}", *given)
    )
    done = command(
        "plan",
        f"profiles={folder}",
        *given,
        "num_layers=6",
        "planner.paradigms=[tp]",
        "planner.num_stages=[1]",
    )
    assert done.returncode == 0, done.stderr
    assert f"layers of toy-1b at 128 tokens and bandwidths of {folder}" in done.stdout
    plan = read_plan_file(tmp_path / "out/plan.json")
    assert len(plan.model.layers) == 8
    assert {strategy.sequence for strategy in plan.strategies if strategy.tensor_parallel > 1} <= {"megatron"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("model=toy", "cluster=GH-96_4"), "'GH-96_4' is not a GPU that toy was measured on, _ and a number"),
        (("model=other", "cluster=A100-40_4"), "has no profile of 'other'; it has toy"),
        (("cluster=A100-40_4",), "model: has no value; give one, as in model=VALUE"),
        (("model=toy", "cluster=A100-40_3"), "3 GPUs of a100_40gb_3 are not whole nodes of 2"),
    ],
)
def test_what_does_not_fit_a_profile_is_refused_in_a_line(
    refused: Callable[..., str], tmp_path: Path, given: tuple[str, ...], why: str
) -> None:
    folder = write_profile(tmp_path / "profile")
    assert why in refused("plan", f"profiles={folder}", "batch=8", *given)


def test_a_file_is_no_folder_of_profiles(refused: Callable[..., str], nodes: Path) -> None:
    line = refused("plan", f"profiles={nodes}", "model=toy", *FOUR)
    assert "is not a folder" in line and "planner=pipedream" in line


def test_pipedream_plans_a_profile_of_nodes(command: Command, nodes: Path, tmp_path: Path) -> None:
    done = command("plan", "planner=pipedream", f"profiles={nodes}", *FOUR)
    assert done.returncode == 0, done.stderr
    assert "pipedream: 3-1, 4 ms, bound by compute" in done.stdout.splitlines()
    out = tmp_path / "out"
    rows = rows_of(out / "plans.csv")
    assert [row["configuration"] for row in rows.values()] == ["3-1", "4", ""]
    assert float(rows["pipedream"]["samples_per_s"]) == pytest.approx(32 / 4e-3)
    assert "4 workers for 3 nodes" in rows["straight"]["note"]
    assert "stage 0 on 3 workers: first, second" in done.stdout.splitlines()
    stages = as_stages(read_placement(out / "placement.yaml"))
    assert [stages.by_name[name].data_parallel for name in ("F0", "F1")] == [3, 1]
    assert json.loads((out / "result.json").read_text())["figures"]["plan"] == "3-1"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("model=gpt3_175b",), "model: gpt3_175b does not apply here: it is not of planner=pipedream; "),
        (("batch=[1,2]",), "batch: [1, 2] is not the samples of a profiled input"),
        (("profiles=null",), "profiles: has no value; give the CSV file"),
        (("memory_gib=0.001",), "memory_mib: 1.024 is too little for any plan"),
        (("cluster=v100_4+a100_4", "node_bandwidth_gb_s=1"), "cluster: has several kinds of nodes"),
        (("cluster=v100_2048",), "have 2048 workers; give at most 1024"),
    ],
)
def test_what_does_not_fit_pipedream_is_refused_in_a_line(
    refused: Callable[..., str], nodes: Path, given: tuple[str, ...], why: str
) -> None:
    assert why in refused("plan", "planner=pipedream", f"profiles={nodes}", *FOUR, *given)


def test_a_plan_of_pipedream_runs_as_copies(command: Command, nodes: Path, tmp_path: Path) -> None:
    """Never as a tensor-parallel team: three copies of the first stage take micro-batches in turn."""
    assert command("plan", "planner=pipedream", f"profiles={nodes}", *FOUR).returncode == 0
    plan = (tmp_path / "out/placement.yaml").rename(tmp_path / "placement.yaml")
    where = ("placement=file", f"placement.path={plan}", "search.num_micro_batches=6")
    done = command("search", *where, "schedule=one_f_one_b")
    assert "schedule: one_f_one_b knows no copies of stages" in one_line_error(done)
    quick = ("energy.num_plans=2", "runtime.launcher=in_process", "runtime.iterations=1")
    versions = ("schedule=pipedream", "runtime.weight_versions=weight_stashing")
    model = ("runtime.model=synthetic", "runtime.verify=all")
    done = command("run", *where, *versions, *quick, *model)
    assert done.returncode == 0, done.stderr
    assert "weights     weight_stashing, at most 2 of F0, 1 of F1" in done.stdout.splitlines()
    assert "gradient error 0.0e+00, bitwise equal to a replay in one process: yes" in done.stdout
    done = command("run", *where, *versions, *quick, *model, "search.num_micro_batches=7")
    assert done.returncode == 2
    assert "micro_batches_per_update: 1 on each of its 3 copies is not a divisor" in done.stderr
