"""A layout of measured layers as stages on devices, in the form in which hand-made schedules take them."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, pairwise

from placements.stages.stage_chain import PlacedStages, Stage, StageChain, place
from placements.trainers.layers import ModelLayer, ModelLayers
from placements.trainers.layout import LayoutError, PipelineLayout

PLACES = 6
"""Decimal places to which times in ms and memory in MiB are rounded, so that sums are exact."""


def rounded(number: float) -> Fraction:
    """Return a time in ms or memory in MiB as a whole number of millionths."""
    return Fraction(round(number * 10**PLACES), 10**PLACES)


def stage_from_layers(layers: tuple[ModelLayer, ...]) -> Stage:
    """Return some layers as one stage, exactly; a pass takes a nanosecond at least, also of no layers."""
    names = ("forward_ms", "backward_ms", "activation_mib", "weight_mib")
    figures = {name: float(sum(rounded(getattr(layer, name)) for layer in layers)) for name in names}
    return Stage(**figures | {name: max(10**-PLACES, figures[name]) for name in names[:2]})


def place_layout(
    layout: PipelineLayout, layers: ModelLayers, memory_mib: float | None = None, transfer_ms: float = 0.0
) -> PlacedStages:
    """Return a layout of a measured model as a placement.

    It is a V-shape, or a loop where devices have several stages. The memory is that of each device.

    Raises:
        LayoutError: The layout is of another model.
    """
    if layout.parts != layers.parts:
        fault = f"has {layout.num_layers} layers and {layout.num_mtp} of MTP, and the given layers"
        remedy = "give both of the same model"
        raise LayoutError(f"layout: {fault} {layers.num_layers} and {layers.num_mtp}; {remedy}")
    ends = pairwise(accumulate(layout.sizes, initial=0))
    stages = tuple(stage_from_layers(layers.layers[first:end]) for first, end in ends)
    shape = "v_shape" if layout.num_chunks == 1 else "loop_shape"
    chain = StageChain(stages, layout.num_devices, memory_mib, transfer_ms)
    return place(chain, shape, num_chunks=layout.num_chunks)
