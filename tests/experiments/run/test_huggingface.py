"""Models of the transformers package, made in code: the blocks that they are cut into are the whole model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from places import ROOT
from torch import Tensor, nn

from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.models import cut
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b

pytest.importorskip("transformers")

EXAMPLE = ROOT / "examples" / "huggingface.py"
SIZES = '{"n_embd": 32, "n_layer": 4, "n_head": 4}'
LLAMA = {
    "GPT2Config, GPT2LMHeadModel": "LlamaConfig, LlamaForCausalLM",
    SIZES: '{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}',
    "GPT2Config(": "LlamaConfig(",
    "n_positions=": "max_position_embeddings=",
    "GPT2LMHeadModel(": "LlamaForCausalLM(",
    "transformer.h.": "model.layers.",
}
"""What a Llama has in place of a GPT-2."""


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("replaced", [{}, LLAMA], ids=["gpt2", "llama"])
def test_the_blocks_of_a_model_of_transformers_are_the_model(replaced: dict[str, str]) -> None:
    """Blocks run one after the other on each other's outputs: loss and gradients equal the whole model's."""
    text = EXAMPLE.read_text()
    for before, after in replaced.items():
        assert before in text
        text = text.replace(before, after)
    names: dict[str, Any] = {}
    exec(text, names)
    models: list[nn.Module] = []

    def kept(model: nn.Module, *given: Any, **more: Any) -> list[nn.Module]:
        models.append(model)
        return cut(model, *given, **more)

    names["cut"] = kept
    blocks, (inputs, targets) = names["blocks"](), names["data"](0, 0)
    assert list(blocks) == ["F0", "F1", "F2", "F3"]
    (model,) = models
    torch.manual_seed(5)  # dropout falls alike, as both draw in the order of the layers
    handed: tuple[Any, ...] = (inputs["input_ids"],)
    for block in blocks.values():
        outputs = block(*handed)
        handed = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
    torch.manual_seed(5)
    losses = [names["loss"](logits, targets) for logits in (handed[0], model(**inputs).logits)]
    assert torch.equal(*losses)
    ours, expected = (gradients(model, loss) for loss in losses)
    assert ours.keys() == expected.keys() == dict(model.named_parameters()).keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-12, atol=1e-15)


def test_scripts_are_written_of_the_example(tmp_path: Path) -> None:
    """Training of a model in this form is tested in `test_cut_by_name`."""
    model = {"name": "module", "path": str(EXAMPLE), "optimizer": "adamw", "learning_rate": 0.001}
    scripts = generate(lower(one_f_one_b(v_shape(4), 4)), {}, model, tmp_path / "job")
    assert [script.name for script in scripts] == [f"device_{device}.py" for device in range(4)]


def test_the_docs_show_the_example() -> None:
    page = (ROOT / "docs/concepts/own_model.md").read_text()
    assert EXAMPLE.read_text() in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
