"""Collectives between devices that hold copies of the same parameters, while messages of blocks go on.

Nothing here waits where it begins: each operation returns a function that waits for its end. The groups are
of their own, so that operations never stand between those of blocks; members of a team must begin theirs in
the same order. Whether a sum is of the same bits everywhere is the library's affair; what is gathered is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Copies(ABC):
    """A team of devices that hold copies, seen from one of them.

    Attributes:
        index: Index of this device in the team.
        count: Devices of the team.
    """

    index: int
    count: int

    @abstractmethod
    def begin_gather(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Begin to gather tensors of equal shapes; the result waits and returns them, in order."""

    @abstractmethod
    def begin_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Begin to add up tensors of equal shapes, in place; the result waits and returns the sum."""

    @abstractmethod
    def begin_broadcast(self, tensor: Tensor, source: int) -> Callable[[], Tensor]:
        """Begin to overwrite a tensor by one device's; the result waits and returns it."""


@dataclass(frozen=True)
class MemoryCopies(Copies):
    """A team of threads of one process.

    Attributes:
        exchange: Hands a value to the others; what it returns waits, and returns the values in order.
    """

    exchange: Callable[[Tensor], Callable[[], list[Tensor]]]

    def begin_gather(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Hand a copy to the others."""
        found = self.exchange(tensor.detach().clone())
        return lambda: [value.clone() for value in found()]

    def begin_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Hand a copy to the others, and add up all."""
        found = self.exchange(tensor.detach().clone())
        return lambda: tensor.copy_(torch.stack(found()).sum(0))

    def begin_broadcast(self, tensor: Tensor, source: int) -> Callable[[], Tensor]:
        """Hand a copy to the others, and take one."""
        found = self.exchange(tensor.detach().clone())
        return lambda: tensor.copy_(found()[source])
