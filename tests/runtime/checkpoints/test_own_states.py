"""Checkpoints of one's own loop: any shards, any optimizer of PyTorch, plain data beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from one_line_errors import raises_line
from torch import Tensor
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from runtime.checkpoints.loading import Resumed, load_checkpoint
from runtime.checkpoints.saving import Checkpoints
from runtime.checkpoints.training_state import CheckpointError, TrainingState
from runtime.models import ParameterShard
from runtime.program.calls import ScriptError
from runtime.transport.in_memory import MemoryTransport, Network

FACTS: dict[str, Any] = {
    "model": {"name": "module", "optimizer": "sgd"},
    "placement": {"name": "own"},
    "num_micro_batches": 4,
}
TABLE = torch.arange(35.0).reshape(7, 5)

State = dict[ParameterShard, Tensor]
Optimizers = Callable[[list[Tensor]], torch.optim.Optimizer]


def cut(lengths: Sequence[int], dim: int = 0) -> list[State]:
    """Return for each device its shard of the table, so long along a dimension, and a copy of the bias."""
    parts = torch.split(TABLE, list(lengths), dim)
    return [
        {
            ParameterShard("table", index, len(lengths), dim): part.clone().requires_grad_(),
            ParameterShard("bias", 0, 1, 0): torch.ones(3).requires_grad_(),
        }
        for index, part in enumerate(parts)
    ]


def adamw(weights: list[Tensor], rate: float = 0.1) -> torch.optim.Optimizer:
    """Return an optimizer with a group for each parameter."""
    groups = [{"params": [weight], "weight_decay": 0.01 * n} for n, weight in enumerate(weights)]
    return torch.optim.AdamW(groups, lr=rate)


def step(state: State, optimizer: torch.optim.Optimizer) -> None:
    for weight in state.values():
        weight.grad = weight.detach() / 10 + 1  # the same for each element, however it is cut
    optimizer.step()


def on_devices(states: Sequence[State], part: Callable[[int, MemoryTransport], Any]) -> list[Any]:
    """Return the results of a part on each device; the devices are in one process."""
    network = Network(len(states))
    parts = [
        partial(part, device, MemoryTransport(network, device, frozenset())) for device in range(len(states))
    ]
    return network.run(parts)


def save(folder: Path, states: Sequence[State], optimizers: Sequence[Any], **extra: Any) -> None:
    def part(device: int, transport: MemoryTransport) -> None:
        entries = {name: values[device] for name, values in extra.items() if values[device] is not None}
        state = TrainingState(states[device], optimizers[device], entries)
        Checkpoints(folder, transport, device).save(state, 3, FACTS)

    on_devices(states, part)


def load(folder: Path, states: Sequence[State], optimizers: Sequence[Any]) -> list[Resumed]:
    def part(device: int, transport: MemoryTransport) -> Resumed:
        state = TrainingState(states[device], optimizers[device])
        return load_checkpoint(folder, state, FACTS, transport, device)

    return on_devices(states, part)


def trained(states: Sequence[State], steps: int, make: Optimizers = adamw) -> list[torch.optim.Optimizer]:
    optimizers = [make(list(state.values())) for state in states]
    for _ in range(steps):
        for state, optimizer in zip(states, optimizers, strict=True):
            step(state, optimizer)
    return optimizers


OPTIMIZERS: dict[str, Optimizers] = {
    "adamw": adamw,
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.1),
    "nadam": lambda weights: torch.optim.NAdam(weights, lr=0.1),
}


@pytest.mark.parametrize(
    ("optimizer", "before", "after"),
    [
        ("adamw", [3, 0, 1, 3], [4, 3]),
        ("sgd", [1, 6], [3, 2, 2]),
        ("adagrad", [7], [4, 3]),
        ("nadam", [6, 1], [7]),
    ],
)
def test_shards_of_any_length_are_cut_anew(
    optimizer: str, before: list[int], after: list[int], tmp_path: Path
) -> None:
    """Three steps, a checkpoint, other shards, two steps: as five steps of the whole."""
    make = OPTIMIZERS[optimizer]
    whole = cut([7])
    trained(whole, 5, make)
    states = cut(before)
    save(tmp_path, states, trained(states, 3, make))
    others = cut(after)
    for state in others:
        for weight in state.values():
            weight.data.zero_()
    optimizers = [make(list(state.values())) for state in others]
    load(tmp_path, others, optimizers)
    for state, updater in zip(others, optimizers, strict=True):
        step(state, updater)
        step(state, updater)
    joined = torch.cat([next(iter(state.values())) for state in others])
    assert torch.allclose(joined, next(iter(whole[0].values())), rtol=1e-6)
    assert all(torch.equal(list(state.values())[1], list(others[0].values())[1]) for state in others)


def test_a_schedule_goes_on_and_a_new_rate_stays(tmp_path: Path) -> None:
    """The rate that a schedule had come to is taken over, unless the run now begins with another."""
    states = cut([7])
    (optimizer,) = trained(states, 0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(2):
        step(states[0], optimizer)
        schedule.step()
    save(tmp_path, states, [optimizer], schedule=[schedule.state_dict()])

    again = cut([7])
    same = adamw(list(again[0].values()))
    (resumed,) = load(tmp_path, again, [same])
    assert [group["lr"] for group in same.param_groups] == [0.025, 0.025]
    assert resumed.notes == () and resumed.is_same and resumed.iterations == 3
    on = torch.optim.lr_scheduler.ExponentialLR(same, 0.5)
    on.load_state_dict(resumed.extra["schedule"])
    on.step()
    schedule.step()
    assert on.get_last_lr() == schedule.get_last_lr() == [0.0125, 0.0125]

    other = adamw(list(again[0].values()), 0.3)
    other.param_groups[1]["weight_decay"] = 0.5
    (resumed,) = load(tmp_path, again, [other])
    assert [group["lr"] for group in other.param_groups] == [0.3, 0.3]
    assert resumed.notes == ("resume: with another lr 0.1 -> 0.3, weight_decay 0.01 -> 0.5",)
    assert not resumed.is_same


def test_an_optimizer_of_another_class_is_refused(tmp_path: Path) -> None:
    """It would go on with states that it does not know."""
    states = cut([7])
    save(tmp_path, states, trained(states, 1))
    with raises_line(ScriptError, has="another class than SGD (only one of the two has betas, momentum)"):
        load(tmp_path, states, [torch.optim.SGD(list(states[0].values()))])


def test_what_callers_add_comes_back(tmp_path: Path) -> None:
    """Each device gets its own entry back; another number of devices gets the first device's entry."""
    states = cut([3, 4])
    added = {"loader": [{"batch": 7}, {"batch": 8}], "scale": [2.0, None], "last": [None, torch.ones(2)]}
    save(tmp_path, states, [None, None], **added)
    first, second = load(tmp_path, states, [None, None])
    assert (first.extra["loader"], first.extra["scale"]) == ({"batch": 7}, 2.0)
    assert second.extra["loader"] == {"batch": 8}
    (alone,) = load(tmp_path, cut([7]), [None])
    assert alone.extra["loader"] == {"batch": 7}
    assert torch.equal(alone.extra["last"], torch.ones(2))


def test_what_is_no_plain_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"extra\['loader'\] is a PosixPath that is"):
        save(tmp_path, cut([7]), [None], loader=[tmp_path])
    assert not list(tmp_path.iterdir())


def test_a_state_that_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    states = cut([3, 4])
    optimizers = [torch.optim.Adafactor(list(state.values()), lr=0.1) for state in states]
    for state, optimizer in zip(states, optimizers, strict=True):
        step(state, optimizer)
    with pytest.raises(CheckpointError, match="for a shard of table, .* use an optimizer that works by elem"):
        save(tmp_path, states, optimizers)


def test_another_type_or_shape_is_refused(tmp_path: Path) -> None:
    save(tmp_path, cut([7]), [None])
    half = [{shard: value.detach().half() for shard, value in cut([7])[0].items()}]
    with pytest.raises(ScriptError, match="table of torch.float32 instead of torch.float16"):
        load(tmp_path, half, [None])
    fewer = [{shard: value[:6] for shard, value in cut([7])[0].items()}]
    with pytest.raises(ScriptError, match=r"table of \(7, 5\) instead of \(6, 5\)"):
        load(tmp_path, fewer, [None])


def test_a_shard_that_nobody_holds_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no device holds shard 1 of table"):
        save(tmp_path, cut([3, 4])[:1], [None])


def test_tools_of_pytorch_read_the_files(tmp_path: Path) -> None:
    states = cut([3, 4])
    save(tmp_path, states, trained(states, 1))
    dcp_to_torch_save(tmp_path / "iteration_3", tmp_path / "whole.pt")
    saved = torch.load(tmp_path / "whole.pt", weights_only=False)
    assert torch.equal(saved["parameters/table"], torch.cat([next(iter(state.values())) for state in states]))
    assert saved["optimizer/table/exp_avg"].shape == (7, 5)
