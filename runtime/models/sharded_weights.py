"""Parameters of which each data-parallel group holds a part, gathered for use (ZeRO-3, FSDP, SDP).

Of such a parameter a device keeps its part, the part's gradient and the optimizer's state of it. The whole is
gathered when it is used: of a block of layers a layer at a time, else the block's at once. Its memory is
given back after the use, forward and backward, unless the block's weights stay for its next run. As soon as
a backward has made a parameter's gradient, the groups exchange it, and each adds up its part, in the order of
the groups; so no device holds more than one layer's.

The tensor that a module computes with stays the same one: only its memory comes and goes, so it is there
again in the backward where autograd saved it. All devices of a block gather and exchange within the runs of
the block, whose order is proved, and there in the order in which its modules run, which is the same on all
(torch's fully_shard gathers in an order of its own, and adds up in one that no run can be compared with).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from placements import Kind, Placement
from runtime.models.body import Body
from runtime.models.core.layered_block import LayeredBlock
from runtime.models.core.options import ModelError, ModelOptions
from runtime.transport.shards import Shards, sum_in_order


def sharded_parameters(options: ModelOptions, body: Body, placement: Placement) -> dict[str, list[str]]:
    """Return the names of the parameters that are sharded, by forward block; empty without ZeRO-3.

    Parameters that several blocks share, and scalars, stay whole.

    Raises:
        ModelError: A block cannot be sharded, or none can.
    """
    if options.zero != 3:
        return {}
    in_groups = [name for name in body.names if placement.by_name[name].data_parallel > 1]
    names = in_groups if options.sharded_blocks is None else list(options.sharded_blocks)
    for name in names:
        if name not in in_groups:
            raise ModelError(
                f"{name!r} is no forward block in data-parallel groups; name some of "
                f"{', '.join(in_groups) or 'a placement that has such'}",
                "sharded_blocks",
            )
    if not names:
        raise ModelError("3 needs blocks in data-parallel groups; use 0, or 1 for copies", "zero")
    uses = Counter(each.name for block in body.names for each in body.parameters(block))
    return {
        name: [each.name for each in body.parameters(name) if uses[each.name] == 1 and each.shape]
        for name in names
    }


class ShardedWeight:
    """One parameter, cut along a dimension; all devices of its groups call each method.

    Attributes:
        weight: Tensor of the modules; its memory is there only while it is gathered.
        piece: The part of this device, which the optimizer moves.
        num_bytes: Bytes of the whole.
        is_gathered: Whether the whole is there.
    """

    def __init__(self, weight: Tensor, dim: int, groups: Shards) -> None:
        self.weight, self._dim, self._groups = weight, dim, groups
        own = weight.detach().tensor_split(groups.count, dim)[groups.index]
        self.piece = own.clone(memory_format=torch.contiguous_format).requires_grad_(weight.requires_grad)
        self.num_bytes = weight.nbytes
        self.is_gathered = True
        self.release()

    def gather(self) -> None:
        """Let all groups give their parts."""
        if self.is_gathered:
            return
        with torch.no_grad(), _unsafe_preserve_version_counter(self.weight):
            self.weight.untyped_storage().resize_(self.num_bytes)
            parts = self.weight.detach().tensor_split(self._groups.count, self._dim)
            padded = torch.zeros_like(parts[0], memory_format=torch.contiguous_format)
            padded.narrow(self._dim, 0, self.piece.shape[self._dim]).copy_(self.piece)
            for part, found in zip(parts, self._groups.gather(padded), strict=True):
                part.copy_(found.narrow(self._dim, 0, part.shape[self._dim]))
        self.is_gathered = True

    def release(self) -> None:
        """Give the memory of the whole back."""
        if self.is_gathered:
            self.weight.untyped_storage().resize_(0)
            self.is_gathered = False

    def reduce(self) -> None:
        """Add the groups' gradients of the part to its own."""
        if self.weight.grad is None:
            return
        gradient, self.weight.grad = self.weight.grad.to_dense(), None
        parts = gradient.tensor_split(self._groups.count, self._dim)
        assert self._groups.swap is not None, "groups on several devices can exchange"
        row = torch.cat([part.flatten() for part in parts])
        own = self.piece.numel()
        received = self._groups.swap(row, [part.numel() for part in parts], [own] * len(parts))
        total = sum_in_order(list(received.view(len(parts), own))).view_as(self.piece)
        self.piece.grad = total.clone() if self.piece.grad is None else self.piece.grad.add_(total)


class ShardedBlock:
    """The sharded parameters of a forward block on one device, by their names in its module.

    It calls `took` when some of them have been gathered.
    """

    def __init__(
        self, module: nn.Module, weights: Mapping[str, ShardedWeight], took: Callable[[], None]
    ) -> None:
        self._all = list(dict.fromkeys(weights.values()))
        self._keeps, self._is_lazy, self._took = False, False, took
        in_layers: set[ShardedWeight] = set()
        layers: dict[str, nn.Module] = {}
        if isinstance(module, LayeredBlock):
            layers = {f"layers.{index}": layer for index, layer in enumerate(module.layers)}
            ends = (("start", module.start), ("output", module.output))
            layers |= {name: end for name, end in ends if end is not None}
        for prefix, layer in layers.items():
            own = [each for name, each in weights.items() if name.startswith(f"{prefix}.")]
            in_layers.update(own)
            layer.register_forward_pre_hook(partial(self._before, own))
            layer.register_forward_hook(partial(self._after, own))
        self._outside = [each for each in self._all if each not in in_layers]
        for each in self._all:
            if each.weight.requires_grad:
                hook: Callable[[Tensor], None] = partial(self._accumulated, each)
                each.weight.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    @contextmanager
    def running(self, kind: Kind, *, keeps: bool) -> Iterator[None]:
        """Have the weights there while a block of a kind runs, and its gradients exchanged when it ends.

        The first half of a backward has all weights at once. They may be kept for the next run.
        """
        self._keeps, self._is_lazy = keeps, kind is not Kind.I
        self._gather(self._outside if self._is_lazy else self._all)
        yield
        if kind not in (Kind.F, Kind.R):
            for each in self._all:
                each.reduce()
        if not keeps:
            self.release()

    def release(self) -> None:
        """Give all memory of whole parameters back."""
        for each in self._all:
            each.release()

    def _gather(self, weights: Sequence[ShardedWeight]) -> None:
        for each in weights:
            each.gather()
        self._took()

    def _before(self, weights: Sequence[ShardedWeight], *_: Any) -> None:
        self._gather(weights)

    def _after(self, weights: Sequence[ShardedWeight], _: nn.Module, inputs: Any, output: Any) -> None:
        """Give a layer's weights back, and have them there again before its backward."""
        for value in output if isinstance(output, (tuple, list)) else (output,):
            if isinstance(value, Tensor) and value.requires_grad:
                value.register_hook(lambda _: self._gather(weights))  # type: ignore[no-untyped-call]
        if not self._keeps and self._is_lazy:
            for each in weights:
                each.release()

    def _accumulated(self, each: ShardedWeight, _: Tensor) -> None:
        """Exchange a gradient when it is there: nothing reads the weight any more in this backward."""
        each.reduce()
        if not self._keeps and self._is_lazy:
            each.release()
