"""Optimizers as states by parameter: PyTorch's of any class, and our own.

It does not know which parameters a process holds, nor how they are cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from runtime.program.calls import ScriptError

_RATES = ("lr", "initial_lr")
"""A group's learning rate, and the one that PyTorch's schedules began with."""

_MOMENTA = ("momentum", "betas")
"""Options that PyTorch's cyclic schedules move too."""

_MOMENTUM_BOUNDS = ("base_momentum", "max_momentum")
"""The bounds between which these move them."""

_OF_A_CLASS = frozenset({"alpha", "betas", "etas", "lambd", "lr_decay", "momentum", "rho"})
"""Options by which classes of `torch.optim` differ; a checkpoint has no name of its class."""


class OptimizerStates:
    """An optimizer's state of each parameter.

    Args:
        optimizer: One of `torch.optim`; one with `state_of` and `load_state_of`, which has no groups; or
            None for no states.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self._of_torch = optimizer, isinstance(optimizer, torch.optim.Optimizer)
        groups: list[dict[str, Any]] = optimizer.param_groups if self._of_torch else []
        self._groups = {id(weight): group for group in groups for weight in group["params"]}

    def state_of(self, weight: Tensor) -> Mapping[str, Any]:
        """Return the state of a parameter by name: tensors, and plain data; empty if there is none."""
        if self._optimizer is None:
            return {}
        state: Mapping[str, Any] = (
            self._optimizer.state.get(weight, {}) if self._of_torch else self._optimizer.state_of(weight)
        )
        return state

    def load_state_of(self, weight: Tensor, state: Mapping[str, Any]) -> None:
        """Take over the state of a parameter, where PyTorch would put it; ignored if others hold it."""
        if self._of_torch and (group := self._groups.get(id(weight))) is not None:
            stays = () if group.get("capturable") or group.get("fused") else ("step",)
            self._optimizer.state[weight] = {
                name: value.to(weight.device) if isinstance(value, Tensor) and name not in stays else value
                for name, value in state.items()
            }
        elif not self._of_torch and self._optimizer is not None:
            self._optimizer.load_state_of(weight, state)

    def hyper_parameters_of(self, weight: Tensor) -> dict[str, Any]:
        """Return the plain data of the parameter's group; empty where the optimizer has no groups."""
        group = self._groups.get(id(weight), {})
        return {
            name: value.item() if isinstance(value, Tensor) else value
            for name, value in group.items()
            if name != "params" and (isinstance(value, Tensor) or _is_plain(value))
        }

    def load_hyper_parameters_of(self, weight: Tensor, saved: Mapping[str, Any]) -> list[str]:
        """Take over the learning rate and momentum that a schedule had come to; return the new values.

        A learning rate that the optimizer was made with now, and not then, stays as it is now; so do all
        other values, and a momentum that no schedule moves, or now between other bounds.

        Raises:
            ScriptError: The optimizer was of another class.
        """
        group = self._groups.get(id(weight))
        if group is None or not saved:
            return []
        ours = self.hyper_parameters_of(weight)
        if other := sorted(_OF_A_CLASS & (ours.keys() ^ saved.keys())):
            raise ScriptError(
                f"resume: the optimizer was of another class than {type(self._optimizer).__name__} (only one "
                f"of the two has {', '.join(other)}); give one of the same class, or none and begin with its "
                "state anew"
            )
        moved = {*_RATES, *(_MOMENTA if _is_cyclic(ours, saved) else ())}
        others = sorted((ours.keys() & saved.keys()) - moved - {"param_names"})
        before, now = (
            {name: group[name] for name in others} | {"lr": group.get("initial_lr", group.get("lr"))}
            for group in (saved, ours)
        )
        for name in (moved if before["lr"] == now["lr"] else moved - {*_RATES}) & saved.keys():
            if isinstance(group.get(name), Tensor):
                group[name].fill_(saved[name])
            else:
                group[name] = saved[name]
        return [f"{name} {before[name]} -> {now[name]}" for name in now if now[name] != before[name]]


def _is_cyclic(ours: Mapping[str, Any], saved: Mapping[str, Any]) -> bool:
    """Tell whether a schedule moves the momentum now as then; of betas it moves the first."""
    same = all(name in ours and ours[name] == saved.get(name) for name in _MOMENTUM_BOUNDS)
    return same and tuple(ours.get("betas", ())[1:]) == tuple(saved.get("betas", ())[1:])


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
