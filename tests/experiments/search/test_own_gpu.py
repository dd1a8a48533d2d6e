"""A GPU of one's own: one record, in `placements.gpus.GPUS` or in a file, and every command knows it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.config.command import run
from placements.cluster import Cluster, Nodes, read_cluster
from placements.forms.reading import plain
from placements.forms.texts import write_json
from placements.gpus import A100_SXM_80GB, GPUS
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


def test_an_entry_is_a_cluster_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GPUS, "own", OWN)
    assert read_cluster("own_4") == Cluster((Nodes(OWN, 2, 2),), 25.0, source="made up")


def test_a_gpu_needs_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry for one search, and for the others a file of a cluster, whose GPU the plan takes along."""
    monkeypatch.setitem(GPUS, "own", OWN)
    cluster, gpu = tmp_path / "cluster.json", tmp_path / "gpu.json"
    write_json(gpu, plain(replace(OWN, memory_gib=48.0)))
    write_json(cluster, plain(Cluster((Nodes(replace(OWN, memory_gib=48.0), 2, 2),), 25.0)))
    plan, placed = tmp_path / "plan", f"placement.path={tmp_path / 'plan'}"
    small = [
        "model=gpt3_125m",
        "batch=16",
        "gpus_per_stage=[2]",
        "num_stages=[2]",
        "time_limit_s=20",
        "num_plans=1",
    ]
    for name, *given in (
        ("plan", f"cluster={cluster}", *small),
        ("search", "placement=planned", placed, f"profile.gpu={gpu}", "search.work_limit=2.5"),
        ("search", "placement=gpt", "placement.num_devices=4", "profile.gpu=own", "search.work_limit=2.5"),
        ("frontier", "placement=planned", placed, "schedule=one_f_one_b"),
    ):
        monkeypatch.setattr(sys, "argv", [name, *given, f"hydra.run.dir={tmp_path / name}"])
        run(name)
    (nodes,) = read_plan_file(plan / "plan.json").cluster.nodes
    assert (nodes.gpu, nodes.num_nodes, nodes.gpus_per_node) == (replace(OWN, memory_gib=48.0), 2, 2)
    clocks = json.loads((tmp_path / "frontier/plan.json").read_text())["clock_mhz"]
    assert {clock for of_block in clocks.values() for clock in of_block} <= {*OWN.clocks_mhz}
