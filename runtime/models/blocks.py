"""Blocks of every kind under autograd: forward, backward, and the two halves of a split backward.

Each block is differentiated by itself: its inputs are cut off from the graph that made them, and what
arrives and leaves are plain tensors. So blocks can run in any order that their inputs allow, and the same
code runs them on devices and in the reference's replay. A block that is recomputed keeps only its inputs,
and runs forward once more before its backward, with the random numbers and the buffers of the first time. Of
one that is offloaded the host keeps what autograd saved.

Where torch has no gradient, a tensor of negative zeros is handed over (`absent_as`), and the block that it
comes to does nothing. So a parameter that nothing depends on has no gradient, rather than one of zeros.

A block in data-parallel groups is computed for the group of this device. What it takes is cut into shares of
the samples, and what the groups make is put together again, here, outside of autograd: the gradient of the
one is the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, TypeVar

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
from schedsearch.semantics.versions import WeightMode

T = TypeVar("T")

Instance = tuple[str, int]
"""A block of one micro-batch: (block name, micro-batch)."""


class Saved(NamedTuple):
    """What a forward block of one micro-batch keeps for its backward.

    Attributes:
        block: The forward block.
        tensors: Its inputs and output, as far as they are kept, or its output and the gradient of that.
        has_graph: Whether what autograd saved of it is kept too.
    """

    block: str
    tensors: tuple[Tensor, ...]
    has_graph: bool


class _Made(NamedTuple):
    """What a block made of the samples of this device's group.

    Attributes:
        handed: Tensors, each with those that take it.
        loss: What the group adds to the loss of all groups; None where there is none.
    """

    handed: Sequence[tuple[Tensor, Sequence[str]]]
    loss: Tensor | None = None


class Blocks:
    """The blocks of a device, and what they save between forward and backward.

    Attributes:
        inputs: For every block of the placement those whose tensors it takes, in order.
        consumers: For every block those that take its tensors.
        dtype: Type of every tensor that is handed over.
        store: The weights that they read.
        losses: Loss of each (loss-computing block, micro-batch) that ran in this iteration; scalars. Their
            mean over the micro-batches is the update's, also where they are weighted.
        loss_factor: What a forward block's loss of a micro-batch is multiplied by before the backward pass:
            its share in the update's mean, times the scale of an fp16 loss.
        keeps_pace: Whether a block that fails ends nothing: from then on all blocks hand over zeros and
            compute nothing, so that no other device waits in vain. For placements without blocks that are cut
            over several devices: their shards wait for each other while they compute.
        failure: What was the first to fail, where the pace is kept.
        peak_host_bytes: The most that the host has kept of offloaded blocks at one time, of all iterations.

    Args:
        placement: What runs where.
        model: The forward blocks of this device.
        num_micro_batches: Number of micro-batches of one iteration.
        versions: Which weights they read; by default the model's, with one update for all. Gradients are
            means over the micro-batches of an update.
        left_out: Blocks of micro-batches that do not run: what they would take or make is not handed over.
    """

    def __init__(
        self,
        placement: Placement,
        model: Model,
        num_micro_batches: int,
        versions: ReadVersions | None = None,
        left_out: Collection[Instance] = (),
    ) -> None:
        """Pair the backward blocks with their forward blocks.

        Raises:
            ModelError: Micro-batches leave out blocks that the model needs.
        """
        if left_out and model.options.name not in OF_BRANCHES:
            raise ModelError(
                f"{model.options.name} needs all blocks in each micro-batch, and {sorted(left_out)[0][0]} is "
                f"left out in one; use the model {' or '.join(OF_BRANCHES)}, or give it a time above 0",
                "name",
            )
        self._left_out = frozenset(left_out)
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
        self._placement, self._num_micro_batches = placement, num_micro_batches
        self._pairs = pair_backward(placement)
        self._trained = set(self._pairs.values())
        self._forward_inputs = {name: forward_inputs(placement, name) for name in model.groups}
        self._computes_loss = {name for name in model.groups if computes_loss(placement, name)}
        self._model = model
        self.store = WeightStore(
            model,
            versions or ReadVersions({}, num_micro_batches),
            num_micro_batches,
            {block.name for block in placement.blocks if block.stream != COMPUTE},
        )
        self._data = model.data(num_micro_batches)
        self.loss_factor: Callable[[str, int], Tensor | float] = self._loss_factor
        weight, each = model.weight_of_loss, self.store.micro_batches_per_update
        if weight is not None and self.store.takers:
            raise ModelError(
                "has losses that count by their targets, which are not known of an update that copies of "
                f"a stage make together; use {WeightMode.FLUSH}",
                "weight_versions",
            )
        self._loss_shares = None if weight is None else LossShares(weight, self._data, placement, each)
        self.keeps_pace = False
        self.failure: Exception | None = None
        self.peak_host_bytes = 0
        self._iteration = 0
        self._saved: dict[Instance, tuple[list[Tensor], Tensor]] = {}
        self._recomputed: dict[Instance, tuple[list[Tensor], _State]] = {}
        self._segments: dict[Instance, tuple[Tensor, ...]] = {}
        self._offloaded: dict[Instance, Offloaded] = {}
        self._have_gradient: set[str] = set()
        self._halfway: dict[Instance, WeightHalf] = {}
        self._splits = defaultdict[str, SplitBackward](SplitBackward)

    def begin(self, iteration: int) -> None:
        """Read the micro-batches of an iteration from now on."""
        if self.failure is not None:
            return
        left = self._saved or self._recomputed or self._halfway
        assert not left, "a forward block of the last iteration had no backward"
        for name in self._model.groups:
            if (sliced := self._model.body.slice_of(name)) is not None:
                sliced.clear()
        self._iteration = iteration
        self.losses = {}
        self._have_gradient = set()
        self.store.begin()
        for sharded in self._model.sharded_blocks.values():
            sharded.release()  # what was moved since would not be in them
        if self._loss_shares is not None:
            self._loss_shares.begin(iteration)

    def follow(self, order: Iterable[Instance]) -> None:
        """Expect another order of the device's blocks from the next iteration on; copies may take others."""
        self.store.follow(self._placement, order)

    def inputs_of(self, block: str, micro_batch: int) -> tuple[str, ...]:
        """Return the blocks whose tensors a block takes in a micro-batch, in order."""
        return self._running(self.inputs[block], micro_batch)

    def _running(self, blocks: Sequence[str], micro_batch: int) -> tuple[str, ...]:
        return tuple(name for name in blocks if (name, micro_batch) not in self._left_out)

    def saved(self) -> Iterator[Saved]:
        """Yield what is kept of each forward block that ran and whose backward is not over."""
        for (block, n), (inputs, output) in list(self._saved.items()):  # another stream may add to it
            kept = self._segments.get((block, n), ())
            has_graph = (block, n) not in self._offloaded and (block, n) not in self._segments
            yield Saved(block, (*inputs, output, *kept), has_graph)
        for (block, _), (inputs, _) in list(self._recomputed.items()):
            yield Saved(block, tuple(inputs), False)
        for (block, _), half in list(self._halfway.items()):
            yield Saved(block, tuple(half.held), False)

    def spec_between(self, producer: str, consumer: str, micro_batch: int | None = None) -> TensorSpec:
        """Return the form of what a device hands to another: an output, the gradient of one, or a share.

        Where the samples of micro-batches differ in their tokens it is the form of any of them.

        Args:
            producer: The block that makes it.
            consumer: The block that takes it.
            micro_batch: A micro-batch of the iteration begun last; None where they have the same shapes.
        """
        block = self._placement.by_name[producer]
        forward = producer if block.kind is Kind.F else self._pairs[consumer]
        whole = self._model.output_shape(forward, self._shaped(forward, micro_batch))
        is_share = (producer, consumer) in self._in_shares
        shape = share_shape(whole, block.num_shares) if is_share else whole
        return TensorSpec.of(self.dtype, shape)

    def _shaped(self, block: str, micro_batch: int | None) -> Sample | None:
        """Return what tells the shapes of a micro-batch; None where all have the same."""
        if micro_batch is None or not self.varies:
            return None
        return self._data.read(block, self._iteration, micro_batch)

    @property
    def varies(self) -> bool:
        """Whether micro-batches may have shapes of their own, which what is read tells."""
        return self._data.varies

    def max_bytes(self, producer: str, consumer: str) -> int:
        """Return the most bytes that a block hands to another for one micro-batch."""
        forward = producer if self._placement.by_name[producer].kind is Kind.F else self._pairs[consumer]
        tokens = self._model.options.sequence_length * max(1, len(self._model.branches(forward)))
        return self.spec_between(producer, consumer).num_bytes(self.dtype.itemsize, tokens)

    def spec_of(self, producer: str, consumer: str, micro_batch: int, spec: TensorSpec) -> TensorSpec:
        """Return the form of what is handed over in a micro-batch of the iteration begun last."""
        is_forward = self._placement.by_name[producer].kind is Kind.F
        return self._sized(spec, producer if is_forward else self._pairs[consumer], micro_batch)

    def _sized(self, spec: TensorSpec, forward: str, micro_batch: int) -> TensorSpec:
        """Return a form with the positions that a forward block has in a micro-batch."""
        tokens = self._model.options.tokens_of(self._iteration, micro_batch, self._num_micro_batches)
        branches = self._model.branches(forward)
        return spec.with_tokens(tokens * max(1, len(self._running(branches, micro_batch))))

    def gathered(self, consumer: str, part: Tensor, shape: Sequence[int]) -> Tensor:
        """Return a tensor of which each device of a block's group received a part; all of them call it."""
        shards = self._model.shards[self._pairs.get(consumer, consumer)]
        return of_parts(shards.gather(part), shape)

    def run(
        self,
        block: str,
        micro_batch: int,
        arrived: Sequence[Tensor],
        mode: str = KEEP,
        *,
        keep_weights: bool = False,
    ) -> Mapping[str, Tensor]:
        """Run one block.

        Args:
            block: Any kind.
            micro_batch: Micro-batch of the iteration begun last.
            arrived: What its `inputs` handed over, in that order: for the samples of this device's group if
                each group hands over its share, else for all.
            mode: How a forward block runs; with ``recompute`` it keeps its inputs alone, and its backward
                computes it again; with ``offload`` it keeps its inputs and its output, and the host the rest.
            keep_weights: Whether its sharded weights stay gathered for its next run.

        Returns:
            For each of its `consumers` the contiguous tensor to hand over, likewise.
        """
        made = None
        if self.failure is None:
            what = f"{block} of micro-batch {micro_batch}"
            with self._weights_of(block, keep_weights):
                made = self.attempt(lambda: self._run(block, micro_batch, arrived, mode), what)
        if made is None:
            made = self._zeros(block, micro_batch)
        if made.loss is not None:
            self.losses[block, micro_batch] = self._loss_of_all_groups(block, made.loss)
        found: dict[str, Tensor] = {}
        for tensor, consumers in made.handed:
            found |= self._handed_over(block, tensor, consumers)
        return found

    def _weights_of(self, block: str, keep: bool) -> AbstractContextManager[None]:
        """Return what has the sharded weights of a block there while it runs."""
        sharded = self._model.sharded_blocks.get(self._pairs.get(block, block))
        kind = self._placement.by_name[block].kind
        return nullcontext() if sharded is None else sharded.running(kind, keeps=keep)

    def attempt(self, compute: Callable[[], T], what: str = "") -> T | None:
        """Return what is computed, or None if that fails where the pace is kept.

        Args:
            compute: Computes it.
            what: It is, for the message; empty where the error says that itself.
        """
        try:
            return compute()
        except Exception as error:  # whatever a user's module or batch raises
            if not self.keeps_pace:
                raise
            self.failure = error
            if what and not isinstance(error, ModelError):
                self.failure = ModelError(f"{what}: {type(error).__name__}: {error}")
                self.failure.__cause__ = error
            return None

    def take_failure(self) -> Exception | None:
        """Return what failed, and forget it, and what the blocks had saved; None if nothing did."""
        failure, self.failure = self.failure, None
        if failure is not None:
            self.discard()
        return failure

    def discard(self) -> None:
        """Forget what blocks have saved for their backward."""
        self._saved, self._recomputed, self._offloaded, self._halfway = {}, {}, {}, {}
        self._segments = {}

    def _zeros(self, block: str, micro_batch: int) -> _Made:
        """Return what stands for the work of a block after a failure, in the forms of what it makes."""
        if self._placement.by_name[block].kind is not Kind.F:
            consumers = self._running(self.consumers[block], micro_batch)
            forward = [(self._pairs[each], each) for each in consumers]
            return _Made([(self._zeros_as(block, name, micro_batch), [each]) for name, each in forward])
        if block in self._computes_loss:
            return _Made([], torch.zeros((), device=self._model.device))
        return _Made(
            [(self._zeros_as(block, block, micro_batch), self._running(self.consumers[block], micro_batch))]
        )

    def _zeros_as(self, block: str, forward: str, micro_batch: int) -> Tensor:
        """Return the share of a block's group in zeros, in the form of a forward block's output."""
        whole = self._model.output_shape(forward, self._shaped(forward, micro_batch))
        shape = share_shape(whole, self._placement.by_name[block].num_shares)
        spec = self._sized(TensorSpec.of(self.dtype, shape), forward, micro_batch)
        return torch.zeros(spec.shape, dtype=self.dtype, device=self._model.device)

    def _run(self, block: str, micro_batch: int, arrived: Sequence[Tensor], mode: str) -> _Made:
        kind = self._placement.by_name[block].kind
        self.store.settle(self._pairs.get(block, block))
        if kind is Kind.F:
            return self._forward(block, micro_batch, arrived, mode)
        forward = self._pairs[block]
        if kind is Kind.R:
            self._saved[forward, micro_batch] = self._graph(forward, micro_batch)
            return _Made([])
        if kind is Kind.W:
            self._weight_half(forward, micro_batch)
            return _Made([])
        inputs, output = self._graph(forward, micro_batch)
        own = self._own_shares(block, forward, arrived, micro_batch)
        gradient = sum_in_order(own) if own else self._gradient_of_loss(output, forward, micro_batch)
        found: list[Tensor | None] = [None for _ in inputs]
        sliced = self._model.body.slice_of(forward)
        half = WeightHalf()
        if output.requires_grad and self._has_gradient(block, gradient):
            if kind is Kind.B:
                torch.autograd.backward(output, gradient)
                found = [value.grad for value in inputs]
            else:
                past = [] if sliced is None else sliced.past(micro_batch)
                found, half = self._splits[forward].input_half(output, gradient, [*inputs, *past])
                for value, more in zip(past, found[len(inputs) :], strict=True):
                    if more is not None:
                        value.grad = more if value.grad is None else value.grad + more
                found = found[: len(inputs)]
        if sliced is not None:
            sliced.forget(micro_batch)
        if kind is Kind.B:
            self.store.complete(forward, micro_batch)
        else:
            self._halfway[forward, micro_batch] = half
        return _Made(self._to_consumers(block, forward, inputs, found, micro_batch))

    def _has_gradient(self, block: str, gradient: Tensor) -> bool:
        """Tell whether torch has a gradient; a GPU is asked, and waited for, until one has come."""
        if block in self._have_gradient and gradient.is_cuda:
            return True
        found = not self.inputs[block] or not is_absent(gradient)
        if found:
            self._have_gradient.add(block)
        return found

    def _forward(self, block: str, micro_batch: int, arrived: Sequence[Tensor], mode: str) -> _Made:
        trains = block in self._trained
        own = self._own_shares(block, block, arrived, micro_batch)
        inputs = [value.detach().requires_grad_(trains) for value in own]
        is_cut = trains and mode == RECOMPUTE and self._model.options.checkpoints is not None
        again = trains and mode == RECOMPUTE and not is_cut
        if again:
            self._recomputed[block, micro_batch] = inputs, _State(self._model, block)
        with torch.set_grad_enabled(trains and not again):
            if is_cut:
                with self._model.in_segments(block) as kept:
                    output = self._computed(block, micro_batch, inputs)
                self._segments[block, micro_batch] = tuple(kept)
            elif trains and mode == OFFLOAD:
                output = self._offloading(block, micro_batch, inputs)
            else:
                output = self._computed(block, micro_batch, inputs)
        if trains and not again:
            self._saved[block, micro_batch] = inputs, output
        sliced = self._model.body.slice_of(block)
        if sliced is not None and sliced.is_last and not trains:
            sliced.forget(micro_batch)
        output = output.detach()
        if block in self._computes_loss:
            return _Made([], self._weighted(block, micro_batch, output))
        return _Made([(output, self._running(self.consumers[block], micro_batch))])

    def _offloading(self, block: str, micro_batch: int, inputs: Sequence[Tensor]) -> Tensor:
        """Return a forward block's output; what is saved of it is on the host."""
        weights = self.store.weights(block, micro_batch).values()
        saved = self._offloaded[block, micro_batch] = Offloaded([*inputs, *weights])
        with saved.saving():
            output = self._computed(block, micro_batch, inputs)
        host_bytes = sum(each.host_bytes for each in list(self._offloaded.values()))
        self.peak_host_bytes = max(self.peak_host_bytes, host_bytes)
        return output

    def _sample(self, block: str, micro_batch: int) -> Sample:
        """Return what this device's group reads."""
        groups = self._model.groups[block]
        return self._data.read(block, self._iteration, micro_batch).share(groups.index, groups.count)

    def _graph(self, forward: str, micro_batch: int) -> tuple[list[Tensor], Tensor]:
        """Return what a forward block took and made, the latter with its graph, as far as it is not there."""
        if (forward, micro_batch) in self._offloaded:
            self._offloaded.pop((forward, micro_batch)).bring_back()
        self._segments.pop((forward, micro_batch), None)
        if (forward, micro_batch) in self._saved:
            return self._saved.pop((forward, micro_batch))
        inputs, state = self._recomputed.pop((forward, micro_batch))
        with state.as_then(), torch.enable_grad():
            return inputs, self._computed(forward, micro_batch, inputs)

    def _computed(self, block: str, micro_batch: int, inputs: Sequence[Tensor]) -> Tensor:
        weights = self.store.weights(block, micro_batch)
        if (sliced := self._model.body.slice_of(block)) is not None:
            sliced.begin(micro_batch, block in self._trained)
        return self._model.forward(block, inputs, self._sample(block, micro_batch), weights)

    def _gradient_of_loss(self, output: Tensor, forward: str, micro_batch: int) -> Tensor:
        factor = self.loss_factor(forward, micro_batch)
        return factor.to(output) if isinstance(factor, Tensor) else torch.full_like(output, factor)

    def _loss_factor(self, forward: str, micro_batch: int) -> float:
        """Return a loss's share in the mean over an update, times the scale of an fp16 loss."""
        groups, scale = self._model.groups[forward], self._model.optimizer.loss_scale
        if self._loss_shares is None:
            share = 1 / (groups.count * self.store.micro_batches_per_update)
        else:
            share = self._loss_shares.share(forward, micro_batch, groups)
        return share if scale is None else share * scale.value

    def _weighted(self, block: str, micro_batch: int, loss: Tensor) -> Tensor:
        """Return what a loss of this device's group adds to that of all groups, if losses have weights."""
        if self._loss_shares is None:
            return loss
        share = self._loss_shares.share(block, micro_batch, self._model.groups[block])
        return loss * (share * self.store.micro_batches_per_update)

    def _loss_of_all_groups(self, block: str, own: Tensor) -> Tensor:
        """Return the loss of all samples; it travels in float64, as a group that failed knows no type."""
        groups = self._model.groups[block]
        total = sum_in_order([each.to(own.dtype) for each in groups.gather(own.double())])
        return total if self._loss_shares is not None else total / groups.count

    def _weight_half(self, forward: str, micro_batch: int) -> None:
        self._halfway.pop((forward, micro_batch)).run()
        self.store.complete(forward, micro_batch)

    def _to_consumers(
        self,
        block: str,
        forward: str,
        inputs: Sequence[Tensor],
        of_inputs: Sequence[Tensor | None],
        micro_batch: int,
    ) -> list[tuple[Tensor, Sequence[str]]]:
        """Return for each backward block that takes a gradient that of its own forward block's output."""
        gradients = [
            absent_as(value) if gradient is None else gradient
            for value, gradient in zip(inputs, of_inputs, strict=True)
        ]
        before = self._running(self._forward_inputs[forward], micro_batch)
        gradient_of = dict(zip(before, gradients, strict=True))
        consumers = self._running(self.consumers[block], micro_batch)
        return [(gradient_of[self._pairs[consumer]], [consumer]) for consumer in consumers]

    def _own_shares(
        self, block: str, forward: str, arrived: Sequence[Tensor], micro_batch: int
    ) -> list[Tensor]:
        """Return this device's group's share of what arrived."""
        groups = self._model.groups[forward]
        if groups.count == 1:
            return list(arrived)
        return [
            value if (producer, block) in self._in_shares else share_of(value, groups.index, groups.count)
            for producer, value in zip(self.inputs_of(block, micro_batch), arrived, strict=True)
        ]

    def _handed_over(self, block: str, made: Tensor, consumers: Sequence[str]) -> dict[str, Tensor]:
        """Return for each consumer one contiguous tensor of what this device's group made.

        For consumers in other groups, the groups exchange their shares, and it is of all samples.
        """
        made = made.contiguous()
        found = {consumer: made for consumer in consumers if (block, consumer) in self._in_shares}
        if len(found) < len(consumers):
            gathered = self._model.groups[self._pairs.get(block, block)].gather(made)
            whole = made if len(gathered) == 1 else torch.cat(gathered)
            found |= {consumer: whole for consumer in consumers if consumer not in found}
        return found


class _State:
    """What a block finds beside its inputs at one moment: random generators and buffers.

    Args:
        model: Has the block's buffers; its device's generator counts besides the CPU's.
        block: A forward block.
    """

    def __init__(self, model: Model, block: str) -> None:
        """Keep them."""
        self._body, self._block = model.body, block
        self._buffers = self._body.held_buffers(block, model.device)
        self._cuda = [model.device] if model.device.type == "cuda" else []
        self._state = torch.get_rng_state()
        self._cuda_states = [torch.cuda.get_rng_state(device) for device in self._cuda]

    @contextmanager
    def as_then(self) -> Iterator[None]:
        """Draw what was drawn then, from buffers as they were; afterwards go on as if nothing had been."""
        with torch.random.fork_rng(self._cuda):
            torch.set_rng_state(self._state)
            for device, state in zip(self._cuda, self._cuda_states, strict=True):
                torch.cuda.set_rng_state(state, device)
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
