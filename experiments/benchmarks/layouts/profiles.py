"""Times and memory of the layers of published models: modelled on H100s, or all layers alike."""

from __future__ import annotations

from placements.cluster import read_cluster
from placements.layouts.layer_file import ModelLayer, ModelLayers
from placements.layouts.layout import EMBEDDING, LAYER, LOSS, MTP, PARTS, PipelineLayout
from placements.models.costing.options import CostOptions
from placements.models.zoo import read_model
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.uniform import Degrees, Layout, uniform_plan


def alike(layout: PipelineLayout) -> ModelLayers:
    """Return the parts of a layout where a layer takes 1 and 2 ms, and the loss 0.6 of a layer.

    MTP takes 1.2 of a layer, and the embedding a tenth.
    """
    times = {EMBEDDING: (0.1, 0.2), LAYER: (1.0, 2.0), MTP: (1.2, 2.4), LOSS: (0.6, 1.2)}
    return ModelLayers(
        tuple(
            ModelLayer(f"{PARTS[part]} {i}", PARTS[part], *times[part], 100.0, 1000.0)
            for i, part in enumerate(layout.parts)
        )
    )


def modelled(layout: PipelineLayout, model: str, degrees: Degrees, gpus: str) -> ModelLayers:
    """Return the parts of a layout as the model's layers on GPUs; MTP is one more of its last layers.

    Args:
        layout: Layout of the model's layers, or of fewer: these are then its first and last ones.
        model: A name of `placements.models.zoo`.
        degrees: How the GPUs of a stage share a layer.
        gpus: The cluster, as ``h100_64``.
    """
    shape = read_model(model, precision="bf16").chained
    cluster = read_cluster(gpus)
    plan = uniform_plan(shape, cluster, Layout(degrees, 1, 4 * degrees.pipeline))
    costs = ShapeCosts(shape, CostOptions(precision=shape.precision, exchanges_apart=True))
    found = [
        costs.cost(layer, strategy, plan.micro_batch_size, plan.num_micro_batches, plan.group(0))
        for layer, strategy in zip(plan.layers, plan.strategies, strict=True)
    ]
    embedding, *layers, loss = found
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
