"""Compiled blocks: the same model within a tolerance, each compiled once, refused where it cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_runs import SMALL_GPT, SYNTHETIC, launched

from placements import Placement
from placements.shapes import loop_shape, m_shape, v_shape, wave_shape, x_shape
from runtime.codegen.codegen import generate
from runtime.models import ModelError, ModelOptions, body_of
from runtime.program.lower import lower, recomputed
from schedsearch.baselines import gpipe

pytestmark = pytest.mark.skipif(
    "LINES_RUN" in os.environ,
    reason="code with marks on its lines cannot be compiled; .ci/run runs these without",
)

FILE = """
import torch
from torch import nn
from torch.nn.functional import mse_loss as loss

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)
        self.register_buffer("scale", torch.full((4,), 1.5))

    def forward(self, value):
        return self.drop(torch.tanh(self.linear(value))) * self.scale

def build(block):
    return Net()

def data(iteration, micro_batch):
    generator = torch.Generator().manual_seed(100 * iteration + micro_batch)
    return tuple(torch.rand(3, 4, generator=generator) for _ in range(2))
"""


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def num_compiled() -> int:
    """Return how many graphs were compiled."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@pytest.mark.parametrize(("backend", "name"), [("aot_eager", "gpt"), ("eager", "module")])
def test_a_compiled_run_is_near_the_unpipelined_model(backend: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(FILE, encoding="utf-8")
    models = {
        "gpt": SMALL_GPT,
        "module": {"name": "module", "path": str(path)},
    }
    placement = x_shape(2) if name == "module" else v_shape(2)
    losses = []
    for compile in (None, backend):
        folder = tmp_path / str(compile)
        programs = recomputed(lower(gpipe(placement, 3)), "all" if name == "gpt" else [])
        generate(programs, {}, models[name] | {"compile": compile}, folder)
        found = launched(folder, placement.num_devices, 2, launcher="in_process")
        assert found.comparison is not None
        assert found.comparison.is_equal, found.comparison
        assert found.comparison.tolerance == (1e-12 if compile is None else 2.0**-26)
        losses.append([loss for row in found.losses for loss in row])
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert num_compiled() >= sum(block.name[0] == "F" for block in placement.blocks)
    assert not torch._dynamo.utils.counters["graph_break"]


def test_each_of_many_blocks_is_compiled_once(tmp_path: Path) -> None:
    """Torch would give up on one piece of code after eight blocks."""
    placement = loop_shape(1, num_chunks=12)
    generate(lower(gpipe(placement, 2)), {}, SYNTHETIC | {"compile": "eager"}, tmp_path)
    found = launched(tmp_path, 1, 2, launcher="in_process")
    assert found.comparison is not None
    assert found.comparison.is_equal
    assert num_compiled() == 12


REFUSED = {
    "split": (wave_shape(2, split_backward=True), "makes one backward of a block, but .* weight gradients"),
    "team": (m_shape(2), r"cannot compile the sums over the devices of \w+ \(0, 1\)"),
}


@pytest.mark.parametrize("placement, text", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_compiled_is_refused(placement: Placement, text: str) -> None:
    with pytest.raises(ModelError, match=f"model.compile: eager {text}"):
        body_of(ModelOptions.from_dict(SYNTHETIC | {"compile": "eager"}), placement)
