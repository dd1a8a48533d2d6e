"""Optimizers as states by parameter: PyTorch's of any class, and our own.

It does not know which parameters a process holds, nor how they are cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from runtime.program.calls import ScriptError

BASE_RATE = "initial_lr"
"""Where PyTorch's schedules keep the learning rate that they began with."""

_RATES = ("lr", BASE_RATE)

_MOMENTA = ("momentum", "betas")
"""What PyTorch's cyclic schedules move too."""

_MOMENTUM_BOUNDS = ("base_momentum", "max_momentum")
"""Where these keep between which values they move it."""


_OF_A_CLASS = frozenset({"alpha", "betas", "etas", "lambd", "lr_decay", "momentum", "rho"})
"""Options by which classes of `torch.optim` differ; a checkpoint has no name of its class."""


class OptimizerStates:
    """What an optimizer holds for each parameter: one that says so itself, without groups, or none.

    Args:
        optimizer: One with `state_of` and `load_state_of`, or None.
    """

    def __init__(self, optimizer: Any) -> None:
        """Ask this optimizer."""
        self._optimizer = optimizer

    def state_of(self, weight: Tensor) -> Mapping[str, Any]:
        """Return the state of a parameter by name: tensors, and plain data; empty if there is none."""
        state: Mapping[str, Any] = {} if self._optimizer is None else self._optimizer.state_of(weight)
        return state

    def load_state_of(self, weight: Tensor, state: Mapping[str, Any]) -> None:
        """Take over the state of a parameter; ignored if another process holds it."""
        if self._optimizer is not None:
            self._optimizer.load_state_of(weight, state)

    def hyper_parameters_of(self, weight: Tensor) -> Mapping[str, Any]:
        """Return the plain data of the parameter's group; empty where the optimizer has no groups."""
        return {}

    def load_hyper_parameters_of(self, weight: Tensor, saved: Mapping[str, Any]) -> list[str]:
        """Take over what a schedule changed in the parameter's group; return what was given anew."""
        return []


class TorchStates(OptimizerStates):
    """The states of an optimizer of `torch.optim`, of any class."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        """Find the group of each parameter."""
        super().__init__(optimizer)
        self._groups = {id(weight): group for group in optimizer.param_groups for weight in group["params"]}

    def state_of(self, weight: Tensor) -> Mapping[str, Any]:
        """Return the state of a parameter."""
        state: Mapping[str, Any] = self._optimizer.state.get(weight, {})
        return state

    def load_state_of(self, weight: Tensor, state: Mapping[str, Any]) -> None:
        """Take over the state of a parameter, where `Optimizer.load_state_dict` would have put it."""
        group = self._groups.get(id(weight))
        if group is None:
            return
        self._optimizer.state[weight] = {
            name: _moved(name, value, weight, group) if isinstance(value, Tensor) else value
            for name, value in state.items()
        }

    def hyper_parameters_of(self, weight: Tensor) -> Mapping[str, Any]:
        """Return what the parameter's group holds beside parameters, as far as it is plain data."""
        group = self._groups.get(id(weight), {})
        return {
            name: value.item() if isinstance(value, Tensor) else value
            for name, value in group.items()
            if name != "params" and (isinstance(value, Tensor) or _is_plain(value))
        }

    def load_hyper_parameters_of(self, weight: Tensor, saved: Mapping[str, Any]) -> list[str]:
        """Take over the learning rate and momentum that a schedule had come to; return what was given anew.

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
        base = {"lr": ours.get(BASE_RATE, ours.get("lr"))}
        base_then = {"lr": saved.get(BASE_RATE, saved.get("lr"))}
        moved = {*_RATES, *(_MOMENTA if _is_cyclic(ours, saved) else ())}
        others = sorted((ours.keys() & saved.keys()) - moved - {"param_names"})
        before = {name: saved[name] for name in others} | base_then
        now = {name: ours[name] for name in others} | base
        taken = (moved if base == base_then else moved - {*_RATES}) & saved.keys()
        _take_over(group, {name: saved[name] for name in taken})
        return [f"{name} {before[name]} -> {now[name]}" for name in now if now[name] != before[name]]


def _is_cyclic(ours: Mapping[str, Any], saved: Mapping[str, Any]) -> bool:
    """Tell whether a schedule moves the momentum now as then; of betas it moves the first."""
    same = all(name in ours and ours[name] == saved.get(name) for name in _MOMENTUM_BOUNDS)
    return same and tuple(ours.get("betas", ())[1:]) == tuple(saved.get("betas", ())[1:])


def _take_over(group: dict[str, Any], saved: Mapping[str, Any]) -> None:
    for name, value in saved.items():
        if isinstance(group.get(name), Tensor):
            group[name].fill_(value)
        else:
            group[name] = value


def _moved(name: str, value: Tensor, weight: Tensor, group: Mapping[str, Any]) -> Tensor:
    if name == "step":
        on_device = group.get("capturable") or group.get("fused")
        return value.to(weight.device) if on_device else value
    return value.to(weight.device)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
