"""``schedsearch profile_rates``: the file that it writes, on a CPU and of a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from placements.forms.texts import write_json
from placements.gpus import GPUS
from placements.models.machine.machine_file import read_machine

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
}


@pytest.mark.always
def test_a_file_of_rates_is_written_and_read(ran: Any, tmp_path: Path) -> None:
    """Five products of a layer and the output layer's with one GPU, and as many others with two."""
    write_json(tmp_path / "config.json", TINY)
    line = [
        f"model={tmp_path / 'config.json'}",
        "gpu=a100",
        "device=cpu",
        "tensor_parallel=[1,2]",
        "repeats=1",
    ]
    done = ran("profile_rates", *line)
    path = tmp_path / "out/a100_rates.csv"
    assert done.stdout.startswith("26 operators of ")
    assert done.stdout.endswith(f" on a100\na100_rates.csv in {path.parent}\n")
    machine = read_machine(path, GPUS["a100"])
    products, gradients = (
        machine.shares["product", kind].by_shape for kind in ("forward", "weight_gradient")
    )
    assert set(products) == {
        *((32, 64, 128), (32, 64, 64), (32, 64, 192), (32, 96, 64)),
        *((32, 32, 64), (32, 48, 64), (32, 64, 96)),
    }
    assert gradients.keys() == products.keys()
    assert set(machine.shares["core", "forward"].by_shape) == {(32, 4, 16), (32, 2, 16)}
    assert machine.kernels["stream"].share > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        pytest.param(
            *(["device=cuda"], "device: cuda is not there; use cpu, or a machine with a GPU"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU"),
        ),
        (["gpu=mine"], "gpu: 'mine' is not known; "),
        (["device=tpu"], "device: 'tpu' is not known; "),
        (["model=gtp3_13b"], "model: 'gtp3_13b' is not known; did you mean gpt3_13b?"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(refused: Any, overrides: list[str], message: str) -> None:
    assert message in refused("profile_rates", "model=gpt3_125m", "gpu=a100", "device=cpu", *overrides)
