"""The unpipelined model in one process, the reference of a run of scripts.

It has whole parameters and one backward per micro-batch through the whole model: it shares no cutting, no
collectives and no messages with the run. It adds up the gradients of the micro-batches in the order of the
devices, so that it agrees bit for bit where every block is on one device and hands its output to at most two
others, and up to the order of sums elsewhere. Of a run of slices it computes whole sequences, so that they
agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.execution.measurement import INEXACT_DIGITS, TOLERANCE
from runtime.models import (
    WHOLE,
    Model,
    ModelOptions,
    ParameterShard,
    ReadVersions,
    body_of,
    load_state_dict_file,
    read_versions,
)
from runtime.models.core.parameters import Weights
from runtime.models.core.precision import are_finite
from runtime.models.loss_shares import LossShares
from runtime.program.tensor_flow import computes_loss, forward_inputs, pair_backward, restricted
from runtime.training.clipping import scale_by_norm, squares, total_norm
from schedsearch.schedule import Instance
from schedsearch.semantics.versions import WeightMode

Gradients = Mapping[str, Tensor]
"""The gradient of each parameter, by its name."""

Orders = Sequence[Sequence[Instance]]
"""For each device the (block, micro-batch) pairs that it ran, in order."""


@dataclass(frozen=True)
class ReferenceCase:
    """A run to compare with.

    Attributes:
        options: The model.
        placement: What runs where.
        num_micro_batches: Micro-batches of one iteration.
        iterations: How many.
        torch_device: Where the references compute: the same kind of device as the run.
        load_weights: File of a state dict that it began with, or None.
        exact: Whether its sums over devices were made in the order of the devices.
        left_out: The (block, micro-batch) pairs that did not run.
    """

    options: ModelOptions
    placement: Placement
    num_micro_batches: int
    iterations: int
    torch_device: str = "cpu"
    load_weights: Path | None = None
    exact: bool = True
    left_out: frozenset[Instance] = frozenset()

    @property
    def tolerance(self) -> float:
        """The relative error up to which a run counts as equal: half of the digits, if not made to be exact.

        It is not where sums over devices are made in any order.
        """
        if self.exact:
            return TOLERANCE
        return float(torch.finfo(getattr(torch, self.options.dtype)).eps ** INEXACT_DIGITS)

    @property
    def forward_blocks(self) -> list[str]:
        """The forward blocks in topological order."""
        return [block.name for block in self.placement.topological_order if block.kind is Kind.F]

    def begin_weights(self, model: Model) -> Model:
        """Give a model the weights with which the run began; return it."""
        if self.load_weights is not None:
            load_state_dict_file(model, self.load_weights)
        return model

    def sum_over_sinks(self, losses: Mapping[Instance, float]) -> tuple[float, ...]:
        """Return the loss of each micro-batch, summed over its loss-computing blocks."""
        sinks = [block for block in self.forward_blocks if computes_loss(self.placement, block)]
        return tuple(sum(losses[block, n] for block in sinks) for n in range(self.num_micro_batches))

    def of_whole_sequences(self) -> ReferenceCase:
        """Return a case of slices as one of whole sequences."""
        names = {block.name for block in self.placement.blocks if block.sequence_slice == 0}
        layers = self.options.layers_per_block
        kept = None if layers is None else {name: count for name, count in layers.items() if name in names}
        options = replace(self.options, slice_lengths=None, layers_per_block=kept)
        return replace(self, placement=restricted(self.placement, names), options=options)


class TrainingStep(NamedTuple):
    """One iteration of a model.

    Attributes:
        losses: Loss of each micro-batch, summed over its loss-computing blocks.
        gradients: Before the step, of parameters that have one.
        parameters: After the step, and buffers.
    """

    losses: tuple[float, ...]
    gradients: Mapping[ParameterShard, Tensor]
    parameters: Mapping[ParameterShard, Tensor]


def plain(case: ReferenceCase, orders: Mapping[int, Orders] | None = None) -> Iterator[TrainingStep]:
    """Train the whole model: forward through all blocks, then one backward, micro-batch by micro-batch.

    Args:
        case: What was run.
        orders: Orders of the devices from some iterations on, in which gradients are added up; the first also
            before. None for one micro-batch after the other.

    Yields:
        Each iteration in turn, valid until the next is asked for.
    """
    if case.placement.num_slices > 1:
        # Of orders only the first slices, whose backwards are the last of their sequences.
        first = {block.name for block in case.placement.blocks if block.sequence_slice == 0}
        orders = {
            at: [[order for order in instance if order[0] in first] for instance in of]
            for at, of in (orders or {}).items()
        }
        case = case.of_whole_sequences()
    orders = orders or {0: _one_by_one(case)}
    model = _WholeModel(case, orders[min(orders)])
    for iteration in range(case.iterations):
        if iteration in orders:
            model.order = backward_orders(case.placement, orders[iteration])
        yield model.train(iteration)


class _WholeModel:
    """The model in one piece, from iteration to iteration.

    Attributes:
        order: Order in which gradients are added up, as `backward_orders` returns it.
    """

    def __init__(self, case: ReferenceCase, orders: Orders) -> None:
        self._case, self._body = case, body_of(case.options, case.placement)
        # Each block has tensors of its own, so that what it adds to a shared parameter's gradient is known.
        make = partial(Model, case.options, case.placement, device=case.torch_device, body=self._body)
        self._models = {
            block: case.begin_weights(make(shards={block: WHOLE})) for block in case.forward_blocks
        }
        self._data = self._body.data(case.num_micro_batches, case.torch_device)
        self.order = backward_orders(case.placement, orders)
        versions = read_versions(case.options, case.placement, case.num_micro_batches, orders)
        self._versions, self._updated = versions, dict[int, set[str]]()
        for block in self._models:  # by how many micro-batches make their updates
            count = versions.micro_batches_per_update * versions.copies.get(block, 1)  # on all of its copies
            self._updated.setdefault(count, set()).add(block)
        count, weight = versions.micro_batches_per_update, self._body.weight_of_loss
        is_flush = case.options.weight_versions == WeightMode.FLUSH
        self._mean_over = case.num_micro_batches if is_flush else case.options.micro_batches_per_update
        self._shares = None if weight is None else LossShares(weight, self._data, case.placement, count)
        self._trained = set(pair_backward(case.placement).values())

    def train(self, iteration: int) -> TrainingStep:
        """Train one iteration."""
        if self._shares is not None:
            self._shares.begin(iteration)
        losses: dict[Instance, float] = {}
        history = _History(self._models, self._versions)
        sums: dict[int, _Sums] = {}
        gradients: dict[ParameterShard, Tensor] = {}
        for n in range(self._case.num_micro_batches):
            by_block = self._differentiated(iteration, n, history.read(n), losses)
            for count, blocks in self._updated.items():
                if n % count == 0:
                    sums[count] = _Sums(
                        {
                            device: [(name, m) for name, m in order if n <= m < n + count and name in blocks]
                            for device, order in self.order.items()
                        }
                    )
                for block in blocks & by_block.keys():
                    sums[count].add(block, n, by_block[block])
                if (n + 1) % count == 0:
                    gradients |= self._step(
                        [block for block in self._models if block in blocks], sums[count].totals()
                    )
                    history.add(blocks, n + 1)
        parameters = {shard: value for part in self._models.values() for shard, value in part.state().items()}
        return TrainingStep(self._case.sum_over_sinks(losses), gradients, parameters)

    def _differentiated(
        self, iteration: int, n: int, weights: Mapping[str, Weights], losses: dict[Instance, float]
    ) -> dict[str, dict[str, Tensor]]:
        """Run a micro-batch through the whole model and back; add its losses, return gradients by block."""
        case, left_out = self._case, self._case.left_out
        by_block: dict[str, dict[str, Tensor]] = {b: {} for b in self._trained if (b, n) not in left_out}
        outputs: dict[str, Tensor] = {}
        with torch.set_grad_enabled(bool(by_block)):
            for block in case.forward_blocks:
                if (block, n) in left_out:
                    continue
                # Views, so that what a block adds to its input's gradient is summed before it meets others'.
                before = [outputs[name] for name in forward_inputs(case.placement, block) if name in outputs]
                inputs, sample = [out.view_as(out) for out in before], self._data.read(block, iteration, n)
                outputs[block] = self._models[block].forward(block, inputs, sample, weights[block])
        sinks = {block: outputs[block] for block in outputs if computes_loss(case.placement, block)}
        counts = None if self._shares is None else {b: self._shares.share(b, n, WHOLE) for b in sinks}
        for block, loss in sinks.items():
            weighted = loss if counts is None else loss * (counts[block] * self._mean_over)
            losses[block, n] = float(weighted.detach())
        if not any(loss.requires_grad for loss in sinks.values()):
            return by_block
        if counts is None:
            total = torch.stack(list(sinks.values())).sum() / self._mean_over
        else:
            total = torch.stack([loss * counts[block] for block, loss in sinks.items()]).sum()
        scale = next(iter(self._models.values())).optimizer.loss_scale
        total = total if scale is None else total * scale.value
        named = {
            (block, name): weight
            for block in outputs
            for name, weight in weights[block].items()
            if weight.requires_grad
        }
        gradients = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        for (block, name), gradient in zip(named, gradients, strict=True):
            if gradient is not None:
                by_block[block][name] = gradient
        return by_block

    def _step(self, blocks: Sequence[str], totals: Gradients) -> dict[ParameterShard, Tensor]:
        """Move the parameters of blocks by sums of gradients; return the gradients.

        Where copies of a stage take turns without a flush, means over the copies count.
        """
        models = [(block, self._models[block]) for block in blocks]
        weights: list[Tensor] = []
        scaled: dict[str, Tensor] = {}
        copies = {name: self._versions.copies.get(b, 1) for b, model in models for name in model.trained(b)}
        for name, total in totals.items():
            scaled[name] = total if copies[name] == 1 else total / copies[name]
        for block, model in models:
            for name, weight in model.trained(block).items():
                weight.grad = scaled[name].clone() if name in scaled else None
                weights.append(weight)
        tests = [
            scale.unscale(model.trained(block).values(), lambda _: not are_finite(scaled.values()))
            for block, model in models
            if (scale := model.optimizer.loss_scale) is not None
        ]
        is_good = all(tests)
        if (limit := self._case.options.clip_grad_norm) is not None and is_good:
            of_blocks = {block: squares(model)[block] for block, model in models}
            scale_by_norm(weights, total_norm([of_blocks], self._case.placement), limit)
        gradients: dict[ParameterShard, Tensor] = {}
        for _, model in models:
            gradients |= model.gradients()
            if is_good:
                model.step()
        return gradients


def _one_by_one(case: ReferenceCase) -> Orders:
    """Return orders in which each device runs one micro-batch after the other."""
    order = [(block, n) for n in range(case.num_micro_batches) for block in case.placement.topological_order]
    devices = range(case.placement.num_devices)
    return [[(block.name, n) for block, n in order if device in block.devices] for device in devices]


def backward_orders(placement: Placement, orders: Orders) -> dict[int, list[Instance]]:
    """Return for each device the (forward block, micro-batch) pairs as their gradients are complete.

    A block counts on the first device of its backward block, or of the weight half of that; of copies that
    take turns, on the first of each.
    """
    pairs, blocks = pair_backward(placement), placement.by_name
    first = {
        block.name: {team[0] for team in block.groups} if block.in_turns else {block.devices[0]}
        for block in placement.blocks
    }
    return {
        device: [
            (pairs[name], n)
            for name, n in order
            if blocks[name].kind in (Kind.B, Kind.W) and device in first[name]
        ]
        for device, order in enumerate(orders)
    }


class _Sums:
    """Sums of gradients, each made in the devices' order as soon as its addends are there.

    A sum of floats depends on the order of its addends. Where the gradient of every block and micro-batch is
    known apart, they can be added up in the order of any schedule, and so without running it.
    """

    def __init__(self, orders: Mapping[int, Sequence[Instance]]) -> None:
        self._left = {device: list(reversed(order)) for device, order in orders.items()}
        self._waiting: dict[Instance, Gradients] = {}
        self._sums: dict[int, dict[str, Tensor]] = {device: {} for device in orders}

    def add(self, block: str, micro_batch: int, gradients: Gradients) -> None:
        """Take the gradients of a forward block from one micro-batch, in any order."""
        self._waiting[block, micro_batch] = gradients
        for device, left in self._left.items():
            while left and left[-1] in self._waiting:
                _add(self._sums[device], self._waiting.pop(left.pop()))

    def totals(self) -> dict[str, Tensor]:
        """Return the sum of each parameter that has a gradient, over the devices in their order."""
        assert not self._waiting and not any(self._left.values()), "not all has been added"
        totals: dict[str, Tensor] = {}
        for device in sorted(self._sums):
            _add(totals, self._sums[device])
        return totals


def _add(totals: dict[str, Tensor], addends: Gradients) -> None:
    for name, addend in addends.items():
        total = totals.get(name)
        if total is None:
            totals[name] = addend
        else:  # torch adds a sparse tensor to a dense one, but not the other way round
            totals[name] = addend + total if total.is_sparse else total + addend


class _History:
    """The weights of every block after each update of an iteration, while they are to be read."""

    def __init__(self, models: Mapping[str, Model], versions: ReadVersions) -> None:
        self._models, self._versions = models, versions
        self._kept: dict[str, list[Weights]] = {block: [] for block in models}
        self.add(models, 0)

    def read(self, micro_batch: int) -> Mapping[str, Weights]:
        """Return the weights that each block reads of a micro-batch."""
        of = self._versions.of
        return {block: kept[of.get((block, micro_batch), 0)] for block, kept in self._kept.items()}

    def add(self, blocks: Iterable[str], num_done: int) -> None:
        """Add the newest weights of blocks after `num_done` micro-batches; drop versions no longer read."""
        of = self._versions.of
        for block in blocks:
            weights, kept = self._models[block].weights(block), self._kept[block]
            if of:
                weights = {
                    name: weight.detach().clone().requires_grad_(weight.requires_grad)
                    for name, weight in weights.items()
                }
            kept.append(weights)
            later = (version for (name, n), version in of.items() if name == block and n >= num_done)
            for old in range(min(later, default=0)):
                kept[old] = {}
