"""Loops of one's own whose micro-batches differ, or take copies of a stage in turn, train as in one piece."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from joined import JoinedError, join
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import runtime
from placements import Placement
from placements.copies.replicas import replicated
from placements.shapes import k_shape, v_shape
from runtime.codegen.codegen import generate
from runtime.models import cut
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, pipedream

pytestmark = pytest.mark.usefixtures("compiler")

Pair = tuple[Any, Tensor]

LENGTHS = [[4, 6, 9], [5, 5, 5], [3, 8, 1]]
"""Tokens of the micro-batches of three steps."""


class Mixed(nn.Module):
    """Mixes the positions of each sample, and adds one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, value: Tensor) -> Tensor:
        made = self.linear(value)
        return torch.cat([torch.softmax(made @ made.mT, -1) @ value, made.mean(1, keepdim=True)], 1)


class Scored(nn.Module):
    """Scores all positions but the three that were added."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, value: Tensor) -> Tensor:
        scored: Tensor = self.linear(value[:, :-3])
        return scored


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(Mixed(), Mixed(), Mixed(), Scored()).double()


def batches() -> list[list[Pair]]:
    """Return the micro-batches of each step."""
    generator = torch.Generator().manual_seed(1)
    return [
        [
            (
                torch.randn(2, length, 6, dtype=torch.float64, generator=generator),
                torch.randint(5, (2, length), generator=generator),
            )
            for length in lengths
        ]
        for lengths in LENGTHS
    ]


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    return cross_entropy(output.flatten(0, 1), target.flatten())


def job(placement: Placement, folder: Path, **model: object) -> Path:
    generate(check(lower(gpipe(placement, 3))), {}, {"name": "given"} | model, folder)
    return folder


def train_whole(model: nn.Module) -> list[float]:
    """Train the model in one piece; each token of a batch counts the same."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for pairs in batches():
        total = sum(target.numel() for _, target in pairs)
        part_losses = []
        for inputs, target in pairs:
            loss = loss_of(model(inputs), target) * (target.numel() / total)
            loss.backward()
            part_losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(part_losses))
    return losses


def test_steps_of_any_lengths_train_to_the_bits_of_the_unpipelined_model(tmp_path: Path) -> None:
    """Also where a process in the middle reads nothing; each length is run once to find its shapes."""
    folder = job(v_shape(3), tmp_path / "job")

    def train(rank: int) -> tuple[list[float], list[float], int, dict[str, Tensor]]:
        with runtime.Pipeline(
            cut(network(), ["1", "3"]), folder, loss=loss_of, loss_weight=Tensor.numel, unequal=True
        ) as pipeline:
            optimizer, losses, evaluated = torch.optim.SGD(pipeline.parameters(), lr=0.1), [], []
            for batch in batches():
                given = batch if pipeline.is_first or pipeline.is_last else None
                evaluated.append(pipeline.eval_step(given))
                losses.append(pipeline.step(given))
                optimizer.step()
                optimizer.zero_grad()
            return losses, evaluated, len(pipeline._intake._known), pipeline.state_dict()

    results = join(3, train, tmp_path)
    model = network()
    (pairs, *_), state = batches(), {}
    with torch.no_grad():
        losses = [loss_of(model(inputs), target) * target.numel() for inputs, target in pairs]
    whole = train_whole(model)
    for losses_here, evaluated, num_known, part in results:
        assert losses_here == pytest.approx(whole, rel=1e-14)
        assert evaluated[0] == pytest.approx(float(sum(losses)) / 38, rel=1e-14)
        assert num_known == 7
        state |= part
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


class Joining(nn.Module):
    """Joins two sequences, each of its own length, and returns a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, first: Tensor, second: Tensor, target: Tensor) -> Tensor:
        return loss_of(self.linear(torch.cat([first, second], 1)), target)


def test_two_lengths_of_two_branches_and_samples_in_shares(tmp_path: Path) -> None:
    """Gradients of two steps add up, also of the join's copies, each of half of the samples."""
    placement = k_shape(2)
    shared = [
        replace(block, data_parallel=2) if len(block.devices) > 1 else block for block in placement.blocks
    ]
    folder = job(replace(placement, blocks=tuple(shared)), tmp_path / "job")
    sizes = [[(2, 3, 4), (4, 5, 1), (2, 6, 6)], [(2, 1, 9), (6, 2, 2), (4, 4, 4)]]
    torch.manual_seed(5)
    pairs = [
        [
            (
                {"F0": torch.randn(rows, a, 6).double(), "F1": torch.randn(rows, b, 6).double()},
                torch.randint(5, (rows, a + b)),
            )
            for rows, a, b in step
        ]
        for step in sizes
    ]

    def modules() -> dict[str, nn.Module]:
        torch.manual_seed(4)
        return {"F0": nn.Linear(6, 6).double(), "F1": nn.Linear(6, 6).double(), "J": Joining().double()}

    def train(rank: int) -> dict[str, Tensor]:
        with runtime.Pipeline(modules(), folder, unequal=True, exact=True) as pipeline:
            for batch in pairs:
                pipeline.step(batch)
            return {name: value.grad for name, value in pipeline.named_parameters() if value.grad is not None}

    whole = modules()
    for batch in pairs:
        for inputs, target in batch:
            loss = whole["J"](whole["F0"](inputs["F0"]), whole["F1"](inputs["F1"]), target)
            (loss / 3).backward()
    gradients = {f"{block}.{name}": p.grad for block in whole for name, p in whole[block].named_parameters()}
    for part in join(2, train, tmp_path):
        for name, value in part.items():
            wanted = gradients[name]
            assert wanted is not None
            assert torch.allclose(value, wanted, rtol=0, atol=1e-15)


def test_what_does_not_fit_ends_all_with_one_line(tmp_path: Path) -> None:
    folder = job(v_shape(2), tmp_path / "job")

    def train(rank: int) -> None:
        model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 5)).double()
        with runtime.Pipeline(cut(model, ["1"]), folder, loss=loss_of, unequal=True) as pipeline:
            for step in ((2, 4, 6), (2, 4)):
                pipeline.step([(torch.zeros(2, n, 6).double(), torch.zeros(2, n).long()) for n in step])

    with pytest.raises(
        JoinedError, match="device 0: batch: is a list of 2 micro-batches instead of 3; give 3"
    ):
        join(2, train, tmp_path)


def test_copies_that_take_turns_train_but_evaluate_nothing(tmp_path: Path) -> None:
    """Two stages, two copies of the first, four micro-batches."""
    schedule = pipedream(replicated(v_shape(2), [2, 1]), 4)
    generate(check(lower(schedule)), {}, {"name": "given"}, tmp_path / "job")
    batch = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(0)).unbind()

    def layers() -> nn.Sequential:
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))

    def train(rank: int) -> list[Tensor | None]:
        with runtime.Pipeline(cut(layers(), ["1"]), tmp_path / "job", loss=mse_loss) as pipeline:
            pipeline.step(batch)
            gradients = [weight.grad for weight in pipeline.parameters()]
            with pytest.raises(ValueError, match="eval_step: knows no copies of stages"):
                pipeline.eval_step(batch)
            return gradients

    model = layers()
    mse_loss(model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
    wanted = [weight.grad for weight in model.parameters()]
    first, copy, last = join(3, train, tmp_path)
    torch.testing.assert_close(first + last, wanted)
    torch.testing.assert_close(copy + last, wanted)
