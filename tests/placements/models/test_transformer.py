"""Layers of today's models: latent attention, experts, parts, and state spaces, by hand; published sizes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from one_line_errors import raises_line

from placements import PlacementError
from placements.models.layers import HALF, PRECISIONS
from placements.models.mamba import MambaLayer
from placements.models.transformer import TransformerLayer
from placements.models.zoo import decoder, hybrid

MODERN: dict[str, Any] = {"gated": True, "dropout": False, "biases": False}
SMALL: dict[str, Any] = {"hidden_size": 64, "num_heads": 8, "sequence_length": 10, "feed_forward_size": 160}
LATENT: dict[str, Any] = {"kv_rank": 16, "query_rank": 24, "rope_width": 4, "head_width": 8, "value_width": 6}
EXPERTS: dict[str, Any] = {"num_experts": 8, "experts_per_token": 2, "shared_expert_size": 32}
LANGUAGE: dict[str, Any] = MODERN | {"learned_positions": False, "tied": False, "sequence_length": 4096}


def layer(**sizes: Any) -> TransformerLayer:
    return TransformerLayer(**(SMALL | MODERN | sizes))


def shapes(shape: TransformerLayer, t: int, experts: int = 1) -> dict[str, tuple[float, ...]]:
    return {
        product.name: (product.inputs, product.outputs, product.tokens, product.experts)
        for product in shape.on(t, experts).products
    }


def kept(shape: TransformerLayer, t: int) -> dict[str, float]:
    """Numbers of 2 bytes."""
    return {tensor.name: tensor.num_bytes / 2 for tensor in shape.on(t).kept if tensor.num_bytes}


def test_latent_attention_by_hand() -> None:
    """Keys of 8 + 4, values of 6, ranks 24 and 16, of which keys share a rotary part (DeepSeek-V2, 2.1)."""
    shape = layer(**LATENT)
    assert shapes(shape, 2) == {
        "query compression": (64, 24, 10, 0),
        "queries": (24, 8 * 12 / 2, 10, 0),
        "key and value compression": (64, 16 + 4, 10, 0),
        "keys and values": (16, 8 * (8 + 6) / 2, 10, 0),
        "attention output": (8 * 6 / 2, 64, 10, 0),
        "feed-forward in": (64, 2 * 160 / 2, 10, 0),
        "feed-forward out": (160 / 2, 64, 10, 0),
    }
    weights = 64 * 24 + 24 * 96 + 64 * 20 + 16 * 112 + 48 * 64 + 3 * 64 * 160
    assert shape.num_parameters == weights + 2 * 64 + 24 + 16
    assert shape.on(1).forward_flops == 2 * 10 * weights + 2 * 10 * 10 * 8 * (12 + 6)
    assert kept(shape, 2) == {
        "input of the attention norm": 640,
        "input of the attention part": 640,
        "compressed queries": 240,
        "normed queries": 240,
        "compressed keys and values": 10 * (16 + 4),
        "normed keys and values": 160,
        "queries and keys": 2 * 10 * 4 * 12,
        "values": 10 * 4 * 6,
        "attention output": 10 * 4 * 6,
        "input of the feed-forward norm": 640,
        "input of the feed-forward part": 640,
        "activation input": 2 * 10 * 80,
        "activation output": 10 * 80,
    }
    (core,) = shape.on(2).cores
    assert core.key_numbers == core.exchanged_numbers / 2 == 10 * 4 * (12 + 6)
    # Gradients of queries, keys, values and output, and of the residual stream; of the gate's inputs here.
    assert shape.on(2).gradients == 640 + max(10 * 2 * 4 * (12 + 6), 2 * 10 * 80)
    # Without compression queries are one product.
    assert shapes(layer(**LATENT | {"query_rank": None}), 1)["queries"] == (64, 96, 10, 0)


def test_experts_beside_shared_ones_by_hand() -> None:
    """2 of 8 experts of 16 for each token, 4 GPUs with 2 of them each; the busiest has half more."""
    shape = layer(feed_forward_size=16, imbalance=1.5, **EXPERTS)
    products = shapes(shape, 2, experts=4)
    assert list(products)[2:] == [
        *("router", "experts in", "experts out", "shared experts in", "shared experts out")
    ]
    assert products["router"] == (64, 8, 10, 0)
    assert products["experts in"] == (64, 2 * 16 / 2, 10 * 2 * 1.5, 2)
    assert products["experts out"] == (16 / 2, 64, 10 * 2 * 1.5, 2)
    assert products["shared experts in"] == (64, 2 * 32 / 2, 10, 0)
    assert shape.on(1).expert_parameters == 8 * 3 * 64 * 16
    assert shape.on(1).parameters == 4 * 64 * 64 + 64 * 8 + 3 * 64 * 32 + 2 * 64
    assert shape.routed_elements() == 1.5 * 2 * 640
    held = kept(shape, 2)
    assert held["routed tokens"] == 3 * 640
    name = "experts' activation"
    assert (held[f"{name} input"], held[f"{name} output"]) == (2 * 3 * 10 * 8, 3 * 10 * 8)
    assert (held["shared activation input"], held["shared activation output"]) == (2 * 10 * 16, 10 * 16)
    assert shape.on(2).gradients == 640 + 3 * 10 * 2 * 8 + 2 * 3 * 640


def test_norms_of_queries_and_keys_by_hand() -> None:
    plain, normed = layer(num_kv_heads=2), layer(num_kv_heads=2, query_key_norms=True)
    assert normed.num_parameters - plain.num_parameters == 2 * 8, "one scale for all heads of each"
    more = Counter(kept(normed, 2)) - Counter(kept(plain, 2))
    assert more == {"inputs of query and key norms": 10 * (32 + 8)}
    (kernel,) = set(normed.on(2).kernels) - set(plain.on(2).kernels)
    assert (kernel.forward, kernel.backward) == (2 * 10 * (32 + 8), 3 * 10 * (32 + 8))


def test_a_module_of_the_next_token_has_a_layer_and_the_outputs_product_again() -> None:
    sizes = SMALL | LANGUAGE | EXPERTS | {"num_layers": 4, "vocab_size": 500, "num_dense_layers": 1}
    plain, more = decoder("a", **sizes), decoder("a", **sizes, num_predict_layers=2)
    added = more.layers[len(plain.layers) :]
    assert [product.name for product in added] == [
        *("two states", "two states", "layer", "layer"),
        *("output of the next token", "output of the next token"),
    ]
    one = plain.layers[4]
    assert sum(product.num_parameters for product in added) == 2 * (
        2 * 64 * 64 + 2 * 2 * 64 + one.num_parameters
    ), "the table is the output layer's"
    assert added[-1].on(1).forward_flops == plain.layers[5].on(1).forward_flops > 0


def test_a_state_space_by_hand() -> None:
    """4 heads of 8 with states of 4 in 2 groups: 32 wide, 84 projected, 48 of them convolved; 2 chunks."""
    shape = MambaLayer(
        hidden_size=16, sequence_length=512, num_heads=4, head_width=8, state_size=4, num_groups=2
    )
    weights = 16 * 84 + 32 * 16
    assert shape.num_parameters == weights + 5 * 48 + 3 * 4 + 16 + 32
    inside = 2 * 512 * 256 * (2 * 4 + 32)
    assert shape.on(1).forward_flops == 2 * 512 * weights + inside + 4 * 512 * 4 * 32
    assert shape.on(2).forward_flops == shape.on(1).forward_flops / 2
    numbers = 512 * (84 + 48 + 32 + 32)
    assert shape.kept(HALF, 1) == (2 * 2 * 512 * 16, 2 * numbers + 4 * 2 * 32 * 4)
    with raises_line(PlacementError, "tensor_parallel: 4 does not divide num_groups 2"):
        shape.check(4, 1)
    with raises_line(PlacementError, "expert_parallel: 2 does not divide num_experts 1 of 'layer'; use "):
        shape.check(1, 2)


def test_a_pattern_makes_a_hybrid() -> None:
    sizes: dict[str, Any] = SMALL | {"num_kv_heads": 2, "head_width": 8, "vocab_size": 100, "mamba_heads": 8}
    model = hybrid("h", pattern="MM-*", **sizes)
    names = [model_layer.name for model_layer in model.layers]
    assert names == ["embedding", "state space", "state space", "feed-forward", "attention", "output"]
    _, space, _, inner, attention, _ = model.layers
    assert attention.num_parameters == 64 * (2 * 64 + 2 * 16) + 64
    assert inner.num_parameters == 2 * 64 * 160 + 64
    assert model.num_parameters == pytest.approx(
        2 * 6400 + 2 * space.num_parameters + attention.num_parameters + inner.num_parameters
    )
    for pattern in ("", "MX", "m"):
        with raises_line(PlacementError, "pattern: ", has="is not of the letters M, * and -; give one for"):
            hybrid("h", pattern=pattern, **sizes)


def test_bytes_of_a_parameter_by_precision() -> None:
    """Weights, gradients and Adam's states; in 8 and 4 bits two copies of the weights with scales."""
    half, fp8, nvfp4 = (PRECISIONS[name] for name in ("half", "fp8_blockwise", "nvfp4"))
    assert (half.weight_bytes, half.gradient_bytes, half.optimizer_bytes) == (2, 2, 12)
    assert (fp8.weight_bytes, nvfp4.weight_bytes) == (2 * (1 + 4 / 128), 2 * (0.5 + 1 / 16))
    assert PRECISIONS["bf16"].update_bytes == 4 + 2 * 12 + 2
    assert PRECISIONS["single"].update_bytes == 4 + 2 * 8 + 2 * 4
