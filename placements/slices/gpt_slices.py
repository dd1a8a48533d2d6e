"""A GPT whose sequences are cut into slices, with the times and the memory of its layers."""

from __future__ import annotations

from dataclasses import replace

from placements.block import PlacementError
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.placing.gpt import PlacedGpt
from placements.slices.slices import EVEN, sliced
from placements.spec import Placement


def gpt_in_slices(gpt: PlacedGpt, num_slices: int = 8, partition: str = EVEN) -> Placement:
    """Return a GPT in a V-shape with sequences cut into slices; see `placements.slices.slices.sliced`.

    What grows with the square of the length is what a layer takes longer than two layers of half the length.

    Raises:
        PlacementError: An argument is out of its range, or layers are recomputed and keep no keys and values.
    """
    plan, costs, whole = gpt.plan, gpt.costs, gpt.placement
    layer, how = plan.model.layers[1], plan.strategies[1]
    assert isinstance(layer, TransformerLayer), "a GPT's"
    if how.recompute != "none":
        raise PlacementError("recompute: true keeps no keys and values for later slices; use false")
    half = replace(layer, sequence_length=max(1, layer.sequence_length // 2))
    long, short = (costs.cost(each, how, plan.micro_batch_size, 1, plan.group(0)) for each in (layer, half))
    square_ms = {
        "F": max(0.0, 2 * (long.forward.time_ms - 2 * short.forward.time_ms)),
        "B": max(0.0, 2 * (long.backward.time_ms - 2 * short.backward.time_ms)),
    }
    attention = {
        name: min(1.0, round(count * square_ms[name[0]] / whole.ms(whole.by_name[name].time), 6))
        for stage, count in enumerate(plan.stage_layers)
        for name in (f"F{stage}", f"B{stage}")
    }
    of_hidden = costs.options.precision.number_bytes * plan.micro_batch_size * layer.output_elements()
    kept = 2 * of_hidden / how.num_gpus / long.kept_bytes
    return sliced(whole, num_slices, attention_share=attention, kv_share=round(kept, 6), partition=partition)
