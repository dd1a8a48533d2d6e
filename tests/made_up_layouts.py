"""A small model with experts on two nodes, whose layouts are planned."""

from __future__ import annotations

from functools import cache

from placements.cluster import Cluster, read_cluster
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.layers import BF16
from placements.models.memory import FRAMEWORKS
from placements.models.zoo import decoder

COSTS = CostOptions(precision=BF16, framework=FRAMEWORKS["megatron"], exchanges_apart=True)
BATCH = 32


@cache
def routed() -> ModelShape:
    return decoder(
        "routed",
        num_layers=8,
        hidden_size=2048,
        num_heads=16,
        vocab_size=32_000,
        sequence_length=4096,
        num_experts=8,
        experts_per_token=2,
        num_dense_layers=2,
        gated=True,
        dropout=False,
        tied=False,
        precision="bf16",
    )


@cache
def sixteen() -> Cluster:
    return read_cluster("h100_16")
