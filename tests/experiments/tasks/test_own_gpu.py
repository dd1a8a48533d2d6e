"""A GPU of one's own: one record in `placements.hardware.GPUS`, and every command knows it."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from placements.hardware import A100_SXM_80GB, GPUS
from placements.planners.hybrid.plan_file import read_plan_file

OWN = replace(
    A100_SXM_80GB,
    name="OWN-96GB",
    peak_tflops=400.0,
    memory_gib=96.0,
    clocks_mhz=(600, 900, 1200),
    gpus_per_node=2,
    node_bandwidth_gb_s=25.0,
    network_source="made up",
)


def test_a_gpu_needs_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GPUS, "own", OWN)
    plan, placed = tmp_path / "plan", f"placement.path={tmp_path / 'plan'}"
    small = [
        "model=gpt3_125m",
        "batch=16",
        "gpus_per_stage=[2]",
        "num_stages=[2]",
        "search_time_limit_s=2",
        "num_plans=1",
    ]
    for name, *given in (
        ("plan", "cluster=own_4", *small),
        ("search", "placement=planned", placed, "search.time_limit_s=2"),
        ("search", "placement=gpt", "placement.num_devices=4", "profile.gpu=own", "search.time_limit_s=2"),
        ("frontier", "placement=planned", placed, "schedule=one_f_one_b"),
    ):
        monkeypatch.setattr(sys, "argv", [name, *given, f"hydra.run.dir={tmp_path / name}"])
        importlib.import_module(f"experiments.{name}").main()
    (nodes,) = read_plan_file(plan / "plan.json").cluster.nodes
    assert (nodes.gpu, nodes.num_nodes, nodes.gpus_per_node) == (OWN, 2, 2)
    clocks = json.loads((tmp_path / "frontier/plan.json").read_text())["clock_mhz"]
    assert {clock for of_block in clocks.values() for clock in of_block} <= {*OWN.clocks_mhz}
