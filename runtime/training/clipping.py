"""Gradients clipped by their global norm: that of all parameters of the model, each counted once.

Exact, the norm is the root of a sum of squares in float64, one square per parameter, added in the order of
the model's parameters: forward blocks in topological order, a block's parameters in its own. That of a
parameter which is cut is the sum over its shards in order. So a run has the norm of the model in one piece,
bit for bit where no block is cut. Otherwise each device adds up its own, and the devices' sums are added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from placements import Kind, Placement
from runtime.models.model import Model, team_of
from runtime.transport.copies import Copies
from runtime.transport.protocol import Team, Transport

EPSILON = 1e-6
"""Added to the norm by which gradients are divided, as PyTorch's `clip_grad_norm_` does."""


class Square(NamedTuple):
    """The sum of the squares of a gradient.

    Attributes:
        name: Name of the parameter.
        shard: Which part of it.
        value: The sum, in float64.
    """

    name: str
    shard: int
    value: float


Squares = Mapping[str, Sequence[Square]]
"""For forward blocks the squares of their parameters, in the block's order."""


def clip_grad_norm_(
    model: Model,
    placement: Placement,
    transport: Transport,
    max_norm: float,
    *,
    exact: bool = True,
    counted: Iterable[str] | None = None,
) -> float:
    """Scale all gradients down so that their norm is no more than asked for; return what it was.

    Every device must call it at the same place, when the gradients of copies have been added up. A norm that
    is not a number makes all gradients so, as in PyTorch.

    Args:
        model: Model whose gradients are scaled.
        placement: What runs where.
        transport: Reaches the other devices.
        max_norm: The most that the norm may be.
        exact: Whether the norm is to be that of the model in one piece.
        counted: If not exact, the names of the parameters that this device counts; see `counted_here`. None
            for all, where there are no copies.
    """
    norm = norm_of(transport.collect(norm_part(model, exact=exact, counted=counted)), placement)
    scale_by_norm(model.parameters.values(), norm, max_norm)
    return norm


def norm_part(model: Model, *, exact: bool = True, counted: Iterable[str] | None = None) -> Squares | float:
    """Return what a device must tell of its gradients; see `clip_grad_norm_`."""
    if exact:
        return squares(model)
    names = {shard.name for shard in model.parameters} if counted is None else set(counted)
    own = [weight.grad for shard, weight in model.parameters.items() if shard.name in names]
    return float(torch.nn.utils.get_total_norm([grad.to_dense() for grad in own if grad is not None]))


def norm_of(parts: Sequence[Squares | float], placement: Placement) -> float:
    """Return the norm of all gradients, of what each device tells; or that of some devices."""
    numbers = [part for part in parts if isinstance(part, float)]
    if numbers:
        return math.hypot(*numbers)
    return total_norm([part for part in parts if not isinstance(part, float)], placement)


def squares(model: Model) -> dict[str, list[Square]]:
    """Return the squares of a device's gradients, by its forward blocks; shared parameters in each."""
    shards = {shard.name: shard.shard * shard.num_shares + shard.share for shard in model.parameters}
    gradients = {shard.name: weight.grad for shard, weight in model.parameters.items()}
    found = {name: square_of(value) for name, value in gradients.items() if value is not None}
    values = dict(zip(found, torch.stack(list(found.values())).tolist(), strict=True)) if found else {}
    return {
        block: [Square(name, shards[name], values[name]) for name in model.trained(block) if name in values]
        for block in model.groups
    }


def square_of(gradient: Tensor) -> Tensor:
    """Return the sum of a gradient's squares, in float64 and always in the same order."""
    return gradient.detach().to_dense().double().flatten().square().sum()


def total_norm(by_device: Sequence[Squares], placement: Placement) -> float:
    """Return the norm of all gradients, each parameter's square counted once.

    Args:
        by_device: The squares of each device, or of the one that has the whole model.
        placement: Gives the order of the blocks.
    """
    found: dict[str, dict[int, float]] = {}
    for block in placement.topological_order:
        if block.kind is Kind.F:
            for of_device in by_device:
                for name, shard, value in of_device.get(block.name, ()):
                    found.setdefault(name, {}).setdefault(shard, value)
    total = 0.0
    for shards in found.values():
        square = 0.0
        for shard in sorted(shards):
            square += shards[shard]
        total += square
    return math.sqrt(total)


def scale_by_norm(weights: Iterable[Tensor], norm: float, max_norm: float) -> None:
    """Scale the gradients of some parameters down, if the norm of all is greater than the most."""
    factor = max_norm / (norm + EPSILON)
    if factor >= 1:
        return
    for weight in weights:
        if weight.grad is not None:
            weight.grad.mul_(factor)


def counted_here(model: Model, teams: Mapping[Team, Copies]) -> list[str]:
    """Return the parameters that a device counts, so that of each shard one copy is counted.

    Args:
        model: Model of the device.
        teams: Those of its `teams_of_replicas` that the device is in, with its place there as ``index``.
    """
    of_others = {
        name
        for groups, names in model.replicas.items()
        for shard in range(len(groups[0]))
        if (team := team_of(groups, shard)) in teams and teams[team].index > 0
        for name in names
    }
    # Where a block is cut, all of its devices have the parameters that are not.
    of_first = {
        name for block, shards in model.shards.items() if shards.index > 0 for name in model.weights(block)
    }
    return [
        shard.name
        for shard in model.parameters
        if shard.name not in of_others and (shard.num_shards > 1 or shard.name not in of_first)
    ]
