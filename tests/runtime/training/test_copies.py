"""Sums over copies begin while blocks still run, and in one order for all members."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from placements import Block, Kind, Placement
from placements.shapes import x_shape
from runtime.models import Blocks, Model, ModelOptions
from runtime.training.copies import CopySums
from runtime.transport.copies import MemoryCopies
from runtime.transport.in_memory import MemoryTransport, Network

OPTIONS = ModelOptions("synthetic", hidden_size=4, sequence_length=3, micro_batch_size=2, dtype="float32")


def two_stages() -> Placement:
    """Return two stages on the same two devices, which share the samples."""
    forward = [Block(name, Kind.F, (0, 1), 1, data_parallel=2) for name in ("F0", "F1")]
    backward = [Block(name, Kind.B, (0, 1), 1, data_parallel=2) for name in ("B1", "B0")]
    line = [*forward, *backward]
    after = [(), ("F0",), ("F1",), ("B1",)]
    return Placement(
        "two_stages",
        2,
        tuple(
            Block(block.name, block.kind, block.devices, 1, after=before, data_parallel=2)
            for block, before in zip(line, after, strict=True)
        ),
    )


def test_a_sum_begins_when_its_blocks_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    right = MemoryCopies.begin_gather

    def told(self: MemoryCopies, tensor: Tensor) -> Callable[[], list[Tensor]]:
        if self.index == 0:
            events.append("sum")
        return right(self, tensor)

    monkeypatch.setattr(MemoryCopies, "begin_gather", told)
    placement, network = two_stages(), Network(2)

    def train(device: int) -> None:
        transport = MemoryTransport.of(network, placement, (), device)
        model = Model(OPTIONS, placement, transport.shards, groups=transport.groups)
        blocks = Blocks(placement, model, 2)
        sums = CopySums(model, transport.connect_copies(model.teams_of_replicas()), exact=True)
        blocks.store.on_complete = sums.complete
        blocks.begin(0)
        made: dict[tuple[str, int], Tensor] = {}
        order = [(name, n) for n in range(2) for name in ("F0", "F1")]
        order += [(name, n) for name in ("B1", "B0") for n in range(2)]
        for name, n in order:
            arrived = [made[producer, n] for producer in blocks.inputs[name]]
            for tensor in blocks.run(name, n, arrived).values():
                made[name, n] = tensor
            if device == 0:
                events.append(name)
        sums.finish()

    network.run([partial(train, device) for device in range(2)])
    assert events[4:] == ["B1", "sum", "B1", "B0", "sum", "B0"], "the last backward of a block, then its sum"


@pytest.mark.parametrize("exact", [True, False])
def test_members_that_complete_in_other_orders_begin_in_one(exact: bool) -> None:
    """F0 and G0 share a parameter's copies with G1 and F1 on the other device, and each order is possible."""
    placement, network = x_shape(2), Network(2)
    options = ModelOptions(
        "gpt", hidden_size=4, sequence_length=3, micro_batch_size=1, num_layers=2, dtype="float32"
    )
    blocks_of = [[block.name for block in placement.on(device) if block.kind is Kind.F] for device in (0, 1)]

    def summed(device: int) -> list[Tensor]:
        transport = MemoryTransport.of(network, placement, (), device)
        model = Model(options, placement, transport.shards)
        sums = CopySums(model, transport.connect_copies(model.teams_of_replicas()), exact=exact)
        for weight in model.parameters.values():
            weight.grad = torch.full_like(weight, float(device + 1))
        order = blocks_of[device] if device == 0 else blocks_of[device][::-1]
        for block in order:
            sums.complete(block)
        sums.finish()
        return [weight.grad for weight in model.parameters.values() if weight.grad is not None]

    for gradients in network.run([partial(summed, device) for device in (0, 1)]):
        assert gradients and all(torch.equal(value, torch.full_like(value, 3.0)) for value in gradients)
