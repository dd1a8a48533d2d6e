from pathlib import Path

import numpy as np
import pytest

from placements.files import read_json
from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.inputs.allocation_file import DecidedAllocation, write_allocation
from schedsearch.cluster.jobs import ActiveJob, Job


def decided() -> DecidedAllocation:
    """Two clocks of one job, and a pair."""
    demand = Demand.of(
        GpuCluster({"v100": 2, "k80": 1}, {"v100": 3.0}),
        [ActiveJob(Job(name, "any", 10.0), 10.0) for name in ("a", "b")],
        [
            Configuration((0,), "v100", 1, (10.0,), 200.0, 1380),
            Configuration((0,), "v100", 1, (8.0,), 100.0, 900),
            Configuration((1, 0), "v100", 1, (6.0, 4.0)),
            Configuration((1,), "k80", 1, (2.0,)),
        ],
    )
    allocation = Allocation(demand, np.array([0.25, 0.5, 0.25, 1e-15]), float("inf"))
    return DecidedAllocation.of(allocation, "las_packed", "least normalized throughput")


def test_the_file_says_what_was_decided(tmp_path: Path) -> None:
    path = write_allocation(tmp_path / "allocation.json", decided())
    data = read_json(path, "", ClusterError)
    assert isinstance(data, dict)
    assert data["shares"] == {"a": {"v100": 0.75, "k80": 0.0}, "b": {"v100": 0.0, "k80": 0.0}}
    (pair,) = data["pairs"]
    assert (pair["jobs"], pair["gpu_type"], pair["share"]) == (["b", "a"], "v100", 0.25)
    assert data["steps_per_s"] == {"a": pytest.approx(7.5), "b": pytest.approx(1.5)}
    assert [one["clock_mhz"] for one in data["configurations"]] == [1380, 900, 0]
    assert data["dollars_per_hour"] == pytest.approx(3.0) and data["power_w"] == pytest.approx(100.0)
    assert data["objective"] is None
