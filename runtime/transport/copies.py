"""Collectives between the devices of a team: that hold copies of parameters, or the shards of a block.

Operations on copies go on while messages of blocks do, so they wait nowhere: each returns a function that
waits for its end. Their groups are of their own, so that they never stand between operations of blocks;
members of a team must begin theirs in the same order. Whether a sum is of the same bits everywhere is the
library's affair; what is gathered is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtime.program.tensor_spec import TensorSpec
from runtime.transport.shards import Shards


@dataclass(frozen=True)
class Copies(ABC):
    """A team of devices, seen from one of them.

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

    @abstractmethod
    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Return the rows that all devices have for this one, once they are there; see `Shards.swap`."""

    def shards(self, exact: bool) -> Shards:
        """Return the team as shards; exact ones add in their order."""

        def gather(value: Tensor) -> list[Tensor]:
            return self.begin_gather(value.contiguous())()

        def total(value: Tensor) -> Tensor:
            return self.begin_sum(value.clone(memory_format=torch.contiguous_format))()

        return Shards(self.index, self.count, gather, None if exact else total, self.swap)


@dataclass(frozen=True)
class MemoryCopies(Copies):
    """A team of threads of one process; RuntimeError if they gather tensors of different forms.

    Attributes:
        exchange: Hands a value to the others; what it returns waits, and returns the values in order.
    """

    exchange: Callable[[Any], Callable[[], list[Any]]]

    def begin_gather(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Hand a copy to the others."""
        found = self.exchange(tensor.detach().clone())

        def gathered() -> list[Tensor]:
            values = found()
            if len({TensorSpec.of(value.dtype, value.shape) for value in values}) > 1:
                raise RuntimeError("devices of a team gather tensors of different forms")
            return [value.clone() for value in values]

        return gathered

    def begin_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Hand a copy to the others, and add up all."""
        found = self.exchange(tensor.detach().clone())
        return lambda: tensor.copy_(torch.stack(found()).sum(0))

    def begin_broadcast(self, tensor: Tensor, source: int) -> Callable[[], Tensor]:
        """Hand a copy to the others, and take one."""
        found = self.exchange(tensor.detach().clone())
        return lambda: tensor.copy_(found()[source])

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Hand each device its rows; RuntimeError if the numbers are others than expected."""
        parts = self.exchange(rows.detach().clone().split_with_sizes(list(sent)))()
        found = [of_other[self.index] for of_other in parts]
        if [len(part) for part in found] != list(received):
            raise RuntimeError("devices of a team exchange other numbers of rows than they expect")
        return torch.cat(found)
