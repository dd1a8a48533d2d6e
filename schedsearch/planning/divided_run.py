"""A layout of a training framework with its layers divided among chunks as is best for its schedule.

Frameworks divide layers evenly if they are not told otherwise. `schedsearch.layouts` searches the division,
and `schedsearch.planning.uniform_run` prices it.
"""

from __future__ import annotations

from dataclasses import replace

from placements.models.chain import ModelShape
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.parallel import Buffer
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import PlanError, layers_of_stage
from placements.stages.layout_stages import rounded
from placements.trainers.job import plan_letters
from placements.trainers.layers import ModelLayer, ModelLayers
from placements.trainers.layout import PARTS
from schedsearch.layouts.layouts import layout
from schedsearch.planning.uniform_run import NEAR_TIE, UniformRun

_WORK = 0.3
"""Units of work, of about a second each, to search one division."""


def can_divide(model: ModelShape) -> bool:
    """Return whether a model is an embedding, transformer layers and an output layer, for `layout`."""
    first, *inner, last = map(type, model.layers)
    return first is EmbeddingLayer and last is OutputLayer and set(inner) == {TransformerLayer}


def with_best_division(run: UniformRun, limit_gib: float) -> UniformRun:
    """Return a layout in the best division of its layers that is found, or as it is if that gains nothing.

    A gain below `NEAR_TIE` does not count. Where `can_divide` says no, or only some layers of each chunk are
    recomputed, no division is searched.

    Args:
        run: The layout.
        limit_gib: Memory of each GPU that the division keeps, in GiB.
    """
    degrees, again = run.layout.degrees, run.layout.recomputed_layers
    if degrees.pipeline == 1 or again is not None or not can_divide(run.model):
        return run
    layers, memory_mib, transfer_ms = layers_of(run, limit_gib)
    numbers = degrees.pipeline, run.layout.num_micro_batches, degrees.chunks
    found = layout(layers, *numbers, memory_mib, transfer_ms, work_limit=_WORK).best
    if found is None or found.found is None:
        return run
    divided = replace(run, layout=replace(run.layout, chunk_layers=found.found.sizes))
    fits = max(divided.gib_by_stage) <= limit_gib
    return divided if fits and divided.iteration_ms * (1 + NEAR_TIE) < run.iteration_ms else run


def layers_of(run: UniformRun, limit_gib: float) -> tuple[ModelLayers, float, float]:
    """Return the layers to divide, and the memory (MiB) and transfer (ms) of devices with `limit_gib` GiB.

    A tied output layer has a table of its own. What a backward holds for a moment is not in the MiB.

    Raises:
        PlanError: The model has other layers; see `can_divide`.
    """
    if not can_divide(run.model):
        raise PlanError(
            f"model: {run.model.name} is not an embedding, transformer layers and an output layer; give a "
            "table of its layers"
        )
    plan, model = run.plan, run.model.layers
    apart = (*layers_of_stage(model, 0, 1), *layers_of_stage(model, 1, len(model)))
    rows = []
    for i, letter in enumerate(plan_letters(run.model)):
        how, m = plan.strategies[i], plan.num_micro_batches
        cost = run.costs.cost(apart[i], how, plan.micro_batch_size, m, plan.group(0))
        figures = (
            cost.forward.time_ms,
            cost.backward.time_ms,
            cost.kept_bytes / 2**20,
            cost.static_bytes / 2**20,
        )
        rows.append(ModelLayer(f"{letter}{i}", PARTS[letter], *(float(rounded(each)) for each in figures)))
    transfer_ms = float(rounded(max(piece.forward_transfer_ms for piece in run.pieces)))
    return ModelLayers(tuple(rows)), 1024 * limit_gib - _passing_mib(run), transfer_ms


def _passing_mib(run: UniformRun) -> float:
    """Return the MiB that a device holds at most besides states and kept activations."""
    costs = [piece.cost for piece in run.pieces]
    buffers = frozenset[Buffer]().union(*(cost.buffers for cost in costs))
    once = max(max(cost.backward_bytes, cost.backward_peak_bytes - cost.kept_bytes) for cost in costs)
    return (once + sum(each.num_bytes for each in buffers)) / 2**20
