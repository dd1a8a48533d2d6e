"""Communication beside products: the hidden share of it, and costs of experts shared in other ways."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import fmean

import pytest
from one_line_errors import raises_line

from placements import PlacementError
from placements.cluster import DeviceGroup, read_cluster
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import CostOptions
from placements.models.layers import HALF
from placements.models.parallel import Cost, LayerStrategy
from placements.models.transformer import TransformerLayer

DENSE = TransformerLayer(
    hidden_size=4096,
    num_heads=32,
    sequence_length=4096,
    feed_forward_size=16_384,
    dropout=False,
    biases=False,
)
ROUTED = replace(DENSE, feed_forward_size=2048, num_experts=16, experts_per_token=4)
WAITING = CostOptions(graphs="iteration")
HIDDEN = replace(WAITING, overlap_tensor_parallel=True)


def group(num_gpus: int) -> DeviceGroup:
    return read_cluster(f"h100_{num_gpus}").whole


def cost(strategy: LayerStrategy, layer: TransformerLayer = DENSE, options: CostOptions = HIDDEN) -> Cost:
    return layer_cost(layer, strategy, strategy.data_parallel, 4, group(strategy.num_gpus), options)


@pytest.mark.parametrize("layer", [DENSE, ROUTED])
def test_exchanges_beside_products_are_shorter(layer: TransformerLayer) -> None:
    strategy = LayerStrategy(8, 1, sequence="megatron")
    after, beside = cost(strategy, layer, WAITING), cost(strategy, layer)
    assert beside.forward.time_ms < after.forward.time_ms
    assert beside.backward.time_ms < after.backward.time_ms
    assert beside.forward.product_ms == after.forward.product_ms
    assert replace(beside, forward=after.forward, backward=after.backward) == after
    alone = LayerStrategy(8, 1)
    assert cost(alone, layer) == cost(alone, layer, WAITING), "without shared tokens they wait"


def test_whole_experts_need_no_reduction_and_may_span_tensor_parallel_gpus() -> None:
    shared = LayerStrategy(4, 2, sequence="megatron", expert_parallel=2)
    whole = replace(shared, whole_experts=True)
    costs = [cost(strategy, ROUTED, CostOptions()) for strategy in (shared, whole)]
    # Two parts gather and scatter tokens, or one.
    assert costs[1].forward.copy_ms < costs[0].forward.copy_ms
    assert costs[1].static_bytes > costs[0].static_bytes, "each GPU has four times as much of an expert"
    all_gpus = replace(whole, expert_parallel=8)
    assert cost(all_gpus, ROUTED, CostOptions()).static_bytes == pytest.approx(costs[0].static_bytes)
    assert all_gpus.expert_level == (8, 1)
    with raises_line(PlacementError, "expert_parallel: 8 does not divide the 2 GPUs that hold the same "):
        replace(shared, expert_parallel=8)
    with raises_line(PlacementError, "whole_experts: tensor-parallel GPUs have no tokens of their own, "):
        LayerStrategy(4, 2, whole_experts=True)


@pytest.mark.parametrize("num_gpus", [1, 2, 4, 8])
def test_a_token_goes_once_to_each_gpu_with_any_of_its_experts(num_gpus: int) -> None:
    layer = replace(ROUTED, num_experts=8, experts_per_token=3)
    per_gpu = 8 // num_gpus
    counts = [len({expert // per_gpu for expert in chosen}) for chosen in combinations(range(8), 3)]
    assert layer.routed_elements(num_gpus) / layer.output_elements() == pytest.approx(fmean(counts))
    assert layer.routed_elements() == 3 * layer.output_elements()


def test_weights_are_gathered_beside_the_layer_before() -> None:
    strategy = LayerStrategy(1, 8, zero=3)
    before = cost(strategy, DENSE, CostOptions())
    beside = cost(strategy, DENSE, CostOptions(overlap_weights=True))
    assert beside.forward.time_ms < before.forward.time_ms
    assert beside.backward == before.backward, "there they are gathered beside its products anyway"
    unshared = LayerStrategy(1, 8)
    assert cost(unshared, DENSE, CostOptions()) == cost(unshared, DENSE, CostOptions(overlap_weights=True))


def test_frozen_weights_have_no_gradients() -> None:
    strategy = LayerStrategy(1, 8)
    trained = cost(strategy, DENSE, CostOptions())
    precision = replace(HALF, gradient_bytes=0, optimizer_bytes=0)
    frozen = cost(strategy, DENSE, CostOptions(precision=precision))
    assert frozen.forward == trained.forward
    # Products have half of their backward; the attention's core has all of it.
    core = DENSE.on(1).core_flops / DENSE.on(1).forward_flops
    saved_ms = trained.backward.product_ms - frozen.backward.product_ms
    assert saved_ms == pytest.approx((1 - core) * trained.forward.product_ms, rel=0.05)
    assert frozen.update_ms == 0
