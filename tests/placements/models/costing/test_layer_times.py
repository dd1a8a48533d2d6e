"""The parts of a layer's passes: they add up to what a search counts, whatever products hide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_up_machine import MACHINE

from placements.cluster import Cluster, DeviceGroup, Nodes
from placements.gpus import A100_SXM_80GB
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.layer_times import TIME_PARTS, layer_times
from placements.models.costing.options import CostOptions
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.layers import BF16, Layer
from placements.models.mamba import MambaLayer
from placements.models.parallel import LayerStrategy, Recompute
from placements.models.transformer import TransformerLayer

H, A, S, F = 64, 8, 16, 160
PLAIN = TransformerLayer(
    hidden_size=H, num_heads=A, sequence_length=S, feed_forward_size=F, dropout=False, biases=False
)
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


@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize("machine", [None, MACHINE])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_the_parts_of_a_pass_add_up_to_its_cost(machine: Any, recompute: Recompute, hides: bool) -> None:
    """Of every layer, with any exchange: what is told by part is what a search counts."""
    names = ("overlap_tensor_parallel", "overlap_weights", "overlap_experts", "sends_tokens_once")
    options = replace(ON_MACHINE, machine=machine, overlap_slowdown=1.3, **dict.fromkeys(names, hides))
    strategies = (
        LayerStrategy(),
        LayerStrategy(4, 2, 1, recompute, "megatron"),
        LayerStrategy(2, 2, 3, recompute, "megatron", context_parallel=2, context="all_to_all"),
        LayerStrategy(1, 4, 3, recompute, context_parallel=2, context="ring"),
        LayerStrategy(2, 2, 1, recompute, "ulysses"),
        LayerStrategy(4, 2, 1, recompute, "megatron", whole_experts=True),
    )
    for layer in LAYERS:
        for strategy in strategies:
            experts = (1, 2) if getattr(layer, "num_experts", 1) > 1 and strategy.data_parallel > 1 else (1,)
            for expert in experts:
                how = replace(strategy, expert_parallel=expert)
                given = layer, how, 4, 2, flat(how.num_gpus), options
                times, whole = layer_times(*given), layer_cost(*given)
                assert sum(times.forward.values()) == pytest.approx(whole.forward.time_ms)
                assert sum(times.backward.values()) == pytest.approx(whole.backward.time_ms)
                assert tuple(times.forward) == tuple(times.backward) == TIME_PARTS
                assert min(*times.forward.values(), *times.backward.values()) >= 0
                exchanged = times.forward["expert-parallel exchanges"]
                assert (exchanged > 0) == (expert > 1)
                again = recompute != "none" and how != LayerStrategy() and layer.reads_weights_backward
                if recompute == "full":
                    assert (times.backward["recomputation"] > 0) == again
