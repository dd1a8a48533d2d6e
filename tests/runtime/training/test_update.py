"""Runs that clip, compute in lower precision, or hold parts of the state equal the model in one piece."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from small_runs import compared, errors, on_gpus, require_exact

from placements import Placement
from placements.shapes import m_shape, v_shape, x_shape
from runtime.models import Blocks, Model, ModelOptions
from runtime.program.lower import lower, recomputed
from runtime.training.update import Update
from runtime.transport.in_memory import MemoryTransport, Network
from runtime.verify.reference import ReferenceCase, plain
from schedsearch.baselines import gpipe, one_f_one_b

OPTIONS = ModelOptions(
    "gpt",
    hidden_size=8,
    sequence_length=5,
    micro_batch_size=2,
    num_layers=2,
    num_heads=4,
    seed=3,
    learning_rate=0.01,
    dtype="float32",
)
ADAMW = {"optimizer": "adamw", "weight_decay": 0.1}


def options(**more: Any) -> ModelOptions:
    return replace(OPTIONS, **more)


WHOLE_BLOCKS = {
    "clipped": {"clip_grad_norm": 0.5, **ADAMW},
    "bf16": {"precision": "bf16", "clip_grad_norm": 0.5, **ADAMW},
    "fp16": {"precision": "fp16", "clip_grad_norm": 0.5},
    "momentum": {"momentum": 0.9, "weight_decay": 0.1},
}


@pytest.mark.parametrize("more", WHOLE_BLOCKS.values(), ids=WHOLE_BLOCKS)
def test_whole_blocks_have_the_bits_of_the_model_in_one_piece(more: dict[str, Any]) -> None:
    again = "all" if "precision" in more else []
    require_exact(compared(recomputed(lower(one_f_one_b(v_shape(2), 4)), again), options(**more)))


@pytest.mark.parametrize("more", [{}, {"zero": 1}], ids=str)
def test_copies_of_different_blocks_have_the_bits_of_the_model_in_one_piece(more: dict[str, Any]) -> None:
    require_exact(compared(lower(gpipe(x_shape(2), 2)), options(clip_grad_norm=0.5, **ADAMW, **more)))


CUT = {
    "tensor": (on_gpus(v_shape(2), 2), {"clip_grad_norm": 0.5}, "in_process"),
    "both": (on_gpus(v_shape(2), 4, 2), {"clip_grad_norm": 0.5, "zero": 1}, "in_process"),
    "m_data": (on_gpus(m_shape(2), 2, 2), {"clip_grad_norm": 0.5, "zero": 1}, "fork"),
}


@pytest.mark.parametrize(("placement", "more", "launcher"), CUT.values(), ids=CUT)
def test_cut_blocks_clip_as_the_model_in_one_piece(
    placement: Placement, more: dict[str, Any], launcher: str
) -> None:
    """Up to the order of sums; bit for bit as the replay, in processes too."""
    comparison = compared(lower(gpipe(placement, 2)), options(dtype="float64", **more), launcher)
    assert max(errors(comparison)) <= 1e-12 and comparison.bitwise_equal


def test_the_norm_is_that_of_torch() -> None:
    case = ReferenceCase(options(dtype="float64"), v_shape(2), 2, 1)
    whole = next(plain(case)).gradients.values()
    clipped = next(plain(replace(case, options=options(dtype="float64", clip_grad_norm=0.5)))).gradients
    norm = float(torch.nn.utils.get_total_norm(list(whole)))
    assert norm > 0.5
    assert float(torch.nn.utils.get_total_norm(list(clipped.values()))) == pytest.approx(0.5, rel=1e-5)
    for ours, theirs in zip(clipped.values(), whole, strict=True):
        torch.testing.assert_close(ours, theirs * 0.5 / (norm + 1e-6), rtol=1e-12, atol=0)


class Team:
    """The devices of a placement in this process, each with its update."""

    def __init__(self, placement: Placement, asked: ModelOptions, exact: bool = True) -> None:
        self.network = Network(placement.num_devices)
        self.order = gpipe(placement, 2)
        self.models: list[Model] = []
        self.blocks: list[Blocks] = []
        self.updates: list[Update] = []
        for device in range(placement.num_devices):
            transport = MemoryTransport.of(self.network, placement, (), device)
            model = Model(asked, placement, transport.shards, groups=transport.groups)
            blocks = Blocks(placement, model, 2)
            self.models.append(model)
            self.blocks.append(blocks)
            self.updates.append(Update(model, blocks, placement, transport, exact=exact))

    def train(self, iterations: int = 1) -> list[float]:
        """Run a placement of one block and its backward; return the norms of the last iteration."""
        devices = range(len(self.models))
        return self.network.run([partial(self._train, device, iterations) for device in devices])

    def _train(self, device: int, iterations: int) -> float:
        blocks, update = self.blocks[device], self.updates[device]
        for iteration in range(iterations):
            blocks.begin(iteration)
            for name, micro_batch in self.order.order(device):
                blocks.run(name, micro_batch, [])
            update.complete()
            norm = update.clip_grad_norm_(0.5)
            update.step()
        return norm


ONE_STAGE = on_gpus(v_shape(1), 4, 2)


def test_sums_that_are_not_exact_are_near() -> None:
    exact, quick = (Team(ONE_STAGE, options(), exact) for exact in (True, False))
    norms = exact.train(), quick.train()
    assert len(set(norms[0])) == 1 and len(set(norms[1])) == 1, "every device knows the same norm"
    assert norms[1][0] == pytest.approx(norms[0][0], rel=1e-5)
    for ours, theirs in zip(quick.models, exact.models, strict=True):
        for shard, weight in ours.parameters.items():
            torch.testing.assert_close(weight, theirs.parameters[shard], rtol=1e-5, atol=1e-7)


def num_state_elements(model: Model) -> int:
    states = [model.optimizer.state_of(weight) for weight in model.parameters.values()]
    return sum(value.numel() for state in states for value in state.values() if value.dim())  # type: ignore[union-attr]


def test_zero_halves_the_state_of_two_copies_and_changes_no_bit() -> None:
    without, halved = Team(ONE_STAGE, options(**ADAMW)), Team(ONE_STAGE, options(zero=1, **ADAMW))
    without.train(3)
    halved.train(3)
    for ours, theirs in zip(halved.models, without.models, strict=True):
        assert all(torch.equal(weight, theirs.parameters[shard]) for shard, weight in ours.parameters.items())
    whole = [num_state_elements(model) for model in without.models]
    parts = [num_state_elements(model) for model in halved.models]
    assert parts[0] + parts[2] == whole[0] and parts[1] + parts[3] == whole[1]
    largest = max(weight.numel() for weight in halved.models[0].parameters.values())
    assert abs(parts[0] - parts[2]) <= 2 * largest
