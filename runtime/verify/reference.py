"""The unpipelined model in one process: what a run of scripts is compared with.

It has whole parameters and one backward per micro-batch through the whole model: it shares no cutting, no
collectives and no messages with the run. It adds up the gradients of the micro-batches in the order of the
devices, so that it agrees bit for bit where every block is on one device and hands its output to at most two
others, and up to the order of sums elsewhere. Of a run of slices it computes whole sequences, so that they
agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from runtime.models.blocks import Instance
from runtime.models.body import Body
from runtime.models.core.parameters import Weights
from runtime.models.loss_shares import LossShares
from runtime.models.user.reading import ModelData
from runtime.program.tensor_flow import computes_loss, forward_inputs, pair_backward
from runtime.training.clipping import scale_by_norm, squares, total_norm
from runtime.training.loss_scale import are_finite, unscale
from runtime.verify.accumulation import Accumulation, backward_orders
from schedsearch.semantics.versions import WeightMode


@dataclass(frozen=True)
class ReferenceCase:
    """What was run.

    Attributes:
        options: The model.
        placement: What runs where.
        num_micro_batches: Micro-batches of one iteration.
        iterations: How many.
        torch_device: Where the references compute: the same kind of device as the run.
        load_weights: File of a state dict that it began with, or None.
        exact: Whether its sums over devices were made in the order of the devices.
        is_compiled: Whether its blocks were compiled; those of the references are not.
        left_out: The (block, micro-batch) pairs that did not run.
    """

    options: ModelOptions
    placement: Placement
    num_micro_batches: int
    iterations: int
    torch_device: str = "cpu"
    load_weights: Path | None = None
    exact: bool = True
    is_compiled: bool = False
    left_out: frozenset[Instance] = frozenset()

    @property
    def tolerance(self) -> float:
        """The relative error up to which a run counts as equal: half of the digits, if not made to be exact.

        It is not where sums over devices are made in any order, nor where blocks are compiled, which may
        merge and reorder what they compute.
        """
        if self.exact and not self.is_compiled:
            return TOLERANCE
        return float(torch.finfo(getattr(torch, self.options.dtype)).eps ** INEXACT_DIGITS)

    @property
    def forward_blocks(self) -> list[str]:
        """The forward blocks in topological order."""
        return [block.name for block in self.placement.topological_order if block.kind is Kind.F]


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


def plain(
    case: ReferenceCase,
    orders: Sequence[Sequence[Instance]] | None = None,
    changed: Mapping[int, Sequence[Sequence[Instance]]] | None = None,
) -> Iterator[TrainingStep]:
    """Train the whole model: forward through all blocks, then one backward, micro-batch by micro-batch.

    Args:
        case: What was run.
        orders: For each device the (block, micro-batch) pairs that it ran, in order, as the gradients are
            added up; None for one micro-batch after the other.
        changed: Orders from these iterations on.

    Yields:
        Each iteration in turn, valid until the next is asked for.
    """
    if case.placement.num_slices > 1:
        changed = {each: _of_first_slices(case, own) for each, own in (changed or {}).items()}
        orders = orders and _of_first_slices(case, orders)
        case = _of_whole_sequences(case)
    # Each block has tensors of its own, so that what it adds to a shared parameter's gradient is known apart.
    body = body_of(case.options, case.placement)
    models = {
        block: Model(case.options, case.placement, {block: WHOLE}, case.torch_device, body=body)
        for block in case.forward_blocks
    }
    for model in models.values():
        begin_weights(case, model)
    data = body.data(case.num_micro_batches, case.torch_device)
    orders = orders or _one_by_one(case)
    versions = read_versions(case.options, case.placement, case.num_micro_batches, orders)
    order = backward_orders(case.placement, orders)
    together = _together(models, versions)
    shares = _loss_shares(case, body, data, versions)
    for iteration in range(case.iterations):
        if changed and iteration in changed:
            order = backward_orders(case.placement, changed[iteration])
        losses: dict[Instance, float] = {}
        if shares is not None:
            shares.begin(iteration)
        history = _History(models, versions)
        sums: dict[int, Accumulation] = {}
        gradients: dict[ParameterShard, Tensor] = {}
        for n in range(case.num_micro_batches):
            of_losses, by_block = _differentiated(case, models, history.read(n), data, iteration, n, shares)
            losses |= {(block, n): loss for block, loss in of_losses.items()}
            for each, own in together.items():
                if n % each == 0:
                    sums[each] = Accumulation(_of_blocks(order, own, range(n, n + each)))
                for block in own & by_block.keys():
                    sums[each].add(block, n, by_block[block])
                if (n + 1) % each == 0:
                    totals = _averaged(sums[each].totals(), own, models, versions)
                    gradients |= _step(
                        case, {block: models[block] for block in models if block in own}, totals
                    )
                    history.add(own, n + 1)
        parameters = {shard: value for model in models.values() for shard, value in model.state().items()}
        yield TrainingStep(sum_over_sinks(case, losses), gradients, parameters)


def _of_first_slices(
    case: ReferenceCase, orders: Sequence[Sequence[Instance]]
) -> Sequence[Sequence[Instance]]:
    """Return orders of the first slices alone, whose backwards are the last of their sequences."""
    by_name = case.placement.by_name
    return [[each for each in order if by_name[each[0]].sequence_slice == 0] for order in orders]


def _of_whole_sequences(case: ReferenceCase) -> ReferenceCase:
    """Return a case of slices as one of whole sequences."""
    names = {block.name for block in case.placement.blocks if block.sequence_slice == 0}
    blocks = tuple(
        replace(block, memory=0, after=tuple(name for name in block.after if name in names))
        for block in case.placement.blocks
        if block.name in names
    )
    transfer = tuple(each for each in case.placement.transfer if names.issuperset(each[:2]))
    layers = case.options.layers_per_block
    own = None if layers is None else {name: count for name, count in layers.items() if name in names}
    return replace(
        case,
        placement=replace(case.placement, blocks=blocks, transfer=transfer, memory=None, decisions=()),
        options=replace(case.options, slice_lengths=None, layers_per_block=own),
    )


def _loss_shares(
    case: ReferenceCase, body: Body, data: ModelData, versions: ReadVersions
) -> LossShares | None:
    """Return what each loss counts; None if all the same."""
    weight = body.weight_of_loss
    if weight is None:
        return None
    return LossShares(weight, data, case.placement, versions.micro_batches_per_update)


def begin_weights(case: ReferenceCase, model: Model) -> None:
    """Give a model the weights with which the run began."""
    if case.load_weights is not None:
        load_state_dict_file(model, case.load_weights)


def _together(blocks: Iterable[str], versions: ReadVersions) -> dict[int, set[str]]:
    """Return the blocks that are updated at the same time, by how many micro-batches make their updates."""
    found: dict[int, set[str]] = {}
    for block in blocks:
        found.setdefault(versions.per_update(block), set()).add(block)
    return found


def _of_blocks(
    order: Mapping[int, Sequence[Instance]], blocks: Container[str], micro_batches: range
) -> dict[int, list[Instance]]:
    return {
        device: [(name, n) for name, n in of if n in micro_batches and name in blocks]
        for device, of in order.items()
    }


def _averaged(
    totals: dict[str, Tensor], blocks: Iterable[str], models: Mapping[str, Model], versions: ReadVersions
) -> dict[str, Tensor]:
    """Return sums of gradients; means where copies of a stage take turns without a flush."""
    copies = {
        name: versions.copies.get(block, 1) for block in blocks for name in models[block].trained(block)
    }
    return {name: total if copies[name] == 1 else total / copies[name] for name, total in totals.items()}


def _step(
    case: ReferenceCase, models: Mapping[str, Model], totals: Mapping[str, Tensor]
) -> dict[ParameterShard, Tensor]:
    """Move the parameters by sums of gradients; return the gradients."""
    weights: list[Tensor] = []
    for block, model in models.items():
        for name, weight in model.trained(block).items():
            weight.grad = totals[name].clone() if name in totals else None
            weights.append(weight)
    is_good = [
        unscale(model.trained(block).values(), scale, lambda _: not are_finite(totals.values()))
        for block, model in models.items()
        if (scale := model.optimizer.loss_scale) is not None
    ]
    if case.options.clip_grad_norm is not None and all(is_good):
        found = {block: squares(model)[block] for block, model in models.items()}
        scale_by_norm(weights, total_norm([found], case.placement), case.options.clip_grad_norm)
    gradients: dict[ParameterShard, Tensor] = {}
    for model in models.values():
        gradients |= model.gradients()
        if all(is_good):
            model.step()
    return gradients


class _History:
    """The weights of every block after each update of an iteration, while they are to be read.

    Args:
        models: Models of the blocks.
        versions: Versions of the weights that are read.
    """

    def __init__(self, models: Mapping[str, Model], versions: ReadVersions) -> None:
        """Begin with version 0."""
        self._models, self._versions = models, versions
        self._kept: dict[str, list[dict[str, Tensor]]] = {block: [] for block in models}
        self.add(models, 0)

    def read(self, micro_batch: int) -> Mapping[str, Weights]:
        """Return what each block reads of a micro-batch."""
        of = self._versions.of
        return {block: kept[of.get((block, micro_batch), 0)] for block, kept in self._kept.items()}

    def add(self, blocks: Iterable[str], num_done: int) -> None:
        """Add the newest of some blocks, after so many micro-batches; forget what no later one reads."""
        for block in blocks:
            weights, kept = self._models[block].weights(block), self._kept[block]
            kept.append(_copied(weights) if self._versions.of else weights)
            later = (
                version for (name, n), version in self._versions.of.items() if name == block and n >= num_done
            )
            for old in range(min(later, default=0)):
                kept[old] = {}


def _copied(weights: Weights) -> dict[str, Tensor]:
    return {
        name: weight.detach().clone().requires_grad_(weight.requires_grad) for name, weight in weights.items()
    }


def _one_by_one(case: ReferenceCase) -> list[list[Instance]]:
    """Return orders in which each device runs one micro-batch after the other."""
    order = [(block, n) for n in range(case.num_micro_batches) for block in case.placement.topological_order]
    devices = range(case.placement.num_devices)
    return [[(block.name, n) for block, n in order if device in block.devices] for device in devices]


def _differentiated(
    case: ReferenceCase,
    models: Mapping[str, Model],
    weights: Mapping[str, Weights],
    data: ModelData,
    iteration: int,
    micro_batch: int,
    shares: LossShares | None,
) -> tuple[dict[str, float], dict[str, dict[str, Tensor]]]:
    """Run a micro-batch through the whole model and back; return losses, and gradients by block and name."""
    by_block: dict[str, dict[str, Tensor]] = {
        block: {}
        for block in pair_backward(case.placement).values()
        if (block, micro_batch) not in case.left_out
    }
    outputs: dict[str, Tensor] = {}
    with torch.set_grad_enabled(bool(by_block)):
        for block in case.forward_blocks:
            if (block, micro_batch) in case.left_out:
                continue
            # Views, so that what a block adds to the gradient of its input is summed before it meets others'.
            before = [outputs[name] for name in forward_inputs(case.placement, block) if name in outputs]
            inputs = [output.view_as(output) for output in before]
            sample = data.read(block, iteration, micro_batch)
            outputs[block] = models[block].forward(block, inputs, sample, weights[block])
    each = case.options.micro_batches_per_update
    mean_over = case.num_micro_batches if case.options.weight_versions == WeightMode.FLUSH else each
    losses = {block: outputs[block] for block in outputs if computes_loss(case.placement, block)}
    counts: dict[str, float] | None = None
    if shares is not None:
        counts = {block: shares.share(block, micro_batch, WHOLE) for block in losses}
    if any(loss.requires_grad for loss in losses.values()):
        if counts is None:
            total = torch.stack(list(losses.values())).sum() / mean_over
        else:
            total = torch.stack([loss * counts[block] for block, loss in losses.items()]).sum()
        scale = next(iter(models.values())).optimizer.loss_scale
        total = total if scale is None else total * scale.value
        named = {
            (b, name): weight for b in outputs for name, weight in weights[b].items() if weight.requires_grad
        }
        found = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        for (block, name), gradient in zip(named, found, strict=True):
            if gradient is not None:
                by_block[block][name] = gradient
    if counts is not None:
        losses = {block: loss * (counts[block] * mean_over) for block, loss in losses.items()}
    return {block: float(loss.detach()) for block, loss in losses.items()}, by_block


def sum_over_sinks(case: ReferenceCase, losses: Mapping[Instance, float]) -> tuple[float, ...]:
    """Return the loss of each micro-batch, summed over its loss-computing blocks."""
    sinks = [block for block in case.forward_blocks if computes_loss(case.placement, block)]
    return tuple(sum(losses[block, n] for block in sinks) for n in range(case.num_micro_batches))
