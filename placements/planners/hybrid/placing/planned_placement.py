"""A plan as a placement: blocks with times and memory, for a search that decides their order.

Its stages stand in a row (V-shape), are cut into chunks that go over the devices in a wave or a loop, or have
layers between them that are on all devices (M-shape, and NN-shape where the table is looked up twice). The
module does not know in what order blocks run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter

from placements.hardware import COPY_COMPUTE_SHARE, Gpu
from placements.models.parallel import Cost, Pass
from placements.models.piece_placement import PieceCost, in_ticks
from placements.pieces import backwards_of, blocks_of, transfers_of, updates_of
from placements.planners.hybrid.plan import Plan, layers_of_stage
from placements.planners.hybrid.plan_options import SharedLayers
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.spec import Placement


def planned_placement(
    plan: Plan,
    costs: LayerCosts,
    capacities_gib: Sequence[float] | None = None,
    shared: SharedLayers | None = None,
) -> Placement:
    """Return a device for each stage of a plan; see `placement_of_pieces`.

    Args:
        plan: Stages, GPUs and layers.
        costs: Costs of the plan's layers.
        capacities_gib: Memory of each GPU for states and activations, by stage; None for all memory of the
            GPUs.
        shared: Layers on all devices, which the plan is without: a vocabulary in an M-shape (Tessel, Fig.
            8a) or, with a second embedding between encoder and decoder, an NN-shape (Fig. 8d).

    Raises:
        PlacementError: A layer cannot be shared as planned.
    """
    return placement_of_pieces("planned", plan, chunk_pieces(plan, costs, shared=shared), capacities_gib)


def chunk_pieces(
    plan: Plan,
    costs: LayerCosts,
    chunks: Sequence[range] = (),
    devices: Sequence[int] = (),
    shared: SharedLayers | None = None,
    *,
    are_whole: bool = False,
) -> list[PieceCost]:
    """Return the costs of the pieces of chunks, by default the stages'; see `planned_placement`.

    Where layers are on all devices, a stage's output is sent on after them. With `are_whole`
    each chunk is one piece, as frameworks run it, also where it is recomputed in part.
    """
    if not chunks:
        chunks, devices = [stage.layers for stage in plan.stages], range(plan.num_stages)
    model, strategies = plan.model.layers, plan.strategies
    samples, m = plan.micro_batch_size, plan.num_micro_batches
    placed, before = list[tuple[int, PieceCost]](), -1
    if shared is not None:
        for place, cost in zip(shared.places, shared.costs, strict=True):
            everywhere = tuple(range(plan.num_stages))
            placed.append((place, PieceCost(everywhere, cost, shared.strategy.data_parallel)))
    places = {place for place, _ in placed}
    for chunk, device in zip(chunks, devices, strict=True):
        group = plan.group(device)
        layers = dict(zip(chunk, layers_of_stage(model, chunk.start, chunk.stop), strict=True))
        for piece in [chunk] if are_whole else plan.pieces_of(chunk):
            for first, end in pairwise(sorted({piece.start, piece.stop, *places.intersection(piece)})):
                cost, transfer_ms = Cost(), 0.0
                for i in range(first, end):
                    cost += costs.cost(layers[i], strategies[i], samples, m, group)
                    if i and before == device:
                        pair = strategies[i - 1], strategies[i]
                        half_ms = costs.transition_ms(model[i - 1], *pair, samples, group) / 2
                        cost += Cost(Pass(0.0, half_ms), Pass(0.0, half_ms))
                    elif i:
                        transfer_ms = costs.transfer_ms(model[i - 1], samples, plan.group(before), group)
                    before = device
                how = strategies[(*plan.inner_layers(range(first, end)), first)[0]]
                chunk_piece = PieceCost((device,), cost, how.data_parallel, transfer_ms, transfer_ms)
                placed.append((first, chunk_piece))
    return [piece for _, piece in sorted(placed, key=itemgetter(0))]


def placement_of_pieces(
    name: str,
    plan: Plan,
    pieces: Sequence[PieceCost],
    capacities_gib: Sequence[float] | None = None,
    tick_ms: float | None = None,
) -> Placement:
    """Return pieces on the stages of a plan as blocks: F and B of each, and an O for each device at its end.

    O exchanges the gradients and updates the weights; Galvatron-BMW lets that exchange run beside the last
    backward (Sec. V), which is never longer.

    Each device stands for the GPUs of a stage, which run the same blocks at the same time. A device with
    several layouts, or with several parts of the model, has a piece for each; a piece may be on several
    devices::

        0 | F0 F1 .  .  B1 B1 B0 B0 O0     layers of stage 0 in two layouts
        1 | .  .  F2 B2 B2 O1

    Pieces are in the order of the model; each takes the output of the one before. Memory is in MiB of one
    GPU, rounded up: capacities for weights and activations; states are static memory. Ticks are as in
    `placements.models.piece_placement.in_ticks`.

    Raises:
        PlacementError: An argument is out of its range.
    """
    groups, (made, tick_ms) = [plan.group(i) for i in range(plan.num_stages)], in_ticks(pieces, tick_ms)
    if capacities_gib is None:
        capacities_gib = [group.memory_gib for group in groups]
    costs = [sum((piece.cost for piece in pieces if i in piece.devices), Cost()) for i in range(len(groups))]
    states = (cost.static_bytes + sum(buffer.num_bytes for buffer in cost.buffers) for cost in costs)
    updates = updates_of(made, [max(1, round(cost.update_ms / tick_ms)) for cost in costs])
    return Placement(
        f"{plan.model.name} {name}",
        len(groups),
        (*blocks_of(made), *updates),
        tick_ms,
        transfer=transfers_of(made),
        memory=tuple(math.floor(gib * 1024) for gib in capacities_gib),
        static_memory=tuple(math.ceil(num_bytes / 2**20) for num_bytes in states),
        num_gpus=tuple(group.count for group in groups),
        memory_unit_mib=1.0,
        nodes=tuple(node for group in groups for node in group.nodes),
    )


def compute_shares(pieces: Sequence[PieceCost], placement: Placement, gpu: Gpu) -> dict[str, float]:
    """Return the share of each block's time that depends on the clock, by name; see `modelled_profile`.

    Matrix products have the GPU's own share; lookups, transfers and updates depend on it less. The pieces are
    in the order of the placement's forwards.
    """
    shares = {block.name: COPY_COMPUTE_SHARE for block in placement.optimizer_blocks}
    for i, piece in enumerate(pieces):
        name = piece.name or f"F{i}"
        for block, part in ((name, piece.cost.forward), (backwards_of(name)[0], piece.cost.backward)):
            product_ms = gpu.power.compute_share * part.product_ms
            shares[block] = (product_ms + COPY_COMPUTE_SHARE * part.copy_ms) / part.time_ms
    return shares
