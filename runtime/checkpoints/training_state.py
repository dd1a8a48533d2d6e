"""The training state of a process, and the place of each of its tensors in the whole model.

A cut parameter on two devices, five rows of four columns:

    device 0: shard 0, rows 0 to 2    place: offsets (0, 0) of (5, 4)
    device 1: shard 1, rows 3 and 4   place: offsets (3, 0) of (5, 4)

Copies of a parameter have the same place. Tensors of the optimizer that are as large as their parameter are
cut as it is; others must be the same for every shard.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runtime.checkpoints.optimizer_states import OptimizerStates
from runtime.models import ParameterShard
from runtime.models.user.seeds import random_states

Collect = Callable[[object], list[Any]]
"""Returns every device's value, by device; see `runtime.transport.protocol.Transport.collect`."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the message is one line that names the device and the cause.

    Args:
        text: The line.
        cause: Why, if that is another device that failed or is gone.
    """

    def __init__(self, text: str, cause: str | None = None) -> None:
        super().__init__(text)
        self.cause = cause


@dataclass(frozen=True)
class TensorPlace:
    """Place of a tensor in the whole.

    Attributes:
        offsets: Offsets of its first element in the whole tensor.
        size: Size of the whole tensor.
    """

    offsets: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True)
class Item:
    """A value that is written under a key, or the tensor that takes over the value read from there.

    Attributes:
        key: ``parameters/NAME``, ``optimizer/NAME/STATE``, of plain data ``optimizer/NAME/``, of a device
            ``random/DEVICE`` and ``extra/DEVICE``.
        value: A tensor, or plain data.
        place: Place of the tensor; None for plain data.
    """

    key: str
    value: Any = None
    place: TensorPlace | None = None


@dataclass(frozen=True)
class TrainingState:
    """State of a process that goes into a checkpoint, or is overwritten by one.

    Attributes:
        parameters: Parameters by shard.
        optimizer: Their optimizer; see `OptimizerStates`.
        extra: Plain data and tensors of the caller, as the state of a learning-rate schedule.
    """

    parameters: Mapping[ParameterShard, Tensor]
    optimizer: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def items_of(state: TrainingState, device: int, torch_device: torch.device, collect: Collect) -> list[Item]:
    """Return the items that a process writes; every process must call it together.

    Raises:
        CheckpointError: A tensor has no known place; see `places_of` and `place_of_state`.
    """
    places, states = places_of(state.parameters, collect), OptimizerStates(state.optimizer)
    items = [
        Item(f"random/{device}", random_states(torch_device)),
        Item(f"extra/{device}", dict(state.extra)),
    ]
    for shard, weight in state.parameters.items():
        place = places[shard.name]
        items.append(Item(f"parameters/{shard.name}", weight.detach(), place))
        plain = {}
        for name, value in states.state_of(weight).items():
            if isinstance(value, Tensor):
                where = place_of_state(shard.name, weight, place, value)
                items.append(Item(f"optimizer/{shard.name}/{name}", value.detach(), where))
            else:
                plain[name] = value
        values = {"state": plain, "hyper_parameters": states.hyper_parameters_of(weight)}
        if any(values.values()):
            items.append(Item(f"optimizer/{shard.name}/", values))
    return [item for item in items if item.place is None or item.value.numel()]


def places_of(parameters: Mapping[ParameterShard, Tensor], collect: Collect) -> dict[str, TensorPlace]:
    """Return the places of a process's parameters by name; every process must call it together.

    Shards may be cut unevenly, in whatever way: how much each holds is asked of all.

    Raises:
        CheckpointError: No device holds some shard.
    """
    held = {
        tuple(shard): value.shape[shard.dim] for shard, value in parameters.items() if shard.num_shards > 1
    }
    lengths = {shard: length for others in collect(held) for shard, length in others.items()}
    return {shard.name: _place(shard, value, lengths) for shard, value in parameters.items()}


def _place(shard: ParameterShard, value: Tensor, lengths: Mapping[tuple[Any, ...], int]) -> TensorPlace:
    offsets, size = [0] * value.dim(), list(value.shape)
    if tuple(shard) in lengths:
        of_all = [lengths.get(tuple(shard._replace(shard=n)), -1) for n in range(shard.num_shards)]
        if -1 in of_all:
            raise CheckpointError(f"no device holds shard {of_all.index(-1)} of {shard.name}")
        offsets[shard.dim], size[shard.dim] = sum(of_all[: shard.shard]), sum(of_all)
    return TensorPlace(tuple(offsets), tuple(size))


def place_of_state(name: str, weight: Tensor, place: TensorPlace, value: Tensor) -> TensorPlace:
    """Return the place of a tensor of a parameter's optimizer.

    Raises:
        CheckpointError: Its relation to the shard is not known, so that it could not be cut anew.
    """
    if value.shape == weight.shape:
        return place
    if value.dim() and tuple(weight.shape) != place.size:
        raise CheckpointError(
            f"the optimizer holds a tensor of {tuple(value.shape)} for a shard of {name}, which is "
            f"{tuple(weight.shape)}: how to cut it anew is not known; use an optimizer that works by element"
        )
    return TensorPlace((0,) * value.dim(), tuple(value.shape))


def check_plain(extra: Mapping[str, Any]) -> None:
    """Ensure that a caller's additions can be read again without running code of the file.

    Raises:
        CheckpointError: An entry is not plain data or tensors.
    """
    for name, value in extra.items():
        buffer = io.BytesIO()
        try:
            torch.save(value, buffer)
            buffer.seek(0)
            torch.load(buffer, weights_only=True)
        except Exception:
            raise CheckpointError(
                f"extra[{name!r}] is a {type(value).__name__} that is not plain data; give numbers, text, "
                "lists, dicts and tensors, such as what a state_dict() returns"
            ) from None
