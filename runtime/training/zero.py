"""ZeRO, stage 1: of each parameter that has copies one copy holds the optimizer's state and moves it.

The gradients of the copies are added up as without. Then each device moves the parameters that it owns, and
hands them to the other copies. Every optimizer that moves parameters one by one gives the same bits so
(Rajbhandari et al. 2020, ZeRO, Sec. 5.1, there with flat buffers cut anywhere; a parameter is whole here).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.optim
from torch import Tensor

from runtime.models.model import Model, team_of
from runtime.transport.copies import Copies
from runtime.transport.protocol import Team


class Owners:
    """Which copy owns which parameter.

    Attributes:
        own: The parameters of this device that it moves: those without copies, and those that it owns.

    Args:
        model: Model of the device.
        copies: Those of its `teams_of_replicas` that the device is in.
    """

    def __init__(self, model: Model, copies: Mapping[Team, Copies]) -> None:
        """Give the parameters of each team to its members, the largest first to whom has least."""
        weights = {shard.name: weight for shard, weight in model.parameters.items()}
        self._owned: list[tuple[Copies, list[list[Tensor]]]] = []
        names_of: dict[Team, list[str]] = {}
        for groups, names in model.replicas.items():
            for shard in range(len(groups[0])):
                names_of.setdefault(team_of(groups, shard), []).extend(names)
        of_others: set[int] = set()
        for team, names in names_of.items():
            if team in copies:
                trained = [weights[name] for name in names if weights[name].requires_grad]
                shares = in_equal_shares(trained, copies[team].count)
                self._owned.append((copies[team], shares))
                for index, share in enumerate(shares):
                    if index != copies[team].index:
                        of_others.update(id(weight) for weight in share)
        self.own = {
            shard: weight for shard, weight in model.parameters.items() if id(weight) not in of_others
        }
        self._of_others = of_others

    def owns(self, weight: Tensor) -> bool:
        """Tell whether this device moves one of its parameters."""
        return id(weight) not in self._of_others

    def share_parameters(self) -> None:
        """Give every copy the owner's values; every device must call it after it has moved its own."""
        waits: list[tuple[list[Tensor], Callable[[], Tensor]]] = []
        for copies, shares in self._owned:
            for source, share in enumerate(shares):
                if share:
                    row = torch.cat([weight.detach().flatten() for weight in share])
                    waits.append((share, copies.begin_broadcast(row, source)))
        with torch.no_grad():
            for share, wait in waits:
                pieces = torch.split(wait(), [weight.numel() for weight in share])
                for weight, piece in zip(share, pieces, strict=True):
                    weight.copy_(piece.view_as(weight))


def in_equal_shares(weights: Iterable[Tensor], count: int) -> list[list[Tensor]]:
    """Return parameters in shares of about equal size; the same wherever the sizes are the same.

    >>> [[len(w) for w in share] for share in in_equal_shares(map(torch.zeros, (1, 5, 2, 3)), 2)]
    [[5, 1], [3, 2]]
    """
    shares: list[list[Tensor]] = [[] for _ in range(count)]
    sizes = [0] * count
    for weight in sorted(weights, key=lambda weight: -weight.numel()):
        least = sizes.index(min(sizes))
        shares[least].append(weight)
        sizes[least] += weight.numel()
    return shares


class Zero1(torch.optim.Optimizer):
    """An optimizer of one's own loop that holds the state of this device's part of the copies only.

    It is made like the class that it wraps, works with PyTorch's learning-rate schedules, and its `state`,
    `param_groups` and `state_dict` are those of the parameters that the device owns.

    Args:
        optimizer_class: Optimizer class of PyTorch, or one's own that moves each parameter by itself.
        parameters: Parameters of the device, or groups of them, as the class takes them.
        owners: Which of them it moves.
        options: Options of the class.
    """

    def __init__(
        self,
        optimizer_class: Callable[..., torch.optim.Optimizer],
        parameters: Iterable[Any],
        owners: Owners,
        **options: Any,
    ) -> None:
        """Build the optimizer of the owned parameters.

        PyTorch's own initialisation is left out: it would hold the groups of all parameters beside these.
        """
        given = list(parameters)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        groups = [{**group, "params": list(group["params"])} for group in groups]
        self._all = [weight for group in groups for weight in group["params"]]
        self._owners = owners
        owned = [{**group, "params": list(filter(owners.owns, group["params"]))} for group in groups]
        self._inner = optimizer_class(owned, **options)
        self.param_groups, self.state = self._inner.param_groups, self._inner.state
        self.defaults = self._inner.defaults

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move what this device owns, and take over what others own; every device must call it."""
        assert closure is None, "no part of a pipeline can compute a loss again"
        self._inner.step()
        self._owners.share_parameters()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zero."""
        for weight in self._all:
            if set_to_none:
                weight.grad = None
            elif weight.grad is not None:
                weight.grad.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of what this device owns."""
        return self._inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state of what this device owns."""
        self._inner.load_state_dict(state_dict)
        self.param_groups, self.state = self._inner.param_groups, self._inner.state
