"""The best layouts beside published ones, for the same devices, chunks and times of layers.

Layouts in Megatron-LM's notation are facts. There is no limit of memory, and few GPUs share the experts: the
times are to compare layouts, not to plan a run.
"""

from __future__ import annotations

from typing import Any

from experiments.benchmarks.timing import load_solvers as prepare
from placements.cluster import read_cluster
from placements.models.costing.options import CostOptions
from placements.models.zoo import read_model
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.uniform import Degrees, Layout, uniform_plan
from placements.trainers.layers import ModelLayer, ModelLayers
from placements.trainers.layout import EMBEDDING, LAYER, LOSS, MTP, PARTS, PipelineLayout
from placements.trainers.megatron_layout import MegatronPipeline, read_notation
from schedsearch.layouts.layouts import layout

__all__ = ["beside_published", "prepare"]

_ALIKE = {EMBEDDING: (0.1, 0.2), LAYER: (1.0, 2.0), MTP: (1.2, 2.4), LOSS: (0.6, 1.2)}
"""Forward and backward of each part in ms, where all layers take as long."""


def beside_published(
    *, notation: str, ranks: int, rounds: int, model: str = "", tensor: int = 1, expert: int = 1
) -> dict[str, Any]:
    """Find the best layout beside a published one; ``over_published`` is its iteration over that one's.

    Args:
        notation: The published layout.
        ranks: Devices in a row.
        rounds: Micro-batches for each of them.
        model: Whose layers are modelled on H100s; empty where all layers take as long.
        tensor: GPUs that share a matrix.
        expert: GPUs that share the experts.
    """
    published = read_notation(notation, ranks)
    layers = _modelled(published, model, tensor, expert) if model else _alike(published)
    given = {"published": MegatronPipeline(published)}
    found = layout(layers, ranks, rounds * ranks, published.num_chunks, given=given)
    (row,), theirs = found.rows, found.given["published"]
    assert row.iteration_ms is not None and theirs.iteration_ms is not None
    return {
        "status": row.status,
        "iteration_ms": row.iteration_ms,
        "bound_ms": row.bound_ms,
        "even_ms": row.even_ms,
        "published_ms": theirs.iteration_ms,
        "over_published": row.iteration_ms / theirs.iteration_ms,
        "peak_mib": row.peak_memory_mib,
        "published_peak_mib": theirs.peak_memory_mib,
        "layout": str(row.layout),
    }


def _alike(layout: PipelineLayout) -> ModelLayers:
    parts = enumerate(layout.parts)
    return ModelLayers(
        tuple(
            ModelLayer(f"{PARTS[part]} {i}", PARTS[part], *_ALIKE[part], 100.0, 1000.0) for i, part in parts
        )
    )


def _modelled(layout: PipelineLayout, model: str, tensor: int, expert: int) -> ModelLayers:
    """Return the parts of a layout as the model's layers; MTP is one more of its last layers.

    A layout of fewer layers has the model's first and last ones.
    """
    each, ranks = max(tensor, expert), layout.num_devices
    shape = read_model(model, precision="bf16").chained
    degrees = Degrees(tensor, ranks, each // tensor, expert=expert)
    plan = uniform_plan(shape, read_cluster(f"h100_{each * ranks}"), Layout(degrees, 1, 4 * ranks))
    costs = ShapeCosts(shape, CostOptions(precision=shape.precision, exchanges_apart=True))
    embedding, *layers, loss = [
        costs.cost(layer, strategy, plan.micro_batch_size, plan.num_micro_batches, plan.group(0))
        for layer, strategy in zip(plan.layers, plan.strategies, strict=True)
    ]
    layers = [*layers[: layout.num_layers - 1], layers[-1]]
    costed = [embedding, *layers, *([layers[-1]] * layout.num_mtp), loss]
    return ModelLayers(
        tuple(
            ModelLayer(
                f"{PARTS[part]} {i}",
                PARTS[part],
                round(cost.forward.time_ms, 3),
                round(cost.backward.time_ms, 3),
                round(cost.kept_bytes / 2**20, 1),
                round(cost.static_bytes / 2**20, 1),
            )
            for i, (part, cost) in enumerate(zip(layout.parts, costed, strict=True))
        )
    )
