"""Tensor parallelism of one block: who computes which shard, and the two collectives between shards.

A block on n devices is cut into n shards. A process computes one of them (`ProcessShards`), all of them
(`EmulatedShards`, which repeats a distributed run bit for bit), or the block is whole (`WHOLE`). The code
of a layer is the same for all three: values that differ between shards are lists, one entry for each
shard of this process.

The data-parallel groups of a block are told in the same way: `Shards` whose members are the groups, of which
a process computes one or all.

Sums gather all terms and add them in the order of the shards, where Megatron-LM all-reduces: the order
in which an all-reduce adds depends on the library, and a run could not be compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Shards(Protocol):
    """The shards of a block, and those of them that this process computes."""

    @property
    def count(self) -> int:
        """Return how many shards the block has: one per device."""

    @property
    def local(self) -> tuple[int, ...]:
        """Return the indices of the shards that this process computes, ascending."""

    def gather(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return the values of all shards in order, given those of the local ones; equal shapes."""


@dataclass(frozen=True)
class EmulatedShards:
    """All shards in this process, one after the other.

    Attributes:
        count: Shards of the block.
    """

    count: int

    @property
    def local(self) -> tuple[int, ...]:
        """Return all indices."""
        return tuple(range(self.count))

    def gather(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return the values themselves."""
        return list(values)


WHOLE = EmulatedShards(1)
"""The shards of a block that is not cut."""


@dataclass(frozen=True)
class ProcessShards:
    """One shard in each process of a group.

    Attributes:
        group: The processes, in the order of the block's devices.
        index: The shard of this process.
        count: Shards of the block.
    """

    group: dist.ProcessGroup
    index: int
    count: int

    @property
    def local(self) -> tuple[int, ...]:
        """Return this process's index."""
        return (self.index,)

    def gather(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Exchange the values with the other processes; every one must call at the same place."""
        (value,) = values
        received = [torch.empty_like(value, memory_format=torch.contiguous_format) for _ in range(self.count)]
        dist.all_gather(received, value.contiguous(), group=self.group)
        return received


def split(tensor: Tensor, dim: int, shards: Shards) -> list[Tensor]:
    """Return the local shards of a full tensor, cut along `dim` evenly, earlier ones one larger."""
    pieces = torch.tensor_split(tensor, shards.count, dim)
    return [pieces[index].contiguous() for index in shards.local]


def share_of(values: Tensor, index: int, count: int) -> Tensor:
    """Return one of several equal shares of the samples, which are dimension 0, in memory of its own."""
    return values if count == 1 else values.chunk(count)[index].clone()


def share_shape(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the shape of a share of the samples; that of a scalar stays."""
    return (shape[0] // count, *shape[1:]) if shape else shape


def copy_to_shards(value: Tensor, shards: Shards) -> list[Tensor]:
    """Give each local shard the replicated value; its gradient is the sum over all shards."""
    copies: tuple[Tensor, ...] = _Copy.apply(shards, value)  # type: ignore[no-untyped-call]
    return list(copies)


def sum_over_shards(parts: Sequence[Tensor], shards: Shards) -> Tensor:
    """Return the sum of every shard's part, replicated; each part's gradient is that of the sum."""
    total: Tensor = _Sum.apply(shards, *parts)  # type: ignore[no-untyped-call]
    return total


def sum_in_order(values: Sequence[Tensor]) -> Tensor:
    """Return the first plus the second plus the third and so on; at least one."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


class _Copy(torch.autograd.Function):
    """Forward: the identity, once per local shard. Backward: the sum over all shards."""

    @staticmethod
    def forward(ctx: Any, shards: Shards, value: Tensor) -> tuple[Tensor, ...]:
        ctx.shards = shards
        return tuple(value.clone() for _ in shards.local)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, sum_in_order(ctx.shards.gather([gradient.contiguous() for gradient in gradients]))


class _Sum(torch.autograd.Function):
    """Forward: the sum over all shards. Backward: the identity, once per local shard."""

    @staticmethod
    def forward(ctx: Any, shards: Shards, *parts: Tensor) -> Tensor:
        ctx.num_parts = len(parts)
        return sum_in_order(shards.gather([part.contiguous() for part in parts])).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *(gradient.clone() for _ in range(ctx.num_parts)))
