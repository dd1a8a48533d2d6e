"""A loop of one's own in full: checkpoints, lower precision, weights of losses, ZeRO, clipping, files."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from joined import join
from loop_jobs import AT, SAMPLES, job
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

import runtime
from placements import Placement
from placements.shapes import v_shape, wave_shape
from runtime.models import cut
from runtime.program.calls import ScriptError

pytestmark = pytest.mark.usefixtures("compiler")

NUM_STEPS = 8

State = dict[str, Tensor]


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
        self.sampler = DistributedSampler(SAMPLES, num_replicas=1, rank=0)
        self.loader = DataLoader(SAMPLES, batch_size=8, sampler=self.sampler)

    def run(self, num_steps: int) -> list[float]:
        """Train until `num_steps` steps are done in all; return the losses of the steps done in this call."""
        losses: list[float] = []
        while self.pipeline.num_steps < num_steps:
            epoch, num_done = divmod(self.pipeline.num_steps, len(self.loader))
            self.sampler.set_epoch(epoch)
            for batch in islice(self.loader, num_done, None):
                losses.append(self.pipeline.step(batch))
                self.pipeline.clip_grad_norm_(1.0)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
                if self.pipeline.num_steps == num_steps:
                    break
        return losses

    def save(self, folder: Path) -> None:
        self.pipeline.save(folder, self.optimizer, {"schedule": self.schedule.state_dict()})

    def load(self, folder: Path) -> None:
        resumed = self.pipeline.load(folder, self.optimizer)
        self.schedule.load_state_dict(resumed.extra["schedule"])


def opened(placement: Placement, folder: Path, drops: float) -> runtime.Pipeline:
    at = AT[sum(block.kind == "F" for block in placement.blocks)]
    return runtime.Pipeline(cut(network(drops), at), folder, loss=cross_entropy, exact=True)


def whole(parts: list[tuple[list[float], State]]) -> tuple[list[float], State]:
    """Return the losses, which all processes know, and the state of the whole model."""
    assert all(losses == parts[0][0] for losses, _ in parts)
    return parts[0][0], {name: value for _, part in parts for name, value in part.items()}


def assert_same(state: State, expected: State) -> None:
    assert state.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in state.items())


@pytest.mark.parametrize(
    ("before", "after", "drops", "done"),
    [(v_shape(2), v_shape(2), 0.3, 4), (wave_shape(2, split_backward=True), v_shape(4), 0.0, 5)],
    ids=["in an epoch", "on other processes"],
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
    last, resumed = whole(join(after.num_devices, go_on, tmp_path))
    assert first + last == losses
    assert_same(resumed, state)
    assert torch.equal(resumed["1.shift"], network()[1].shift)


def test_a_loop_does_not_begin_anew_beside_checkpoints_that_are_not_whole(tmp_path: Path) -> None:
    """As if there had never been one, and in their place."""
    folder, checkpoints = job(v_shape(2), tmp_path / "job"), tmp_path / "checkpoints"

    def load(rank: int) -> str:
        with opened(v_shape(2), folder, 0.0) as pipeline:
            pipeline.save(checkpoints, is_async=False)
            if rank == 0:
                (checkpoints / "iteration_0/manifest.json").write_text("{")
            with pytest.raises(ScriptError) as error:
                pipeline.load(checkpoints)
            return str(error.value)

    line = (
        f"resume: {checkpoints} holds no whole checkpoint: {checkpoints / 'iteration_0'} is passed over, its "
        "file manifest.json cannot be read; give the checkpoints of an earlier run, or an empty folder to "
        "begin anew"
    )
    assert join(2, load, tmp_path) == [line, line]


def steep(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return a loss whose gradients overflow with the first scales of fp16."""
    return 500 * cross_entropy(outputs, targets)


def test_fp16_skips_the_update_on_all_processes_and_keeps_its_scale(tmp_path: Path) -> None:
    """Only the last process sees the overflow at first; a resume begins with the scale that was found."""
    folder, checkpoints = job(v_shape(2), tmp_path / "job"), tmp_path / "checkpoints"

    def train(pipeline: runtime.Pipeline, count: int) -> list[tuple[float, bool]]:
        optimizer = torch.optim.SGD(pipeline.parameters(), lr=1e-5)
        steps = []
        for _ in range(count):
            loss = pipeline.step(SAMPLES[:8])
            have = {weight.grad is not None for weight in pipeline.parameters()}
            assert have == {not pipeline.update.is_skipped}
            optimizer.step()
            optimizer.zero_grad()
            steps.append((loss, pipeline.update.is_skipped))
        return steps

    def opened(rank: int) -> runtime.Pipeline:
        modules = cut(network().float(), AT[2])
        return runtime.Pipeline(modules, folder, loss=steep, precision="fp16")

    def straight(rank: int) -> tuple[list[tuple[float, bool]], State]:
        with opened(rank) as pipeline:
            steps = train(pipeline, 5)
            pipeline.save(checkpoints, is_async=False)
            return steps + train(pipeline, 4), pipeline.state_dict()

    def resumed(rank: int) -> tuple[list[tuple[float, bool]], State]:
        with opened(rank) as pipeline:
            assert pipeline.load(checkpoints) is not None
            return train(pipeline, 4), pipeline.state_dict()

    (steps, state), (other, _) = join(2, straight, tmp_path)
    assert steps == other
    skipped = [is_skipped for _, is_skipped in steps]
    assert skipped[0], "the scale is too large"
    assert not skipped[-1], "it was halved until it fits"
    assert len({loss for loss, is_skipped in steps if is_skipped}) == 1, "nothing has moved"
    (again, last), _ = join(2, resumed, tmp_path)
    assert again == steps[5:]
    assert_same(last, state)


WEIGHED = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy as loss

def build(block):
    torch.manual_seed(3)
    first, last = nn.Linear(6, 6), nn.Linear(6, 3)
    return {"F0": first, "F1": last}[block].double()

def data(iteration, micro_batch):
    return None, None

def loss_weight(targets):
    return float((targets >= 0).sum())
"""


def padded() -> tuple[Tensor, Tensor]:
    """Return a batch in which micro-batches have unequal numbers of targets."""
    inputs, targets = (value[:16].clone() for value in SAMPLES.tensors)
    targets[1::2] = -100
    targets[:4] = targets[:4].clamp(min=0)
    return inputs, targets


def test_weights_zero_and_the_norm_over_groups(tmp_path: Path) -> None:
    """Two stages of two groups each, from a file and as modules: AdamW over halves of the parameters."""
    shape = v_shape(2)
    blocks = tuple(replace(block, data_parallel=2) for block in shape.blocks)
    folder = job(replace(shape, num_gpus=(2, 2), blocks=blocks), tmp_path / "job")
    file = tmp_path / "weighed.py"
    file.write_text(WEIGHED)
    code: dict[str, Any] = {}
    exec(WEIGHED, code)

    initial = {
        f"{block}.{name}": value
        for block in ("F0", "F1")
        for name, value in code["build"](block).state_dict().items()
    }

    def train(rank: int) -> list[tuple[list[float], State]]:
        dist.init_process_group("gloo", f"file://{tmp_path / 'own'}", rank=rank, world_size=4)
        loss_options = {"loss": code["loss"], "loss_weight": code["loss_weight"]}
        given: list[dict[str, Any]] = [{"modules": code["build"], **loss_options}, {"modules": file}]
        results = []
        for options in given:
            with runtime.Pipeline(options.pop("modules"), folder, **options) as pipeline:
                optimizer = pipeline.zero1(torch.optim.AdamW, lr=0.01, weight_decay=0.1)
                pipeline.load_state_dict(initial)
                numbers = []
                for _ in range(3):
                    loss = pipeline.step(padded())
                    numbers += [loss, pipeline.clip_grad_norm_(0.1)]
                    optimizer.step()
                    optimizer.zero_grad()
                assert len(optimizer.state) == 1, "weight or bias; the other copy has the other one"
                results.append((numbers, pipeline.state_dict()))
        return results

    model = nn.Sequential(code["build"]("F0"), code["build"]("F1"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    numbers: list[float] = []
    for _ in range(3):
        loss = cross_entropy(model(padded()[0]), padded()[1])
        loss.backward()  # type: ignore[no-untyped-call]
        numbers += [float(loss.detach()), float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1))]
        optimizer.step()
        optimizer.zero_grad()
    names = {"F0.weight": "0.weight", "F0.bias": "0.bias", "F1.weight": "1.weight", "F1.bias": "1.bias"}
    for rank, results in enumerate(join(4, train, tmp_path)):
        assert results[0][0] == results[1][0], "the file holds the same modules"
        torch.testing.assert_close(results[0][0], numbers, rtol=1e-7, atol=0)
        assert len(results[0][1]) == 2, rank
        for name, value in results[0][1].items():
            torch.testing.assert_close(value, model.state_dict()[names[name]], rtol=1e-7, atol=1e-9)
