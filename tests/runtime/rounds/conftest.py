"""A Ray of two nodes on this machine, one with V100s and one with K80s by name, for the tests of a module."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest


class Nodes:
    """A Ray whose second node can be killed, and come back."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.address = cluster, str(cluster.address)
        self.add()

    def add(self) -> None:
        self.second = self.cluster.add_node(num_cpus=1, resources={"k80": 2, "p100": 1})

    def kill(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)


@pytest.fixture(scope="module")
def ray_nodes() -> Iterator[Nodes]:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    head = {"num_cpus": 1, "resources": {"v100": 2, "p100": 1}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = Nodes(cluster)
        ray.init(nodes.address, log_to_driver=False, configure_logging=False)
        yield nodes
    finally:
        ray.shutdown()
        cluster.shutdown()
