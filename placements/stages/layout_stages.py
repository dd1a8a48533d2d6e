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


def stage_of(layers: tuple[ModelLayer, ...]) -> Stage:
    """Return some layers as one stage, exactly; a pass takes a nanosecond at least, also of no layers."""
    names = ("forward_ms", "backward_ms", "activation_mib", "weight_mib")
    figures = {name: float(sum(rounded(getattr(each, name)) for each in layers)) for name in names}
    least = {name: max(10**-PLACES, figures[name]) for name in ("forward_ms", "backward_ms")}
    return Stage(**figures | least)


def place_layout(
    layout: PipelineLayout,
    layers: ModelLayers,
    memory_mib: float | None = None,
    transfer_ms: float = 0.0,
) -> PlacedStages:
    """Return a layout as a placement: a V-shape, or a loop where devices have several stages.

    Args:
        layout: Of the model.
        layers: Times and memory of its parts.
        memory_mib: Memory of each device; None for no limit.
        transfer_ms: Time from the end of a block to where its output is on the next device.

    Raises:
        LayoutError: The layout is of another model.
    """
    if layout.parts != layers.parts:
        raise LayoutError(
            f"layout: has {layout.num_layers} layers and {layout.num_mtp} of MTP, and the file of layers "
            f"{layers.num_layers} and {layers.num_mtp}; give both of the same model"
        )
    ends = pairwise(accumulate(layout.sizes, initial=0))
    stages = tuple(stage_of(layers.layers[first:end]) for first, end in ends)
    memory = None if memory_mib is None else (memory_mib,)
    shape = "v_shape" if layout.num_chunks == 1 else "loop_shape"
    chain = StageChain(stages, layout.num_devices, memory, transfer_ms)
    return place(chain, shape, num_chunks=layout.num_chunks)
