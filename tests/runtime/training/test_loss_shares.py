"""Micro-batches of unequal numbers of tokens: an update uses the mean over all tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import compared, on_gpus

from placements.shapes import v_shape
from runtime.models import ModelError, ModelOptions, body_of
from runtime.program.lower import lower
from runtime.verify.reference import ReferenceCase, plain
from schedsearch.baselines import gpipe, one_f_one_b

PADDED = """
import torch
from torch import nn
from torch.nn import functional

PADDING = -1

def blocks():
    return {"F0": nn.Embedding(5, 4), "F1": nn.Linear(4, 5)}

def data(iteration, micro_batch):
    tokens = torch.randint(5, (4, 6))
    lengths = 1 + (torch.arange(4) + micro_batch) % 5
    targets = torch.where(torch.arange(6) < lengths[:, None], tokens.roll(1, 1), PADDING)
    return tokens, targets

def loss(scores, targets):
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=PADDING)

def loss_weight(targets):
    return int((targets != PADDING).sum())
"""


@pytest.fixture
def padded(tmp_path: Path) -> ModelOptions:
    path = tmp_path / "padded.py"
    path.write_text(PADDED)
    return ModelOptions("module", path=str(path), seed=1, learning_rate=0.5)


def mean_over_tokens(options: ModelOptions, num_micro_batches: int) -> tuple[float, torch.Tensor]:
    """Return loss and embedding's gradient of all tokens of the first iteration at once."""
    case = ReferenceCase(replace(options, learning_rate=0.0), v_shape(2), num_micro_batches, 1)
    weights = {shard.name: value for shard, value in next(plain(case)).parameters.items()}
    body = body_of(options, v_shape(2))
    data = body.data(num_micro_batches, "cpu")
    tokens = torch.cat([data.read("F0", 0, n).inputs[0] for n in range(num_micro_batches)])
    targets = torch.cat([data.read("F1", 0, n).targets[0] for n in range(num_micro_batches)])
    table = weights["F0.weight"].detach().clone().requires_grad_()
    scores = torch.nn.functional.linear(table[tokens], weights["F1.weight"], weights["F1.bias"])
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-1)
    loss.backward()  # type: ignore[no-untyped-call]
    assert table.grad is not None
    return loss.item(), table.grad


def test_the_model_in_one_piece_has_the_mean_over_all_tokens(padded: ModelOptions) -> None:
    step = next(plain(ReferenceCase(padded, v_shape(2), 3, 1)))
    loss, gradient = mean_over_tokens(padded, 3)
    assert sum(step.losses) / 3 == pytest.approx(loss, rel=1e-13)
    pipelined = next(value for shard, value in step.gradients.items() if shard.name == "F0.weight")
    torch.testing.assert_close(pipelined, gradient, rtol=1e-12, atol=1e-15)


def test_a_run_is_that_of_the_model_in_one_piece(padded: ModelOptions) -> None:
    result = compared(lower(one_f_one_b(v_shape(2), 3)), padded)
    assert (result.max_gradient_error, result.max_loss_error) == (0, 0) and result.bitwise_equal


def test_data_parallel_groups_with_unequal_tokens(padded: ModelOptions) -> None:
    result = compared(lower(gpipe(on_gpus(v_shape(2), 2, 2), 3)), padded)
    assert max(result.max_gradient_error, result.max_loss_error) <= 1e-12 and result.bitwise_equal


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("-1", r"loss_weight of .* returned -1\.0; return a number of at least 0"),
        ("0", "loss_weight is 0 for all targets of iteration 0, so no loss counts; let one in each update"),
        ("'a'", "fails with ValueError"),
    ],
)
def test_weights_that_cannot_be_are_refused(padded: ModelOptions, returned: str, message: str) -> None:
    assert padded.path is not None
    path = Path(padded.path)
    path.write_text(PADDED + f"\ndef loss_weight(targets):\n    return {returned}\n")
    with pytest.raises(ModelError, match=message):
        next(plain(ReferenceCase(padded, v_shape(2), 2, 1)))
