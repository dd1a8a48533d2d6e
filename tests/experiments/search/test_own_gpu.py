"""A GPU of one's own: one row of a table or one record in a file, and every command knows it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from one_line_errors import raises_line

from experiments.config.command import run
from placements import ProfileError
from placements.cluster import Cluster, GpusError, Nodes, read_cluster
from placements.forms.reading import plain
from placements.forms.texts import write_json
from placements.gpus import A100_SXM_80GB
from placements.hardware import ASSUMED_LATENCY
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
    rates="",
    run_slowdown=1.0,
)


TABLE = """key,name,peak_tflops,peak_fp32_tflops,memory_gib,memory_bandwidth_gb_s,link_bandwidth_gb_s,\
gpus_per_node,node_bandwidth_gb_s,network_source,min_clock_mhz,max_clock_mhz,clock_step_mhz,board_w
own,OWN-96GB,400,19.5,96,2039,300,2,25,made up,600,1200,300,400
"""


def test_a_gpu_of_your_own_is_one_row_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    cluster = read_cluster(f"{path}:own_4")
    (nodes,) = cluster.nodes
    assert (nodes.num_nodes, nodes.gpus_per_node, cluster.node_bandwidth_gb_s) == (2, 2, 25.0)
    power = replace(OWN.power, sustained_clock_mhz=1200)
    source = "the A100's in proportion to the board power"
    usual = {"clock_latency": ASSUMED_LATENCY, "peak_tf32_tflops": None}
    assert nodes.gpu == replace(OWN, power=power, power_source=source, **usual)
    path.write_text(TABLE.replace(",400,19.5", ",-1,19.5"))
    with raises_line(ProfileError, f"{path}: line 2: peak_tflops: '-1' is not a number above 0"):
        read_cluster(f"{path}:own_4")
    with raises_line(GpusError, "cluster: 'mine_4' is not a known GPU"):
        read_cluster("mine_4")


def test_a_gpu_needs_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for one search, and for the others a file of a cluster, whose GPU the plan takes along."""
    table = tmp_path / "mine.csv"
    table.write_text(TABLE)
    cluster, gpu = tmp_path / "cluster.json", tmp_path / "gpu.json"
    write_json(gpu, plain(replace(OWN, memory_gib=48.0)))
    write_json(cluster, plain(Cluster((Nodes(replace(OWN, memory_gib=48.0), 2, 2),), 25.0)))
    plan, placed = tmp_path / "plan", f"placement.path={tmp_path / 'plan'}"
    four = "placement.num_devices=4"
    small = [
        "model=gpt3_125m",
        "batch=16",
        "planner.gpus_per_stage=[2]",
        "planner.num_stages=[2]",
        "planner.time_limit_s=20",
        "planner.num_plans=1",
    ]
    for name, *given in (
        ("plan", f"cluster={cluster}", *small),
        ("search", "placement=planned", placed, f"profile.gpu={gpu}", "search.work_limit=2.5"),
        ("search", "placement=gpt", four, f"profile.gpu={table}:own", "search.work_limit=2.5"),
        ("frontier", "placement=planned", placed, "schedule=one_f_one_b"),
    ):
        monkeypatch.setattr(sys, "argv", [name, *given, f"hydra.run.dir={tmp_path / name}"])
        run(name)
    (nodes,) = read_plan_file(plan / "plan.json").cluster.nodes
    assert (nodes.gpu, nodes.num_nodes, nodes.gpus_per_node) == (replace(OWN, memory_gib=48.0), 2, 2)
    clocks = json.loads((tmp_path / "frontier/plan.json").read_text())["clock_mhz"]
    assert {clock for of_block in clocks.values() for clock in of_block} <= {*OWN.clocks_mhz}
