"""Models of the transformers package, made in code, train as in one piece."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import ROOT
from small_runs import launched

from placements.shapes import v_shape
from runtime.codegen.codegen import generate
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


@pytest.mark.parametrize("replaced", [{}, LLAMA], ids=["gpt2", "llama"])
def test_a_model_of_transformers_trains_as_in_one_piece(replaced: dict[str, str], tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    for before, after in replaced.items():
        assert before in text
        text = text.replace(before, after)
    file = tmp_path / "model.py"
    file.write_text(text)
    model = {"name": "module", "path": str(file), "optimizer": "adamw", "learning_rate": 0.001}
    scripts = generate(lower(one_f_one_b(v_shape(4), 4)), {}, model, tmp_path / "job")
    found = launched(scripts[0].parent, num_devices=4, iterations=2, launcher="in_process")
    assert found.comparison is not None
    assert found.comparison.bitwise_equal
    assert found.comparison.max_gradient_error == 0


def test_the_docs_show_the_example() -> None:
    page = (ROOT / "docs/concepts/own_model.md").read_text()
    assert EXAMPLE.read_text() in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
