"""Layer costs under a strategy: figures by hand, published savings, and properties of every strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_line_errors import raises_line

from placements import PlacementError
from placements.cluster import Cluster, DeviceGroup, Nodes, read_cluster
from placements.gpus import A100_SXM_80GB, GPUS
from placements.models.chain import ModelShape
from placements.models.costing.layer_costs import layer_cost, layer_memory
from placements.models.costing.options import CostOptions
from placements.models.end_layers import CustomLayer, EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.layers import HALF, PRECISIONS, SINGLE, TF32, Layer
from placements.models.machine.machine_rates import assumed_rates
from placements.models.memory import FRAMEWORKS
from placements.models.operators import Product
from placements.models.parallel import Cost, LayerStrategy, Pass, Recompute, SequenceSharing
from placements.models.transformer import TransformerLayer
from placements.models.zoo import read_model
from placements.planners.hybrid.shape_costs import ShapeCosts

COUNTING_GPU = replace(
    A100_SXM_80GB,
    peak_tflops=1e-9,
    peak_fp32_tflops=1e-9,
    memory_bandwidth_gb_s=1e-6,
    link_bandwidth_gb_s=1e-6,
)
COUNTING = CostOptions(1.0, 1.0, 1.0, overlap_slowdown=1.0)
"""With this GPU a millisecond for each operation and each byte; what runs side by side costs nothing more."""

H, A, S = 64, 8, 16
GPT = TransformerLayer(hidden_size=H, num_heads=A, sequence_length=S)
FUSED = replace(GPT, attention="fused")
PARAMETERS = 12 * H * H + 13 * H
FLOPS = 24 * S * H * H + 4 * S * S * H
CORE = 4 * S * S * H
BOUNDARY = 2 * S * H
"""Bytes of a sample between layers."""


def flat(num_gpus: int) -> DeviceGroup:
    return Cluster((Nodes(COUNTING_GPU, 1, num_gpus),), 1e-6, link_efficiency=1.0, latency_us=0.0).whole


def cost(
    strategy: LayerStrategy, samples: int = 8, layer: Layer = GPT, options: CostOptions = COUNTING
) -> Cost:
    return layer_cost(layer, strategy, samples, 1, flat(strategy.num_gpus), options)


def test_one_gpu() -> None:
    costs = cost(LayerStrategy())
    assert costs == Cost(
        Pass(8 * FLOPS), Pass(2 * 8 * FLOPS), 8 * 34 * S * H, 0, 0, 16 * PARAMETERS, 28 * PARAMETERS
    )


def test_tensor_parallel_by_hand() -> None:
    costs = cost(LayerStrategy(4, 2))
    reduces = 2 * 2 * 0.75 * 4 * BOUNDARY
    assert costs.forward == Pass(FLOPS, reduces)
    assert costs.backward == Pass(2 * FLOPS, reduces)
    assert costs.kept_bytes == 4 * S * H * (10 + 24 / 4)
    assert costs.static_bytes == 4 * PARAMETERS
    assert costs.update_ms == 28 * PARAMETERS / 4 + 2 * PARAMETERS / 4


@pytest.mark.parametrize(
    ("zero", "static"),
    [
        (0, 16 * PARAMETERS),
        (1, (4 + 12 / 4) * PARAMETERS),
        (2, (2 + 14 / 4) * PARAMETERS),
        (3, 4 * PARAMETERS),
    ],
)
def test_zero_by_hand(zero: int, static: float) -> None:
    costs = cost(LayerStrategy(1, 4, zero))
    assert costs.static_bytes == static
    gathered = 2 * PARAMETERS * 3 / 4 if zero == 3 else 0
    assert costs.forward == Pass(2 * FLOPS, gathered)
    assert costs.forward_bytes == gathered
    assert costs.backward_bytes == 2 * gathered
    assert costs.backward.time_ms == max(4 * FLOPS, 2 * gathered), "side by side"
    step = 28 * PARAMETERS / (4 if zero else 1)
    assert costs.update_ms == step + (0 if zero == 3 else 2 * 2 * PARAMETERS * 3 / 4)


def test_shards_of_some_gpus_by_hand() -> None:
    """Two of four GPUs share states, and sum gradients with the others; weights may stay for the backward."""
    weights, apart = 2 * PARAMETERS, replace(COUNTING, overlap_slowdown=2.0)
    sharded = cost(hybrid := LayerStrategy(1, 4, 3, shard_gpus=2), options=apart)
    assert (sharded.static_bytes, sharded.forward_bytes) == (8 * PARAMETERS, weights / 2)
    assert sharded.forward.copy_ms == weights / 2
    assert sharded.backward.copy_ms == 2 * weights / 2 + 2 * weights / 2 / 2, (
        "gather, scatter, and sum of halves"
    )
    kept = cost(replace(hybrid, reshards=False), options=apart)
    assert kept.backward.copy_ms == sharded.backward.copy_ms - weights / 2
    assert kept.static_bytes == sharded.static_bytes + weights / 2
    assert kept.backward_bytes == sharded.backward_bytes - weights / 2
    optimizer = cost(replace(hybrid, zero=1))
    assert optimizer.static_bytes == (4 + 12 / 2) * PARAMETERS
    assert optimizer.update_ms == 28 * PARAMETERS / 2 + 3 * weights / 2


def test_zero_2_of_fsdp_scatters_the_gradients_of_each_micro_batch() -> None:
    apart, strategy = replace(COUNTING, overlap_slowdown=2.0), LayerStrategy(1, 4, 2)
    whole, scattered = (
        layer_cost(GPT, strategy, 8, 3, flat(4), replace(apart, framework=FRAMEWORKS[name]))
        for name in ("megatron", "megatron_fsdp")
    )
    assert whole.static_bytes - scattered.static_bytes == 2 * PARAMETERS * 3 / 4
    assert scattered.backward.copy_ms == 2 * PARAMETERS * 3 / 4 == whole.update_ms - scattered.update_ms
    assert whole.backward.copy_ms == 0


@pytest.mark.parametrize(
    ("module", "tensors", "again"),
    [
        ("core_attn", 5 * A * S * S, CORE),
        ("mlp", 16 * S * H, 16 * S * H * H),
        ("layernorm", 4 * S * H, 0),
        ("moe", 0, 0),
    ],
)
def test_modules_computed_again_by_hand(module: Any, tensors: int, again: int) -> None:
    plain, strategy = cost(LayerStrategy(), layer=FUSED), LayerStrategy(recompute="selective")
    recomputed = cost(replace(strategy, recompute_modules=(module,)), layer=FUSED)
    assert plain.kept_bytes - recomputed.kept_bytes == recomputed.backward_bytes == 8 * tensors
    assert recomputed.backward.time_ms - plain.backward.time_ms == 8 * again
    assert recomputed.static_bytes == plain.static_bytes


@pytest.mark.parametrize("sequence", ["none", "ulysses"])
def test_recomputing_all_keeps_the_input_and_costs_one_more_forward(sequence: SequenceSharing) -> None:
    layer = replace(GPT, num_experts=2)
    none, full = (
        cost(LayerStrategy(4, 2, 0, again, sequence, expert_parallel=2), layer=layer)
        for again in ("none", "full")
    )
    assert full.forward == none.forward
    assert full.backward == none.backward + none.forward
    assert full.kept_bytes == 4 * BOUNDARY / (4 if sequence == "ulysses" else 1)
    assert full.backward_bytes == none.kept_bytes


@pytest.mark.parametrize(("hidden", "heads"), [(6144, 64), (25_600, 160)], ids=str)
def test_shared_sequences_and_selective_recomputation_save_what_is_published(hidden: int, heads: int) -> None:
    """Korthikanti et al., 2022, Sec. 4.2.2 and 5, of their four models: Eq. 4 and 6, about five times."""
    layer = TransformerLayer(hidden_size=hidden, num_heads=heads, sequence_length=2048, attention="fused")
    group = read_cluster("a100_8").whole

    def kept(strategy: LayerStrategy) -> float:
        return layer_cost(layer, strategy, 1, 1, group).kept_bytes / (2048 * hidden)

    scores = 5 * heads * 2048 / hidden
    assert kept(LayerStrategy(8)) == pytest.approx(10 + (24 + scores) / 8)
    assert kept(LayerStrategy(8, sequence="megatron")) == pytest.approx((34 + scores) / 8)
    both = kept(LayerStrategy(8, sequence="megatron", recompute="selective"))
    assert both == pytest.approx(34 / 8)
    assert 4.9 < kept(LayerStrategy(8)) / both < 6.3
    full = kept(LayerStrategy(8, sequence="megatron", recompute="full"))
    assert full == pytest.approx(2 / 8)


def test_memory_of_a_gpt_is_what_was_measured() -> None:
    """Mist's artifact, README, Sec. 2.3: GPT-1.3B on two GPUs allocates 19274 MB.

    Eight samples each, every layer recomputed, states of the optimizer shared (ZeRO-1), two micro-batches.
    """
    model = read_model("gpt3_1.3b", vocab_size=50_304, attention="fused")
    group = read_cluster("a100_2").whole
    total = Cost()
    for layer in model.layers:
        again: Recompute = "full" if layer.name == "layer" else "none"
        total += layer_cost(layer, LayerStrategy(1, 2, 1, again), 16, 2, group)
    assert (total.static_bytes + total.kept_bytes) / 2**20 == pytest.approx(19_274, rel=0.03)


def test_ulysses_by_hand() -> None:
    """Jacobs et al., 2023, Sec. 3: queries, keys, values and outputs, 4 s h, of which each GPU has 1 / t."""
    costs = cost(LayerStrategy(4, 2, sequence="ulysses"))
    assert costs.forward == Pass(FLOPS, 4 * 4 * BOUNDARY / 4 * 0.75)
    assert costs.kept_bytes == 4 * 34 * S * H / 4
    assert costs.static_bytes == 16 * PARAMETERS
    assert cost(LayerStrategy(4, 2, 3, sequence="ulysses")).static_bytes == 2 * PARAMETERS


def test_ring_attention_by_hand() -> None:
    """Keys and values go around beside the core: hidden by it, or for as long as they take more."""
    ring, alone = LayerStrategy(2, 2, context_parallel=2), LayerStrategy(2, 2)
    costs, without = cost(ring), cost(alone, 4)
    assert (costs.forward, costs.backward) == (without.forward, without.backward)
    assert costs.kept_bytes == without.kept_bytes
    assert costs.update_ms - without.update_ms == 2 * PARAMETERS / 2 * (1.5 - 1), "four hold the same weights"
    fast = replace(COUNTING_GPU, peak_tflops=1e-6)
    slow_links = Cluster((Nodes(fast, 1, 8),), 1e-6, link_efficiency=1.0, latency_us=0.0)
    costs = layer_cost(GPT, ring, 8, 1, slow_links.whole, COUNTING)
    without = layer_cost(GPT, alone, 4, 1, slow_links.group(0, 4), COUNTING)
    longer = 4 * 2 * BOUNDARY / 2 / 2 - 4 * CORE / 1000 / 4
    assert costs.forward.copy_ms == pytest.approx(without.forward.copy_ms + longer)
    assert costs.backward.copy_ms == pytest.approx(without.backward.copy_ms + 2 * longer)


def test_torchtitan_computes_every_second_product_again() -> None:
    """Queries, values, the gate's and the last product stay, with the attention's output and the input."""
    layer = replace(GPT, gated=True, dropout=False)
    options = replace(COUNTING, framework=FRAMEWORKS["torchtitan"])
    plain, how = LayerStrategy(1), LayerStrategy(1, recompute="selective", recompute_modules=("operators",))
    kept = [tensor for tensor in layer_memory(layer, how, 1, 1, flat(1), options) if tensor.kind == "kept"]
    assert {tensor.name: tensor.num_bytes for tensor in kept if tensor.num_bytes} == {
        "input of the layer": BOUNDARY,
        "outputs of operators": (1 + 1 + 4 + 1 + 1) * BOUNDARY,
    }
    costs = [layer_cost(layer, strategy, 1, 1, flat(1), options) for strategy in (plain, how)]
    again = costs[1].backward.product_ms - costs[0].backward.product_ms
    assert again == pytest.approx(2 * S * (1 + 1 + 4) * H * H), (
        "keys, the attention's output, the second matrix"
    )


def test_experts_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placements.models.machine.machine_rates.EXPERT_HALF_TOKENS", 0)
    layer = replace(GPT, num_experts=4, experts_per_token=2)
    dense, expert = 4 * H * H + 8 * H + 4 * H, 8 * H * H + 5 * H
    alone, shared = (cost(LayerStrategy(1, 8, expert_parallel=e), layer=layer) for e in (1, 4))
    assert alone.static_bytes == 16 * (dense + 4 * expert)
    assert shared.static_bytes == 16 * (dense + expert)
    routed = 2 * 2 * BOUNDARY * 0.75
    # Tokens are sorted by expert once more where they arrive, at half of the bandwidth, and once more back.
    again = 2 * 2 * 2 * 2 * BOUNDARY
    assert shared.forward == Pass(alone.forward.product_ms + again, routed)
    assert shared.backward.copy_ms == routed
    gradients = 2 * 2 * dense * 7 / 8 + 2 * 2 * expert / 2
    assert shared.update_ms == 28 * (dense + expert) + gradients
    whole = cost(LayerStrategy(1, 8, 3, expert_parallel=4), layer=layer)
    assert whole.static_bytes == 16 * (dense / 8 + expert / 2)


def test_experts_by_operator_by_hand() -> None:
    """In 8 bits inputs come from 16 bits, and cores stay in 16; sums of gradients are read meanwhile."""
    gpu = replace(COUNTING_GPU, peak_fp8_tflops=2e-9)
    rates = assumed_rates(gpu, PRECISIONS["fp8"], 1.0, 1.0)
    product = Product("experts in", 10, 20, 8, "outputs", experts=2)
    forward, backward = rates.product_ms(product, 8)
    matmul_ms = 2 * 8 * 10 * 20 / 2 * (1 + 230 * 2 / 8)
    assert forward == pytest.approx(matmul_ms + 8 * 10 * (2 + 2))
    assert backward == pytest.approx(2 * matmul_ms + 8 * 20 * (2 + 2))
    assert rates.product_ms(product, 8, is_frozen=True)[1] == pytest.approx(matmul_ms + 8 * 20 * (2 + 2))
    assert rates.core_ms(GPT.on(1).cores[0], 3) == pytest.approx((3 * CORE, 2.5 * 3 * CORE))
    slow = assumed_rates(replace(gpu, memory_bandwidth_gb_s=1e-8), PRECISIONS["bf16"], 1.0, 1.0)
    assert slow.product_ms(product, 8)[1] == pytest.approx(2 * matmul_ms + 100 * 2 * 4 * 2 * 10 * 20)


def test_a_layer_is_no_shorter_than_its_host_needs() -> None:
    """The host has 125 us of work for each kernel; with attention and router as graphs for fewer of them."""
    layer, strategy = replace(GPT, num_experts=4, experts_per_token=2), LayerStrategy(1, 8, expert_parallel=4)
    framework = replace(FRAMEWORKS["megatron"], host_us=125.0)
    none, attention, iteration, compiled = (
        layer_cost(
            layer, strategy, 8, 1, read_cluster("h100_8").whole, CostOptions(framework=framework, **how)
        )
        for how in ({}, {"graphs": "attention"}, {"graphs": "iteration"}, {"is_compiled": True})
    )
    # Kernels of the attention, of the feed-forward part and for experts; products, core, exchanges.
    forward, backward = 5 + 3 + 10 + 5 + 1 + 2, 6 + 4 + 10 + 2 * 5 + 2 + 2
    assert none.forward.time_ms == pytest.approx(0.125 * forward)
    assert none.backward.time_ms == pytest.approx(0.125 * backward)
    assert attention.forward.time_ms == pytest.approx(0.125 * (2 * 2 + 2 + 2))
    assert iteration.forward.time_ms < 0.2
    # Compiled, one kernel for each product in place of the 23 others.
    assert compiled.forward.time_ms == pytest.approx(0.125 * (5 + 5 + 1 + 2))
    # Two tensor-parallel GPUs wait for four exchanges more, and a second forward is asked of the host again.
    shared, options = (
        LayerStrategy(2, sequence="megatron", recompute="full"),
        CostOptions(framework=framework),
    )
    dense = layer_cost(GPT, shared, 1, 1, read_cluster("h100_2").whole, options)
    forward, backward = 5 + 3 + 4 + 1 + 4, 6 + 4 + 2 * 4 + 2 + 4
    assert dense.forward.time_ms == pytest.approx(0.125 * forward)
    assert dense.backward.time_ms == pytest.approx(0.125 * (forward + backward))


def test_precision_sets_bytes_and_peak() -> None:
    group = read_cluster("a100_1").whole
    half, tf32, single = (
        layer_cost(GPT, LayerStrategy(), 1, 1, group, CostOptions(precision=dtype))
        for dtype in (HALF, TF32, SINGLE)
    )
    assert single.forward.time_ms / half.forward.time_ms == pytest.approx(312 / 19.5)
    assert tf32.forward.time_ms / half.forward.time_ms == pytest.approx(2)
    assert single.kept_bytes == tf32.kept_bytes == S * H * 66
    assert single.static_bytes == half.static_bytes
    assert TF32.peak_tflops(GPUS["rtx_titan"]) == 16.3, "it has no such units"


def test_frozen_weights_of_8_bits_stand_once() -> None:
    fp8 = PRECISIONS["fp8"]
    frozen = replace(fp8, gradient_bytes=0, optimizer_bytes=0)
    costs = [cost(LayerStrategy(), options=replace(COUNTING, precision=dtype)) for dtype in (frozen, fp8)]
    assert [layer.static_bytes for layer in costs] == [PARAMETERS, (2 + 4 + 12) * PARAMETERS]


def test_other_layers() -> None:
    embedding = EmbeddingLayer(hidden_size=H, vocab_size=100, sequence_length=S, num_positions=S)
    costs = cost(LayerStrategy(2, 2, 3), layer=embedding)
    assert costs.forward.product_ms == costs.backward.product_ms == costs.kept_bytes == 0
    weights = 2 * (50 + S) * H
    assert costs.forward.copy_ms == 4 * 3 * BOUNDARY + 4 * BOUNDARY + weights / 2
    assert costs.backward.copy_ms == 8 * 50 * H + weights / 2
    output = OutputLayer(hidden_size=H, vocab_size=100, sequence_length=S)
    tied = cost(LayerStrategy(2, 2, 3), layer=replace(output, tied=True))
    apart = cost(LayerStrategy(2, 2, 3), layer=output)
    assert (tied.static_bytes, tied.update_ms) == (0, 0)
    assert apart.static_bytes == 16 * 50 * H / 2
    assert tied.kept_bytes == apart.kept_bytes == 4 * (6 * S * 50 + 2 * BOUNDARY)
    pixels = ProjectionLayer(input_size=48, hidden_size=H, sequence_length=S)
    assert cost(LayerStrategy(2, 1), layer=pixels).forward == Pass(8 * 2 * S * 48 * H)
    custom = CustomLayer(num_weights=10, flops=60, kept_bytes=40, input_numbers=5)
    assert cost(LayerStrategy(1, 4), layer=custom).forward == Pass(2 * 60)


STRATEGIES = st.builds(
    LayerStrategy,
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    data_parallel=st.sampled_from([1, 2, 4]),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(["none", "selective", "full"]),
    sequence=st.sampled_from(["none", "megatron", "ulysses"]),
    context_parallel=st.sampled_from([1, 2]),
    tensor_innermost=st.booleans(),
)


@given(STRATEGIES, st.sampled_from([GPT, FUSED, replace(GPT, cross_length=8)]))
def test_what_holds_of_any_strategy(strategy: LayerStrategy, layer: TransformerLayer) -> None:
    costs = cost(strategy, layer=layer)
    once = cost(LayerStrategy(), layer=layer)
    same_work = once.forward.product_ms / strategy.num_gpus
    assert costs.forward.product_ms == pytest.approx(same_work)
    assert costs.backward.product_ms >= 2 * same_work - 1e-6
    assert 0 <= costs.kept_bytes <= once.kept_bytes
    assert costs.static_bytes * strategy.num_gpus >= once.static_bytes - 1e-6
    assert min(costs.forward.copy_ms, costs.backward.copy_ms, costs.update_ms) >= 0
    assert costs.kept_bytes <= cost(replace(strategy, recompute="none"), layer=layer).kept_bytes
    more_samples = cost(strategy, 16, layer)
    assert more_samples.kept_bytes == pytest.approx(2 * costs.kept_bytes)
    assert more_samples.static_bytes == costs.static_bytes


@pytest.mark.parametrize(
    ("strategy", "samples", "message"),
    [
        (LayerStrategy(2, 2), 8, "strategy: shares a layer by 4 GPUs, not by 8; give as many"),
        (LayerStrategy(1, 8), 4, "data_parallel: 8 does not divide the 4 samples of a micro-batch"),
        (LayerStrategy(8), 0, "samples: 0 is not a whole number of at least 1"),
    ],
)
def test_what_does_not_divide_is_told_in_one_line(
    strategy: LayerStrategy, samples: Any, message: str
) -> None:
    with raises_line(PlacementError, message):
        layer_cost(GPT, strategy, samples, 1, flat(8))


def test_layers_that_cannot_be_shared() -> None:
    narrow = replace(GPT, num_heads=4)
    with pytest.raises(PlacementError, match="tensor_parallel: 8 does not divide num_heads 4"):
        cost(LayerStrategy(8), layer=narrow)
    custom = CustomLayer(name="conv", num_weights=10, flops=60, kept_bytes=40, input_numbers=5)
    with pytest.raises(PlacementError, match="tensor_parallel: 2 GPUs cannot share 'conv'"):
        cost(LayerStrategy(2), layer=custom)
    with pytest.raises(PlacementError, match="expert_parallel: 2 does not divide num_experts 1 of 'conv'"):
        cost(LayerStrategy(1, 2, expert_parallel=2), layer=custom)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel: 0 is not a whole number of at least 1"),
        ({"zero": 4}, "zero: 4 is not a stage of ZeRO; use 0, 1, 2 or 3"),
        (
            {"shard_gpus": 2},
            "shard_gpus: 2 does not divide the 1 GPUs that hold the same weights; use a divisor",
        ),
        (
            {"recompute_modules": ("norm",)},
            "recompute_modules: 'norm' is not known; use some of core_attn, layernorm, mlp, mla_up_proj, "
            "moe, moe_act, shared_experts, operators",
        ),
        ({"expert_parallel": 2}, "expert_parallel: 2 does not divide the 1 GPUs that hold the same weights"),
    ],
)
def test_a_wrong_strategy_is_told_in_one_line(fields: dict[str, Any], message: str) -> None:
    with raises_line(PlacementError, message):
        LayerStrategy(**fields)


def test_laying_out_anew_by_hand() -> None:
    costs = ShapeCosts(ModelShape("gpt", ((1, GPT),), HALF), COUNTING)

    def between(before: LayerStrategy, after: LayerStrategy) -> float:
        return costs.transition_ms(GPT, before, after, 8, flat(8)) / 2

    wide, narrow = LayerStrategy(4, 2), LayerStrategy(2, 4)
    assert between(wide, narrow) == between(narrow, wide) == 0.75 * 4 * BOUNDARY
    assert between(wide, replace(wide, recompute="full", zero=3)) == 0
    assert between(wide, replace(wide, tensor_innermost=False)) == 0.75 * 4 * BOUNDARY
    data = LayerStrategy(1, 8)
    assert between(data, replace(data, tensor_innermost=False)) == 0, "one level has no order"
    assert between(wide, replace(wide, sequence="megatron")) > 0
