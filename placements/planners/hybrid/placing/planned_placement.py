"""A plan as a placement: blocks with times and memory, for a search that decides their order.

Beside its stages in a row (V-shape) a plan can be cut into more chunks, in a wave or a loop over the same
devices, or have its vocabulary on all of them (M-shape, and NN-shape where the table is looked up twice). The
module does not know in what order blocks run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from placements.cluster import DeviceGroup
from placements.models.chain import ModelShape
from placements.models.parallel import Cost, LayerStrategy, Pass
from placements.models.piece_placement import PieceCost, piece_placement
from placements.models.transformer import TransformerLayer
from placements.pieces import PIPELINES
from placements.planners.division import min_largest
from placements.planners.hybrid.plan import Plan, is_embedding, is_vocabulary, layers_of_stage, pieces_of
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.planners.parallel_plan import UnsuitableShapeError
from placements.spec import Placement

CHUNKED = ("loop_shape", "wave_shape")
"""Shapes with several chunks on each device."""

SHARED_VOCABULARY = {"m_shape": 2, "nn_shape": 3}
"""Embeddings and output layers of a model, all on all devices, by shape."""


def planned_placement(
    plan: Plan,
    costs: LayerCosts,
    capacities_gib: Sequence[float] | None = None,
) -> Placement:
    """Return a device for each stage of a plan; see `placements.models.piece_placement`.

    Args:
        plan: Stages, GPUs and layers.
        costs: Costs of the plan's layers.
        capacities_gib: What each GPU of a stage has for states and activations, by stage; None for all memory
            of the GPUs.

    Raises:
        PlacementError: A layer cannot be shared as planned.
    """
    chunks = [stage.layers for stage in plan.stages]
    pieces = chunk_pieces(plan, costs, chunks, range(plan.num_stages))
    return placement_of_pieces("planned", plan, pieces, capacities_gib)


def chunk_pieces(
    plan: Plan,
    costs: LayerCosts,
    chunks: Sequence[range],
    devices: Sequence[int],
    before: tuple[int, int] | None = None,
    *,
    are_whole: bool = False,
) -> list[PieceCost]:
    """Return what the pieces of chunks cost, each chunk on a device of the plan.

    Args:
        plan: GPUs, and how they share each layer.
        costs: Costs of the plan's layers.
        chunks: Layers in order.
        devices: The device of each chunk.
        before: The layer before them, and its device; None for none.
        are_whole: Each chunk is one piece, as frameworks run it, also where it is recomputed in part.

    Raises:
        PlacementError: A layer cannot be shared as planned.
    """
    samples, m, strategies = plan.micro_batch_size, plan.num_micro_batches, plan.strategies
    pieces = []
    for chunk, device in zip(chunks, devices, strict=True):
        group = plan.group(device)
        layers = dict(zip(chunk, layers_of_stage(plan.model.layers, chunk.start, chunk.stop), strict=True))
        for piece in [chunk] if are_whole else pieces_of(plan.model.layers, strategies, chunk):
            cost, transfer_ms = Cost(), 0.0
            for i in piece:
                cost += costs.cost(layers[i], strategies[i], samples, m, group)
                if before is not None and before[1] == device:
                    pair = strategies[before[0]], strategies[i]
                    half_ms = costs.transition_ms(plan.model.layers[before[0]], *pair, samples, group) / 2
                    cost += Cost(Pass(0.0, half_ms), Pass(0.0, half_ms))
                elif before is not None:
                    last, other = before
                    transfer_ms = costs.transfer_ms(
                        plan.model.layers[last], samples, plan.group(other), group
                    )
                before = i, device
            inner = [i for i in piece if isinstance(plan.model.layers[i], TransformerLayer)]
            data_parallel = strategies[inner[0] if inner else piece[0]].data_parallel
            pieces.append(PieceCost((device,), cost, data_parallel, transfer_ms, transfer_ms))
    return pieces


def chunked_placement(
    plan: Plan,
    costs: LayerCosts,
    shape: str,
    num_chunks: int,
    capacities_gib: Sequence[float],
) -> Placement:
    """Return a plan whose devices have several chunks each, of layers shared as in the plan.

    The layers are divided such that the longest chunk is as short as possible.

    Args:
        plan: Plan whose stages have as many GPUs each.
        costs: See `planned_placement`, as for the rest.
        shape: One of `CHUNKED`.
        num_chunks: Chunks of each device.
        capacities_gib: What each GPU of a stage has, by stage.

    Raises:
        PlanError: There are fewer layers than chunks.
    """
    (devices,) = PIPELINES[shape](plan.num_stages, num_chunks)
    pieces = chunk_pieces(plan, costs, balanced_chunks(plan, costs, num_chunks), devices)
    return placement_of_pieces(f"planned {shape}", plan, pieces, capacities_gib)


def balanced_chunks(plan: Plan, costs: LayerCosts, num_chunks: int) -> list[range]:
    """Return the layers of each chunk, the longest as short as possible.

    Raises:
        PlanError: There are fewer layers than chunks.
    """
    group, m = plan.group(0), plan.num_micro_batches
    times_ms = []
    for layer, strategy in zip(plan.layers, plan.strategies, strict=True):
        cost = costs.cost(layer, strategy, plan.micro_batch_size, m, group)
        times_ms.append(cost.forward.time_ms + cost.backward.time_ms)
    sizes = min_largest(times_ms, num_chunks * plan.num_stages)
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    return [range(first, end) for first, end in pairwise(ends)]


def trunk_of(model: ModelShape, shape: str) -> ModelShape:
    """Return a model without its embeddings and its output layer.

    Args:
        model: The whole one.
        shape: A key of `SHARED_VOCABULARY`.

    Raises:
        UnsuitableShapeError: It has not as many of them, or nothing between two of them.
    """
    layers, places = model.layers, vocabulary_places(model)
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


def vocabulary_places(model: ModelShape) -> list[int]:
    """Return which layers of a model are embeddings or output layers."""
    return [i for i, layer in enumerate(model.layers) if is_vocabulary(layer)]


def vocabulary_costs(
    model: ModelShape, costs: LayerCosts, group: DeviceGroup, data_parallel: int, samples: int, m: int
) -> tuple[Cost, ...]:
    """Return what each embedding and the output layer cost each of all GPUs, which share the table's rows.

    Args:
        model: Model whose costs they are.
        costs: Costs of the model's layers.
        group: All GPUs.
        data_parallel: Groups that each have a share of the samples and all rows.
        samples: Samples of a micro-batch.
        m: Micro-batches of an iteration.

    Raises:
        PlacementError: One of them cannot be shared so, or its cost is not known.
    """
    strategy = LayerStrategy(group.count // data_parallel, data_parallel)
    layers = model.layers
    return tuple(costs.cost(layers[i], strategy, samples, m, group) for i in vocabulary_places(model))


def shared_vocabulary_placement(
    model: ModelShape,
    trunk: Plan,
    costs: LayerCosts,
    data_parallel: int,
    capacities_gib: Sequence[float],
) -> Placement:
    """Return a plan of a trunk in stages, with embeddings and output layer on all devices.

    That is an M-shape (Tessel, Fig. 8a), or an NN-shape where a second embedding stands between the encoder's
    layers and the decoder's (Fig. 8d).

    Args:
        model: Model whose trunk is planned.
        trunk: Its plan.
        costs: See `planned_placement`, as for the rest.
        data_parallel: Groups of all GPUs that each have all rows of the table.
        capacities_gib: What each GPU of a stage has, by stage.
    """
    everywhere = tuple(range(trunk.num_stages))
    group = trunk.cluster.group(0, trunk.num_gpus)
    samples, m = trunk.micro_batch_size, trunk.num_micro_batches
    shared = [
        PieceCost(everywhere, cost, data_parallel)
        for cost in vocabulary_costs(model, costs, group, data_parallel, samples, m)
    ]
    ends = [place - before for before, place in enumerate(vocabulary_places(model))]
    pieces = []
    for piece, first, end in zip(shared, ends, ends[1:], strict=False):
        inner = [
            (device, range(max(first, stage.layers.start), min(end, stage.layers.stop)))
            for device, stage in enumerate(trunk.stages)
        ]
        devices, chunks = zip(*((device, chunk) for device, chunk in inner if chunk), strict=True)
        before = next(
            ((first - 1, i) for i, stage in enumerate(trunk.stages) if first - 1 in stage.layers), None
        )
        pieces += [piece, *chunk_pieces(trunk, costs, chunks, devices, before)]
    return placement_of_pieces("planned shared vocabulary", trunk, [*pieces, shared[-1]], capacities_gib)


def placement_of_pieces(
    name: str,
    plan: Plan,
    pieces: Sequence[PieceCost],
    capacities_gib: Sequence[float] | None = None,
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
        nodes=[node for group in groups for node in group.nodes],
    )
