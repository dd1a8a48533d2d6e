"""The layers that a plan gives to the blocks of a run: of a chain."""

from __future__ import annotations

from experiments.search.kinds.planned import of_plan
from placements import Block, Kind, Placement
from placements.cluster import Cluster, read_cluster
from placements.models.chain import ModelShape
from placements.models.end_layers import CustomLayer
from placements.models.layers import HALF
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import Plan, StagePlan

INNER = TransformerLayer(name="inner", hidden_size=8, num_heads=2, sequence_length=4)
PATCHES = CustomLayer(name="patches", num_weights=8, flops=8, kept_bytes=8, input_numbers=8)

ALONE, AGAIN = LayerStrategy(), LayerStrategy(recompute="full")

IMAGE = ModelShape("image", ((1, PATCHES), (4, INNER)), HALF)


def plan_of(model: ModelShape, cluster: Cluster, stages: list[tuple[int, range, LayerStrategy]]) -> Plan:
    """Return a plan of 12 samples in 3 micro-batches, with one GPU for each stage."""
    of_stage = tuple(
        StagePlan(range(gpu, gpu + 1), layers, (strategy,) * len(layers)) for gpu, layers, strategy in stages
    )
    return Plan(model, cluster, of_stage, 12, 3)


def forwards(*devices: tuple[int, ...]) -> Placement:
    blocks = tuple(Block(f"F{i}", Kind.F, group, 1, 0) for i, group in enumerate(devices))
    return Placement("forwards", 1 + max(max(group) for group in devices), blocks)


def test_a_chain_has_the_layers_of_its_stages() -> None:
    cluster = read_cluster("a100_2")
    plan = plan_of(IMAGE, cluster, [(0, range(2), AGAIN), (1, range(2, 5), ALONE)])
    planned = of_plan(plan, forwards((0,), (1,)))
    assert (planned.layers, planned.recompute) == ({"F0": 1, "F1": 3}, ("F0",))
    assert (planned.num_micro_batches, planned.micro_batch_size) == (3, 4)
    assert (planned.shared_layers(None), planned.shared_layers(8)) == (planned.layers, {"F0": 2, "F1": 6})
    assert of_plan(plan, forwards((0,), (1,), (0,))).layers == {}, "not the plan's pieces"


def test_a_block_without_a_layer_of_its_own_says_nothing_of_layers() -> None:
    cluster = read_cluster("a100_2")
    plan = plan_of(IMAGE, cluster, [(0, range(1), AGAIN), (1, range(1, 5), ALONE)])
    planned = of_plan(plan, forwards((0,), (1,)))
    assert (planned.layers, planned.recompute, planned.shared_layers(8)) == ({}, ("F0",), None)
