"""`experiments.plan` with PipeDream-2BW's planner, and a run of its plan."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import one_line_error

from placements.copies.replicas import as_stages
from placements.placement_file import read_placement

Command = Callable[..., subprocess.CompletedProcess[str]]

FOUR = (
    *("planner=pipedream_2bw", "model=bert_huge_32", "num_layers=4", "cluster=v100_4", "batch=8"),
    *("planner.micro_batch_sizes=[1]", "node_bandwidth_gb_s=0.5", "link_bandwidth_gb_s=50"),
)
"""For which four replicas exchange too much over slow links, and two pipelines of two stages are best."""


def test_parallel_pipelines_are_planned_and_run(command: Command, tmp_path: Path) -> None:
    done = command("plan", *FOUR)
    assert done.returncode == 0, done.stderr
    hint = "run it with: schedule=pipedream search.num_micro_batches=32 "
    (run,) = [line for line in done.stdout.splitlines() if line.startswith(hint)]
    versions = ("runtime.weight_versions=double_buffering", "runtime.micro_batches_per_update=4")
    assert run == hint + " ".join(versions)
    with (tmp_path / "out/plans.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    best = rows[0]
    assert [best[name] for name in ("data_parallel", "num_stages", "accumulation")] == ["2", "2", "2"]
    rates = [float(row["samples_per_s"]) for row in rows if not row["reason"]]
    assert rates == sorted(rates, reverse=True)
    copy = (tmp_path / "out/placement.yaml").rename(tmp_path / "placement.yaml")
    stages = as_stages(read_placement(copy))
    assert [block.groups for block in stages.blocks[:2]] == [((0,), (1,)), ((2,), (3,))]
    where = ("placement=file", f"placement.path={copy}", "schedule=pipedream", "search.num_micro_batches=16")
    quick = ("energy.num_plans=2", "runtime.launcher=in_process", "runtime.iterations=1")
    done = command("run", *where, *versions, *quick, "runtime.model=synthetic", "runtime.verify=all")
    assert done.returncode == 0, done.stderr
    assert "gradient error 0.0e+00, bitwise equal to a replay in one process: yes" in done.stdout


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("planner.max_chunks=2",), "planner.max_chunks: is not an option of the planner that is"),
        (("framework=plain",), "framework: plain does not apply here: it is not of planner=pipedream_2bw; "),
        (("model=swin_huge_32", "num_layers=null"), "has 4 kinds of transformer layers in a row"),
        (("batch=[8,16]",), "batch: [8, 16] is not the samples of an update; give one number"),
        (("memory_gib=0.01",), "no plan fits: "),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(command: Command, given: tuple[str, ...], why: str) -> None:
    assert why in one_line_error(command("plan", *FOUR, *given))
