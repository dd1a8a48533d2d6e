"""ZeRO, stage 1: of each parameter that has copies one copy holds the optimizer's state and moves it.

The gradients of the copies are added up as without. Then each device moves the parameters that it owns, and
hands them to the other copies. Every optimizer that moves parameters one by one gives the same bits so
(Rajbhandari et al. 2020, ZeRO, Sec. 5.1, there with flat buffers cut anywhere; a parameter is whole here).
PyTorch's `ZeroRedundancyOptimizer` shares all parameters of a process in one process group; here each
parameter has a team of its own or none, and devices may be threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.optim
from torch import Tensor

from runtime.models.model import Model, team_of
from runtime.transport.protocol import Team
from runtime.transport.shards import Shards


class Owners:
    """The copies that own each parameter.

    Args:
        model: Model of the device.
        copies: The teams of its `teams_of_replicas` that the device is in.
    """

    def __init__(self, model: Model, copies: Mapping[Team, Shards]) -> None:
        """Give the parameters of each team to its members, the largest first, each to the least loaded."""
        weights = {shard.name: weight for shard, weight in model.parameters.items()}
        names_of: dict[Team, list[str]] = {}
        for groups, names in model.replicas.items():
            for shard in range(len(groups[0])):
                names_of.setdefault(team_of(groups, shard), []).extend(names)
        self._shares: list[tuple[Shards, list[list[Tensor]]]] = []
        self._of_others = set[int]()
        for team in (team for team in names_of if team in copies):
            shares: list[list[Tensor]] = [[] for _ in range(copies[team].count)]
            sizes = [0] * len(shares)
            trained = [weights[name] for name in names_of[team] if weights[name].requires_grad]
            for weight in sorted(trained, key=lambda weight: -weight.numel()):
                owner = sizes.index(min(sizes))
                shares[owner].append(weight)
                sizes[owner] += weight.numel()
                if owner != copies[team].index:
                    self._of_others.add(id(weight))
            self._shares.append((copies[team], shares))

    def owns(self, weight: Tensor) -> bool:
        """Tell whether this device moves one of its parameters: one without copies, or that it owns."""
        return id(weight) not in self._of_others

    def share_parameters(self) -> None:
        """Give every copy the owner's values; every device must call it after it has moved its own."""
        waits: list[tuple[list[Tensor], Callable[[], Tensor]]] = []
        for copies, shares in self._shares:
            for source, share in enumerate(shares):
                if share:
                    row = torch.cat([weight.detach().flatten() for weight in share])
                    waits.append((share, copies.begin_broadcast(row, source)))
        with torch.no_grad():
            for share, wait in waits:
                pieces = torch.split(wait(), [weight.numel() for weight in share])
                for weight, piece in zip(share, pieces, strict=True):
                    weight.copy_(piece.view_as(weight))


def zero1(
    optimizer_class: Callable[..., torch.optim.Optimizer],
    parameters: Iterable[Any],
    owners: Owners,
    **options: Any,
) -> torch.optim.Optimizer:
    """Return an optimizer of one's own loop that holds the state of this device's part of the copies only.

    After each step, which every device must take, all copies have the owners' values.

    Args:
        optimizer_class: Optimizer class of PyTorch, or one's own that moves each parameter by itself.
        parameters: Parameters of the device, or groups of them, as the class takes them.
        owners: The parameters that it moves.
        options: Options of the class.
    """
    given = list(parameters)
    groups = given if given and isinstance(given[0], dict) else [{"params": given}]
    groups = [{**group, "params": list(group["params"])} for group in groups]
    every = [weight for group in groups for weight in group["params"]]
    owned = [{**group, "params": list(filter(owners.owns, group["params"]))} for group in groups]
    optimizer = optimizer_class(owned, **options)
    optimizer.register_step_post_hook(lambda *_: owners.share_parameters())

    def zero_grad(set_to_none: bool = True) -> None:
        for weight in every:
            weight.grad = None

    optimizer.zero_grad = zero_grad  # type: ignore[method-assign]
    return optimizer
