"""Sweeps on a real Ray: on two nodes of one core each, one of which dies, and on this machine."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments.collect import collect
from schedsearch.solver.side_by_side import side_by_side

cluster_utils = pytest.importorskip("ray.cluster_utils", reason="needs ray; pip install 'schedsearch[ray]'")

ROOT = Path(__file__).parents[2]

SEARCH = """
import os
from experiments.config import command

def dies(name, config, usual=command._run_and_record):
    if config.search.seed == 4:
        os._exit(1)
    return usual(name, config)

command._run_and_record = dies
command.run("search")
"""
"""The command ``search``, but the worker of a point with seed 4 dies."""

SWEEP = ["-m", "hydra/launcher=ray", "placement=v_shape", "search.memory=3", "search.num_micro_batches=8"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster of Ray, with ports and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # short: sockets are in it
        node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80_000_000}
        ray_cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=node | {"temp_dir": folder})
        try:
            yield ray_cluster
        finally:
            ray_cluster.shutdown()


def started(sweep: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    """Start a sweep of searches."""
    words = [*SWEEP, *options, f"hydra.sweep.dir={sweep}"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", SEARCH, *words],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


def wait_for_points(sweep: Path, number: int, status: str) -> None:
    """Wait until a number of points of a sweep have a record with this status."""
    for _ in range(600):
        records = [json.loads(path.read_text()) for path in sweep.rglob("result.json")]
        if sum(record["status"] == status for record in records) >= number:
            return
        time.sleep(0.1)
    raise AssertionError(f"{number} points are not {status}")


def test_a_sweep_outlives_a_node_and_a_point_that_always_dies(cluster: Any, tmp_path: Path) -> None:
    second = cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    options = ["search.seed=-1,0,1,2,3,4", "search.time_limit_s=2"]
    sweep = started(tmp_path, *options, RAY_ADDRESS=cluster.address)
    wait_for_points(tmp_path, 2, "interrupted")  # each node runs one
    cluster.remove_node(second, allow_graceful=False)
    output, errors = sweep.communicate()
    assert sweep.returncode == 1, errors
    table = collect(tmp_path).set_index("search.seed")
    assert dict(table["status"]) == {-1: "rejected", 0: "done", 1: "done", 2: "done", 3: "done", 4: "failed"}
    assert "died each time" in table["message"][4]
    assert "6 of 6" in output and "raylet" not in output + errors
    assert len(errors.splitlines()) == 3, "the two points, and how to go on"


def test_an_interrupted_sweep_goes_on(cluster: Any, tmp_path: Path) -> None:
    options = ["search.seed=0,1,2", "search.time_limit_s=2"]
    sweep = started(tmp_path, *options, RAY_ADDRESS=cluster.address)
    wait_for_points(tmp_path, 1, "done")
    wait_for_points(tmp_path, 1, "interrupted")
    sweep.send_signal(signal.SIGINT)
    _, errors = sweep.communicate()
    assert sweep.returncode == 130 and "runs the points that are not done" in errors
    assert len(errors.splitlines()) == 1
    kept = {path: path.read_bytes() for path in tmp_path.rglob("schedule.json")}
    assert len(kept) == 2, "also the schedule of the search that was interrupted"
    done = tmp_path / "0" / "schedule.json"
    changed = done.stat().st_mtime_ns
    again = started(tmp_path, *options)  # on Ray of this machine
    _, errors = again.communicate()
    assert again.returncode == 0, errors
    assert list(collect(tmp_path)["status"]) == ["done"] * 3
    assert done.stat().st_mtime_ns == changed and not errors


def test_independent_calls_are_tasks_of_the_cluster(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    results = side_by_side([os.getpid, os.getpid, partial(pow, 2, 3)], 2)
    assert results[2] == 8 and not {None, os.getpid()} & set(results)


def test_workers_of_a_search_are_tasks_of_the_cluster(cluster: Any, tmp_path: Path) -> None:
    """Local processes find the same schedule; the node of a worker may die."""
    words = ["placement=nn_shape", "search.memory=8", "search.num_micro_batches=32", "search.workers=2"]

    def searched(name: str, limit: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "schedsearch", "search", *words, limit]
        pipe, env = subprocess.PIPE, os.environ | environment
        line = [*command, f"hydra.run.dir={tmp_path / name}"]
        return subprocess.Popen(line, cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True)

    for name, environment in (("here", {}), ("on_ray", {"RAY_ADDRESS": cluster.address})):
        process = searched(name, "search.work_limit=4", **environment)
        assert (process.communicate()[1], process.returncode)[1] == 0
    process = searched("too_many", "search.workers=9", RAY_ADDRESS=cluster.address)
    assert "search.workers: 9 need 8 free cores of Ray, which has " in process.communicate()[1]
    here, on_ray = ((tmp_path / name / "schedule.json").read_text() for name in ("here", "on_ray"))
    assert json.loads(here)["blocks"] == json.loads(on_ray)["blocks"]
