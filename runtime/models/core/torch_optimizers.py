"""Optimizers and learning-rate schedules of PyTorch by the names of their classes.

Their options come from a user: PyTorch's refusals become one line. Building one imports PyTorch's compiler,
which takes a second or two in every process.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
        super().__init__(f"{field}: {reason}")
        self.field, self.reason = field, reason


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
    """Return an optimizer of groups of parameters, each a mapping of ``params`` and options of its own.

    Raises:
        TorchOptionError: There is no such class, or it refuses an option.
    """
    made = optimizer_class(name)
    if inspect.signature(made.step).parameters["closure"].default is inspect.Parameter.empty:
        raise TorchOptionError("optimizer", f"{name} needs a closure, which no run has; use another class")
    with _trying("optimizer_options", name):
        optimizer = made([dict(group) for group in groups], **options)
    for key in {key for group in groups for key in group} - {"params", *optimizer.defaults}:
        raise TorchOptionError(
            "parameter_groups", f"{name} has no option {key!r}; use {', '.join(optimizer.defaults)}"
        )
    return optimizer


def build_schedule(name: str, optimizer: torch.optim.Optimizer, options: Mapping[str, Any]) -> LRScheduler:
    """Return a schedule of an optimizer's learning rates, by the name of its class.

    Raises:
        TorchOptionError: There is no such class, or it takes other options.
    """
    made = getattr(torch.optim.lr_scheduler, name, None)
    if not (isinstance(made, type) and issubclass(made, LRScheduler)) or made is LRScheduler:
        raise TorchOptionError(
            "lr_schedule",
            f"{name!r} is not known; use a class of torch.optim.lr_scheduler, as CosineAnnealingLR",
        )
    with _trying("lr_schedule_options", name):
        return made(optimizer, **options)


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
    """Return the parameters of each pattern, then the others."""
    found: list[list[Tensor]] = [[] for _ in range(len(patterns) + 1)]
    for name, weight in zip(names, weights, strict=True):
        index = group_of(name, patterns)
        found[len(patterns) if index is None else index].append(weight)
    return found


@contextmanager
def _trying(field: str, name: str) -> Iterator[None]:
    """Make one line of anything that PyTorch raises."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise TorchOptionError(
            field, f"{name} fails: {reason}; give other options, or another class"
        ) from None
