"""A loop of one's own trains like the unpipelined model, to the same bits where no parameter has copies."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from joined import JoinedError, join
from loop_jobs import AT, NUM_MICRO_BATCHES, SAMPLES, job
from small_runs import SMALL_GPT
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import runtime
from placements import Placement
from placements.shapes import v_shape, wave_shape
from runtime.codegen.codegen import generate
from runtime.models import cut
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import gpipe

pytestmark = pytest.mark.usefixtures("compiler")


def network() -> nn.Sequential:
    """Return a model of four stages."""
    torch.manual_seed(3)
    stages = [layer for _ in range(3) for layer in (nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh())]
    return nn.Sequential(*stages, nn.Linear(6, 3)).double()


def groups(named: Iterator[tuple[str, Tensor]]) -> list[dict[str, Any]]:
    """Return two groups of parameters, of which biases and norms do not decay."""
    parameters = list(named)
    decays = [weight for _, weight in parameters if weight.dim() > 1]
    others = [weight for _, weight in parameters if weight.dim() <= 1]
    return [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0, "lr": 0.003}]


def warmed(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))


def one_cycle(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[0.01, 0.003], total_steps=8)


Scheduler = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]


def loader() -> DataLoader[Any]:
    return DataLoader(SAMPLES, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(7))


def train_whole(model: nn.Module, scheduler: Scheduler) -> list[float]:
    """Train the model in one piece, micro-batch by micro-batch; return the losses."""
    optimizer = torch.optim.AdamW(groups(model.named_parameters()), lr=0.01)
    schedule = scheduler(optimizer)
    losses, batches = [], loader()
    for _ in range(2):
        for inputs, targets in batches:
            part_losses = []
            for part, target in zip(
                inputs.chunk(NUM_MICRO_BATCHES), targets.chunk(NUM_MICRO_BATCHES), strict=True
            ):
                loss = cross_entropy(model(part), target)
                (loss / NUM_MICRO_BATCHES).backward()
                part_losses.append(float(loss.detach()))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(sum(part_losses) / NUM_MICRO_BATCHES)
    return losses


@pytest.mark.parametrize(
    ("placement", "scheduler"),
    [(v_shape(2), one_cycle), (wave_shape(2, split_backward=True), warmed)],
    ids=["v", "wave with split backward"],
)
def test_a_loop_trains_to_the_bits_of_the_unpipelined_model(
    placement: Placement, scheduler: Scheduler, tmp_path: Path
) -> None:
    """AdamW with two groups of parameters, a schedule of learning rates, a shuffled DataLoader."""
    folder = job(placement, tmp_path / "job")
    at = AT[sum(block.kind == "F" for block in placement.blocks)]

    def train(rank: int) -> tuple[list[float], dict[str, Tensor]]:
        with runtime.Pipeline(cut(network(), at), folder, loss=cross_entropy) as pipeline:
            optimizer = torch.optim.AdamW(groups(pipeline.named_parameters()), lr=0.01)
            schedule = scheduler(optimizer)
            losses = []
            batches = loader()
            for _ in range(2):
                for batch in batches:
                    losses.append(pipeline.step(batch))
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
            return losses, pipeline.state_dict()

    results = join(2, train, tmp_path)
    model = network()
    assert [losses for losses, _ in results] == [train_whole(model, scheduler)] * 2
    state = {name: value for _, part in results for name, value in part.items()}
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


class Tied(nn.Module):
    """Embeds and gives back with one table."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.middle(self.embedding(tokens)).tanh())  # type: ignore[no-any-return]


def test_a_tied_parameter_is_one_for_the_norm_and_the_state(tmp_path: Path) -> None:
    """Its two copies are on two processes; the norm of all gradients counts it once."""
    folder = job(v_shape(2), tmp_path / "job")
    tokens = torch.arange(8) % 5

    def tied() -> Tied:
        torch.manual_seed(5)
        return Tied().double()

    def train(rank: int) -> tuple[float, dict[str, Tensor]]:
        modules = cut(tied(), at=["middle"])
        with runtime.Pipeline(modules, folder, loss=cross_entropy) as pipeline:
            optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1)
            pipeline.step((tokens, tokens.roll(1)))
            norm = pipeline.clip_grad_norm_(0.01)
            optimizer.step()
            assert all(
                value is weight
                for value, weight in zip(modules[rank].parameters(), pipeline.parameters(), strict=True)
            )
            return norm, pipeline.state_dict()

    model = tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cross_entropy(model(tokens), tokens.roll(1)).backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
    for total_norm, state in join(2, train, tmp_path):
        assert math.isclose(total_norm, float(norm), rel_tol=1e-12)
        for name, value in state.items():
            torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=1e-8)


def test_evaluation_leaves_gradients_and_random_numbers_alone(tmp_path: Path) -> None:
    """It is in eval mode, of any number of whole micro-batches, and the modules' modes come back."""
    folder = job(wave_shape(2), tmp_path / "job")

    def with_dropout() -> nn.Sequential:
        return nn.Sequential(*(nn.Sequential(layer, nn.Dropout(0.3)) for layer in network()))

    batch = SAMPLES[:8]

    def train(rank: int) -> tuple[list[float], list[float]]:
        modules = cut(with_dropout(), AT[4])
        modules[0].eval()
        with runtime.Pipeline(modules, folder, loss=cross_entropy) as pipeline:
            first = pipeline.eval_step(batch)
            trained = [pipeline.step(batch)]
            gradients = [weight.grad.clone() for weight in pipeline.parameters() if weight.grad is not None]
            random = torch.get_rng_state()
            evaluated = [first, *(pipeline.eval_step(SAMPLES[:count]) for count in (2, 24))]
            assert torch.equal(torch.get_rng_state(), random)
            for weight, gradient in zip(pipeline.parameters(), gradients, strict=True):
                assert weight.grad is not None
                assert torch.equal(weight.grad, gradient)
            assert [module.training for module in modules] == [False, True, True, True]
            trained.append(pipeline.step(batch))
            return evaluated, trained

    model = with_dropout().eval()
    with torch.no_grad():
        expected = [float(cross_entropy(model(x), y)) for x, y in (SAMPLES[:8], SAMPLES[:2], SAMPLES[:])]
    (evaluated, trained), other = join(2, train, tmp_path)
    assert other == (evaluated, trained)
    torch.testing.assert_close(evaluated, expected, rtol=1e-12, atol=0)
    assert trained[0] != trained[1], "dropout falls otherwise in each step"


def test_a_jobs_own_model_and_a_users_file_can_be_trained(tmp_path: Path) -> None:
    """One after the other, in the process group of the script, which is left as it was."""
    placement = v_shape(2)
    gpt = tmp_path / "gpt"
    generate(check(lower(gpipe(placement, 2))), {}, SMALL_GPT, gpt)
    folder = job(placement, tmp_path / "job")
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\nfrom torch import nn\nfrom torch.nn.functional import mse_loss as loss\n"
        "def build(block):\n    return nn.Linear(3, 3)\n"
        "def data(iteration, micro_batch):\n    return None, None\n"
    )

    def train(rank: int) -> tuple[list[float], float]:
        dist.init_process_group("gloo", f"file://{tmp_path / 'own'}", rank=rank, world_size=2)
        with pytest.raises(ValueError, match="^loss: is for modules, and there are none; leave it out"):
            runtime.Pipeline(None, gpt, loss=cross_entropy)
        with pytest.raises(ValueError, match="^unequal: is for modules, and there are none; leave it out"):
            runtime.Pipeline(None, gpt, unequal=True)
        with runtime.Pipeline(None, gpt) as pipeline:
            optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.01)
            losses = []
            for _ in range(4):
                losses.append(pipeline.step())
                optimizer.step()
                optimizer.zero_grad()
        with runtime.Pipeline(file, folder) as pipeline:
            loss = pipeline.step((torch.ones(4, 3), torch.zeros(4, 3)))
        assert dist.is_initialized()
        return losses, loss

    (losses, loss), other = join(2, train, tmp_path)
    assert other == (losses, loss)
    assert losses[-1] < losses[0]
    assert loss > 0


class Named(nn.Module):
    """A module with two named inputs; its output is the input of a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        output: Tensor = self.last(self.first(left) * right)
        return output


def test_inputs_are_given_by_position_or_by_the_names_of_arguments(tmp_path: Path) -> None:
    """All that is named is read: a loop and a model's file take the same forms."""
    folder = job(v_shape(2), tmp_path / "job")
    left, targets = SAMPLES[:8]
    right = left.flip(0)
    torch.manual_seed(0)
    modules = cut(Named().double(), ["last"], example={"left": left[:2], "right": right[:2]})
    forms: list[Any] = [
        (left, right),
        {"right": right, "left": left},
        {"F0": (left, right)},
        {"F0": {"left": left, "right": right}},
    ]

    def train(rank: int) -> list[float]:
        with runtime.Pipeline(modules, folder, loss=cross_entropy) as pipeline:
            return [pipeline.step((inputs, targets)) for inputs in forms]

    losses, others = join(2, train, tmp_path)
    assert losses == others
    assert losses == losses[:1] * len(forms)


def failing(
    folder: Path, train: Callable[[runtime.Pipeline], object], modules: Sequence[nn.Module], tmp_path: Path
) -> dict[int, str]:
    """Return the errors of both processes of a V-shape."""

    def be(rank: int) -> None:
        with runtime.Pipeline(modules, folder, loss=cross_entropy) as pipeline:
            train(pipeline)

    with pytest.raises(JoinedError) as error:
        join(2, be, tmp_path)
    lines: dict[int, str] = error.value.args[0]
    return lines


def other_length(pipeline: runtime.Pipeline) -> None:
    pipeline.step(SAMPLES[:8])
    inputs, targets = SAMPLES[:8]
    pipeline.step((torch.cat([inputs, inputs], 1), targets))


def endless(pipeline: runtime.Pipeline) -> None:
    inputs, targets = SAMPLES[:8]
    pipeline.step((inputs * math.nan, targets))


def fail(module: nn.Module, *_: object) -> None:
    raise RuntimeError("lost its\nway")


def fails_later(pipeline: runtime.Pipeline) -> None:
    """A module fails in the second step, in the middle of the schedule."""
    pipeline.step(SAMPLES[:8])
    if pipeline.is_last:
        torch.nn.modules.module.register_module_forward_pre_hook(fail)
    pipeline.step(SAMPLES[:8])


def lacks_one(pipeline: runtime.Pipeline) -> None:
    """The state that is given to the last process lacks a tensor."""
    state = network().state_dict()
    if pipeline.is_last:
        del state["6.bias"]
    before = {name: value.clone() for name, value in pipeline.state_dict().items()}
    try:
        pipeline.load_state_dict({name: value + 1 for name, value in state.items()})
    finally:
        assert all(torch.equal(value, before[name]) for name, value in pipeline.state_dict().items())


ON_ALL = {
    "a state that lacks something": (
        lacks_one,
        "device 1: state: has no '6.bias'; give the state of the whole model",
    ),
    "nan": (
        endless,
        "device 1: step 0: the loss of F1, micro-batch 0, is nan; lower the learning rate, or look at the "
        "data",
    ),
    "module": (
        lambda pipeline: pipeline.step((SAMPLES[:8][0][:, :5], SAMPLES[:8][1])),
        "device 0: module: F0 fails with tensors of shapes [(2, 5)]: RuntimeError: mat1 and mat2",
    ),
    "nothing": (
        lambda pipeline: pipeline.step(SAMPLES[:8] if pipeline.is_last else None),
        "device 0: batch: is None, but this process reads inputs or targets; give it one",
    ),
}


@pytest.mark.parametrize(("train", "reason"), ON_ALL.values(), ids=ON_ALL)
def test_what_is_wrong_on_one_process_ends_all_with_one_line(
    train: Callable[[runtime.Pipeline], object], reason: str, tmp_path: Path
) -> None:
    lines = failing(job(v_shape(2), tmp_path / "job"), train, cut(network(), AT[2]), tmp_path)
    assert len(lines) == 2
    for line in lines.values():
        assert line.startswith("PipelineError: " + reason)
        assert "\n" not in line


IN_A_STEP = {
    "length": (
        other_length,
        0,
        "BatchError: batch: the inputs of a micro-batch of F0 are of shapes [(2, 12)], and were [(2, 6)] in "
        "the first step, as its messages are; pad or cut them to these",
    ),
    "module": (fails_later, 1, "RuntimeError: lost its"),
}


@pytest.mark.parametrize(("train", "device", "reason"), IN_A_STEP.values(), ids=IN_A_STEP)
def test_what_fails_in_a_later_step_is_named_by_all(
    train: Callable[[runtime.Pipeline], object], device: int, reason: str, tmp_path: Path
) -> None:
    """The process that fails says its own error, and the other that it waits for it in vain."""
    lines = failing(job(v_shape(2), tmp_path / "job"), train, cut(network(), AT[2]), tmp_path)
    assert lines[device].startswith(reason)
    other = lines[1 - device]
    assert other.startswith("TransferError: device ") and f"device {device}: {reason}" in other


def test_modules_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = job(v_shape(2), tmp_path / "job")

    def be(rank: int) -> list[str]:
        dist.init_process_group("gloo", f"file://{tmp_path / 'own'}", rank=rank, world_size=2)
        first, last = cut(network(), AT[2])
        reasons = []
        for modules in ([first], {"F0": first}, network(), [first, last.float()]):
            with pytest.raises(ValueError, match="modules") as error:
                runtime.Pipeline(modules, folder, loss=cross_entropy)  # type: ignore[arg-type]
            reasons.append(str(error.value))
        with pytest.raises(ValueError, match="^device 0: loss: 'mse' cannot be called; give a function"):
            runtime.Pipeline([first, last], folder, loss="mse")  # type: ignore[arg-type]
        return reasons

    reasons, others = join(2, be, tmp_path)
    assert (
        reasons
        == others
        == [
            "device 0: modules: a list of 1 is not for the 2 forward blocks F0, F1 of v_shape; give one for "
            "each, or a mapping by name",
            "device 1: modules: nothing for block F1 instead of a torch module; give one",
            "device 0: modules: are one Sequential; give a module for each forward block (F0, F1), as "
            "runtime.models.cut makes them of one",
            reasons[3],
        ]
    )


def test_a_block_that_changes_its_inputs_in_place_is_refused(tmp_path: Path) -> None:
    """Training would fail in the first block's backward, and evaluation would change others' inputs."""
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)).double()
    lines = failing(
        job(v_shape(2), tmp_path / "job"),
        lambda pipeline: pipeline.eval_step(SAMPLES[:8]),
        cut(model, ["1"]),
        tmp_path,
    )
    reason = "device 1: module: F1 changes its input in place, as an activation with "
    assert set(lines.values()) == {
        f"PipelineError: {reason}inplace=True does; use inplace=False there, or cut behind it"
    }


class Shifting(nn.Module):
    """A module that changes its input in place."""

    def forward(self, value: Tensor) -> Tensor:
        return value.add_(1)


def test_a_batch_that_is_changed_in_place_is_changed_once(tmp_path: Path) -> None:
    """Blocks are tried with the first micro-batch to find shapes, which must leave it as it was."""
    folder = job(v_shape(2), tmp_path / "job")
    modules = cut(nn.Sequential(Shifting(), network()), ["1.6"])
    inputs, targets = SAMPLES[:8]

    def train(rank: int) -> float:
        with runtime.Pipeline(modules, folder, loss=cross_entropy) as pipeline:
            return pipeline.eval_step((inputs.clone(), targets))

    parts = zip((inputs + 1).chunk(NUM_MICRO_BATCHES), targets.chunk(NUM_MICRO_BATCHES), strict=True)
    losses = [float(cross_entropy(network()(part), target).detach()) for part, target in parts]
    assert join(2, train, tmp_path) == [sum(losses) / NUM_MICRO_BATCHES] * 2


def test_a_job_for_more_processes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = job(v_shape(2), tmp_path / "job")
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match=r"3 processes were started for the 2 devices of v_shape; start 2"):
        runtime.Pipeline(None, folder)
    monkeypatch.delenv("RANK")
    with pytest.raises(ValueError, match=r"start all with: torchrun --nproc-per-node NUM_DEVICES SCRIPT"):
        runtime.Pipeline(None, folder)


@pytest.mark.skipif(
    "LINES_RUN" in os.environ,
    reason="code with marks on its lines cannot be compiled; .ci/run runs this without",
)
def test_compiled_modules_train_as_the_others(tmp_path: Path) -> None:
    folder = job(v_shape(2), tmp_path)

    def train(rank: int, *, compiles: bool) -> tuple[list[float], list[Tensor]]:
        modules = cut(network(), AT[2])
        for module in modules if compiles else ():
            module.compile(backend="eager")
        with runtime.Pipeline(modules, folder, loss=cross_entropy) as pipeline:
            losses = [pipeline.step(batch) for batch in DataLoader(SAMPLES, batch_size=12)]
            return losses, [weight.grad for weight in pipeline.parameters() if weight.grad is not None]

    plain, compiled = (join(2, partial(train, compiles=compiles), tmp_path) for compiles in (False, True))
    for (losses, gradients), (others, other_gradients) in zip(plain, compiled, strict=True):
        assert others == pytest.approx(losses, rel=1e-12)
        assert gradients
        torch.testing.assert_close(other_gradients, gradients)
