"""A GPT on equal devices: its layers in stages, its vocabulary at their ends or on all devices.

It is a plan whose layers are all shared alike, on links that are all as fast as the GPU's own. The module
does not know the order of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from placements.block import PlacementError
from placements.cluster import LINK_EFFICIENCY, Cluster, Nodes
from placements.hardware import RESERVE_GIB, Gpu
from placements.models.chain import ModelShape
from placements.models.costing.options import USUAL, CostOptions
from placements.models.memory_levers import Recompute, with_levers
from placements.models.parallel import Cost, LayerStrategy
from placements.models.parallel import Recompute as RecomputeKind
from placements.models.piece_placement import PieceCost
from placements.models.zoo.shapes import decoder
from placements.planners.division import min_largest
from placements.planners.hybrid.placing.planned_placement import chunk_pieces, placement_of_pieces
from placements.planners.hybrid.placing.shared_layers import shared_vocabulary, trunk_of
from placements.planners.hybrid.plan import Plan, alike
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.spec import Placement

ARRANGEMENTS = ("m_shape", "v_shape")
"""Embedding and tied output layer on all devices, or on the first and the last."""


def gpt_model(
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    vocab_size: int,
    sequence_length: int,
    *,
    flash_attention: bool = True,
) -> ModelShape:
    """Return a GPT with learned positions and one table, in 16 bits.

    Raises:
        PlacementError: A size is out of its range.
    """
    return decoder(
        "gpt",
        num_layers=num_layers,
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        hidden_size=hidden_size,
        num_heads=num_heads,
        attention="flash" if flash_attention else "fused",
    )


def one_node(gpu: Gpu, num_gpus: int, link_efficiency: float = LINK_EFFICIENCY) -> Cluster:
    """Return GPUs whose links are all as fast as their own, and whose messages take no time to begin."""
    node = (Nodes(gpu, 1, num_gpus),)
    return Cluster(node, gpu.link_bandwidth_gb_s, link_efficiency=link_efficiency, latency_us=0.0)


class PlacedGpt(NamedTuple):
    """A GPT on its devices.

    Attributes:
        plan: Its stages; of an M-shape without the vocabulary.
        costs: Costs of its layers.
        pieces: Costs of its blocks.
        placement: The blocks.
    """

    plan: Plan
    costs: ShapeCosts
    pieces: list[PieceCost]
    placement: Placement


def place_gpt(
    model: ModelShape,
    gpu: Gpu,
    num_devices: int = 4,
    arrangement: str = "m_shape",
    *,
    micro_batch_size: int,
    num_gpus: int = 1,
    data_parallel: int = 1,
    recompute: bool = False,
    modes: Sequence[RecomputeKind] = (),
    tick_ms: float | None = None,
    options: CostOptions = USUAL,
    link_efficiency: float = LINK_EFFICIENCY,
    reserve_gib: float = RESERVE_GIB,
) -> PlacedGpt:
    """Return a GPT in one stage of layers per device, and its vocabulary.

    In a V-shape embedding and output layer are in the first and the last stage, with a table each, and the
    layers are divided such that the largest stage takes the least time. In an M-shape they are on all
    devices, between which the layers are divided evenly (Tessel, Fig. 8a; its runs end with a sum in place of
    the output layer)::

        0 | E  F0 .  .  .  H  HB .  .  .  .  .  .  B0 B0 EB
        1 | E  .  F1 .  .  H  HB .  .  .  .  B1 B1 .  .  EB
        2 | E  .  .  F2 .  H  HB .  .  B2 B2 .  .  .  .  EB
        3 | E  .  .  .  F3 H  HB B3 B3 .  .  .  .  .  .  EB

    Args:
        model: One of `gpt_model`.
        gpu: Kind of GPU of every device.
        num_devices: Stages of layers.
        arrangement: One of `ARRANGEMENTS`.
        micro_batch_size: Samples of a micro-batch of all groups together.
        num_gpus: GPUs that each device stands for.
        data_parallel: Groups of so many that each have a share of the samples; the GPUs of a group share
            layers and table. 1 in an M-shape.
        recompute: A layer keeps only its input, and its backward runs its forward again.
        modes: Parts that a search may let each stage recompute, for each micro-batch: ``selective``, ``full``
            or both.
        tick_ms: Length of a tick; see `placements.models.piece_placement.in_ticks`.
        options: Shares of the GPU's peaks that are reached.
        link_efficiency: Share of its link's bandwidth that is reached.
        reserve_gib: Memory that neither states nor activations may use.

    Raises:
        PlacementError: An argument is out of its range.
    """
    num_layers, layer = model.runs[1]
    num_heads = getattr(layer, "num_heads", 1)
    groups, is_m = data_parallel, arrangement == "m_shape"
    rules = {
        f"num_devices: {num_devices} is not from 1 to num_layers {num_layers}; give such a number": (
            1 <= num_devices <= num_layers
        ),
        f"data_parallel: {groups} is not 1, and arrangement m_shape is not costed with groups that share "
        "the samples; use arrangement=v_shape, or give 1": groups == 1 or not is_m,
        f"data_parallel: {groups} does not divide the {num_gpus} GPUs of a device and the {micro_batch_size} "
        "samples of a micro-batch; give a divisor": num_gpus % groups == micro_batch_size % groups == 0,
        f"num_gpus: {num_gpus} in {groups} data-parallel groups are {num_gpus // groups} GPUs that share "
        f"a layer, which does not divide num_heads {num_heads}; change one of them": (
            num_heads % max(1, num_gpus // groups) == 0
        ),
        f"modes: {', '.join(modes)} are not some of selective, full; give some of these": (
            {*modes} <= {"selective", "full"}
        ),
        f"reserve_gib: {reserve_gib} is not from 0 to below the {gpu.memory_gib:g} GiB of {gpu.name}; give "
        "less": 0 <= reserve_gib < gpu.memory_gib,
    }
    for message, holds in rules.items():
        if not holds:
            raise PlacementError(message)
    cluster, costs = one_node(gpu, num_devices * num_gpus, link_efficiency), ShapeCosts(model, options)
    how = LayerStrategy(num_gpus // groups, groups, recompute="full" if recompute else "none")
    first, numbers = cluster.group(0, num_gpus), (micro_batch_size, 1)
    if is_m:
        sizes = [len(part) for part in np.array_split(range(num_layers), num_devices)]
        plan = Plan.of_sizes(trunk_of(model, arrangement), cluster, sizes, [how] * num_layers, *numbers)
        shared = shared_vocabulary(costs, cluster.whole, 1, *numbers)
        names = ["E", *(f"F{stage}" for stage in range(num_devices)), "H"]
        made = zip(names, chunk_pieces(plan, costs, shared=shared), strict=True)
        pieces = [piece._replace(name=name) for name, piece in made]
        sent_ms = costs.transfer_ms(layer, micro_batch_size, plan.group(num_devices - 1), cluster.group(0, 1))
        pieces[-1] = pieces[-1]._replace(forward_transfer_ms=sent_ms)
    else:
        ways = [alike(how, layer) for layer in model.layers]
        layer_costs = [costs.cost(*pair, *numbers, first) for pair in zip(model.layers, ways, strict=True)]
        times_ms = [cost.forward.time_ms + cost.backward.time_ms for cost in layer_costs]
        sizes = list(min_largest(times_ms, num_devices))
        plan = replace(Plan.of_sizes(model, cluster, sizes, ways, *numbers), output_joins=True)
        pieces = chunk_pieces(plan, costs)
    capacities_gib = [gpu.memory_gib - reserve_gib] * num_devices
    placement = placement_of_pieces(arrangement, plan, pieces, capacities_gib, tick_ms)
    placement = replace(placement, name=f"gpt_{arrangement}")
    if modes:
        again = {mode: costs.cost(layer, replace(how, recompute=mode), *numbers, first) for mode in modes}
        plain, counts = costs.cost(layer, how, *numbers, first), enumerate(plan.stage_layers)
        levers = {f"F{i}": list(_levers(placement, i, count, plain, again)) for i, count in counts}
        placement = with_levers(placement, levers)
    return PlacedGpt(plan, costs, pieces, placement)


def _levers(
    placement: Placement, stage: int, count: int, layer: Cost, modes: Mapping[RecomputeKind, Cost]
) -> Iterator[Recompute]:
    """Yield the recomputation modes of a stage of `count` layers; its backward recomputes layer by layer.

    Raises:
        PlacementError: A mode saves nothing.
    """
    for mode, again in modes.items() if count else ():
        saved_mib = (layer.kept_bytes - again.kept_bytes) / 2**20
        if saved_mib <= 0:
            fault = f"{mode} saves nothing where recompute is true, or where flash attention keeps no scores"
            remedy = "leave it out, or give recompute=false and flash_attention=false"
            raise PlacementError(f"modes: {fault}; {remedy}")
        more_ms = count * (again.backward.time_ms - layer.backward.time_ms)
        kept = placement.by_name[f"F{stage}"].memory_on(stage) - math.floor(count * saved_mib)
        ticks, name = max(1, round(more_ms / placement.tick_ms)), "recompute" if mode == "full" else mode
        yield Recompute(kept, ticks, math.ceil(saved_mib), name)
