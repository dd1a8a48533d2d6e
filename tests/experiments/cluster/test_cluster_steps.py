"""From options to a cluster and policies."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from experiments.cluster.options import GpuClusterOptions, PolicyOptions
from experiments.cluster.workload import chosen_policy, gpu_cluster
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.policies.water_filling import Hierarchical

NONE = PolicyOptions(**dict.fromkeys(one.name for one in fields(PolicyOptions)))


def test_numbers_with_colons_are_of_gavels_types_and_prices_of_those_that_are_there() -> None:
    cluster = gpu_cluster(GpuClusterOptions("36:0:8", "0.74:0.43:0.135", None, None, None))
    assert cluster == GpuCluster(
        {"v100": 36, "p100": 0, "k80": 8}, {"v100": 0.74, "p100": 0.43, "k80": 0.135}
    )
    options = GpuClusterOptions({"h100": 8, "v100": 2}, "0.74:0.43:0.135", {"h100": 8}, None, 5000.0)
    assert gpu_cluster(options) == GpuCluster({"h100": 8, "v100": 2}, {"v100": 0.74}, {"h100": 8}, 5000.0)


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ("36:36", "cluster.workers: '36:36' is not numbers of v100:p100:k80; write 36:36:36"),
        ("a:b:c", "cluster.workers: 'a:b:c' is not numbers"),
        ({"v100": -1}, "cluster.workers.v100: -1 is not a number of GPUs"),
    ],
)
def test_wrong_numbers_of_gpus(workers, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        gpu_cluster(GpuClusterOptions(workers, None, None, None, None))


def test_options_of_policies() -> None:
    entities = replace(NONE, entities={"a": 2, "b": {"weight": 1, "policy": "fifo"}})
    policy = chosen_policy("hierarchical", entities)
    assert isinstance(policy, Hierarchical)
    assert [(name, one.weight, one.inside) for name, one in policy.entities.items()] == [
        ("a", 2.0, "fairness"),
        ("b", 1.0, "fifo"),
    ]
    with pytest.raises(ValueError, match="policy las has no option 'entities'"):
        chosen_policy("las", entities)
