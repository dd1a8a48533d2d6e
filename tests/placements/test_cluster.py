"""Clusters: bandwidths of rings by hand, properties of every cluster, and one-line errors."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from one_line_errors import raises_line
from places import SHARED_DATA

from placements.cluster import CLUSTERS, Cluster, GpusError, Nodes, read_cluster
from placements.gpus import A100_SXM_80GB, GPUS, V100_SXM_32GB

PLAIN = Cluster((Nodes(A100_SXM_80GB, 2, 4),), 40.0, 100.0, link_efficiency=1.0, latency_us=0.0)
"""Two nodes of four GPUs: 100 GB/s in a node, 40 GB/s between them."""


def gb_s(cluster: Cluster, degree: int, stride: int) -> float:
    """Return the bandwidth of the rings of all GPUs."""
    return 1e-6 * 1e9 / cluster.whole.transfer_ms(1e9, degree, stride)


@pytest.mark.parametrize(
    ("degree", "stride", "expected"),
    [
        (4, 1, 100.0),  # each ring in a node
        (2, 2, 100.0),
        (8, 1, 40.0),  # one ring through both nodes has all of each node's bandwidth
        (4, 2, 20.0),  # two rings, with two members in each node
        (2, 4, 10.0),  # four rings, with one
    ],
)
def test_rings_that_cross_nodes_share_what_these_have(degree: int, stride: int, expected: float) -> None:
    assert gb_s(PLAIN, degree, stride) == pytest.approx(expected)


def test_a_group_in_the_middle_of_nodes_has_what_its_own_rings_leave() -> None:
    """GPUs 2 to 5: two in each node, so two rings of one GPU each cross, not four."""
    group = PLAIN.group(2, 4)
    assert group.transfer_ms(1e9, 2, 2) == pytest.approx(1e3 / 20)
    assert group.transfer_ms(1e9, 2, 1) == pytest.approx(1e3 / 100), "each pair in a node"
    assert PLAIN.group(3, 2).transfer_ms(1e9, 2) == pytest.approx(1e3 / 40)


def test_collectives_by_hand() -> None:
    group = PLAIN.group(0, 4)
    assert group.all_gather_ms(1e9, 4) == pytest.approx(0.75 * 10)
    assert group.all_to_all_ms(1e9, 4) == pytest.approx(0.75 * 10)
    # Of each GPU's bytes half leaves its node, 4 x 0.5 GB at 40 GB/s, beside 7/8 through the links.
    assert PLAIN.whole.all_to_all_ms(1e9, 8) == pytest.approx(1e3 * 2 / 40)
    for time_ms in (group.all_gather_ms, group.all_to_all_ms, group.transfer_ms):
        assert time_ms(1e9, 1) == 0


def test_latency_and_efficiency() -> None:
    slow = Cluster(PLAIN.nodes, 40.0, 100.0, link_efficiency=0.5, latency_us=100.0)
    assert slow.group(0, 4).all_gather_ms(1e9, 4) == pytest.approx(2 * 0.75 * 10 + 3 * 0.1)
    assert slow.group(0, 4).all_to_all_ms(1e9, 4) == pytest.approx(2 * 0.75 * 10 + 0.1)


def test_transfers_to_the_next_stage() -> None:
    assert PLAIN.group(0, 2).next_transfer_ms(PLAIN.group(2, 2), 1e9) == pytest.approx(10)
    across = PLAIN.group(0, 4).next_transfer_ms(PLAIN.group(4, 4), 1e9)
    assert across == pytest.approx(4 * 1e3 / 40), "four GPUs share the node"
    assert PLAIN.group(3, 1).next_transfer_ms(PLAIN.group(4, 1), 1e9) == pytest.approx(1e3 / 40)
    mixed = PLAIN.group(0, 3).next_transfer_ms(PLAIN.group(3, 3), 1e9)
    assert mixed == pytest.approx(2 * 1e3 / 40), "0 to 3 inside, 1 and 2 to the other node"
    assert PLAIN.group(0, 1).next_transfer_ms(PLAIN.group(1, 2), 1e9) == pytest.approx(10)


def test_a_mixed_group_is_as_slow_and_small_as_its_least_gpu() -> None:
    cluster = read_cluster("a100_16+v100_16")
    assert cluster.num_gpus == 32
    assert cluster.node_bandwidth_gb_s == 50.0
    assert cluster.group(0, 16).gpu is A100_SXM_80GB
    mixed = cluster.group(8, 16)
    assert (mixed.gpu, mixed.memory_gib) == (V100_SXM_32GB, 32.0)
    assert mixed.transfer_ms(1e9, 2, 1) == pytest.approx(1e3 / (150 * 0.77) + 0.005)


def test_a_rack_of_72_linked_gpus_is_a_node() -> None:
    cluster = read_cluster("gb200_144")
    assert cluster.nodes == (Nodes(GPUS["gb200"], 2, 72),)
    assert cluster.node_bandwidth_gb_s == 72 * 50
    assert gb_s(replace(cluster, link_efficiency=1.0, latency_us=0.0), 72, 1) == pytest.approx(900)
    assert gb_s(replace(cluster, link_efficiency=1.0, latency_us=0.0), 2, 72) == pytest.approx(50)
    assert read_cluster("gb200_8").nodes[0].num_nodes == 1
    assert read_cluster("gb200_8", gpus_per_node=4).nodes[0].num_nodes == 2


def test_names() -> None:
    assert read_cluster("h100_64").nodes == (Nodes(GPUS["h100"], 8, 8),)
    assert read_cluster("a100_4").nodes == (Nodes(GPUS["a100"], 1, 4),)
    assert read_cluster("gh200_4").nodes[0].num_nodes == 4
    assert read_cluster("a40_8", gpus_per_node=4, node_bandwidth_gb_s=25).nodes[0].num_nodes == 2
    assert read_cluster("a40_8").num_gpus == 8, "one node needs no bandwidth between nodes"
    assert read_cluster("a100_32", latency_us=0.0).latency_us == 0
    slower = read_cluster("galvatron_a100_16", node_bandwidth_gb_s=1.0, latency_us=2.0)
    assert (slower.node_bandwidth_gb_s, slower.latency_us, slower.source) == (1.0, 2.0, "given")
    for name, cluster in CLUSTERS.items():
        assert cluster.num_gpus == int(name.rpartition("_")[2])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("zzz_8", {}, "cluster: 'zzz_8' is not a known GPU and a number, as in a100_8; GPUs are a100,"),
        ("h100_8+h800_64", {}, "cluster: 'h800_64' in 'h100_8+h800_64' is not a known"),
        ("a100", {}, "cluster: 'a100' is not a known GPU and a number, as in a100_8; did you mean a100_8?"),
        ("a100_12", {}, "cluster: 12 GPUs of a100_12 are not whole nodes of 8; give a multiple"),
        ("a100_8", {"gpus_per_node": 0}, "gpus_per_node: 0 is not a number of GPUs; give one"),
        ("a40_16", {}, "node_bandwidth_gb_s: is not known between nodes of a40_16; give it"),
        ("galvatron_a100_16", {"gpus_per_node": 4}, "gpus_per_node: 4 cannot change galvatron_a100_16"),
        ("a100_8", {"latency_us": -1.0}, "latency_us: -1.0 is not a number of 0 or more; give it in us"),
    ],
)
def test_a_wrong_name_is_told_in_one_line(text: str, options: dict[str, float], message: str) -> None:
    with raises_line(GpusError, message):
        read_cluster(text, **options)  # type: ignore[arg-type]


def test_wrong_groups() -> None:
    for (first, count), why in (((0, 9), "9 GPUs from 0 on"), ((-1, 1), "1 GPUs from -1 on")):
        with raises_line(GpusError, f"count: {why} are not all in a cluster of 8"):
            PLAIN.group(first, count)
    with raises_line(GpusError, "degree: 3 GPUs that are 1 apart do not divide a group of 8"):
        PLAIN.whole.all_gather_ms(1.0, 3)
    with raises_line(GpusError, "count: 0 GPUs from 0 on are not all in a cluster of 0"):
        Cluster((), 1.0).group(0, 0)


MEASURED = SHARED_DATA / "galvatron"


@pytest.mark.skipif(not MEASURED.exists(), reason="Galvatron's measured bandwidths are not at hand")
def test_rings_with_few_members_in_each_node_share_it_as_measured() -> None:
    """GB/s of rings with one or two members in each of two nodes of eight; those with four reach less."""
    measured = json.loads(
        (MEASURED / "llama2_2026/hardware_configs/allreduce_bandwidth_2nodes_8gpus_per_node.json").read_text()
    )
    cluster = Cluster((Nodes(A100_SXM_80GB, 2, 8),), 65.0, 160.0, link_efficiency=1.0, latency_us=0.0)
    assert gb_s(cluster, 2, 8) == pytest.approx(measured["allreduce_size_2_consec_0"], rel=0.01)
    assert gb_s(cluster, 4, 4) == pytest.approx(measured["allreduce_size_4_consec_0"], rel=0.01)
    titan = json.loads(
        (MEASURED / "rtx_titan_2022/env_configs/allreduce_bandwidth_dist_16_gpus.json").read_text()
    )
    cluster = replace(CLUSTERS["galvatron_titan_16"], latency_us=0.0)
    for degree, stride, key in ((2, 8, "1_2_0"), (8, 1, "1_8_1"), (16, 1, "1_16_1")):
        mib_per_ms = gb_s(cluster, degree, stride) * 1e6 / 2**20
        assert 1 / mib_per_ms == pytest.approx(titan[key], rel=0.02)


def test_gpus_with_direct_links_reach_only_those_of_their_set() -> None:
    """Each pair has 64 GB/s of seven such links: a send uses one, an all-gather of four GPUs three."""
    whole = read_cluster("mi300x_8", latency_us=0.0).whole
    switched = read_cluster("mi300x_8", latency_us=0.0, link_bandwidth_gb_s=448.0).whole
    for degree, links in ((2, 1), (4, 3), (8, 7)):
        slower = 7 / links
        assert whole.all_gather_ms(1e9, degree) == pytest.approx(slower * switched.all_gather_ms(1e9, degree))
        assert whole.all_to_all_ms(1e9, degree) == pytest.approx(slower * switched.all_to_all_ms(1e9, degree))
    halves = [(layout.cluster.group(0, 4), layout.cluster.group(4, 4)) for layout in (whole, switched)]
    alone, together = (first.next_transfer_ms(second, 1e9) for first, second in halves)
    assert alone == pytest.approx(7 * together)


def test_what_nodes_hand_on_leaves_them_once() -> None:
    whole = read_cluster("h100_16", latency_us=0.0).whole
    assert whole.num_nodes(16) == 2 and whole.num_nodes(8) == 1 and whole.num_nodes(2, 8) == 2
    assert whole.all_to_all_ms(1e9, 16, node_bytes=5e8) == pytest.approx(whole.all_to_all_ms(1e9, 16) / 2)
