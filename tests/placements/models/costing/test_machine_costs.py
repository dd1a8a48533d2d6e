"""Costs of a layer on a machine that was measured, its memory by tensor, and its times by part."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_machine import MACHINE

from placements.cluster import Cluster, DeviceGroup, Nodes
from placements.gpus import A100_SXM_80GB
from placements.models.costing.layer_costs import layer_cost, layer_memory
from placements.models.costing.options import CostOptions
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.layers import BF16, PRECISIONS, Layer
from placements.models.machine.machine_rates import ShareTable
from placements.models.mamba import MambaLayer
from placements.models.memory import FRAMEWORKS, STATE_KINDS
from placements.models.parallel import Buffer, Cost, LayerStrategy
from placements.models.transformer import TransformerLayer

H, A, S, F = 64, 8, 16, 160
PLAIN = TransformerLayer(
    hidden_size=H, num_heads=A, sequence_length=S, feed_forward_size=F, dropout=False, biases=False
)
PARAMETERS = 4 * H * H + 2 * H * F + 2 * H
ON_MACHINE = CostOptions(overlap_slowdown=1.0, precision=BF16, machine=MACHINE)
LAYERS: tuple[Layer, ...] = (
    replace(PLAIN, dropout=True, biases=True, attention="unfused"),
    replace(PLAIN, gated=True, num_kv_heads=4, query_key_norms=True, attention="fused"),
    replace(PLAIN, num_experts=8, experts_per_token=2, shared_expert_size=32),
    replace(PLAIN, kv_rank=16, query_rank=24, rope_width=4, value_width=8),
    MambaLayer(hidden_size=H, sequence_length=S, num_heads=4, head_width=8, state_size=4, num_groups=4),
    EmbeddingLayer(hidden_size=H, vocab_size=100, sequence_length=S),
    OutputLayer(hidden_size=H, vocab_size=100, sequence_length=S),
)


def flat(num_gpus: int) -> DeviceGroup:
    return Cluster((Nodes(A100_SXM_80GB, 1, num_gpus),), 100.0, link_efficiency=1.0, latency_us=0.0).whole


def cost(
    strategy: LayerStrategy, layer: Layer = PLAIN, options: CostOptions = ON_MACHINE, samples: int = 2
) -> Cost:
    return layer_cost(layer, strategy, samples, 2, flat(strategy.num_gpus), options)


def stream_ms(numbers: float, launches: int) -> float:
    """2 bytes a number at half of 1000 GB/s, 30 us a kernel."""
    return 2 * numbers / 5e8 + launches * 0.03


def product_ms(weights: float, tokens: float) -> tuple[float, float]:
    """The shares of the only measured shape, of 1e9 operations in a millisecond."""
    peak_ms = 2 * tokens * weights / 1e9
    return peak_ms / 0.5, peak_ms / 0.25 + peak_ms / 0.2


def test_a_layer_on_one_gpu_is_the_sum_of_its_operators() -> None:
    """Kernels in numbers of s h: two norms 2 and 5 each, two sums 3, queries apart 2 and 2 + 4, positions 4,
    activation 2 and 3 of s f."""
    costs = cost(LayerStrategy())
    forward, backward = product_ms(4 * H * H + 2 * H * F, 2 * S)
    core = 2 * 4 * S * S * H / 1e9
    width, inner = 2 * S * H, 2 * S * F
    forward += core / 0.9 + stream_ms((2 * 2 + 2 * 3 + 2 + 4) * width + 2 * inner, 2 + 2 + 1 + 2 + 1)
    backward += 2.5 * core / 0.7
    backward += stream_ms((2 * 5 + 2 * 3 + 6 + 4) * width + 3 * inner, 2 * 2 + 2 + 1 + 2 + 1)
    assert (costs.forward.product_ms, costs.forward.copy_ms) == pytest.approx((forward, 0))
    assert (costs.backward.product_ms, costs.backward.copy_ms) == pytest.approx((backward, 0))
    # Adam reads 4 bytes of gradient and 12 of states, and writes these and a weight of 2.
    assert costs.update_ms == pytest.approx(30 * PARAMETERS / 5e8 + 0.03)
    assert costs.static_bytes == 18 * PARAMETERS


def test_two_gpus_share_matrices_and_tokens_by_hand() -> None:
    """Each part has an all-gather and a reduce-scatter in each pass, and one more gather beside products."""
    costs = cost(LayerStrategy(2, sequence="megatron"))
    forward, backward = product_ms((4 * H * H + 2 * H * F) / 2, 2 * S)
    core = 2 * 4 * S * S * H / 2 / 1e9
    width, inner = S * H, S * F
    forward += core / 0.9 + stream_ms((2 * 2 + 2 * 3 + 2 + 4) * width + 2 * inner, 8)
    backward += 2.5 * core / 0.7 + stream_ms((10 + 6 + 6 + 4) * width + 3 * inner, 10)
    num_bytes = 2 * 2 * S * H
    gather = num_bytes / 2 / (100e6 * 0.8) + 0.01
    scatter = num_bytes / 2 / (100e6 * 0.4) + 0.02
    assert costs.forward.product_ms == pytest.approx(forward)
    assert costs.forward.copy_ms == pytest.approx(2 * (gather + scatter))
    assert costs.backward.product_ms == pytest.approx(backward)
    assert costs.backward.copy_ms == pytest.approx(2 * (gather + scatter)), "gathers are hidden"
    slower = cost(LayerStrategy(2, sequence="megatron"), options=replace(ON_MACHINE, overlap_slowdown=1.5))
    hidden = gather + scatter
    assert slower.backward.copy_ms - costs.backward.copy_ms == pytest.approx(0.5 * hidden)


def test_experts_and_their_tokens_by_hand() -> None:
    """Of 2 GPUs each has 4 of 8 experts; each of its 2 x 16 tokens takes 2, half of them elsewhere.

    They are sorted before they leave and where they arrive.
    """
    layer = replace(PLAIN, num_experts=8, experts_per_token=2, parts="feed_forward")
    costs = cost(LayerStrategy(1, 2, expert_parallel=2), layer, samples=4)
    experts = 2 * (2 * S * 2) * 2 * H * F / 1e9
    router, router_backward = product_ms(8 * H, 2 * S)
    moved = 2 * 2 * 2 * S * H
    permute = 2 * 2 * (2 * moved / 2.5e8 + 2 * 0.04)
    width, scores = 2 * S * H, 2 * S * 8
    forward = experts / 0.3 + router + permute + stream_ms(5 * width + 6 * scores + 4 * S * F * 2, 2 + 6 + 1)
    backward = experts / 0.1 + experts / 0.6 + router_backward + permute
    backward += stream_ms(8 * width + scores + 6 * S * F * 2, 3 + 6 + 1)
    routed = 2 * 2 * 2 * S * H
    sent = 2 * (routed / 2 / 50e6 + 0.003) + (8 * 8 / 2 / 80e6 + 0.01)
    assert (costs.forward.product_ms, costs.forward.copy_ms) == pytest.approx((forward, sent))
    assert (costs.backward.product_ms, costs.backward.copy_ms) == pytest.approx((backward, sent))


def test_context_parallel_gpus_exchange_heads_or_send_keys_around() -> None:
    """Heads: a quarter of queries, keys, values and outputs each, half of it leaves; laid out twice."""
    heads, ring = (
        cost(LayerStrategy(context_parallel=2, context=context), samples=1)
        for context in ("all_to_all", "ring")
    )
    num_bytes = 2 * 4 * S * H / 2
    exchange = 4 * (num_bytes / 4 / 2 / 50e6 + 0.003) + 2 * 2 * num_bytes / 5e8 + 8 * 0.03
    assert (heads.forward.copy_ms, heads.backward.copy_ms) == pytest.approx((exchange, exchange))
    core = 4 * S * S * H / 2 / 1e9
    keys = flat(2).transfer_ms(2 * 2 * S * H / 2, 2, 1)
    assert ring.forward.copy_ms == pytest.approx(max(keys - core / 0.9, 0))
    assert ring.backward.copy_ms == pytest.approx(max(2 * keys - 2.5 * core / 0.7, 0))
    assert heads.forward.product_ms == pytest.approx(ring.forward.product_ms), "one share in both"
    # Where all tokens of half of the heads were measured too, both differ.
    table = ShareTable({(S, A // 2, H // A): 1.0, (S // 2, A, H // A): 0.9}, 0.9)
    machine = replace(MACHINE, shares={**MACHINE.shares, ("core", "forward"): table}, _known={})
    options = replace(ON_MACHINE, machine=machine)
    apart = cost(LayerStrategy(context_parallel=2, context="all_to_all"), options=options, samples=1)
    assert heads.forward.product_ms - apart.forward.product_ms == pytest.approx(core / 0.9 - core)


def test_an_embedding_and_an_output_layer_on_a_machine_by_hand() -> None:
    embedding = cost(LayerStrategy(), LAYERS[-2])
    assert embedding.forward.time_ms == pytest.approx(stream_ms(3 * 2 * S * H, 1))
    assert embedding.backward.time_ms == pytest.approx(8 * 100 * H / 5e8 + 2 * 0.03)
    output, logits = cost(LayerStrategy(), LAYERS[-1]), 2 * S * 100
    forward, backward = product_ms(H * 100, 2 * S)
    assert output.forward.time_ms == pytest.approx(forward + 8 * logits / 7.5e8 + 0.01)
    assert output.backward.time_ms == pytest.approx(backward + 6 * logits / 7.5e8 + 0.01)


strategies = st.builds(
    LayerStrategy,
    st.sampled_from([1, 2]),
    st.sampled_from([2, 4]),
    st.integers(0, 3),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from(["none", "megatron", "ulysses"]),
    st.sampled_from([1, 2]),
    context=st.sampled_from(["ring", "all_to_all"]),
)


@given(
    st.sampled_from(LAYERS),
    strategies,
    st.sampled_from(list(PRECISIONS.values())),
    st.sampled_from(list(FRAMEWORKS.values())),
    st.integers(1, 2),
    st.booleans(),
)
def test_the_tensors_of_a_layer_are_the_bytes_of_its_cost(
    layer: Layer, strategy: LayerStrategy, precision: Any, framework: Any, number: int, experts: bool
) -> None:
    if experts and layer.num_routes:
        strategy = replace(strategy, expert_parallel=2)
    options = CostOptions(precision=precision, framework=framework)
    asked = (layer, strategy, 8, number, flat(strategy.num_gpus), options)
    whole, sizes = layer_cost(*asked), Counter[str]()
    for item in layer_memory(*asked):
        assert item.num_bytes >= 0
        sizes[item.kind] += item.num_bytes
    assert sum(sizes[kind] for kind in STATE_KINDS) == pytest.approx(whole.static_bytes)
    assert sizes["kept"] == pytest.approx(whole.kept_bytes)
    if framework.has_temporaries:
        peak = sizes["kept"] + sizes["backward"]
        assert whole.backward_peak_bytes == pytest.approx(peak)
    else:
        assert sizes["backward"] == pytest.approx(whole.backward_bytes)
        assert whole.backward_peak_bytes == 0
    assert (whole.forward_bytes > 0) == (strategy.zero == 3)
    assert sizes["buffer"] == pytest.approx(sum(buffer.num_bytes for buffer in whole.buffers))


def test_layers_of_one_shape_share_their_placeholders() -> None:
    """One of 2 bytes a number for each shape: projections and both matrices of the feed-forward part."""
    options = CostOptions(framework=FRAMEWORKS["megatron"])
    costs = cost(LayerStrategy(), options=options)
    assert costs.buffers == {
        Buffer("workspaces", 2**20 * (4 + 2 * 8.125)),
        *(
            Buffer(f"placeholder of gradients, {a} x {b}", 2 * a * b)
            for a, b in ((H, 3 * H), (H, H), (H, F), (F, H))
        ),
    }
    assert (costs + costs).buffers == costs.buffers
    # Between products: gradients of queries, keys, values and output, more than the feed-forward part's.
    assert costs.backward_peak_bytes - costs.kept_bytes == 2 * 2 * S * (H + 4 * H)
    # The backward of a second layer comes first, while the first one still holds all.
    assert (costs + costs).backward_peak_bytes == costs.kept_bytes + costs.backward_peak_bytes


@given(st.sampled_from(LAYERS), strategies, st.booleans())
def test_exchanges_apart_leave_the_update_and_nothing_else(
    layer: Layer, strategy: LayerStrategy, measured: bool
) -> None:
    options = ON_MACHINE if measured else CostOptions()
    beside, apart = (
        cost(strategy, layer, replace(options, exchanges_apart=apart), 8) for apart in (False, True)
    )
    assert beside.update_ms == pytest.approx(apart.update_ms + apart.scatter_ms + apart.gather_ms)
    assert (beside.scatter_ms, beside.gather_ms) == (0, 0)
    rest = {"update_ms": 0.0, "scatter_ms": 0.0, "gather_ms": 0.0}
    assert replace(beside, **rest) == replace(apart, **rest)
    assert (apart.scatter_ms > 0) == (strategy.zero < 3)
    assert (apart.gather_ms > 0) == (strategy.zero in (1, 2))


def test_what_zero_exchanges_by_hand() -> None:
    """Gradients of 4 bytes are reduced and scattered among 2 GPUs, new weights of 2 gathered."""
    sharded = cost(LayerStrategy(1, 2, 1), options=replace(ON_MACHINE, exchanges_apart=True))
    assert sharded.scatter_ms == pytest.approx(4 * PARAMETERS / 2 / 40e6 + 0.02)
    assert sharded.gather_ms == pytest.approx(2 * PARAMETERS / 2 / 80e6 + 0.01)
    assert sharded.update_ms == pytest.approx(30 * PARAMETERS / 2 / 5e8 + 0.03)
    megatron = replace(ON_MACHINE, exchanges_apart=True, framework=FRAMEWORKS["megatron"])
    more = cost(LayerStrategy(1, 2, 1), options=megatron).update_ms - sharded.update_ms
    assert more == pytest.approx(2 * 4 * PARAMETERS / 5e8 + 0.03 + 2 * 4 * 0.03)
