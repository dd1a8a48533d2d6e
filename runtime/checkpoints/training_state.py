"""What a process keeps of its training, and where each of its tensors belongs in the whole model.

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

from runtime.checkpoints.optimizer_states import OptimizerStates, TorchStates
from runtime.models import ParameterShard

Collect = Callable[[object], list[Any]]
"""Returns every device's value, by device; see `runtime.transport.protocol.Transport.collect`."""

PARAMETERS, OPTIMIZER, RANDOM, EXTRA = "parameters", "optimizer", "random", "extra"
"""What the keys of a checkpoint begin with; see `parameter_key`, `state_key` and `device_key`."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the message is one line that names the device and the cause.

    Args:
        text: The line.
        cause: Why, if that is another device that failed or is gone.
    """

    def __init__(self, text: str, cause: str | None = None) -> None:
        """Keep the cause for those that wait for this device."""
        super().__init__(text)
        self.cause = cause


@dataclass(frozen=True)
class TrainingState:
    """What goes into a checkpoint, or is overwritten by one.

    Attributes:
        parameters: Those of this process, each with which part of it this is.
        optimizer: Theirs: one of `torch.optim`, or one with `state_of` and `load_state_of`; None for none.
        extra: Plain data and tensors of the caller, such as the states of a learning-rate schedule, of a loss
            scale, or of the data loader of a process that reads.
    """

    parameters: Mapping[ParameterShard, Tensor]
    optimizer: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def states(self) -> OptimizerStates:
        """The optimizer as states by parameter."""
        of_torch = isinstance(self.optimizer, torch.optim.Optimizer)
        return TorchStates(self.optimizer) if of_torch else OptimizerStates(self.optimizer)


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor belongs in the whole.

    Attributes:
        offsets: Offsets of its first element in the whole tensor.
        size: Size of the whole tensor.
    """

    offsets: tuple[int, ...]
    size: tuple[int, ...]


def parameter_key(name: str) -> str:
    """Return the key of a parameter."""
    return f"{PARAMETERS}/{name}"


def state_key(name: str, state: str = "") -> str:
    """Return the key of a tensor of a parameter's optimizer; without its name that of its plain data."""
    return f"{OPTIMIZER}/{name}/{state}"


def device_key(what: str, device: int) -> str:
    """Return the key of what a device keeps for itself."""
    return f"{what}/{device}"


def places_of(parameters: Mapping[ParameterShard, Tensor], collect: Collect) -> dict[str, TensorPlace]:
    """Return where the parameters of a process belong, by name; every process must call it together.

    Shards may be cut unevenly, in whatever way: how much each holds is asked of all.

    Raises:
        CheckpointError: No device holds some shard.
    """
    lengths = {
        shard: value.shape[shard.dim]
        for shard, value in parameters.items()
        if shard.num_shards > 1 or shard.num_shares > 1
    }
    of_all: dict[ParameterShard, int] = {}
    for others in collect({tuple(shard): length for shard, length in lengths.items()}):
        of_all |= {ParameterShard(*shard): length for shard, length in others.items()}
    return {shard.name: _place(shard, value, of_all) for shard, value in parameters.items()}


def _place(shard: ParameterShard, value: Tensor, lengths: Mapping[ParameterShard, int]) -> TensorPlace:
    offsets, size = [0] * value.dim(), list(value.shape)
    if shard in lengths:
        each = [
            lengths.get(shard._replace(shard=index, share=share))
            for index in range(shard.num_shards)
            for share in range(shard.num_shares)
        ]
        if None in each:
            raise CheckpointError(f"no device holds shard {each.index(None)} of {shard.name}")
        found, place = [length or 0 for length in each], shard.shard * shard.num_shares + shard.share
        offsets[shard.dim], size[shard.dim] = sum(found[:place]), sum(found)
    return TensorPlace(tuple(offsets), tuple(size))


def place_of_state(name: str, weight: Tensor, place: TensorPlace, value: Tensor) -> TensorPlace:
    """Return where a tensor of a parameter's optimizer belongs.

    Raises:
        CheckpointError: It belongs to a shard in a way that is not known, so that it could not be cut anew.
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
    """Ensure that what a caller adds can be read again without running code of the file.

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


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random generators of a process."""
    states = {"cpu": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Take over what `random_states` returned."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
