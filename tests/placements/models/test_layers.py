"""Shapes of layers: published formulas at one size, sums that must hold, and one-line errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_line_errors import raises_line

from placements import PlacementError
from placements.models.end_layers import CustomLayer, EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.layers import HALF, SINGLE
from placements.models.operators import SCORES
from placements.models.transformer import TransformerLayer

H, A, S = 2048, 16, 1024
GPT = TransformerLayer(hidden_size=H, num_heads=A, sequence_length=S)


def layer(**sizes: Any) -> TransformerLayer:
    return TransformerLayer(**({"hidden_size": H, "num_heads": A, "sequence_length": S} | sizes))


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([64, 1024]), st.booleans())
def test_a_gpts_layer_is_the_published_one(t: int, width: int, flash: bool) -> None:
    """Narayanan's dissertation, Sec. 4.5: 12 h^2 + 13 h parameters, 24 b s h^2 + 4 b s^2 h operations.

    Korthikanti et al., 2022, Eq. 1 and 2: s b h (10 + 24 / t + 5 a s / (h t)) bytes.
    """
    s, a = 128, 8
    attention = "flash" if flash else "fused"
    shape = layer(hidden_size=width, num_heads=a, sequence_length=s, attention=attention)
    assert shape.num_parameters == 12 * width**2 + 13 * width
    assert shape.on(t).forward_flops * t == pytest.approx(24 * s * width**2 + 4 * s * s * width)
    scores = 0 if flash else 5 * a * s / (width * t)
    assert sum(shape.kept(HALF, t)) == pytest.approx(s * width * (10 + 24 / t + scores))
    output = OutputLayer(hidden_size=width, vocab_size=500, sequence_length=s)
    assert sum(output.kept(HALF, 1)) == 6 * s * 500 + 2 * 2 * s * width


def test_grouped_queries_and_gates_by_hand() -> None:
    """A Llama-like layer: h = 64, 8 heads of 8, 2 of keys, f = 160, s = 10."""
    shape = TransformerLayer(
        hidden_size=64,
        num_heads=8,
        num_kv_heads=2,
        feed_forward_size=160,
        sequence_length=10,
        gated=True,
        dropout=False,
        biases=False,
    )
    assert shape.num_parameters == 64 * (64 + 16 + 16 + 64) + 3 * 64 * 160 + 2 * 64
    products = 2 * 10 * shape.num_parameters - 2 * 10 * 2 * 64
    assert shape.on(1).forward_flops == products + 4 * 10 * 10 * 64
    assert shape.kept(HALF, 1) == (2 * 10 * 4 * 64, 2 * 10 * (64 + 16 + 16 + 64 + 3 * 160))
    # Of 4 GPUs each pair has the same head of keys: half the keys, and not a quarter.
    assert shape.on(4).parameters == 64 * (16 + 8 + 8 + 16) + 3 * 64 * 40 + 2 * 16
    assert shape.kept(HALF, 4)[1] == 2 * 10 * (16 + 8 + 8 + 16 + 3 * 40)


def test_windows_cross_attention_and_causal_halves_by_hand() -> None:
    base = layer()
    core = 4 * S * S * H
    assert base.on(1).core_flops == core
    assert layer(causal=True).on(1).core_flops == core / 2
    assert layer(window=64).on(1).core_flops == core / 16
    assert layer(window=10**6).on(1).core_flops == core
    windowed = layer(window=64, attention="fused")
    scores = [tensor.num_bytes for tensor in windowed.on(2).kept if tensor.name == SCORES]
    assert scores == [5 * A * S * 64 / 2]
    decoder = layer(cross_length=256)
    assert decoder.num_parameters - base.num_parameters == 4 * H * H + 4 * H + 2 * H
    more = decoder.on(1).forward_flops - base.on(1).forward_flops
    assert more == 2 * S * 2 * H * H + 2 * 256 * 2 * H * H + 4 * S * 256 * H
    kept, split = (b - a for a, b in zip(base.kept(HALF, 1), decoder.kept(HALF, 1), strict=True))
    assert kept == S * H * (2 + 2 + 1), "norm, input and mask"
    assert split == 2 * (2 * S * H + 2 * 256 * H)
    assert decoder.output_elements() == (S + 256) * H
    assert decoder.on(1).reduces == [(S * H, S * H)] * 3 + [(0, 256 * H)]
    assert base.on(1).reduces == [(S * H, S * H)] * 2


def test_experts_by_hand() -> None:
    shape = layer(num_experts=8, experts_per_token=2)
    one = 8 * H * H + 5 * H
    assert shape.on(1).expert_parameters == 8 * one
    assert shape.on(1).parameters == 4 * H * H + 8 * H + 8 * H
    assert shape.on(1).forward_flops - GPT.on(1).forward_flops == 16 * S * H * H + 2 * S * H * 8
    more = sum(shape.kept(HALF, 1)) - sum(GPT.kept(HALF, 1))
    assert more == 2 * S * (8 * H) + 2 * 2 * S * H + 2 * S * (8 * H), (
        "a second expert's inner tensors, inputs of both, and what the router weighs"
    )
    assert shape.routed_elements() == 2 * S * H


def test_ends_by_hand() -> None:
    embedding = EmbeddingLayer(hidden_size=8, vocab_size=10, sequence_length=4, num_positions=4)
    assert embedding.num_parameters == 14 * 8
    assert embedding.on(4).parameters == (3 + 4) * 8, "the first GPUs have three rows"
    output = OutputLayer(hidden_size=8, vocab_size=10, sequence_length=4)
    assert (output.num_parameters, output.on(4).parameters) == (80, 24)
    assert output.on(1).forward_flops == 2 * 4 * 80
    assert output.kept(SINGLE, 1) == (2 * 4 * 32, 8 * 40), "inputs of norm and product; logits and softmax"
    tied = OutputLayer(hidden_size=8, vocab_size=10, sequence_length=4, tied=True)
    assert (tied.num_parameters, tied.apart) == (0, output)
    merge = ProjectionLayer(input_size=32, hidden_size=16, sequence_length=4, normed=True)
    assert merge.num_parameters == 32 * 16 + 64
    custom = CustomLayer(num_weights=100, flops=1000, kept_bytes=500, input_numbers=50)
    assert (sum(custom.kept(HALF, 1)), custom.num_parameters, custom.output_elements()) == (500, 100, 50)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: 0 is not a whole number of at least 1"),
        ({"num_kv_heads": 5}, "num_kv_heads: 5 does not divide num_heads 16"),
        ({"cross_length": -1}, "cross_length: -1 is not a whole number of at least 0"),
        ({"gated": 1}, "gated: 1 is not a truth value"),
        ({"experts_per_token": 2}, "experts_per_token: 2 is more than num_experts 1"),
        ({"attention": "paged"}, "attention: 'paged' is not known; use one of flash, flash2, fused, unfused"),
        ({"parts": "all"}, "parts: 'all' is not known; use one of both, attention, feed_forward"),
        ({"num_experts": 4, "imbalance": 4.5}, "imbalance: 4.5 is not from 1"),
        ({"query_rank": 24}, "kv_rank: is missing beside"),
    ],
)
def test_a_wrong_size_is_told_in_one_line(sizes: dict[str, Any], message: str) -> None:
    with raises_line(PlacementError, message):
        layer(**sizes)
