"""Blocks of every kind under autograd: forward, backward, and the two halves of a split backward.

Each block is differentiated by itself: its inputs are cut off from the graph that made them, and plain
tensors arrive and leave. So blocks can run in any order that their inputs allow, and the same code runs them
on devices and in the reference's replay. A block that is recomputed keeps only its inputs, and runs forward
once more before its backward, with the random numbers and the buffers of the first time. The host keeps the
tensors that autograd saved of one that is offloaded.

Where torch has no gradient, a tensor of negative zeros is handed over (`absent_as`), and the block that it
comes to does nothing. So a parameter that nothing depends on has no gradient, rather than one of zeros.

A block in data-parallel groups is computed for the group of this device. Its tensors are cut into shares of
the samples, and put together again, here, outside of autograd: the gradient of the one is the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from placements import Kind, Placement
from placements.block import COMPUTE
from runtime.models.core.options import OF_BRANCHES, ModelError
from runtime.models.loss_shares import LossShares
from runtime.models.model import Model
from runtime.models.offloading import Offloaded
from runtime.models.split_backward import SplitBackward, WeightHalf
from runtime.models.user.packing import absent_as, is_absent
from runtime.models.user.reading import Sample
from runtime.models.user.seeds import random_states, set_random_states
from runtime.models.weight_versions import ReadVersions, WeightStore
from runtime.program.data_parallel import in_shares
from runtime.program.tensor_flow import (
    KEEP,
    OFFLOAD,
    RECOMPUTE,
    computes_loss,
    forward_inputs,
    pair_backward,
    tensor_inputs,
)
from runtime.program.tensor_spec import TensorSpec
from runtime.transport.shards import of_parts, share_of, share_shape, sum_in_order
from schedsearch.schedule import Instance
from schedsearch.semantics.versions import WeightMode

_Made = tuple[list[tuple[Tensor, Sequence[str]]], Tensor | None]
"""Result of a block for the samples of this device's group: tensors with their consumers, and a loss."""


class Saved(NamedTuple):
    """Tensors kept of a forward block of one micro-batch, and whether autograd's are kept too (`has_graph`).

    The tensors are its inputs and output, as far as they are kept, or its output and the gradient of that.
    """

    block: str
    tensors: tuple[Tensor, ...]
    has_graph: bool


class _Forward(NamedTuple):
    """A forward block of a micro-batch whose backward is to come.

    Inputs are leaves of the output's graph. One that is computed again has no output, but its state before.
    """

    inputs: list[Tensor]
    output: Tensor | None = None
    before: _State | None = None
    offloaded: Offloaded | None = None


class Blocks:
    """The blocks of a device, and the tensors that they save between forward and backward.

    Attributes:
        inputs: For every block of the placement those whose tensors it takes, in order.
        dtype: Type of every tensor that is handed over.
        store: The weights that they read.
        losses: Loss of each (loss-computing block, micro-batch) that ran in this iteration; scalars. Their
            mean over the micro-batches is the update's, also where they are weighted.
        peak_host_bytes: Peak of the host's memory for offloaded blocks, of all iterations.

    Args:
        model: The forward blocks of this device.
        num_micro_batches: Micro-batches of one iteration.
        versions: Which weights they read; by default the model's, with one update for all. Gradients are
            means over the micro-batches of an update.
        left_out: Blocks of micro-batches that do not run, and whose tensors are not handed over.

    Raises:
        ModelError: Micro-batches leave out blocks that the model needs, or losses have weights that cannot
            be known.
    """

    def __init__(
        self,
        placement: Placement,
        model: Model,
        num_micro_batches: int,
        versions: ReadVersions | None = None,
        left_out: Collection[Instance] = (),
    ) -> None:
        if left_out and model.options.name not in OF_BRANCHES:
            raise ModelError(
                f"{model.options.name} needs all blocks in each micro-batch, and {sorted(left_out)[0][0]} is "
                f"left out in one; use the model {' or '.join(OF_BRANCHES)}, or give it a time above 0",
                "name",
            )
        self._placement, self._model, self._num_micro_batches = placement, model, num_micro_batches
        self._left_out = frozenset(left_out)
        self.dtype = model.dtype
        self.inputs = tensor_inputs(placement)
        edges = [(producer, consumer) for consumer, names in self.inputs.items() for producer in names]
        self._consumers: dict[str, list[str]] = {block.name: [] for block in placement.blocks}
        for producer, consumer in edges:
            self._consumers[producer].append(consumer)
        by_name = placement.by_name
        self._in_shares = {edge for edge in edges if in_shares(by_name[edge[0]], by_name[edge[1]])}
        pairs = pair_backward(placement)
        self._trained = set(pairs.values())
        self._forward_of = {block.name: block.name for block in placement.blocks} | dict(pairs)
        self._forward_inputs = {name: forward_inputs(placement, name) for name in model.groups}
        self._computes_loss = {name for name in model.groups if computes_loss(placement, name)}
        self.store = WeightStore(
            model,
            versions or ReadVersions({}, num_micro_batches),
            num_micro_batches,
            {block.name for block in placement.blocks if block.stream != COMPUTE},
        )
        self._data = model.body.data(num_micro_batches, model.device)
        weight, per_update = model.body.weight_of_loss, self.store.versions.micro_batches_per_update
        if weight is not None and self.store.versions.copies:
            raise ModelError(
                "has losses that count by their targets, which are not known of an update that copies of "
                f"a stage make together; use {WeightMode.FLUSH}",
                "weight_versions",
            )
        self._loss_shares = None if weight is None else LossShares(weight, self._data, placement, per_update)
        self.losses: dict[Instance, Tensor] = {}
        self.peak_host_bytes = 0
        self._iteration = 0
        self._kept: dict[Instance, _Forward] = {}
        self._halfway: dict[Instance, WeightHalf] = {}
        self._have_gradient: set[str] = set()
        self._splits = defaultdict[str, SplitBackward](SplitBackward)

    def begin(self, iteration: int) -> None:
        """Read the micro-batches of an iteration from now on."""
        assert not self._kept and not self._halfway, "a forward block of the last iteration had no backward"
        for name in self._model.groups:
            if (sliced := self._model.body.slice_of(name)) is not None:
                sliced.clear()
        self._iteration = iteration
        self.losses = {}
        self._have_gradient = set()
        self.store.begin()
        if self._loss_shares is not None:
            self._loss_shares.begin(iteration)

    def follow(self, order: Iterable[Instance]) -> None:
        """Expect another order of the device's blocks from the next iteration on; copies may take others."""
        self.store.follow(self._placement, order)

    def producers_of(self, block: str, micro_batch: int) -> tuple[str, ...]:
        """Return the blocks whose tensors a block takes in a micro-batch, in order."""
        return self._running(self.inputs[block], micro_batch)

    def _running(self, blocks: Sequence[str], micro_batch: int) -> tuple[str, ...]:
        return tuple(name for name in blocks if (name, micro_batch) not in self._left_out)

    def saved(self) -> Iterator[Saved]:
        """Yield the tensors of each forward block that ran and whose backward is not over."""
        for (block, _), kept in list(self._kept.items()):  # another stream may add to it
            if kept.output is None:
                yield Saved(block, tuple(kept.inputs), False)
            else:
                yield Saved(block, (*kept.inputs, kept.output), kept.offloaded is None)
        for (block, _), half in list(self._halfway.items()):
            yield Saved(block, tuple(half.held), False)

    @property
    def varies(self) -> bool:
        """Whether micro-batches may have shapes of their own, which the data tell."""
        return self._data.varies

    def spec_between(self, producer: str, consumer: str, micro_batch: int | None = None) -> TensorSpec:
        """Return the form of the tensor between two blocks: an output, the gradient of one, or a share.

        It is the form in a micro-batch of the iteration begun last; without one the form that all have, where
        they differ in their tokens alone.
        """
        is_share = (producer, consumer) in self._in_shares
        num_shares = self._placement.by_name[producer].num_shares if is_share else 1
        forward, sample = self._output_between(producer, consumer), None
        if micro_batch is not None and self.varies:
            sample = self._data.read(forward, self._iteration, micro_batch)
        whole = self._model.body.output_shape(forward, sample)
        return TensorSpec.of(self.dtype, share_shape(whole, num_shares))

    def spec_of(self, producer: str, consumer: str, micro_batch: int, spec: TensorSpec) -> TensorSpec:
        """Return a form between two blocks in a micro-batch of the iteration begun last."""
        tokens = self._model.options.tokens_of(self._iteration, micro_batch, self._num_micro_batches)
        branches = self._model.branches(self._output_between(producer, consumer))
        return spec.with_tokens(tokens * max(1, len(self._running(branches, micro_batch))))

    def max_bytes(self, producer: str, consumer: str) -> int:
        """Return the most bytes that a block hands to another for one micro-batch."""
        num_branches = len(self._model.branches(self._output_between(producer, consumer)))
        tokens = self._model.options.sequence_length * max(1, num_branches)
        return self.spec_between(producer, consumer).num_bytes(self.dtype.itemsize, tokens)

    def _output_between(self, producer: str, consumer: str) -> str:
        """Return the forward block whose output, or the gradient of it, is handed over."""
        is_forward = self._placement.by_name[producer].kind is Kind.F
        return producer if is_forward else self._forward_of[consumer]

    def gathered(self, consumer: str, part: Tensor, shape: Sequence[int]) -> Tensor:
        """Return a tensor of which each device of a block's group received a part; all of them call it."""
        return of_parts(self._model.shards[self._forward_of[consumer]].gather(part), shape)

    def run(
        self, block: str, micro_batch: int, arrived: Sequence[Tensor], mode: str = KEEP
    ) -> Mapping[str, Tensor]:
        """Run one block.

        Args:
            block: Any kind.
            micro_batch: Micro-batch of the iteration begun last.
            arrived: The tensors of its `inputs`, in that order: for the samples of this device's group if
                each group hands over its share, else for all.
            mode: How a forward block runs; with ``recompute`` it keeps its inputs alone, and its backward
                computes it again; with ``offload`` it keeps its inputs and its output, and the host the rest.

        Returns:
            For each consumer the contiguous tensor to hand over, likewise.
        """
        tensors, loss = self._run(block, micro_batch, arrived, mode)
        groups = self._model.groups[self._forward_of[block]]
        if loss is not None:
            total = sum_in_order(groups.gather(loss))
            self.losses[block, micro_batch] = total / (groups.count if self._loss_shares is None else 1)
        by_name: dict[str, Tensor] = {}
        for tensor, consumers in tensors:
            tensor = tensor.contiguous()
            by_name |= {name: tensor for name in consumers if (block, name) in self._in_shares}
            if others := [name for name in consumers if name not in by_name]:
                # For consumers in other groups, the groups exchange their shares: it is of all samples.
                parts = groups.gather(tensor)
                by_name |= dict.fromkeys(others, tensor if len(parts) == 1 else torch.cat(parts))
        return by_name

    def _run(self, block: str, micro_batch: int, arrived: Sequence[Tensor], mode: str) -> _Made:
        kind, forward = self._placement.by_name[block].kind, self._forward_of[block]
        self.store.settle(forward)
        if kind is Kind.F:
            return self._forward(block, micro_batch, arrived, mode)
        if kind is Kind.R:
            self._kept[forward, micro_batch] = _Forward(*self._graph(forward, micro_batch))
            return [], None
        if kind is Kind.W:
            self._halfway.pop((forward, micro_batch)).run()
            self.store.complete(forward, micro_batch)
            return [], None
        inputs, output = self._graph(forward, micro_batch)
        shares = self._own_shares(block, arrived, micro_batch)
        if shares:
            gradient = sum_in_order(shares)
        else:
            gradient = torch.full_like(output, self._loss_factor(forward, micro_batch))
        gradients: list[Tensor | None] = [None for _ in inputs]
        sliced = self._model.body.slice_of(forward)
        half = WeightHalf()
        if output.requires_grad and self._has_gradient(block, gradient):
            if kind is Kind.B:
                torch.autograd.backward(output, gradient)
                gradients = [value.grad for value in inputs]
            else:
                past = [] if sliced is None else sliced.past(micro_batch)
                gradients, half = self._splits[forward].input_half(output, gradient, [*inputs, *past])
                for value, more in zip(past, gradients[len(inputs) :], strict=True):
                    if more is not None:
                        value.grad = more if value.grad is None else value.grad + more
                gradients = gradients[: len(inputs)]
        if sliced is not None:
            sliced.forget(micro_batch)
        if kind is Kind.B:
            self.store.complete(forward, micro_batch)
        else:
            self._halfway[forward, micro_batch] = half
        before = self._running(self._forward_inputs[forward], micro_batch)
        gradient_of = {
            name: absent_as(value) if gradient is None else gradient
            for name, value, gradient in zip(before, inputs, gradients, strict=True)
        }
        consumers = self._running(self._consumers[block], micro_batch)
        return [(gradient_of[self._forward_of[consumer]], [consumer]) for consumer in consumers], None

    def _has_gradient(self, block: str, gradient: Tensor) -> bool:
        """Tell whether torch has a gradient; a GPU is asked, and waited for, until one has come."""
        if block in self._have_gradient and gradient.is_cuda:
            return True
        has_gradient = not self.inputs[block] or not is_absent(gradient)
        if has_gradient:
            self._have_gradient.add(block)
        return has_gradient

    def _forward(self, block: str, micro_batch: int, arrived: Sequence[Tensor], mode: str) -> _Made:
        trains = block in self._trained
        shares = self._own_shares(block, arrived, micro_batch)
        inputs = [value.detach().requires_grad_(trains) for value in shares]
        again = trains and mode == RECOMPUTE
        before = _State(self._model, block) if again else None
        offloaded: Offloaded | None = None
        with torch.set_grad_enabled(trains and not again):
            if trains and mode == OFFLOAD:
                offloaded = Offloaded([*inputs, *self.store.weights(block, micro_batch).values()])
                with offloaded.saving():
                    output = self._computed(block, micro_batch, inputs)
            else:
                output = self._computed(block, micro_batch, inputs)
        if trains:
            self._kept[block, micro_batch] = _Forward(inputs, None if again else output, before, offloaded)
        if offloaded is not None:
            on_host = [kept.offloaded for kept in list(self._kept.values()) if kept.offloaded is not None]
            self.peak_host_bytes = max(self.peak_host_bytes, sum(held.host_bytes for held in on_host))
        sliced = self._model.body.slice_of(block)
        if sliced is not None and sliced.is_last and not trains:
            sliced.forget(micro_batch)
        output = output.detach()
        if block not in self._computes_loss:
            return [(output, self._running(self._consumers[block], micro_batch))], None
        if self._loss_shares is not None:
            share = self._loss_shares.share(block, micro_batch, self._model.groups[block])
            output = output * (share * self.store.versions.micro_batches_per_update)
        return [], output

    def _graph(self, forward: str, micro_batch: int) -> tuple[list[Tensor], Tensor]:
        """Return a forward block's inputs, and its output with the graph, as far as it is not there."""
        kept = self._kept.pop((forward, micro_batch))
        if kept.offloaded is not None:
            kept.offloaded.bring_back()
        if kept.before is None:
            assert kept.output is not None, "it is kept, or computed again"
            return kept.inputs, kept.output
        with kept.before.as_then(), torch.enable_grad():
            return kept.inputs, self._computed(forward, micro_batch, kept.inputs)

    def _computed(self, block: str, micro_batch: int, inputs: Sequence[Tensor]) -> Tensor:
        if (sliced := self._model.body.slice_of(block)) is not None:
            sliced.begin(micro_batch, block in self._trained)
        groups, weights = self._model.groups[block], self.store.weights(block, micro_batch)
        sample: Sample = self._data.read(block, self._iteration, micro_batch)
        return self._model.forward(block, inputs, sample.share(groups.index, groups.count), weights)

    def _loss_factor(self, forward: str, micro_batch: int) -> float:
        """Return a loss's share in the mean over an update, times the scale of an fp16 loss."""
        groups, scale = self._model.groups[forward], self._model.optimizer.loss_scale
        if self._loss_shares is None:
            share = 1 / (groups.count * self.store.versions.micro_batches_per_update)
        else:
            share = self._loss_shares.share(forward, micro_batch, groups)
        return share if scale is None else share * scale.value

    def _own_shares(self, block: str, arrived: Sequence[Tensor], micro_batch: int) -> list[Tensor]:
        """Return the shares that this device's group has of the tensors that arrived."""
        groups = self._model.groups[self._forward_of[block]]
        if groups.count == 1:
            return list(arrived)
        return [
            value if (producer, block) in self._in_shares else share_of(value, groups.index, groups.count)
            for producer, value in zip(self.producers_of(block, micro_batch), arrived, strict=True)
        ]


class _State:
    """Random generators, of CPU and device, and buffers that a block finds at one moment."""

    def __init__(self, model: Model, block: str) -> None:
        self._body, self._block, self._device = model.body, block, model.device
        self._buffers = self._body.held_buffers(block, model.device)
        self._random = random_states(model.device)

    @contextmanager
    def as_then(self) -> Iterator[None]:
        """Restore them; afterwards go on as if nothing had been drawn."""
        with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
            set_random_states(self._random, self._device)
            now = self._body.held_buffers(self._block)
            self._body.hold_buffers(self._block, self._buffers)
            try:
                yield
            finally:
                self._body.hold_buffers(self._block, now)


def warm_up(device: torch.device) -> None:
    """Differentiate a product once, before any iteration does.

    At the first time torch imports many modules, and cuBLAS may wait for all that a GPU does, so for receives
    that are not due yet.
    """
    value = torch.ones(1, 1, device=device, requires_grad=True)
    torch.autograd.backward(value @ value, torch.ones_like(value))
