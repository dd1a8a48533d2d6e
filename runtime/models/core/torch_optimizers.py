"""Optimizers and learning-rate schedules of PyTorch by the names of their classes, tried before use.

Their options come from a user, so each is built here and moved one step on a small tensor: what PyTorch
refuses is known, in one line, before anything starts. Building one imports PyTorch's compiler, which takes a
second or two in every process. It does not know which parameters are moved.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.optim
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

PLAIN = {"sgd": "SGD", "adamw": "AdamW"}
"""Names for which there is code of our own as well, and the classes of PyTorch that do the same."""

OF_WHOLE_PARAMETERS = ("Adafactor", "Muon")
"""Classes whose steps do not work element by element, so that a part of a parameter would move otherwise."""


class TorchOptionError(ValueError):
    """PyTorch has no such class, or the class refuses its options.

    Attributes:
        field: The option at fault; the message begins with it.
        reason: The rest of the message.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field, self.reason = field, reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """Return a class of `torch.optim`.

    Raises:
        TorchOptionError: There is none of that name.
    """
    found = getattr(torch.optim, PLAIN.get(name, name), None)
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)) or name == "Optimizer":
        raise TorchOptionError(
            "optimizer", f"{name!r} is not known; use {', '.join(PLAIN)} or a class of torch.optim, as Adam"
        )
    return found


def build_optimizer(
    name: str, options: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]
) -> torch.optim.Optimizer:
    """Return an optimizer of some groups of parameters.

    Args:
        name: Name of a class of `torch.optim`, or of `PLAIN`.
        options: Options of the class.
        groups: As the class takes them: ``params``, and options of the group.

    Raises:
        TorchOptionError: There is no such class, or it refuses an option.
    """
    made = optimizer_class(name)
    _check_names("optimizer_options", made, options, ("self", "params"))
    optimizer: torch.optim.Optimizer = _tried(
        "optimizer_options", name, lambda: made([dict(group) for group in groups], **options)
    )
    for group in groups:
        for key in group:
            if key != "params" and key not in optimizer.defaults:
                raise TorchOptionError(
                    "parameter_groups", f"{name} has no option {key!r}; use {', '.join(optimizer.defaults)}"
                )
    return optimizer


def build_schedule(name: str, optimizer: torch.optim.Optimizer, options: Mapping[str, Any]) -> LRScheduler:
    """Return a schedule of an optimizer's learning rates.

    Args:
        name: Name of a class of `torch.optim.lr_scheduler`.
        optimizer: Optimizer whose learning rates change.
        options: Options of the class.

    Raises:
        TorchOptionError: There is no such class, it refuses an option, or it takes more than an optimizer
            and plain options.
    """
    made = getattr(torch.optim.lr_scheduler, name, None)
    if not (isinstance(made, type) and issubclass(made, LRScheduler)) or made is LRScheduler:
        raise TorchOptionError(
            "lr_schedule",
            f"{name!r} is not known; use a class of torch.optim.lr_scheduler, as CosineAnnealingLR",
        )
    _check_names("lr_schedule_options", made, options, ("self", "optimizer", "last_epoch"))
    schedule: LRScheduler = _tried("lr_schedule_options", name, lambda: made(optimizer, **options))
    return schedule


def check_optimizer(
    name: str,
    options: Mapping[str, Any],
    groups: Sequence[Mapping[str, Any]],
    schedule: str | None,
    schedule_options: Mapping[str, Any],
) -> None:
    """Move a small tensor in each group one step, and the learning rates.

    Args:
        name: Name of the optimizer.
        options: Options of its class.
        groups: The options of each group of parameters.
        schedule: Name of the schedule of learning rates, or None.
        schedule_options: Options of its class.

    Raises:
        TorchOptionError: One of them cannot be used.
    """
    values = [torch.zeros(2, 2, requires_grad=True) for _ in groups]
    optimizer = build_optimizer(
        name, options, [{"params": [value], **group} for value, group in zip(values, groups, strict=True)]
    )
    rates = build_schedule(schedule, optimizer, schedule_options) if schedule is not None else None
    for value in values:
        value.grad = torch.ones_like(value)
    _tried("optimizer", name, optimizer.step)
    if rates is not None:
        _tried("lr_schedule", schedule or "", rates.step)


def advance(schedule: LRScheduler, num_updates: int) -> None:
    """Go some updates ahead in a schedule that has done none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimizer has not stepped: it did so in an earlier run
        for _ in range(num_updates):
            schedule.step()


def group_of(name: str, patterns: Iterable[str]) -> int | None:
    """Return the index of the first regular expression that is found in a parameter's name, or None."""
    return next((i for i, pattern in enumerate(patterns) if re.search(pattern, name)), None)


def in_groups(names: Sequence[str], weights: Sequence[Tensor], patterns: Sequence[str]) -> list[list[Tensor]]:
    """Return the parameters of each pattern, then those that none is found in."""
    found: list[list[Tensor]] = [[] for _ in range(len(patterns) + 1)]
    for name, weight in zip(names, weights, strict=True):
        index = group_of(name, patterns)
        found[len(patterns) if index is None else index].append(weight)
    return found


def _check_names(field: str, made: type, options: Mapping[str, Any], without: tuple[str, ...]) -> None:
    known = [name for name in inspect.signature(made.__init__).parameters if name not in without]  # type: ignore[misc]
    for key in options:
        if key not in known:
            raise TorchOptionError(field, f"{made.__name__} has no option {key!r}; use {', '.join(known)}")


def _tried(field: str, name: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:  # whatever PyTorch raises
        reason = " ".join(str(error).split())[:200]
        raise TorchOptionError(
            field, f"{name} fails: {reason}; give other options, or another class"
        ) from None
