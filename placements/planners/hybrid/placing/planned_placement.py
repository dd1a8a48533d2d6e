"""A plan as a placement: blocks with times and memory, for a search that decides their order.

Its stages stand in a row (V-shape), are cut into chunks that go over the devices in a wave or a loop, or have
layers between them that are on all devices (M-shape, and NN-shape where the table is looked up twice). The
module does not know in what order blocks run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from placements.hardware import Gpu
from placements.models.chain import ModelShape
from placements.models.parallel import Cost, Pass
from placements.models.piece_placement import PieceCost, piece_placement
from placements.models.rates import COPY_COMPUTE_SHARE
from placements.pieces import backwards_of
from placements.planners.hybrid.placing.shared_layers import SharedLayers
from placements.planners.hybrid.plan import (
    Plan,
    UnsuitableShapeError,
    is_embedding,
    is_vocabulary,
    layers_of_stage,
)
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.spec import Placement

SHARED_VOCABULARY = {"m_shape": 2, "nn_shape": 3}
"""Embeddings and output layers of a model, all on all devices, by shape."""


def planned_placement(
    plan: Plan,
    costs: LayerCosts,
    capacities_gib: Sequence[float] | None = None,
    shared: SharedLayers | None = None,
) -> Placement:
    """Return a device for each stage of a plan; see `placements.models.piece_placement`.

    Args:
        plan: Stages, GPUs and layers.
        costs: Costs of the plan's layers.
        capacities_gib: What each GPU of a stage has for states and activations, by stage; None for all memory
            of the GPUs.
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
    """Return what the pieces of chunks cost, by default the stages'; see `planned_placement`.

    Where layers are on all devices, what is sent from stage to stage is sent on after them. With `are_whole`
    each chunk is one piece, as frameworks run it, also where it is recomputed in part.

    Raises:
        PlacementError: A layer cannot be shared as planned.
    """
    if not chunks:
        chunks, devices = [stage.layers for stage in plan.stages], range(plan.num_stages)
    model, strategies = plan.model.layers, plan.strategies
    samples, m = plan.micro_batch_size, plan.num_micro_batches
    joint = list[tuple[int, PieceCost]]()
    if shared is not None:
        everywhere, groups = tuple(range(plan.num_stages)), shared.strategy.data_parallel
        own = (PieceCost(everywhere, cost, groups) for cost in shared.costs)
        joint = list(zip(shared.places, own, strict=True))
    pieces, before = list[PieceCost](), -1

    def add_joint(until: int) -> None:
        while joint and joint[0][0] <= until:
            pieces.append(joint.pop(0)[1])

    for chunk, device in zip(chunks, devices, strict=True):
        group = plan.group(device)
        layers = dict(zip(chunk, layers_of_stage(model, chunk.start, chunk.stop), strict=True))
        for piece in [chunk] if are_whole else plan.pieces_of(chunk):
            for part in _cut(piece, [place for place, _ in joint]):
                add_joint(part.start)
                cost, transfer_ms = Cost(), 0.0
                for i in part:
                    cost += costs.cost(layers[i], strategies[i], samples, m, group)
                    if i and before == device:
                        pair = strategies[i - 1], strategies[i]
                        half_ms = costs.transition_ms(model[i - 1], *pair, samples, group) / 2
                        cost += Cost(Pass(0.0, half_ms), Pass(0.0, half_ms))
                    elif i:
                        transfer_ms = costs.transfer_ms(model[i - 1], samples, plan.group(before), group)
                    before = device
                how = strategies[(*plan.inner_layers(part), part.start)[0]]
                pieces.append(PieceCost((device,), cost, how.data_parallel, transfer_ms, transfer_ms))
    add_joint(len(model))
    return pieces


def _cut(piece: range, places: Sequence[int]) -> list[range]:
    """Return a piece cut before the layers at such places."""
    ends = sorted({piece.start, piece.stop, *(each for each in places if each in piece)})
    return [range(first, end) for first, end in pairwise(ends)]


def layer_times_ms(plan: Plan, costs: LayerCosts) -> list[float]:
    """Return the time of each layer's forward and backward on the GPUs of the first stage."""
    found = [
        costs.cost(layer, how, plan.micro_batch_size, plan.num_micro_batches, plan.group(0))
        for layer, how in zip(plan.layers, plan.strategies, strict=True)
    ]
    return [cost.forward.time_ms + cost.backward.time_ms for cost in found]


def trunk_of(model: ModelShape, shape: str) -> ModelShape:
    """Return a model without its embeddings and its output layer.

    Args:
        model: The whole one.
        shape: A key of `SHARED_VOCABULARY`.

    Raises:
        UnsuitableShapeError: It has not as many of them, or nothing between two of them.
    """
    layers, places = model.layers, [i for i, layer in enumerate(model.layers) if is_vocabulary(layer)]
    if (
        len(places) != SHARED_VOCABULARY[shape]
        or not is_embedding(layers[0])
        or is_embedding(layers[-1])
        or places[-1] != len(layers) - 1
        or any(after == before + 1 for before, after in pairwise(places))
    ):
        over = " over a second one" if SHARED_VOCABULARY[shape] == 3 else ""
        raise UnsuitableShapeError(
            shape,
            f"needs a model from an embedding{over} to an output layer, which {model.name} is not; leave it "
            "out",
        )
    return replace(model, runs=tuple(run for run in model.runs if not is_vocabulary(run[1])))


def placement_of_pieces(
    name: str,
    plan: Plan,
    pieces: Sequence[PieceCost],
    capacities_gib: Sequence[float] | None = None,
    tick_ms: float | None = None,
) -> Placement:
    """Return pieces on the stages of a plan as blocks; see `planned_placement`."""
    groups = [plan.group(stage) for stage in range(plan.num_stages)]
    if capacities_gib is None:
        capacities_gib = [group.memory_gib for group in groups]
    return piece_placement(
        f"{plan.model.name} {name}",
        pieces,
        [math.floor(gib * 1024) for gib in capacities_gib],
        [group.count for group in groups],
        tick_ms,
        [node for group in groups for node in group.nodes],
    )


def compute_shares(pieces: Sequence[PieceCost], placement: Placement, gpu: Gpu) -> dict[str, float]:
    """Return the share of each block's time that depends on the clock.

    Matrix products have the GPU's own share; lookups, transfers and updates depend on it less.

    Args:
        pieces: In the order of the placement's forwards.
        placement: Their blocks.
        gpu: What runs them.

    Returns:
        By block name, 0 to 1; for `placements.hardware.modelled_profile`.
    """
    shares = {block.name: COPY_COMPUTE_SHARE for block in placement.optimizer_blocks}
    for i, each in enumerate(pieces):
        name = each.name or f"F{i}"
        for block, part in ((name, each.cost.forward), (backwards_of(name)[0], each.cost.backward)):
            product_ms = gpu.power.compute_share * part.product_ms
            shares[block] = (product_ms + COPY_COMPUTE_SHARE * part.copy_ms) / part.time_ms
    return shares
