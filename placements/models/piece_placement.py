"""Pieces of a model by their costs, in ticks and MiB.

The module does not know layers or planners, nor the order of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from placements.block import PlacementError
from placements.models.parallel import Cost
from placements.pieces import Piece


class PieceCost(NamedTuple):
    """Cost of one piece on each of its GPUs.

    Attributes:
        devices: Devices that run it together; mostly one.
        data_parallel: Groups of its GPUs that each have a share of the samples.
        forward_transfer_ms: Time from the piece before, on other devices; 0 for the first. Likewise
            `backward_transfer_ms` of the gradient to it.
        name: Its own name, if it has one.
        weight_share: Share of the backward's products that compute gradients of weights, where these are a
            block of their own; 0 for one backward.
    """

    devices: tuple[int, ...]
    cost: Cost
    data_parallel: int = 1
    forward_transfer_ms: float = 0.0
    backward_transfer_ms: float = 0.0
    name: str = ""
    weight_share: float = 0.0

    @property
    def times_ms(self) -> tuple[float, ...]:
        """Times in ms of the piece's forward and backward, or of forward and the backward's halves."""
        forward_ms, backward_ms = self.cost.forward.time_ms, self.cost.backward.time_ms
        if not self.weight_share:
            return forward_ms, backward_ms
        weights_ms = self.weight_share * self.cost.backward.product_ms
        return forward_ms, backward_ms - weights_ms, weights_ms


def in_ticks(costs: Sequence[PieceCost], tick_ms: float | None = None) -> tuple[list[Piece], float]:
    """Return pieces in ticks and MiB, rounded up, and the length of a tick.

    A tick is as given, or the longest power of ten with 100 ticks in the shortest block.

    Raises:
        PlacementError: The tick is not above 0, or longer than the shortest block.
    """
    shortest_ms = min(min(cost.times_ms) for cost in costs)
    if tick_ms is None:
        tick_ms = float(f"1e{math.floor(math.log10(shortest_ms / 100))}")
    elif not 0 < tick_ms <= shortest_ms:
        fault = f"{tick_ms} is not above 0 and at most the {shortest_ms:.3g} ms of the shortest block"
        raise PlacementError(f"tick_ms: {fault}; give a value in between")
    pieces = []
    for i, piece in enumerate(costs):
        devices, cost, groups, *hops_ms, name, weight_share = piece
        held, times = _mib(cost.kept_bytes), tuple(round(time_ms / tick_ms) for time_ms in piece.times_ms)
        memory = (held, 0, -held) if weight_share else (held, -held)
        transient = _mib(cost.forward_bytes), _mib(max(cost.backward_bytes, cost.backward_peak_bytes))
        there, back = (math.ceil(hop_ms / tick_ms) for hop_ms in hops_ms)
        made = Piece(name or f"F{i}", devices, times, memory, transient, groups, transfer=(there, back))
        pieces.append(made)
    return pieces, tick_ms


def _mib(num_bytes: float) -> int:
    return math.ceil(num_bytes / 2**20)
