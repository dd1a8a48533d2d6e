"""Weights, gradients and the optimizer's states of a layer: their memory, updates and exchanges.

The module does not know an order of micro-batches.
"""

from __future__ import annotations

from typing import NamedTuple

from placements.models.costing.layer_share import LayerShare
from placements.models.memory import MemoryItem, MemoryKind
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
    step_ms, gather_ms, gathered, scatter_ms, new_ms = (sum(each) for each in zip(*found, strict=True))
    if not layer.owns_parameters:
        step_ms = scatter_ms = new_ms = 0.0
    rounds = layer.reads_weights_backward + layer.owns_parameters
    cost = Cost(static_bytes=static, update_ms=step_ms)
    return States(cost, gather_ms, gathered, rounds, scatter_ms, new_ms)


def states_in_memory(share: LayerShare, num_micro_batches: int) -> list[MemoryItem]:
    """Return weights, gradients and optimizer states, experts' and others.

    ZeRO-1 shares the optimizer's states, ZeRO-2 also gradients, but these stand whole on each GPU while
    several micro-batches add to them, ZeRO-3 weights too.
    """
    if not share.layer.owns_parameters:
        return []
    precision, zero = share.options.precision, share.strategy.zero
    kinds: tuple[tuple[MemoryKind, float, bool], ...] = (
        ("weights", precision.weight_bytes, zero == 3),
        ("gradients", precision.gradient_bytes, zero == 3 or (zero == 2 and num_micro_batches == 1)),
        ("optimizer", precision.optimizer_bytes, zero > 0),
    )
    found = []
    for parameters, copies, owner in share.parameter_parts:
        for kind, size, is_shared in kinds:
            held = 1 / copies.degree if is_shared else 1.0
            rule = f"{size:g} bytes a parameter" + ("" if held == 1 else f", over {copies.degree} GPUs")
            found.append(MemoryItem(kind, f"{kind}{owner}", size * parameters * held, rule))
    return found


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
