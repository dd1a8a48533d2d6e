"""Blocks of every kind under autograd: forward, backward, and the two halves of a split backward.

Each block is differentiated by itself: its inputs are cut off from the graph that made them, and what
arrives and leaves are plain tensors. So blocks can run in any order that their inputs allow, and the same
code runs them on devices and in the reference's replay. A block that is recomputed keeps only its inputs,
and runs forward once more before its backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.autodiff import computes_loss, forward_inputs, pair_backward, tensor_inputs
from runtime.forms import Form
from runtime.models.model import Model

Instance = tuple[str, int]
"""A block of one micro-batch: (block name, micro-batch)."""


class Held(NamedTuple):
    """What a forward block of one micro-batch keeps for its backward.

    Attributes:
        block: The forward block.
        tensors: Its inputs and output, as far as they are kept, or its output and the gradient of that.
        has_graph: Whether what autograd saved of it is kept too.
    """

    block: str
    tensors: tuple[Tensor, ...]
    has_graph: bool


class Blocks:
    """The blocks of a process, and what they hold between forward and backward.

    Attributes:
        inputs: For every block of the placement those whose tensors it takes, in order.
        consumers: For every block those that take its tensors.
        dtype: Of every tensor that is handed over.
        losses: Loss of each (loss-computing block, micro-batch) that ran in this iteration; scalars.

    Args:
        placement: What runs where.
        model: The forward blocks of this process.
        num_micro_batches: Of one iteration; gradients are means over them.
    """

    def __init__(self, placement: Placement, model: Model, num_micro_batches: int) -> None:
        """Pair the backward blocks with their forward blocks."""
        self.inputs = tensor_inputs(placement)
        self.consumers: dict[str, list[str]] = {block.name: [] for block in placement.blocks}
        for consumer, producers in self.inputs.items():
            for producer in producers:
                self.consumers[producer].append(consumer)
        self.dtype = model.dtype
        self.losses: dict[Instance, Tensor] = {}
        self._placement = placement
        self._pairs = pair_backward(placement)
        self._model = model
        self._num_micro_batches = num_micro_batches
        self._data = model.data(num_micro_batches)
        self._iteration = 0
        self._saved: dict[Instance, tuple[list[Tensor], Tensor]] = {}
        self._recomputed: dict[Instance, tuple[list[Tensor], _RandomState]] = {}
        self._halfway: dict[Instance, tuple[Tensor, Tensor]] = {}

    def begin(self, iteration: int) -> None:
        """Read the micro-batches of an iteration from now on."""
        left = self._saved or self._recomputed or self._halfway
        assert not left, "a forward block of the last iteration had no backward"
        self._iteration = iteration
        self.losses = {}

    def held(self) -> Iterator[Held]:
        """Yield what is kept of each forward block that ran and whose backward is not over."""
        for (block, _), (inputs, output) in self._saved.items():
            yield Held(block, (*inputs, output), True)
        for (block, _), (inputs, _) in self._recomputed.items():
            yield Held(block, tuple(inputs), False)
        for (block, _), tensors in self._halfway.items():
            yield Held(block, tensors, True)

    def form_between(self, producer: str, consumer: str) -> Form:
        """Return the form of what a block hands to another: an output, or the gradient of one."""
        is_forward = self._placement.by_name[producer].kind is Kind.F
        shape = self._model.output_shape(producer if is_forward else self._pairs[consumer])
        return Form(str(self.dtype).removeprefix("torch."), tuple(shape))

    def run(self, block: str, micro_batch: int, arrived: Sequence[Tensor]) -> Mapping[str, Tensor]:
        """Run one block.

        Args:
            block: Any kind.
            micro_batch: Of the iteration begun last.
            arrived: What its `inputs` handed over, in that order.

        Returns:
            For each of its `consumers` the contiguous tensor to hand over.
        """
        kind = self._placement.by_name[block].kind
        if kind is Kind.F:
            return self._forward(block, micro_batch, arrived)
        forward = self._pairs[block]
        if kind is Kind.W:
            self._weight_half(forward, micro_batch)
            return {}
        inputs, output = self._inputs_and_output(forward, micro_batch)
        gradient = self._gradient(output, arrived)
        if kind is Kind.B:
            torch.autograd.backward(output, gradient)
            by_input: Sequence[Tensor | None] = [value.grad for value in inputs]
        else:
            by_input = torch.autograd.grad(output, inputs, gradient, retain_graph=True) if inputs else ()
            self._halfway[forward, micro_batch] = output, gradient
        return self._to_consumers(block, forward, by_input)

    def _forward(self, block: str, micro_batch: int, arrived: Sequence[Tensor]) -> Mapping[str, Tensor]:
        trains = bool(self._pairs)
        sample = self._data.read(block, self._iteration, micro_batch)
        inputs = [value.detach().requires_grad_(trains) for value in arrived]
        again = trains and self._model.recomputes(block)
        if again:
            self._recomputed[block, micro_batch] = inputs, _RandomState(self._model.device)
        with torch.set_grad_enabled(trains and not again):
            output = self._model.forward(block, inputs, sample)
        if trains and not again:
            self._saved[block, micro_batch] = inputs, output
        if computes_loss(self._placement, block):
            self.losses[block, micro_batch] = output.detach()
        return dict.fromkeys(self.consumers[block], output.detach().contiguous())

    def _inputs_and_output(self, forward: str, micro_batch: int) -> tuple[list[Tensor], Tensor]:
        """Return what a forward block took and made, the latter with its graph; computed again if need be."""
        if (forward, micro_batch) in self._saved:
            return self._saved.pop((forward, micro_batch))
        inputs, random = self._recomputed.pop((forward, micro_batch))
        sample = self._data.read(forward, self._iteration, micro_batch)
        with random.as_then(), torch.enable_grad():
            return inputs, self._model.forward(forward, inputs, sample)

    def _gradient(self, output: Tensor, arrived: Sequence[Tensor]) -> Tensor:
        """Return the sum of what arrived, or a loss's share in the mean over micro-batches."""
        if not arrived:
            return torch.full_like(output, 1 / self._num_micro_batches)
        total = arrived[0]
        for other in arrived[1:]:
            total = total + other
        return total

    def _weight_half(self, forward: str, micro_batch: int) -> None:
        output, gradient = self._halfway.pop((forward, micro_batch))
        weights = self._model.parameters_of(forward)
        addends = torch.autograd.grad(output, weights, gradient, allow_unused=True) if weights else ()
        for weight, addend in zip(weights, addends, strict=True):
            if addend is None:
                continue
            weight.grad = addend.clone() if weight.grad is None else weight.grad.add_(addend)

    def _to_consumers(
        self, block: str, forward: str, by_input: Sequence[Tensor | None]
    ) -> Mapping[str, Tensor]:
        """Return for each backward block that takes a gradient that of its own forward block's output."""
        of_input = dict(zip(forward_inputs(self._placement, forward), by_input, strict=True))
        found = {}
        for consumer in self.consumers[block]:
            gradient = of_input[self._pairs[consumer]]
            assert gradient is not None, f"{forward} does not use {self._pairs[consumer]}"
            found[consumer] = gradient.contiguous()
        return found


class _RandomState:
    """The states of the random generators at one moment, so that dropout falls the same way again.

    Args:
        device: Whose generator counts besides the CPU's.
    """

    def __init__(self, device: torch.device) -> None:
        """Keep them."""
        self._cuda = [device] if device.type == "cuda" else []
        self._state = torch.get_rng_state()
        self._cuda_states = [torch.cuda.get_rng_state(device) for device in self._cuda]

    @contextmanager
    def as_then(self) -> Iterator[None]:
        """Draw what was drawn then; afterwards go on as if nothing had been drawn."""
        with torch.random.fork_rng(self._cuda):
            torch.set_rng_state(self._state)
            for device, state in zip(self._cuda, self._cuda_states, strict=True):
                torch.cuda.set_rng_state(state, device)
            yield


def warm_up(device: torch.device) -> None:
    """Differentiate a product once, before any iteration does.

    At the first time torch imports many modules, and cuBLAS may wait for all that a GPU does, so for receives
    that are not due yet.
    """
    value = torch.ones(1, 1, device=device, requires_grad=True)
    torch.autograd.backward(value @ value, torch.ones_like(value))
