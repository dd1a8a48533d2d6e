"""A loop of one's own, with copies of a stage in turn, trains like the model in one piece."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from joined import JoinedError, join
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import runtime
from placements.copies.replicas import replicated
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.models import cut
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import pipedream

GENERATOR = torch.Generator().manual_seed(0)
BATCHES = [torch.randn(2, 8, 6, dtype=torch.float64, generator=GENERATOR).unbind() for _ in range(3)]


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)).double()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The job of two stages, two copies of the first, with four micro-batches."""
    schedule = pipedream(replicated(v_shape(2), [2, 1]), 4)
    generate(check(lower(schedule)), {}, {"name": "given"}, tmp_path / "job")
    return tmp_path / "job"


def test_a_loop_trains_to_the_bits_of_the_unpipelined_model(job: Path, tmp_path: Path) -> None:
    def train(rank: int) -> tuple[list[float], dict[str, Tensor]]:
        with runtime.Pipeline(cut(network(), ["1"]), job, loss=mse_loss, exact=True) as pipeline:
            optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1)
            losses = []
            for batch in BATCHES:
                losses.append(pipeline.step(batch))
                optimizer.step()
                optimizer.zero_grad()
            return losses, pipeline.state_dict()

    found = join(3, train, tmp_path)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index, (inputs, targets) in enumerate(BATCHES):
        total = 0.0
        for part, target in zip(inputs.chunk(4), targets.chunk(4), strict=True):
            loss = mse_loss(model(part), target)
            (loss / 4).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        assert [losses[index] for losses, _ in found] == pytest.approx([total / 4] * 3, rel=1e-12)
    for rank, (_, state) in enumerate(found):
        assert len(state) == 2
        for name, value in state.items():
            torch.testing.assert_close(value, model.state_dict()[name], rtol=1e-12, atol=1e-14, msg=str(rank))


def test_an_evaluation_on_copies_is_refused(job: Path, tmp_path: Path) -> None:
    def evaluate(rank: int) -> None:
        with runtime.Pipeline(cut(network(), ["1"]), job, loss=mse_loss) as pipeline:
            pipeline.eval_step(BATCHES[0])

    with pytest.raises(JoinedError, match="eval_step: knows no copies of stages"):
        join(3, evaluate, tmp_path)
