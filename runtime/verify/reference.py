"""The unpipelined model in one process, and how far a run of scripts is from it.

Two references. The plain one has whole parameters and one backward per micro-batch through the whole
model: it shares no cutting, no collectives and no messages with the run. It adds up the gradients of the
micro-batches in the order of the devices, so that it agrees bit for bit where every block is on one device
and hands its output to at most two others, and up to the order of sums elsewhere. The replay runs the
devices' own orders in one process, each device in its turn: it must always agree bit for bit, so messages
changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.execution.measurement import INEXACT_DIGITS, TOLERANCE, ReferenceComparison
from runtime.execution.results import read_summary, read_tensors
from runtime.models import (
    WHOLE,
    Blocks,
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
from runtime.program.data_parallel import holders
from runtime.program.tensor_flow import computes_loss, forward_inputs, pair_backward
from runtime.training.clipping import scale_by_norm, squares, total_norm
from runtime.training.loss_scale import are_finite, unscale
from runtime.training.update import Update
from runtime.transport.in_memory import MemoryTransport, Network
from runtime.transport.turns import DeadlockError
from runtime.verify.accumulation import Accumulation, backward_orders
from schedsearch.semantics.versions import WeightMode

_Tensors = Mapping[ParameterShard, Tensor]


class ReplayError(ValueError):
    """The devices' orders wait for each other in a cycle, so no single process can replay them."""


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
    """

    options: ModelOptions
    placement: Placement
    num_micro_batches: int
    iterations: int
    torch_device: str = "cpu"
    load_weights: Path | None = None
    exact: bool = True
    is_compiled: bool = False

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


def plain(case: ReferenceCase, orders: Sequence[Sequence[Instance]] | None = None) -> Iterator[TrainingStep]:
    """Train the whole model: forward through all blocks, then one backward, micro-batch by micro-batch.

    Args:
        case: What was run.
        orders: For each device the (block, micro-batch) pairs that it ran, in order, as the gradients are
            added up; None for one micro-batch after the other.

    Yields:
        Each iteration in turn, valid until the next is asked for.
    """
    # Each block has tensors of its own, so that what it adds to a shared parameter's gradient is known apart.
    body = body_of(case.options, case.placement)
    models = {
        block: Model(case.options, case.placement, {block: WHOLE}, case.torch_device, body=body)
        for block in case.forward_blocks
    }
    for model in models.values():
        _load(case, model)
    data = body.data(case.num_micro_batches, case.torch_device)
    orders = orders or _one_by_one(case)
    versions = read_versions(case.options, case.placement, case.num_micro_batches, orders)
    order = backward_orders(case.placement, orders)
    shares = _loss_shares(case, body, data, versions)
    for iteration in range(case.iterations):
        losses: dict[Instance, float] = {}
        if shares is not None:
            shares.begin(iteration)
        history = _History(models, versions)
        for update in _updates(case, versions):
            sums = Accumulation(_of_micro_batches(order, update))
            for n in update:
                weights = history.read(n)
                found = _differentiated(case, models, weights, data, iteration, n, sums, shares)
                losses |= {(block, n): loss for block, loss in found.items()}
            gradients = _step(case, models, sums.totals())
            history.add(update.stop)
        parameters = {shard: value for model in models.values() for shard, value in model.state().items()}
        yield TrainingStep(_sum_over_sinks(case, losses), gradients, parameters)


def _loss_shares(
    case: ReferenceCase, body: Body, data: ModelData, versions: ReadVersions
) -> LossShares | None:
    """Return what each loss counts; None if all the same."""
    weight = body.weight_of_loss
    if weight is None:
        return None
    return LossShares(weight, data, case.placement, versions.micro_batches_per_update)


def _load(case: ReferenceCase, model: Model) -> None:
    """Begin with the weights with which the run began."""
    if case.load_weights is not None:
        load_state_dict_file(model, case.load_weights)


def _updates(case: ReferenceCase, versions: ReadVersions) -> list[range]:
    """Return the micro-batches of each update."""
    each = versions.micro_batches_per_update
    return [range(first, first + each) for first in range(0, case.num_micro_batches, each)]


def _of_micro_batches(
    order: Mapping[int, Sequence[Instance]], micro_batches: range
) -> dict[int, list[Instance]]:
    return {device: [(name, n) for name, n in of if n in micro_batches] for device, of in order.items()}


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
        versions: Which are read.
    """

    def __init__(self, models: Mapping[str, Model], versions: ReadVersions) -> None:
        """Begin with version 0."""
        self._models, self._versions = models, versions
        self._kept: list[dict[str, dict[str, Tensor]]] = []
        self.add(0)

    def read(self, micro_batch: int) -> Mapping[str, Weights]:
        """Return what each block reads of a micro-batch."""
        return {
            block: self._kept[self._versions.of.get((block, micro_batch), 0)][block] for block in self._models
        }

    def add(self, num_done: int) -> None:
        """Add the newest, after so many micro-batches; forget what no later one reads."""
        kept = {block: model.weights(block) for block, model in self._models.items()}
        if self._versions.of:
            kept = {block: _copied(weights) for block, weights in kept.items()}
        self._kept.append(kept)
        later = [version for (_, n), version in self._versions.of.items() if n >= num_done]
        for old in range(min(later, default=0)):
            self._kept[old] = {}


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
    sums: Accumulation,
    shares: LossShares | None,
) -> dict[str, float]:
    """Run a micro-batch through the whole model and back; return the losses."""
    by_block: dict[str, dict[str, Tensor]] = {block: {} for block in pair_backward(case.placement).values()}
    outputs: dict[str, Tensor] = {}
    with torch.set_grad_enabled(bool(by_block)):
        for block in case.forward_blocks:
            # Views, so that what a block adds to the gradient of its input is summed before it meets others'.
            before = [outputs[name] for name in forward_inputs(case.placement, block)]
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
    for block, gradients in by_block.items():
        sums.add(block, micro_batch, gradients)
    if counts is not None:
        losses = {block: loss * (counts[block] * mean_over) for block, loss in losses.items()}
    return {block: float(loss.detach()) for block, loss in losses.items()}


def replay(case: ReferenceCase, orders: Sequence[Sequence[Instance]]) -> Iterator[TrainingStep]:
    """Run the devices' orders in one process, in turns; tensors are handed over without messages.

    Args:
        case: What was run.
        orders: For each device the (block, micro-batch) pairs that it ran, in order.

    Yields:
        Each iteration in turn, valid until the next is asked for.

    Raises:
        ReplayError: The orders wait for each other.
    """
    network = Network(case.placement.num_devices, device=case.torch_device)
    made = _Made({}, set())
    versions = read_versions(case.options, case.placement, case.num_micro_batches, orders)
    devices = [_Replayed(case, network, made, versions, each) for each in range(network.num_devices)]
    for iteration in range(case.iterations):
        made.done.clear()
        runs = [partial(each.run, iteration, order) for each, order in zip(devices, orders, strict=True)]
        try:
            steps = network.run(runs)
        except DeadlockError:
            raise ReplayError(f"the devices wait for each other at {[each.at for each in devices]}") from None
        losses = {instance: loss for device in devices for instance, loss in device.losses().items()}
        gradients = {shard: gradient for step in steps for shard, gradient in step.items()}
        parameters = {shard: value for each in devices for shard, value in each.model.state().items()}
        yield TrainingStep(_sum_over_sinks(case, losses), gradients, parameters)


class _Made(NamedTuple):
    """What the devices of a replay share.

    Attributes:
        tensors: Those handed over: (producer, consumer, micro-batch, device of the consumer) -> tensor.
        done: The (block, micro-batch, device) that ran in this iteration.
    """

    tensors: dict[tuple[str, str, int, int], Tensor]
    done: set[tuple[str, int, int]]


class _Replayed:
    """One device of a replay.

    Attributes:
        model: Its shards of its blocks.
        at: The (block, micro-batch) where it is.
    """

    def __init__(
        self, case: ReferenceCase, network: Network, made: _Made, versions: ReadVersions, index: int
    ) -> None:
        """Build its parameters."""
        self._placement, self._index, self._network, self._made = case.placement, index, network, made
        transport = MemoryTransport.of(network, case.placement, (), index)
        self.model = Model(
            case.options,
            case.placement,
            transport.shards,
            case.torch_device,
            groups=transport.groups,
        )
        _load(case, self.model)
        self._blocks = Blocks(case.placement, self.model, case.num_micro_batches, versions)
        self._update = Update(self.model, self._blocks, case.placement, transport)
        self.at: Instance | None = None

    def run(self, iteration: int, order: Sequence[Instance]) -> Mapping[ParameterShard, Tensor]:
        """Run an iteration; return the gradients of before the step."""
        self._blocks.begin(iteration)
        for self.at in order:
            self._run(*self.at)
        self._update.prepare()
        gradients = self.model.gradients()
        self._update.step()
        return gradients

    def losses(self) -> dict[Instance, float]:
        """Return the losses of the iteration."""
        return {instance: float(loss) for instance, loss in self._blocks.losses.items()}

    def _run(self, name: str, micro_batch: int) -> None:
        """Run a block as soon as its other devices are at it too, and what it is after is done everywhere."""
        by_name, made = self._placement.by_name, self._made
        block = by_name[name]
        others = self._network.exchange(block.devices, self._index, (name, micro_batch))
        if len(set(others)) > 1:
            raise DeadlockError
        needed = {(other, micro_batch, d) for other in block.after for d in by_name[other].devices}
        self._network.turns.wait_until(self._index, lambda: needed <= made.done)
        taken = [(producer, name, micro_batch, self._index) for producer in self._blocks.inputs[name]]
        arrived = [made.tensors.pop(key) for key in taken]
        for consumer, tensor in self._blocks.run(name, micro_batch, arrived).items():
            for target in by_name[consumer].devices:
                sources = holders(block, by_name[consumer], target)
                if self._index == (target if target in sources else sources[0]):
                    made.tensors[name, consumer, micro_batch, target] = tensor
        made.done.add((name, micro_batch, self._index))


def losses_of_run(
    case: ReferenceCase, summaries: Sequence[Mapping[str, Any]], iteration: int
) -> tuple[float, ...]:
    """Return the losses of the micro-batches in one iteration of a run.

    Args:
        case: What was run.
        summaries: What each device left behind; a block on several devices has the same loss on each.
        iteration: Number of the iteration, from 0, the first that this run did.
    """
    rows = [row for summary in summaries for row in summary["losses"][iteration]]
    return _sum_over_sinks(case, {(block, n): loss for block, n, loss in rows})


def compare(results: Path, case: ReferenceCase) -> ReferenceComparison:
    """Compare what the devices of a run left behind with both references.

    The references train from the beginning, also where the run went on from a checkpoint, and for as many
    iterations as the case has: of a run of more only these are compared.

    Args:
        results: The folder of the run.
        case: What was run.

    Raises:
        ReplayError: The orders wait for each other.
    """
    devices = range(case.placement.num_devices)
    summaries = [read_summary(results, device) for device in devices]
    orders = [[(block, n) for block, n in summary["order"]] for summary in summaries]
    first = summaries[0]["first_iteration"]
    losses = tuple(losses_of_run(case, summaries, index) for index in range(case.iterations - first))
    held = [read_tensors(results, device, "parameters") for device in devices]
    reference_losses = []
    gradient_error = parameter_error = 0.0
    equal = True
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # As on the devices: results depend on the number of threads.
    try:
        for iteration, (whole, again) in enumerate(
            zip(plain(case, orders), replay(case, orders), strict=True)
        ):
            if iteration < first:
                continue
            reference_losses.append(whole.losses)
            equal = equal and again.losses == losses[iteration - first]
            for device in devices:
                found = read_tensors(results, device, f"gradients_{iteration}")
                gradient_error = max(gradient_error, _largest_error(found, whole.gradients, held[device]))
                equal = equal and _same_bits(found, again.gradients, held[device])
        for found in held:
            parameter_error = max(parameter_error, _largest_error(found, whole.parameters, found))
            equal = equal and _same_bits(found, again.parameters, found)
    finally:
        torch.set_num_threads(threads)
    loss_error = max(
        _relative(abs(ours - theirs), abs(theirs))
        for row, reference_row in zip(losses, reference_losses, strict=True)
        for ours, theirs in zip(row, reference_row, strict=True)
    )
    return ReferenceComparison(
        tuple(reference_losses), loss_error, gradient_error, parameter_error, equal, case.tolerance
    )


def _sum_over_sinks(case: ReferenceCase, losses: Mapping[Instance, float]) -> tuple[float, ...]:
    sinks = [block for block in case.forward_blocks if computes_loss(case.placement, block)]
    return tuple(sum(losses[block, n] for block in sinks) for n in range(case.num_micro_batches))


def _largest_error(found: _Tensors, whole: _Tensors, held: _Tensors) -> float:
    """Return the largest error of any tensor, relative to the largest value of its reference.

    Where one of the two has no tensor, of those that a device holds, the error is infinite.
    """
    full = {shard.name: tensor for shard, tensor in whole.items()}
    if any((shard in found) != (shard.name in full) for shard in held):
        return float("inf")
    errors = [0.0]
    for shard, tensor in found.items():
        expected = shard.of(full[shard.name]).detach().cpu()
        if not torch.equal(tensor, expected):
            difference = float((tensor.to(torch.complex128) - expected).abs().max())
            errors.append(_relative(difference, float(full[shard.name].detach().abs().max())))
    return max(errors)


def _relative(difference: float, scale: float) -> float:
    """Return a difference over a scale; a difference that is not a number counts as infinite."""
    if difference == 0:
        return 0.0
    return difference / scale if difference == difference and scale > 0 else float("inf")


def _same_bits(found: _Tensors, expected: _Tensors, held: _Tensors) -> bool:
    return found.keys() == expected.keys() & held.keys() and all(
        torch.equal(tensor, expected[shard].detach().cpu()) for shard, tensor in found.items()
    )
