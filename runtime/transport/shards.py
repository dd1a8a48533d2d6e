"""Tensor parallelism of one block: the shard of this device, and the collectives between shards.

A block on n devices is cut into n shards, one on each, or it is whole (`WHOLE`). A layer sees only its own
device's tensors. Two functions join the shards; each is the other's gradient (Megatron-LM's g and f):

    hidden (same on every device) -- copy_to_shards --> own columns, own rows -- sum_over_shards --> hidden

Experts are spread with two more pairs: `own_share` and `join_shares` cut a replicated value into shares of
its rows and put them together, and `exchange` sends rows to other shards, and its gradient sends them back.

The data-parallel groups of a block are told in the same way: `Shards` whose members are the groups.

In an exact run sums gather all terms and add them in the order of the shards, where Megatron-LM
all-reduces: the order in which an all-reduce adds depends on the library, and a run could not be compared bit
by bit. Otherwise they all-reduce too, which sends less, and gives all shards the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shards:
    """The shards of a block, or the copies of parameters, on a team of devices, seen from one of these.

    By itself it is `WHOLE`. What `begin_...` begins is waited for by the function that it returns alone:
    operations on copies go on while messages of blocks do. Their groups are of their own, so that they never
    stand between operations of blocks; members of a team must begin theirs in the same order. What is
    gathered has the same bits everywhere; whether a sum has is the library's affair.

    Attributes:
        index: Index of this device's shard.
        count: Number of shards: one per device.
        is_exact: Whether a `total` is added in the order of the shards, and not in an order of the library's.
    """

    index: int = 0
    count: int = 1
    is_exact: bool = True

    def begin_gather(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Begin to gather tensors of equal shapes; the result waits and returns them, in order."""
        return lambda: [tensor]

    def begin_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Begin to add up tensors of equal shapes, in place; the result waits and returns the sum."""
        return lambda: tensor

    def begin_broadcast(self, tensor: Tensor, source: int) -> Callable[[], Tensor]:
        """Begin to overwrite a tensor by one device's; the result waits and returns it."""
        return lambda: tensor

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Return the rows that all shards have for this one, in order (an all-to-all).

        Given are its rows for each, in order, and the numbers of both. Every device must call it at the same
        place.
        """
        return rows

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all shards in order, given this one's; every device must call it alike."""
        return self.begin_gather(tensor.contiguous())()

    def total(self, part: Tensor) -> Tensor:
        """Return the sum of the tensors of all shards, given this one's."""
        if not self.is_exact:
            return self.begin_sum(part.clone(memory_format=torch.contiguous_format))()
        return sum_in_order(self.gather(part))

    def of(self, tensor: Tensor, dim: int) -> Tensor:
        """Return this shard of a full tensor, cut along `dim` evenly, earlier shards one larger."""
        return torch.tensor_split(tensor, self.count, dim)[self.index].contiguous()

    def _join_rows(self, share: Tensor) -> Tensor:
        return torch.cat(self.gather(share))

    def _own_rows(self, values: Tensor) -> Tensor:
        return self.of(values, 0).clone()


WHOLE = Shards()
"""The only shard of a block that is not cut."""


def share_of(values: Tensor, index: int, count: int) -> Tensor:
    """Return one of several equal shares of the samples, which are dimension 0, in memory of its own."""
    return values if count == 1 else values.chunk(count)[index].clone()


def share_shape(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the shape of a share of the samples; a scalar's stays."""
    return (shape[0] // count, *shape[1:]) if shape else shape


def part_of(tensor: Tensor, index: int, count: int) -> Tensor:
    """Return one of several equal parts of a tensor's elements, in order; the last ones end in zeros.

    >>> part_of(torch.arange(5), 1, 2)
    tensor([3, 4, 0])
    """
    size = part_size(tensor.numel(), count)
    part = tensor.flatten()[index * size : (index + 1) * size]
    return part if len(part) == size else torch.cat([part, part.new_zeros(size - len(part))])


def part_size(num_elements: int, count: int) -> int:
    """Return the number of elements of each of several equal parts."""
    return -(-num_elements // count)


def of_parts(parts: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    """Return the tensor of a shape that was cut into parts."""
    return torch.cat(list(parts))[: math.prod(shape)].view(shape)


def sum_in_order(values: Sequence[Tensor]) -> Tensor:
    """Return the first plus the second plus the third and so on; at least one."""
    return reduce(add, values)


def copy_to_shards(value: Tensor, shards: Shards) -> Tensor:
    """Return a replicated value as this shard's copy; its gradient is the sum over all shards."""
    return _joined(value, shards, torch.clone, shards.total)


def sum_over_shards(part: Tensor, shards: Shards) -> Tensor:
    """Return the sum of every shard's part, replicated; each part's gradient is the sum's."""
    return _joined(part, shards, shards.total, torch.clone)


def exchange(rows: Tensor, sent: Sequence[int], received: Sequence[int], shards: Shards) -> Tensor:
    """Return the rows that all shards have for this one; their gradient goes back the same way.

    The rows are this shard's for each shard, in order; `sent` and `received` are their numbers by shard.
    """
    there = partial(shards.swap, sent=sent, received=received)
    return _joined(rows, shards, there, partial(shards.swap, sent=received, received=sent))


def own_share(values: Tensor, shards: Shards) -> Tensor:
    """Return this shard's equal share of the rows of a replicated value; so its gradient is replicated."""
    return _joined(values, shards, shards._own_rows, shards._join_rows)


def join_shares(share: Tensor, shards: Shards) -> Tensor:
    """Return the equal shares of all shards as one replicated value; the gradient is this shard's of it."""
    return _joined(share, shards, shards._join_rows, shards._own_rows)


_Step = Callable[[Tensor], Tensor]


def _joined(value: Tensor, shards: Shards, forward: _Step, backward: _Step) -> Tensor:
    """Apply a step to a value, and another to its gradient; one shard needs neither."""
    if shards.count == 1:
        return value
    made: Tensor = _Joined.apply(value, forward, backward)  # type: ignore[no-untyped-call]
    return made


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, forward: _Step, backward: _Step) -> Tensor:
        ctx.of_gradient = backward
        return forward(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.of_gradient(gradient), None, None
