"""The state of either loop: tensors by name, and checkpoints of all that it needs to go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from runtime.checkpoints.loading import Resumed, load_checkpoint
from runtime.checkpoints.manifest import facts_of, manifests
from runtime.checkpoints.training_state import TrainingState
from runtime.execution.device_context import DeviceContext
from runtime.models import ParameterShard
from runtime.models.user.given import GivenModules
from runtime.transport.agreement import PipelineError, succeeded

if TYPE_CHECKING:
    from runtime.checkpoints.saving import Checkpoints

SHARED = "optimizer"
"""Name of the loop's own addition to a checkpoint: with fp16 the loss scale."""


class LoopState:
    """The state of this process; every process must call each method but `tensors` together.

    Args:
        context: The device and all that it runs with.
        body: The modules that were given; None for the job's own model.
    """

    def __init__(self, context: DeviceContext, body: GivenModules | None = None) -> None:
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
        shards = {shard.name: shard for shard in self._model.parameters}

        def checked(name: str, tensor: Tensor) -> Tensor:
            if name not in state:
                raise PipelineError(f"state: has no {name!r}; give the state of the whole model")
            value = state[name]
            if value.shape != tensor.shape and name in shards:
                value = shards[name].of(value)
            if value.shape != tensor.shape:
                raise PipelineError(
                    f"state: {name!r} is of shape {tuple(value.shape)} instead of {tuple(tensor.shape)}"
                )
            return value

        tensors = self.tensors()
        values = succeeded(
            self._transport, self._device, lambda: [checked(name, value) for name, value in tensors.items()]
        )
        with torch.no_grad():
            for mine, value in zip(tensors.values(), values, strict=True):
                mine.copy_(value)
        if self._body is not None:
            self._body.forget_buffers()

    def save(
        self,
        folder: Path,
        num_done: int,
        optimizer: Any,
        extra: Mapping[str, Any] | None = None,
        *,
        num_kept: int,
        is_async: bool,
    ) -> None:
        """Begin a checkpoint, after the end of the one before; see `runtime.checkpoints.saving.Checkpoints`.

        Raises:
            CheckpointError: This one or the one before could not be written.
        """
        # PyTorch's module takes half a second to import, which a loop without checkpoints need not wait for.
        from runtime.checkpoints.saving import Checkpoints

        self.wait()
        key = folder, num_kept, is_async
        if key not in self._made:
            self._made[key] = Checkpoints(
                folder, self._transport, self._device, num_kept=num_kept, is_async=is_async
            )
        state = self._state(optimizer, {**(extra or {}), SHARED: self._model.optimizer.shared_state()})
        self._made[key].save(state, num_done, self._facts)

    def load(self, folder: Path, optimizer: Any, max_iterations: int | None = None) -> Resumed:
        """Read the newest whole checkpoint of a folder; see `runtime.checkpoints.loading.load_checkpoint`.

        Raises:
            ScriptError: There is none, or it is of another model.
        """
        self.wait()
        arguments = self._state(optimizer), self._facts, self._transport, self._device
        resumed = load_checkpoint(folder, *arguments, max_iterations=max_iterations)
        extra = dict(resumed.extra)
        self._model.optimizer.load_shared_state(extra.pop(SHARED, {}))
        if self._body is not None:
            self._body.forget_buffers()
        return replace(resumed, extra=extra)

    def has_any(self, folder: Path) -> bool:
        """Tell whether there was ever a checkpoint in a folder."""
        has_any = self._device == 0 and any(manifests(folder))
        return bool(self._transport.collect(has_any)[0])

    def wait(self) -> None:
        """Return when no checkpoint is being written.

        Raises:
            CheckpointError: The last one could not be written.
        """
        for saver in self._made.values():
            saver.wait()

    def _state(self, optimizer: Any, extra: Mapping[str, Any] | None = None) -> TrainingState:
        """Return parameters, buffers among them, with their optimizer."""
        if self._body is None:
            return TrainingState(self._model.state(), optimizer, extra or {})
        held = self._body.state(keep_vars=True).items()
        buffers = {ParameterShard(n): value for n, value in held if not isinstance(value, nn.Parameter)}
        return TrainingState(self._model.parameters | buffers, optimizer, extra or {})
