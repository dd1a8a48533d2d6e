"""Weights, gradients and the optimizer's states of a layer: their memory, updates and exchanges.

The module does not know an order of micro-batches.
"""

from __future__ import annotations

from typing import NamedTuple

from placements.models.costing.layer_share import LayerShare
from placements.models.memory import MemoryItem, state_items
from placements.models.parallel import Cost, SharingLevel


class States(NamedTuple):
    """Weights, gradients and optimizer states on one GPU.

    Attributes:
        cost: What they take in all.
        gather_ms: Time to gather the weights, or to scatter the gradients, as ZeRO-3 does for each pass.
        gathered_bytes: Bytes of weights or gradients of others, while they are there.
        backward_gathers: How often one or the other happens in a backward.
        scatter_ms: Time to sum the gradients once, where they are not scattered with each backward.
        new_weights_ms: Time to gather the new weights, where they are not gathered for each pass.
    """

    cost: Cost
    gather_ms: float
    gathered_bytes: float
    backward_gathers: int
    scatter_ms: float
    new_weights_ms: float


def states_of(share: LayerShare, num_micro_batches: int) -> States:
    """Return what the parameters of a layer take, experts' and others."""
    layer = share.layer
    products = share.products
    found = [
        _exchanges(
            share,
            parameters,
            copies,
            sum(each.experts or 1 for each in products if bool(each.experts) == bool(owner)),
        )
        for parameters, copies, owner in share.parameter_parts
    ]
    static = sum(item.num_bytes for item in states_in_memory(share, num_micro_batches))
    step_ms = sum(ms for ms, *_ in found) if layer.owns_parameters else 0.0
    return States(
        Cost(static_bytes=static, update_ms=step_ms),
        sum(gather_ms for _, gather_ms, *_ in found),
        sum(gathered for _, _, gathered, *_ in found),
        layer.reads_weights_backward + layer.owns_parameters,
        sum(scatter_ms for *_, scatter_ms, _ in found) if layer.owns_parameters else 0.0,
        sum(new_weights_ms for *_, new_weights_ms in found) if layer.owns_parameters else 0.0,
    )


def states_in_memory(share: LayerShare, num_micro_batches: int) -> list[MemoryItem]:
    """Return weights, gradients and optimizer states, experts' and others."""
    if not share.layer.owns_parameters:
        return []
    precision, zero = share.options.precision, share.strategy.zero
    return [
        item
        for parameters, copies, owner in share.parameter_parts
        for item in state_items(precision, parameters, copies, zero, num_micro_batches == 1, owner)
    ]


def _exchanges(
    share: LayerShare, parameters: float, copies: SharingLevel, num_matrices: float
) -> tuple[float, float, float, float, float]:
    """Return the times of a step, and of a gather of weights, its bytes, and of both exchanges.

    Gradients are all-reduced; where the optimizer's states are shared, they are reduced and scattered, and
    the new weights gathered. Frozen weights are gathered with ZeRO-3 alone.
    """
    options, zero, degree = share.options, share.strategy.zero, copies.degree
    if options.frozen_weights and zero < 3:
        return 0.0, 0.0, 0.0, 0.0, 0.0
    precision = options.precision
    weights = precision.number_bytes * parameters
    step_ms = share.memory_ms(precision.update_bytes * parameters / (degree if zero else 1))
    if passes := options.framework.gradient_passes:
        step_ms += share.memory_ms(passes * precision.gradient_bytes * parameters)
    if options.machine is not None:
        launches = round(num_matrices * options.framework.kernels_per_weight)
        step_ms += options.machine.kernels["stream"].ms(0.0, launches)
    if zero == 3:
        gathered = weights * (degree - 1) / degree
        return step_ms, share.collective_ms("all_gather", weights, copies), gathered, 0.0, 0.0
    gradients = precision.gradient_bytes * parameters
    if zero == 0:
        return step_ms, 0.0, 0.0, share.collective_ms("all_reduce", gradients, copies), 0.0
    scatter_ms = share.collective_ms("reduce_scatter", gradients, copies)
    return step_ms, 0.0, 0.0, scatter_ms, share.collective_ms("all_gather", weights, copies)
