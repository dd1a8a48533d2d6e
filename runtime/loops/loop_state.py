"""The state of the user's own loop: tensors by name, and checkpoints of it in any folders."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from runtime.checkpoints.loading import Resumed, load_checkpoint
from runtime.checkpoints.manifest import facts_of, manifests, unreadable_manifests
from runtime.checkpoints.training_state import TrainingState, check_plain
from runtime.execution.device_context import DeviceContext
from runtime.models import ParameterShard
from runtime.models.user.given import GivenModules
from runtime.transport.agreement import PipelineError, succeeded

if TYPE_CHECKING:
    from runtime.checkpoints.saving import Checkpoints

_LOG = logging.getLogger(__name__)

_SHARED = "optimizer"
"""What a checkpoint adds by itself: the loss scale, with fp16."""


class LoopState:
    """The state of this process; every process must call each method but `tensors` together.

    Args:
        context: What the device runs with.
        body: The modules that were given; None for the job's own model.
    """

    def __init__(self, context: DeviceContext, body: GivenModules | None) -> None:
        """Do nothing yet."""
        self._model, self._body, self._transport = context.model, body, context.transport
        self._device, self._facts = context.process.device, facts_of(context.script)
        self._made: dict[tuple[Path, int, bool], Checkpoints] = {}

    def tensors(self) -> dict[str, Tensor]:
        """Return parameters and buffers of the own blocks, by name."""
        if self._body is not None:
            return self._body.state()
        return {shard.name: weight.detach() for shard, weight in self._model.parameters.items()}

    def take(self, state: Mapping[str, Tensor]) -> None:
        """Take over the own blocks' part of a state; where one process lacks something, none does.

        Raises:
            PipelineError: The state of some process lacks something, or something has another shape.
        """
        for own, value in succeeded(self._transport, self._device, lambda: self._found_in(state)):
            with torch.no_grad():
                own.copy_(value)
        if self._body is not None:
            self._body.forget_buffers()

    def save(
        self,
        folder: Path,
        optimizer: torch.optim.Optimizer | None,
        extra: Mapping[str, Any],
        num_steps: int,
        *,
        num_kept: int,
        is_async: bool,
    ) -> None:
        """Begin a checkpoint, after the end of the one before; see `runtime.checkpoints.saving.Checkpoints`.

        Raises:
            PipelineError: What some process adds is no plain data.
            CheckpointError: This one or the one before could not be written.
        """
        # PyTorch's module takes half a second to import, which a loop without checkpoints need not wait for.
        from runtime.checkpoints.saving import Checkpoints

        succeeded(self._transport, self._device, lambda: _check_extra(extra))
        self.wait()
        key = folder, num_kept, is_async
        if key not in self._made:
            self._made[key] = Checkpoints(
                folder, self._transport, self._device, num_kept=num_kept, is_async=is_async
            )
        state = self._state(optimizer, {**extra, _SHARED: self._model.optimizer.shared_state()})
        self._made[key].save(state, num_steps, self._facts)

    def load(self, folder: Path, optimizer: torch.optim.Optimizer | None) -> Resumed | None:
        """Read the newest whole checkpoint of a folder; return None if there was never one.

        Raises:
            ScriptError: None of those that are there is whole, or the newest is of another model.
        """
        self.wait()
        has_any = self._device == 0 and bool([*manifests(folder), *unreadable_manifests(folder)])
        if not self._transport.collect(has_any)[0]:
            return None
        state = self._state(optimizer, {})
        found = load_checkpoint(folder, state, self._facts, self._transport, self._device)
        extra = dict(found.extra)
        self._model.optimizer.load_shared_state(extra.pop(_SHARED, {}))
        if self._body is not None:
            self._body.forget_buffers()
        if self._device == 0:
            for note in found.notes:
                _LOG.warning("%s", note)
        return replace(found, extra=extra)

    def wait(self) -> None:
        """Return when no checkpoint is being written.

        Raises:
            CheckpointError: The last one could not be written.
        """
        for each in self._made.values():
            each.wait()

    def _state(self, optimizer: torch.optim.Optimizer | None, extra: Mapping[str, Any]) -> TrainingState:
        """Return what a checkpoint keeps; buffers stand among the parameters."""
        held = {} if self._body is None else self._body.state_of_buffers()
        buffers = {ParameterShard(name, 0, 1, 0): value for name, value in held.items()}
        return TrainingState(self._model.parameters | buffers, optimizer, extra)

    def _found_in(self, state: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return each own tensor with the part of a state that belongs there."""
        shards = {shard.name: shard for shard in self._model.parameters}
        found: list[tuple[Tensor, Tensor]] = []
        for name, own in self.tensors().items():
            if name not in state:
                raise PipelineError(f"state: has no {name!r}; give the state of the whole model")
            value = state[name]
            if value.shape != own.shape and name in shards:
                value = shards[name].of(value)
            if value.shape != own.shape:
                raise PipelineError(
                    f"state: {name!r} is of shape {tuple(value.shape)} instead of {tuple(own.shape)}"
                )
            found.append((own, value))
        return found


def _check_extra(extra: Mapping[str, Any]) -> None:
    """Ensure that what a loop adds to a checkpoint can be read again.

    Raises:
        PipelineError: One entry is no plain data, or has a name that is taken.
    """
    if _SHARED in extra:
        raise PipelineError(f"extra: {_SHARED!r} is kept beside it; give the optimizer as an argument")
    check_plain(extra)
