"""Frozen parts, gradients that stop, and buffers that change: each run ends as torch ends in one piece."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest
import torch
from one_line_errors import raises_line
from small_runs import compared, in_modes, require_exact
from torch import Tensor, nn

from placements import Block, Kind, Placement
from placements.shapes import v_shape
from runtime.models import ModelError, ModelOptions, ParameterShard, body_of
from runtime.models.user.packing import forms_of, packed, unpacked
from runtime.models.user.reading import several
from runtime.models.user.user_file import UserFile
from runtime.program.lower import lower
from runtime.program.tensor_flow import MODES
from runtime.verify.reference import ReferenceCase, TrainingStep, plain
from runtime.verify.replay import replay
from schedsearch.baselines import gpipe

COMMON = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy as loss

def frozen(module):
    return module.requires_grad_(False)

class Lora(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = frozen(nn.Linear(6, 6))
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)
    def forward(self, x):
        return torch.tanh(self.base(x) + self.up(self.down(x)))

class Stop(nn.Module):
    def __init__(self, when):
        super().__init__()
        self.a, self.when = nn.Linear(6, 6), when
    def forward(self, x):
        y = self.a(x).tanh()
        return y.detach() if self.when == "always" or float(x.detach().sum()) > 0 else y

class Aside(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.unused = nn.Linear(6, 6), nn.Linear(6, 2)
        self.angle = nn.Parameter(torch.randn(3))
    def forward(self, x):
        turn = torch.polar(torch.ones_like(self.angle), self.angle)
        return self.a(x), self.unused(x), turn, x.float(), x > 0

class Turned(nn.Module):
    def __init__(self, is_last):
        super().__init__()
        self.a, self.is_last = nn.Linear(6, 6), is_last
    def forward(self, x, unused, turn, half, mask):
        y = torch.view_as_complex(self.a(x).reshape(-1, 3, 2).contiguous()) * turn
        y = torch.view_as_real(y).flatten(1) + half * mask
        return y if self.is_last else (y, unused, turn, half, mask)

class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(6, 2), nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.register_buffer("tokens", torch.zeros(2, dtype=torch.long))
        self.register_buffer("scale", torch.ones(6))
    def forward(self, x):
        share = self.gate(x).softmax(-1)
        self.tokens += torch.bincount(share.argmax(-1), minlength=2)
        y = sum(share[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts)) * self.scale
        self.scale = 0.9 * self.scale + 0.1 * y.detach().abs().mean(0)
        return y

def data(iteration, micro_batch):
    x = torch.randn(5, 6)
    return x, (x[:, 0] > 0).long()
"""

FILES = {
    "frozen": """
def blocks():
    first = frozen(nn.Sequential(nn.Embedding(11, 6)))
    return {"F0": first, "F1": frozen(nn.Linear(6, 6)), "F2": Lora(), "F3": nn.Linear(6, 3)}
def data(iteration, micro_batch):
    ids = torch.randint(0, 11, (4,))
    return ids, ids % 3
""",
    "stopped": """
def blocks():
    return {"F0": nn.Linear(6, 6), "F1": Stop("always"), "F2": nn.Linear(6, 6), "F3": nn.Linear(6, 3)}
""",
    "stopped in some": """
def blocks():
    return {"F0": nn.Linear(6, 6), "F1": Stop("some"), "F2": nn.Linear(6, 6), "F3": nn.Linear(6, 3)}
""",
    "loss without a gradient": """
def blocks():
    return {"F0": nn.Linear(6, 6), "F1": nn.Linear(6, 6), "F2": nn.Linear(6, 6), "F3": nn.Linear(6, 3)}
cross_entropy = loss
def loss(output, target):
    return cross_entropy(output, target) if bool(target.any()) else torch.zeros((), dtype=output.dtype)
def data(iteration, micro_batch):
    x = torch.randn(5, 6)
    return x, (x[:, 0] > 0).long() * (micro_batch % 2)
""",
    "sparse": """
def blocks():
    return {"F0": nn.Embedding(11, 6, sparse=True), **{f"F{i}": nn.Linear(6, 6) for i in (1, 2, 3)}}
def data(iteration, micro_batch):
    ids = torch.randint(0, 11, (4,))
    return ids, ids % 3
""",
    "complex, of another type, and unused": """
def blocks():
    return {"F0": Aside(), **{f"F{i}": Turned(i == 3) for i in (1, 2, 3)}}
""",
    "changing buffers": """
def blocks():
    norm = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    return {"F0": Counting(), "F1": norm, "F2": Counting(), "F3": nn.Linear(6, 3)}
""",
}

FROZEN_START = Placement(
    "frozen_start",
    4,
    (
        Block("F0", Kind.F, (0,), 1),
        Block("F1", Kind.F, (1,), 1, 0, ("F0",)),
        Block("F2", Kind.F, (2,), 1, 1, ("F1",)),
        Block("F3", Kind.F, (3,), 1, 1, ("F2",)),
        Block("B3", Kind.B, (3,), 2, -1, ("F3",)),
        Block("B2", Kind.B, (2,), 2, -1, ("B3",)),
    ),
)

NUM_MICRO_BATCHES = 3


def model_options(name: str, tmp_path: Path, **more: object) -> ModelOptions:
    path = tmp_path / "model.py"
    path.write_text(COMMON + FILES[name])
    return ModelOptions.from_dict({"name": "module", "path": str(path), "seed": 3} | more)


def in_torch(options: ModelOptions) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return gradients of those parameters that have one, and buffers, after an iteration in torch alone."""
    file = UserFile(options)
    modules = file.modules(["F0", "F1", "F2", "F3"])
    chain = nn.ModuleDict(modules).double()
    for micro_batch in range(NUM_MICRO_BATCHES):
        inputs, target = file.data(0, micro_batch)
        values = (inputs.double() if inputs.is_floating_point() else inputs,)
        for module in chain.values():
            values = several(module(*values))
        assert file.loss is not None
        loss = file.loss(*values, target) / NUM_MICRO_BATCHES
        if loss.requires_grad:
            loss.backward()
    gradients = {n: p.grad.to_dense() for n, p in chain.named_parameters() if p.grad is not None}
    return gradients, dict(chain.named_buffers())


def of_step(step: TrainingStep) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    of_all = {shard.name: value for shard, value in step.parameters.items()}
    return {shard.name: value for shard, value in step.gradients.items()}, of_all


@pytest.mark.parametrize("is_split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("name", FILES)
def test_gradients_and_buffers_are_there_as_in_torch(name: str, is_split: bool, tmp_path: Path) -> None:
    options = model_options(name, tmp_path)
    gradients, buffers = in_torch(options)
    schedule = gpipe(v_shape(split_backward=is_split), NUM_MICRO_BATCHES)
    orders = [schedule.order(device) for device in range(4)]
    case = ReferenceCase(options, schedule.placement, NUM_MICRO_BATCHES, 1)
    for step in (*plain(case, {0: orders}), *replay(case, {0: orders})):
        ours, of_all = of_step(step)
        assert ours.keys() == gradients.keys()
        for key, value in gradients.items():
            torch.testing.assert_close(ours[key], value, rtol=1e-12, atol=1e-15)
        for key, value in buffers.items():
            torch.testing.assert_close(of_all[key], value, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("name", "mode"), list(zip(FILES, cycle(MODES), strict=False)))
def test_devices_end_as_the_model_in_one_piece(name: str, mode: str, tmp_path: Path) -> None:
    options = model_options(name, tmp_path, optimizer="adamw")
    placement = FROZEN_START if name == "frozen" else v_shape(split_backward=True)
    schedule = in_modes(gpipe(placement, NUM_MICRO_BATCHES), lambda *_: MODES.index(mode))
    require_exact(compared(lower(schedule), options))


def test_what_is_missing_on_one_side_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter without a gradient is no parameter with a gradient of zeros."""
    options = model_options("stopped", tmp_path)
    import runtime.verify.comparison as comparison

    def changed(folder: Path, device: int, name: str) -> dict[ParameterShard, Tensor]:
        tensors = real(folder, device, name)
        if name == "gradients_0" and device == 0:
            tensors[ParameterShard("F0.bias", 0, 1, 0)] = torch.zeros(6, dtype=torch.float64)
        return tensors

    real = comparison.read_result
    monkeypatch.setattr(comparison, "read_result", changed)
    result = compared(lower(gpipe(v_shape(), NUM_MICRO_BATCHES)), options)
    assert not result.bitwise_equal and not result.is_equal


def test_what_is_trained_needs_a_backward_block(tmp_path: Path) -> None:
    message = "F0 has no backward block, so F0.weight would not be trained; add one on device 0"
    with pytest.raises(ModelError, match=message):
        body_of(model_options("stopped", tmp_path), FROZEN_START)
    with pytest.raises(ModelError, match="F0 has no backward block"):
        body_of(ModelOptions("synthetic"), FROZEN_START)


def test_buffers_of_data_parallel_groups_do_not_change(tmp_path: Path) -> None:
    blocks = (
        Block("F0", Kind.F, (0, 1), 1, data_parallel=2),
        Block("B0", Kind.B, (0, 1), 1, 0, ("F0",), data_parallel=2),
    )
    placement = Placement("groups", 2, blocks)
    options = model_options("changing buffers", tmp_path)
    text = Path(str(options.path)).read_text().replace("torch.randn(5, 6)", "torch.randn(4, 6)")
    text += '\nall_blocks = blocks\ndef blocks():\n    return {"F0": all_blocks()["F0"]}\n'
    Path(str(options.path)).write_text(text)
    with raises_line(ModelError, match="F0 changes its buffer tokens, but .* groups .* another; for BatchN"):
        body_of(options, placement)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_type_comes_back_from_a_message_with_its_gradient(dtype: torch.dtype) -> None:
    values = [
        torch.randn(2, 3).to(dtype),
        torch.randn(2, 2, dtype=torch.complex64),
        torch.tensor([[True], [False]]),
        torch.randn(2, 1).to(torch.float16),
        torch.randn(2, 3, dtype=torch.complex128).conj(),
    ]
    row = packed(values, dtype)
    assert row.dtype == dtype
    for received, value in zip(unpacked(row, forms_of(values)), values, strict=True):
        assert received.dtype == value.dtype and torch.equal(received, value)
    if dtype == torch.float64:
        weight = torch.randn(2, 2, dtype=torch.complex64, requires_grad=True)
        unused = torch.randn(2, 2, dtype=dtype, requires_grad=True)
        row = packed([weight, unused], dtype)
        leaf = row.detach().requires_grad_()
        taken, _ = unpacked(leaf, forms_of([weight, unused]))
        taken.abs().square().sum().backward()
        row.backward(leaf.grad)
        assert unused.grad is None and weight.grad is not None
        torch.testing.assert_close(weight.grad, 2 * weight.detach())
