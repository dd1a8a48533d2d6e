"""Gradients of micro-batches added up as the devices of a schedule do: block by block, in their order.

A sum of floats depends on the order of its addends. Whoever knows the gradient of every block and
micro-batch apart can add them up in the order of any schedule, and so without running it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from placements import Kind, Placement
from runtime.models.blocks import Instance
from runtime.program.tensor_flow import pair_backward

Gradients = Mapping[str, Tensor]
"""The gradient of each parameter, by its name."""


def backward_orders(placement: Placement, orders: Sequence[Sequence[Instance]]) -> dict[int, list[Instance]]:
    """Return the order in which the gradients of each device are complete.

    Args:
        placement: What runs where.
        orders: For each device the (block, micro-batch) pairs that it runs, in order.

    Returns:
        Device -> (forward block, micro-batch) pairs, those whose backward block, or weight half of it, has
        this as its first device, or as that of one of its copies that take turns.
    """
    pairs, blocks = pair_backward(placement), placement.by_name
    first = {
        block.name: {team[0] for team in block.groups} if block.in_turns else {block.devices[0]}
        for block in placement.blocks
    }
    return {
        device: [
            (pairs[name], n)
            for name, n in order
            if blocks[name].kind in (Kind.B, Kind.W) and device in first[name]
        ]
        for device, order in enumerate(orders)
    }


class Accumulation:
    """The sums of an iteration, of which each is made as soon as its addends are there.

    Args:
        orders: What `backward_orders` returns.
    """

    def __init__(self, orders: Mapping[int, Sequence[Instance]]) -> None:
        """Begin with nothing added."""
        self._left = {device: list(reversed(order)) for device, order in orders.items()}
        self._waiting: dict[Instance, Gradients] = {}
        self._sums: dict[int, dict[str, Tensor]] = {device: {} for device in orders}

    def add(self, block: str, micro_batch: int, gradients: Gradients) -> None:
        """Take what a forward block's parameters get from one micro-batch, in any order."""
        self._waiting[block, micro_batch] = gradients
        for device, left in self._left.items():
            while left and left[-1] in self._waiting:
                for name, addend in self._waiting.pop(left.pop()).items():
                    total = self._sums[device].get(name)
                    self._sums[device][name] = addend if total is None else _sum(total, addend)

    def totals(self) -> dict[str, Tensor]:
        """Return the sum of each parameter that has a gradient, over the devices in their order."""
        assert not self._waiting and not any(self._left.values()), "not all has been added"
        totals: dict[str, Tensor] = {}
        for device in sorted(self._sums):
            for name, addend in self._sums[device].items():
                totals[name] = _sum(totals[name], addend) if name in totals else addend
        return totals


def _sum(one: Tensor, other: Tensor) -> Tensor:
    """Return a sum; torch adds a sparse tensor to a dense one, but not the other way round."""
    return other + one if one.is_sparse else one + other
