"""The recipes of docs/extending.md for a block kind and a transport name every place: followed here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from small_runs import SYNTHETIC, compared, comparison_of, trained
from torch import Tensor

from placements import Kind, Placement
from placements.shapes import SHAPES, v_shape
from runtime.models import ModelOptions
from runtime.models.architectures import ARCHITECTURES, Architecture, fits
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.layers import Embedding, Output, ShardedLayer
from runtime.models.core.parameters import parameter
from runtime.options.run import BACKENDS, NETWORKS
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.tensor_flow import computes_loss, forward_inputs
from runtime.transport.in_memory import NETWORK_OF, Network
from runtime.transport.shards import copy_to_shards, sum_over_shards
from schedsearch.baselines import gpipe


class Gated(ShardedLayer):
    """A block kind: the input plus a gated linear unit, cut by columns and rows."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        super().__init__()
        hidden = options.hidden_size
        self.gate = parameter(f"{name}.gate.weight", (hidden, 2 * hidden), split=1)
        self.up = parameter(f"{name}.up.weight", (hidden, 2 * hidden), split=1)
        self.down = parameter(f"{name}.down.weight", (2 * hidden, hidden), split=0)

    def forward(self, hidden: Tensor) -> Tensor:
        copied = copy_to_shards(hidden, self.shards)
        part = (torch.sigmoid(copied @ self.gate) * (copied @ self.up)) @ self.down
        return hidden + sum_over_shards(part, self.shards)


def gated_blocks(placement: Placement, options: ModelOptions) -> Mapping[str, LayeredBlock]:
    made = {block.name: LayeredBlock(options) for block in placement.blocks if block.kind is Kind.F}
    for name, block in made.items():
        if not forward_inputs(placement, name):
            block.start = Embedding("embedding.tokens", "embedding.positions", options)
        block.layers.append(Gated(f"{name}.gated", options))
        if computes_loss(placement, name):
            block.output = Output("output", "output.tokens", options)
    return made


@pytest.mark.parametrize("shape", ["v_shape", "m_shape"])
def test_a_block_kind_is_a_layer_and_an_entry_among_the_architectures(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ARCHITECTURES, "gated", Architecture(gated_blocks, lambda placement: None))
    placement = SHAPES[shape](num_devices=2)
    assert fits(placement, "gated")
    comparison = compared(check(lower(gpipe(placement, 3))), SYNTHETIC | {"name": "gated"})
    assert comparison.bitwise_equal
    assert comparison.max_gradient_error < 1e-12


class Counting(Network):
    """A transport: that in memory, which counts the bytes of messages."""

    sent_bytes = 0

    def send(self, tensor: Tensor, channel: tuple[int, int]) -> Any:
        Counting.sent_bytes += tensor.numel() * tensor.element_size()
        return super().send(tensor, channel)


def test_a_transport_is_a_network_and_its_name_among_the_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORK_OF, "counting", Counting)
    monkeypatch.setitem(BACKENDS, "in_process", (*NETWORKS, "counting"))
    result = trained(check(lower(gpipe(v_shape(2), 3))), SYNTHETIC, iterations=1, backend="counting")
    assert result.backend == "counting"
    assert comparison_of(result).bitwise_equal
    assert Counting.sent_bytes == 2 * 3 * 4 * 4 * 8, "an activation and a gradient, of 3 micro-batches"


def test_every_backend_in_one_process_has_its_network() -> None:
    assert tuple(NETWORK_OF) == BACKENDS["in_process"]
