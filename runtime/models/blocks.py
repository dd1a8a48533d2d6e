"""Blocks of every kind under autograd: forward, backward, and the two halves of a split backward.

Each block is differentiated by itself: its inputs are cut off from the graph that made them, and what
arrives and leaves are plain tensors. So blocks can run in any order that their inputs allow, and the same
code runs them on devices and in the reference's replay. A block that is recomputed keeps only its inputs,
and runs forward once more before its backward.

A block in data-parallel groups is computed for each local group by itself: a process has one, the replay all.
What it takes is cut into shares of the samples, and what it makes is put together again, here, outside of
autograd: the gradient of the one is the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models.body import Sample
from runtime.models.model import Model
from runtime.program.data_parallel import in_shares
from runtime.program.tensor_flow import computes_loss, forward_inputs, pair_backward, tensor_inputs
from runtime.program.tensor_spec import TensorSpec
from runtime.transport.shards import share_of, share_shape, sum_in_order

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
        self._in_shares = {
            (producer, consumer)
            for consumer, producers in self.inputs.items()
            for producer in producers
            if in_shares(placement.by_name[producer], placement.by_name[consumer])
        }
        self.dtype = model.dtype
        self.losses: dict[Instance, Tensor] = {}
        self._placement = placement
        self._pairs = pair_backward(placement)
        self._model = model
        self._num_micro_batches = num_micro_batches
        self._data = model.data(num_micro_batches)
        self._iteration = 0
        self._saved: dict[Instance, list[_Pass]] = {}
        self._recomputed: dict[Instance, tuple[list[list[Tensor]], _RandomState]] = {}
        self._halfway: dict[Instance, list[tuple[Tensor, Tensor]]] = {}

    def begin(self, iteration: int) -> None:
        """Read the micro-batches of an iteration from now on."""
        left = self._saved or self._recomputed or self._halfway
        assert not left, "a forward block of the last iteration had no backward"
        self._iteration = iteration
        self.losses = {}

    def held(self) -> Iterator[Held]:
        """Yield what is kept of each forward block that ran and whose backward is not over."""
        for (block, _), passes in self._saved.items():
            for inputs, output in passes:
                yield Held(block, (*inputs, output), True)
        for (block, _), (by_group, _) in self._recomputed.items():
            for inputs in by_group:
                yield Held(block, tuple(inputs), False)
        for (block, _), halves in self._halfway.items():
            for half in halves:
                yield Held(block, half, True)

    def spec_between(self, producer: str, consumer: str) -> TensorSpec:
        """Return the form of what a device hands to another: an output, the gradient of one, or a share."""
        block = self._placement.by_name[producer]
        whole = self._model.output_shape(producer if block.kind is Kind.F else self._pairs[consumer])
        is_share = (producer, consumer) in self._in_shares
        shape = share_shape(whole, block.data_parallel) if is_share else whole
        return TensorSpec.of(self.dtype, shape)

    def run(self, block: str, micro_batch: int, arrived: Sequence[Tensor]) -> Mapping[str, Tensor]:
        """Run one block.

        Args:
            block: Any kind.
            micro_batch: Of the iteration begun last.
            arrived: What its `inputs` handed over, in that order: for the samples of the local groups if each
                group hands over its share, else for all.

        Returns:
            For each of its `consumers` the contiguous tensor to hand over, likewise.
        """
        kind = self._placement.by_name[block].kind
        if kind is Kind.F:
            return self._forward(block, micro_batch, arrived)
        forward = self._pairs[block]
        if kind is Kind.W:
            self._weight_half(forward, micro_batch)
            return {}
        by_group: list[Sequence[Tensor | None]] = []
        shares = self._by_group(block, forward, arrived)
        for (inputs, output), own in zip(self._passes(forward, micro_batch), shares, strict=True):
            gradient = self._gradient(output, own, self._model.groups[forward].count)
            if kind is Kind.B:
                torch.autograd.backward(output, gradient)
                by_group.append([value.grad for value in inputs])
            else:
                found = torch.autograd.grad(output, inputs, gradient, retain_graph=True) if inputs else ()
                by_group.append(found)
                self._halfway.setdefault((forward, micro_batch), []).append((output, gradient))
        return self._to_consumers(block, forward, by_group)

    def _forward(self, block: str, micro_batch: int, arrived: Sequence[Tensor]) -> Mapping[str, Tensor]:
        trains = bool(self._pairs)
        sample = self._data.read(block, self._iteration, micro_batch)
        inputs = [
            [value.detach().requires_grad_(trains) for value in own]
            for own in self._by_group(block, block, arrived)
        ]
        again = trains and self._model.recomputes(block)
        if again:
            self._recomputed[block, micro_batch] = inputs, _RandomState(self._model.device)
        with torch.set_grad_enabled(trains and not again):
            passes = self._run_groups(block, inputs, sample)
        if trains and not again:
            self._saved[block, micro_batch] = passes
        outputs = [each.output.detach() for each in passes]
        if computes_loss(self._placement, block):
            groups = self._model.groups[block]
            self.losses[block, micro_batch] = sum_in_order(groups.gather(outputs)) / groups.count
        return self._handed_over(block, block, outputs, self.consumers[block])

    def _run_groups(self, block: str, inputs: Sequence[list[Tensor]], sample: Sample) -> list[_Pass]:
        """Run a forward block for each local group."""
        groups = self._model.groups[block]
        shares = [sample.share(index, groups.count) for index in groups.local]
        return [
            _Pass(own, self._model.forward(block, own, share, place))
            for place, (own, share) in enumerate(zip(inputs, shares, strict=True))
        ]

    def _passes(self, forward: str, micro_batch: int) -> list[_Pass]:
        """Return what a forward block took and made, the latter with its graph; computed again if need be."""
        if (forward, micro_batch) in self._saved:
            return self._saved.pop((forward, micro_batch))
        inputs, random = self._recomputed.pop((forward, micro_batch))
        sample = self._data.read(forward, self._iteration, micro_batch)
        with random.as_then(), torch.enable_grad():
            return self._run_groups(forward, inputs, sample)

    def _gradient(self, output: Tensor, arrived: Sequence[Tensor], num_groups: int) -> Tensor:
        """Return the sum of what arrived, or a loss's share in the mean over groups and micro-batches."""
        if not arrived:
            return torch.full_like(output, 1 / (num_groups * self._num_micro_batches))
        total = arrived[0]
        for other in arrived[1:]:
            total = total + other
        return total

    def _weight_half(self, forward: str, micro_batch: int) -> None:
        for place, (output, gradient) in enumerate(self._halfway.pop((forward, micro_batch))):
            weights = self._model.parameters_of(forward, place)
            addends = torch.autograd.grad(output, weights, gradient, allow_unused=True) if weights else ()
            for weight, addend in zip(weights, addends, strict=True):
                if addend is None:
                    continue
                weight.grad = addend.clone() if weight.grad is None else weight.grad.add_(addend)

    def _to_consumers(
        self, block: str, forward: str, by_group: Sequence[Sequence[Tensor | None]]
    ) -> Mapping[str, Tensor]:
        """Return for each backward block that takes a gradient that of its own forward block's output."""
        place_of = {name: i for i, name in enumerate(forward_inputs(self._placement, forward))}
        found: dict[str, Tensor] = {}
        for consumer in self.consumers[block]:
            parts = []
            for of_inputs in by_group:
                gradient = of_inputs[place_of[self._pairs[consumer]]]
                assert gradient is not None, f"{forward} does not use {self._pairs[consumer]}"
                parts.append(gradient)
            found |= self._handed_over(block, forward, parts, [consumer])
        return found

    def _by_group(self, block: str, forward: str, arrived: Sequence[Tensor]) -> list[list[Tensor]]:
        """Return for each local group of a block its share of what arrived."""
        groups = self._model.groups[forward]
        producers = self.inputs[block]
        found = []
        for place, index in enumerate(groups.local):
            shares = []
            for producer, value in zip(producers, arrived, strict=True):
                is_ours = (producer, block) in self._in_shares
                at, count = (place, len(groups.local)) if is_ours else (index, groups.count)
                shares.append(share_of(value, at, count))
            found.append(shares)
        return found

    def _handed_over(
        self, block: str, forward: str, parts: Sequence[Tensor], consumers: Sequence[str]
    ) -> dict[str, Tensor]:
        """Return for each consumer one tensor of what each local group made.

        For consumers in other groups, the groups exchange their parts, and it is of all samples.
        """
        likes = [consumer for consumer in consumers if (block, consumer) in self._in_shares]
        others = [consumer for consumer in consumers if consumer not in likes]
        found = dict.fromkeys(likes, _joined(parts)) if likes else {}
        if others:
            gathered = self._model.groups[forward].gather([part.contiguous() for part in parts])
            found |= dict.fromkeys(others, _joined(gathered))
        return found


class _Pass(NamedTuple):
    """A run of a forward block for one group: what it took and made."""

    inputs: list[Tensor]
    output: Tensor


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Return the samples of all parts, in order, as one contiguous tensor."""
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(list(parts))


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
