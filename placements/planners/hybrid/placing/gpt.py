"""A GPT on equal devices: its layers in stages, its vocabulary at their ends or on all devices.

Costs are those of any plan, on links that are all as fast as the GPU's own. The module does not know in what
order blocks run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from placements.block import PlacementError
from placements.cluster import LINK_EFFICIENCY, Cluster, Nodes
from placements.hardware import Gpu
from placements.models.chain import ModelShape
from placements.models.costing.options import USUAL, CostOptions
from placements.models.memory_levers import Recompute, with_levers
from placements.models.parallel import Cost, LayerStrategy
from placements.models.parallel import Recompute as RecomputeKind
from placements.models.piece_placement import PieceCost
from placements.models.rates import RESERVE_GIB
from placements.models.transformer import TransformerLayer
from placements.models.zoo.shapes import decoder
from placements.planners.division import min_largest
from placements.planners.hybrid.placing.planned_placement import (
    chunk_pieces,
    layer_times_ms,
    placement_of_pieces,
    trunk_of,
)
from placements.planners.hybrid.placing.shared_layers import shared_vocabulary
from placements.planners.hybrid.plan import Plan, alike
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.spec import Placement

ARRANGEMENTS = ("m_shape", "v_shape")
"""Embedding and tied output layer on all devices, or on the first and the last."""

_MODES = ("selective", "full")


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
        costs: What its layers cost.
        pieces: What its blocks cost.
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
    checkpoints: int | None = None,
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
        gpu: What every device is made of.
        num_devices: Stages of layers.
        arrangement: One of `ARRANGEMENTS`.
        micro_batch_size: Samples of a micro-batch of all groups together.
        num_gpus: GPUs that each device stands for.
        data_parallel: Groups of so many that each have a share of the samples; the GPUs of a group share
            layers and table. 1 in an M-shape.
        recompute: A layer keeps only its input, and its backward runs its forward again.
        checkpoints: With `recompute`, inputs of layers that each stage keeps; 0 for as many as need least
            memory, None for one each layer.
        modes: What a search may let each stage compute again, for each micro-batch: ``selective``, ``full``
            or both.
        tick_ms: Length of a tick; see `placements.models.rates.tick_for`.
        options: Shares of the GPU's peaks that are reached.
        link_efficiency: Share of its link's bandwidth that is reached.
        reserve_gib: Memory that neither states nor activations may use.

    Raises:
        PlacementError: An argument is out of its range.
    """
    num_layers, layer = model.runs[1]
    groups, is_m = data_parallel, arrangement == "m_shape"
    assert isinstance(layer, TransformerLayer) and arrangement in ARRANGEMENTS, "of gpt_model"
    for holds, message in (
        (num_devices > 0, f"num_devices: {num_devices} is not at least 1; give more"),
        (
            num_layers >= num_devices,
            f"num_layers: {num_layers} is fewer than {num_devices} stages; use at least {num_devices} or "
            "fewer num_devices",
        ),
        (
            groups == 1 or not is_m,
            f"data_parallel: {groups} is not 1, and arrangement m_shape is not costed with groups that share "
            "the samples; use arrangement=v_shape, or give 1",
        ),
        (
            num_gpus % groups == micro_batch_size % groups == 0,
            f"data_parallel: {groups} does not divide the {num_gpus} GPUs of a device and the "
            f"{micro_batch_size} samples of a micro-batch; give a divisor",
        ),
        (
            layer.num_heads % max(1, num_gpus // groups) == 0,
            f"num_gpus: {num_gpus} in {groups} data-parallel groups are {num_gpus // groups} GPUs that share "
            f"a layer, which does not divide num_heads {layer.num_heads}; change one of them",
        ),
        (
            recompute or checkpoints is None,
            f"checkpoints: {checkpoints} is for recompute=true; give that, or null",
        ),
        (
            not modes or ({*modes} <= {*_MODES} and not recompute),
            f"modes: {', '.join(modes)} are not some of {', '.join(_MODES)}, or recompute is true; give some "
            "of these, and recompute=false",
        ),
        (
            0 <= reserve_gib < gpu.memory_gib,
            f"reserve_gib: {reserve_gib} is not from 0 to below the {gpu.memory_gib:g} GiB of {gpu.name}; "
            "give less",
        ),
    ):
        if not holds:
            raise PlacementError(message)
    cluster, costs = one_node(gpu, num_devices * num_gpus, link_efficiency), ShapeCosts(model, options)
    how = LayerStrategy(num_gpus // groups, groups, recompute="full" if recompute else "none")
    numbers = micro_batch_size, 1
    if is_m:
        fewer, extra = divmod(num_layers, num_devices)
        sizes = [fewer + (stage < extra) for stage in range(num_devices)]
        plan = Plan.of_sizes(trunk_of(model, arrangement), cluster, sizes, [how] * num_layers, *numbers)
        shared = shared_vocabulary(model, costs, cluster.whole, 1, *numbers)
        first, *pieces, last = chunk_pieces(plan, costs, shared=shared)
        hops = plan.group(num_devices - 1), cluster.group(0, 1)
        sent_ms = costs.transfer_ms(layer, micro_batch_size, *hops)
        ends = [first._replace(name="E")], [last._replace(name="H", forward_transfer_ms=sent_ms)]
    else:
        ways = [alike(how, each) for each in model.layers]
        alone = Plan.of_sizes(model, cluster, [len(ways)], ways, *numbers)
        sizes = list(min_largest(layer_times_ms(alone, costs), num_devices))
        plan = replace(Plan.of_sizes(model, cluster, sizes, ways, *numbers), output_joins=True)
        pieces, ends = chunk_pieces(plan, costs), ([], [])
    pieces = [piece._replace(name=f"F{stage}") for stage, piece in enumerate(pieces)]
    plain = costs.cost(layer, how, *numbers, plan.group(0))
    if checkpoints is not None:
        counts = zip(pieces, plan.stage_layers, strict=True)
        pieces = [_with_checkpoints(piece, count, plain, checkpoints) for piece, count in counts]
    pieces = [*ends[0], *pieces, *ends[1]]
    capacities_gib = [gpu.memory_gib - reserve_gib] * num_devices
    placement = placement_of_pieces(arrangement, plan, pieces, capacities_gib, tick_ms)
    placement = replace(placement, name=f"gpt_{arrangement}")
    if modes:
        ways = [replace(how, recompute=mode) for mode in modes]
        again = {way.recompute: costs.cost(layer, way, *numbers, plan.group(0)) for way in ways}
        placement = with_levers(placement, _levers(placement, plan.stage_layers, plain, again))
    return PlacedGpt(plan, costs, pieces, placement)


def optimal_checkpoints(
    layers: int, input_bytes: float, intermediate_bytes: float, in_flight: int = 1
) -> int:
    """Return the number of checkpoints with which a stage needs least memory; the least of equal ones.

    A stage of l layers that keeps c inputs of layers computes l / c layers again at a time, so it needs
    c A_input + (l / c) A_intermediate, least next to c = sqrt(l A_intermediate / A_input) (Narayanan,
    dissertation, Sec. 4.3.5). Throughput does not depend on c: each layer is computed again once. Of several
    micro-batches in flight each keeps its checkpoints, so that fewer are best; see `stage_bytes`.

    >>> optimal_checkpoints(64, 2, 8), optimal_checkpoints(64, 2, 8, in_flight=4)
    (16, 8)
    """
    return min(
        range(1, layers + 1),
        key=lambda c: (stage_bytes(layers, c, input_bytes, intermediate_bytes, in_flight), c),
        default=0,
    )


def stage_bytes(
    layers: int, checkpoints: int, input_bytes: float, intermediate_bytes: float, in_flight: int = 1
) -> float:
    """Return what a stage needs for activations, with segments as equal as whole layers allow.

    Args:
        layers: Layers of the stage.
        checkpoints: Inputs of layers that it keeps, that of the stage included; 1 to `layers`.
        input_bytes: Input of a layer.
        intermediate_bytes: What a layer holds from its forward to its backward where nothing is recomputed.
        in_flight: Micro-batches that the stage holds at one time.

    >>> [stage_bytes(8, c, 2, 16) for c in (1, 2, 4, 8)]
    [130, 68, 40, 32]
    """
    return in_flight * checkpoints * input_bytes + -(-layers // checkpoints) * intermediate_bytes


def _with_checkpoints(piece: PieceCost, count: int, layer: Cost, wanted: int) -> PieceCost:
    """Return a stage of so many layers that keeps fewer of their inputs; see `optimal_checkpoints`."""
    number = min(wanted, count) or optimal_checkpoints(count, layer.kept_bytes, layer.backward_bytes)
    again = math.ceil(count / max(number, 1)) * layer.backward_bytes
    kept = piece.cost.kept_bytes - (count - number) * layer.kept_bytes
    most = max(piece.cost.backward_bytes, again)
    return piece._replace(cost=replace(piece.cost, kept_bytes=kept, backward_bytes=most))


def _levers(
    placement: Placement, counts: Sequence[int], layer: Cost, modes: Mapping[RecomputeKind, Cost]
) -> dict[str, list[Recompute]]:
    """Return the modes of each stage of so many layers, which its backward computes again one by one.

    Raises:
        PlacementError: A mode saves nothing.
    """
    found: dict[str, list[Recompute]] = {}
    for stage, count in enumerate(counts):
        levers = found[f"F{stage}"] = []
        for mode, again in modes.items() if count else ():
            saved_mib = (layer.kept_bytes - again.kept_bytes) / 2**20
            if saved_mib <= 0:
                raise PlacementError(
                    f"modes: {mode} saves nothing, as flash attention keeps no scores; leave it out, or give "
                    "flash_attention=false"
                )
            more_ms = count * (again.backward.time_ms - layer.backward.time_ms)
            kept = placement.by_name[f"F{stage}"].memory_on(stage) - math.floor(count * saved_mib)
            time, name = max(1, round(more_ms / placement.tick_ms)), "recompute" if mode == "full" else mode
            levers.append(Recompute(kept, time, math.ceil(saved_mib), name))
    return found
