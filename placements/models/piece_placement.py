"""Pieces of a model on devices as blocks: a chain of forwards, of backwards in reverse, and updates.

Each device stands for the GPUs of a stage, which run the same blocks at the same time. A device with several
layouts, or with several parts of the model, has a piece for each; a piece may be on several devices::

    0 | F0 F1 .  .  B1 B1 B0 B0 O0     layers of stage 0 in two layouts
    1 | .  .  F2 B2 B2 O1

The module does not know layers or planners, nor the order of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from placements.block import PlacementError
from placements.models.parallel import Cost
from placements.pieces import Piece, blocks_of, transfers_of, updates_of
from placements.spec import Placement


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
    """Return pieces in ticks and MiB, rounded up, and the length of a tick; see `piece_placement`.

    A tick is as given, or the longest power of ten with 100 ticks in the shortest block.

    Raises:
        PlacementError: The tick is not above 0, or longer than the shortest block.
    """
    shortest_ms = min(min(each.times_ms) for each in costs)
    if tick_ms is None:
        tick_ms = float(f"1e{math.floor(math.log10(shortest_ms / 100))}")
    elif not 0 < tick_ms <= shortest_ms:
        fault = f"{tick_ms} is not above 0 and at most the {shortest_ms:.3g} ms of the shortest block"
        raise PlacementError(f"tick_ms: {fault}; give a value in between")
    return [
        Piece(
            each.name or f"F{i}",
            each.devices,
            tuple(round(time_ms / tick_ms) for time_ms in each.times_ms),
            (held, 0, -held) if each.weight_share else (held, -held),
            (_mib(cost.forward_bytes), _mib(max(cost.backward_bytes, cost.backward_peak_bytes))),
            each.data_parallel,
            transfer=(
                math.ceil(each.forward_transfer_ms / tick_ms),
                math.ceil(each.backward_transfer_ms / tick_ms),
            ),
        )
        for i, each in enumerate(costs)
        for cost, held in [(each.cost, _mib(each.cost.kept_bytes))]
    ], tick_ms


def piece_placement(
    name: str,
    pieces: Sequence[PieceCost],
    capacities_mib: Sequence[int],
    num_gpus: Sequence[int],
    tick_ms: float | None,
    nodes: Sequence[int],
) -> Placement:
    """Return the blocks of pieces: F and B of each, and an O for each device, after its last backward.

    O exchanges the gradients and updates the weights; Galvatron-BMW lets that exchange run beside the last
    backward (Sec. V), which is never longer.

    Pieces are in the order of the model; each takes the output of the one before. Memory is in MiB of one
    GPU, rounded up: capacities for weights and activations; states are static memory. Nodes of GPUs
    are numbered as by `placements.cluster.Cluster.node_of`, ticks as in `in_ticks`.

    Raises:
        PlacementError: An argument is out of its range.
    """
    made, tick_ms = in_ticks(pieces, tick_ms)
    devices = range(len(num_gpus))
    costs = [sum((each.cost for each in pieces if device in each.devices), Cost()) for device in devices]
    states = (cost.static_bytes + sum(each.num_bytes for each in cost.buffers) for cost in costs)
    return Placement(
        name,
        len(num_gpus),
        (*blocks_of(made), *updates_of(made, [max(1, round(each.update_ms / tick_ms)) for each in costs])),
        tick_ms,
        transfer=transfers_of(made),
        memory=tuple(capacities_mib),
        static_memory=tuple(map(_mib, states)),
        num_gpus=tuple(num_gpus),
        memory_unit_mib=1.0,
        nodes=tuple(nodes),
    )


def _mib(num_bytes: float) -> int:
    return math.ceil(num_bytes / 2**20)
