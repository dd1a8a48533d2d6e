"""Optimizers: their states moved over, beside PyTorch's classes, ZeRO-1 in a loop of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from one_line_errors import raises_line
from torch import Tensor

from placements import Block, Kind, Placement
from runtime.models import ModelError, ModelOptions
from runtime.models.core.precision import LossScale
from runtime.models.model import Model
from runtime.models.optimizer import Optimizer
from runtime.training.zero import Owners, zero1
from runtime.transport.in_memory import MemoryTransport, Network

PLAIN = ModelOptions("synthetic", hidden_size=4, sequence_length=4, micro_batch_size=2, learning_rate=0.01)

KINDS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9, "weight_decay": 0.1},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1},
}


def weights_of(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in ((3, 2), (3,), (2,))]


def gradients_of(weights: Sequence[Tensor], number: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + number)
    return [torch.randn(weight.shape, generator=generator) for weight in weights]


def step(optimizer: Optimizer, weights: Sequence[Tensor], number: int) -> None:
    for weight, gradient in zip(weights, gradients_of(weights, number), strict=True):
        weight.grad = gradient
    optimizer.step()
    assert all(weight.grad is None for weight in weights)


@pytest.mark.parametrize("more", KINDS.values(), ids=KINDS)
def test_a_state_taken_over_goes_on_to_the_same_bits(more: dict[str, Any]) -> None:
    options = replace(PLAIN, **more)
    ours, taken = weights_of(), weights_of()
    first = Optimizer(options, ours)
    for number in range(3):
        step(first, ours, number)
    other = Optimizer(options, taken)
    with torch.no_grad():
        for mine, theirs in zip(taken, ours, strict=True):
            mine.copy_(theirs)
    for mine, theirs in zip(taken, ours, strict=True):
        other.load_state_of(mine, first.state_of(theirs))
    other.load_shared_state(first.shared_state())
    for number in range(3, 6):
        for optimizer, values in ((first, ours), (other, taken)):
            step(optimizer, values, number)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(taken, ours, strict=True))


CLASSES = {
    "momentum": partial(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=0.1, foreach=False),
    "adamw": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1, foreach=False),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_classes_of_torch_move_to_the_same_bits(kind: str) -> None:
    ours, theirs = weights_of(), weights_of()
    plain, torchs = Optimizer(replace(PLAIN, **KINDS[kind]), ours), CLASSES[kind](theirs)
    for number in range(3):
        step(plain, ours, number)
        for weight, gradient in zip(theirs, gradients_of(theirs, number), strict=True):
            weight.grad = gradient
        torchs.step()
    assert set(plain.state_of(ours[0])) == set(torchs.state[theirs[0]])
    assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs, strict=True))


WRONG = {
    "class": ({"optimizer": "Adam"}, "model.optimizer: 'Adam' is not known; use one of adamw, sgd"),
    "momentum": ({"optimizer": "adamw", "momentum": 0.9}, "momentum: 0.9 is of sgd, not of adamw; use"),
    "norm": ({"clip_grad_norm": 0}, "clip_grad_norm: 0 is not a number above 0"),
    "zero": ({"zero": 2}, "zero: 2 is not known; use 0 or 1"),
    "versions": (
        {"zero": 1, "weight_versions": "weight_stashing"},
        "zero: 1 needs all gradients of an update at once, and weight_stashing updates every block by itself",
    ),
}


@pytest.mark.parametrize(("more", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_in_one_line(more: dict[str, Any], message: str) -> None:
    with raises_line(ModelError, match=message):
        replace(PLAIN, **more)


def test_the_loss_scale_halves_doubles_and_skips() -> None:
    scale, weight = LossScale(4.0, growth_interval=2), torch.zeros(2, requires_grad=True)
    for gradient, is_good, after in ((8.0, True, 4.0), (torch.inf, False, 2.0), (1.0, True, 2.0)):
        weight.grad = torch.tensor([gradient, 0.0])
        assert scale.unscale([weight], lambda here: here) is is_good and scale.value == after
        assert (weight.grad is not None) is is_good
    weight.grad = torch.tensor([6.0, torch.nan])
    assert not scale.unscale([weight], lambda here: here)
    weight.grad = torch.tensor([6.0, 2.0])
    assert scale.unscale([weight], lambda here: here) and weight.grad.tolist() == [6.0, 2.0]


TWO_COPIES = Placement(
    "copies",
    2,
    (
        Block("F0", Kind.F, (0, 1), 1, data_parallel=2),
        Block("B0", Kind.B, (0, 1), 1, after=("F0",), data_parallel=2),
    ),
)


def test_an_own_loop_has_zero_with_any_class_and_schedule() -> None:
    """Each copy holds a part of the state, and all move as one optimizer would."""
    network = Network(2)

    def train(device: int, wraps: bool) -> tuple[list[Tensor], int]:
        transport = MemoryTransport.of(network, TWO_COPIES, (), device)
        model = Model(PLAIN, TWO_COPIES, transport.shards, groups=transport.groups)
        weights = list(model.parameters.values())
        owners = Owners(model, transport.connect_copies(model.teams_of_replicas()))
        optimizer: torch.optim.Optimizer = (
            zero1(torch.optim.RAdam, weights, owners, lr=0.1) if wraps else torch.optim.RAdam(weights, lr=0.1)
        )
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for number in range(3):
            generator = torch.Generator().manual_seed(number)
            for weight in weights:
                weight.grad = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return weights, sum(state["exp_avg"].numel() for state in optimizer.state.values())

    (ours, mine), (theirs, others) = network.run([partial(train, device, True) for device in range(2)])
    expected, whole = network.run([partial(train, device, False) for device in range(2)])[0]
    assert mine + others == whole and min(mine, others) > 0
    for one, other, right in zip(ours, theirs, expected, strict=True):
        assert torch.equal(one, right) and torch.equal(other, right) and one.grad is None
