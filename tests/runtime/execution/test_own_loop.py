"""A loop of one's own goes on from its checkpoints to the bits that it would have come to without a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from joined import join
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import runtime
from placements import Placement
from placements.shapes import v_shape, wave_shape
from runtime.codegen.codegen import generate
from runtime.models import cut
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b

NUM_STEPS = 8
SAMPLES = TensorDataset(
    torch.randn(24, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    torch.randint(3, (24,), generator=torch.Generator().manual_seed(1)),
)
AT = {2: ["6"], 4: ["3", "6", "9"]}
"""Where the model is cut, for so many blocks."""

State = dict[str, Tensor]


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    """Let torch import here, once, what it imports for the first optimizer and for checkpoints."""
    import runtime.checkpoints.saving  # noqa: F401

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).step()


class Shifted(nn.Module):
    """Adds a buffer, which belongs to the state though no training changes it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.linspace(0, 1, 6))

    def forward(self, value: Tensor) -> Tensor:
        return value + self.shift  # type: ignore[operator]


def network(drops: float = 0.0) -> nn.Sequential:
    """Return a model of four stages."""
    torch.manual_seed(3)
    stages = [layer for _ in range(3) for layer in (nn.Linear(6, 6), Shifted(), nn.Dropout(drops))]
    return nn.Sequential(*stages, nn.Linear(6, 3)).double()


def job(placement: Placement, folder: Path) -> Path:
    """Write the job of a placement whose modules are given."""
    make = one_f_one_b if placement.name == "v_shape" else gpipe
    generate(check(lower(make(placement, 4))), {}, {"name": "given"}, folder)
    return folder


class Loop:
    """AdamW with two groups, one cycle of learning rates and momenta, a shuffled DataLoader."""

    def __init__(self, pipeline: runtime.Pipeline, max_lr: float = 0.01) -> None:
        decays = [weight for weight in pipeline.parameters() if weight.dim() > 1]
        others = [weight for weight in pipeline.parameters() if weight.dim() <= 1]
        groups: list[dict[str, Any]] = [{"params": decays, "weight_decay": 0.1}, {"params": others}]
        self.pipeline, self.optimizer = pipeline, torch.optim.AdamW(groups)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=[max_lr, 0.003], total_steps=NUM_STEPS + 1
        )
        reads = pipeline.is_first or pipeline.is_last
        self.batches = pipeline.loader(DataLoader(SAMPLES, batch_size=8, shuffle=True) if reads else None)

    def run(self, num_steps: int) -> list[float]:
        """Train until so many steps are done in all; return the losses of those that were done here."""
        losses: list[float] = []
        while self.pipeline.num_steps < num_steps:
            for batch in self.batches:
                losses.append(self.pipeline.step(batch))
                self.pipeline.clip_grad_norm_(1.0)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
                if self.pipeline.num_steps == num_steps:
                    break
        return losses

    def save(self, folder: Path) -> None:
        extra = {"schedule": self.schedule.state_dict(), "loader": self.batches.state_dict()}
        self.pipeline.save(folder, self.optimizer, extra)

    def load(self, folder: Path) -> None:
        found = self.pipeline.load(folder, self.optimizer)
        assert found is not None
        self.schedule.load_state_dict(found.extra["schedule"])
        self.batches.load_state_dict(found.extra["loader"])


def opened(placement: Placement, folder: Path, drops: float) -> runtime.Pipeline:
    at = AT[sum(block.kind == "F" for block in placement.blocks)]
    return runtime.Pipeline(cut(network(drops), at), folder, loss=cross_entropy, exact=True)


def whole(parts: list[tuple[list[float], State]]) -> tuple[list[float], State]:
    """Return the losses, which all processes know, and the state of the whole model."""
    assert all(losses == parts[0][0] for losses, _ in parts)
    return parts[0][0], {name: value for _, part in parts for name, value in part.items()}


def assert_same(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


@pytest.mark.parametrize(
    ("before", "after", "drops", "done"),
    [
        (v_shape(2), v_shape(2), 0.3, 4),
        (v_shape(2), v_shape(2), 0.3, 3),
        (wave_shape(2, split_backward=True), v_shape(4), 0.0, 5),
    ],
    ids=["in an epoch", "after an epoch", "on other processes"],
)
def test_a_loop_goes_on_bit_for_bit(
    before: Placement, after: Placement, drops: float, done: int, tmp_path: Path
) -> None:
    """Eight steps, or some, a checkpoint, and the rest by new processes."""
    jobs = [job(placement, tmp_path / f"job_{n}") for n, placement in enumerate((before, after))]
    folder = tmp_path / "checkpoints"

    def straight(rank: int) -> tuple[list[float], State]:
        with opened(before, jobs[0], drops) as pipeline:
            return Loop(pipeline).run(NUM_STEPS), pipeline.state_dict()

    def begin(rank: int) -> list[float]:
        with opened(before, jobs[0], drops) as pipeline:
            assert pipeline.load(folder) is None, "there is no checkpoint yet"
            loop = Loop(pipeline)
            losses = loop.run(done)
            loop.save(folder)
            loop.run(done + 2)  # beside the writing, and lost
            return losses

    def go_on(rank: int) -> tuple[list[float], State]:
        with opened(after, jobs[1], drops) as pipeline:
            for value in pipeline.state_dict().values():
                value.zero_()
            loop = Loop(pipeline)
            loop.load(folder)
            assert pipeline.num_steps == done
            return loop.run(NUM_STEPS), pipeline.state_dict()

    losses, state = whole(join(before.num_devices, straight, tmp_path))
    first = join(before.num_devices, begin, tmp_path)[0]
    last, found = whole(join(after.num_devices, go_on, tmp_path))
    assert first + last == losses
    assert_same(found, state)
    assert torch.equal(found["1.shift"], network()[1].shift)
