"""Training figures: model FLOPs as the literature counts them, and units by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placements.gpus import GPUS
from placements.models.training_figures import IterationWork, model_flops
from placements.models.zoo import read_model
from placements.models.zoo.shapes import decoder


@pytest.mark.parametrize(
    ("layers", "width", "tokens", "rate", "published"),
    [(48, 7168, 8192, 574, 39.38), (80, 8192, 2048, 410, 53.33)],
)
def test_mfu_is_the_published_one(layers: int, width: int, tokens: int, rate: int, published: float) -> None:
    """Rows of LLM Foundry's table of MPT 30B and 70B on A100, whose tokens/s/GPU are whole numbers."""
    sizes = {"num_layers": layers, "hidden_size": width, "num_heads": width // 128, "sequence_length": tokens}
    model = decoder("mpt", **sizes, vocab_size=50432, tied=True, biases=False, precision="bf16")
    work = IterationWork.of(model, {GPUS["a100"]: 8}, 64)
    figures = work.figures(1e3 * work.tokens / (8 * rate))
    assert figures[:2] == pytest.approx((rate, published), rel=0.003) and figures[2:] == (None, None)


def test_model_flops_are_of_the_model_and_not_of_its_kernels() -> None:
    """No kernel that skips scores, no busy expert and no other precision changes them."""
    plain = model_flops(read_model("mixtral_8x7b"))
    assert model_flops(read_model("mixtral_8x7b", causal=True, imbalance=1.5, precision="fp8")) == plain
    model = read_model("llama3_8b")
    frozen = replace(model, precision=replace(model.precision, gradient_bytes=0))
    assert 3 * model_flops(frozen) == pytest.approx(2 * model_flops(model))
