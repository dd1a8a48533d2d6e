"""A GPT whose sequences are cut into slices, with times and memory of its cost model."""

from __future__ import annotations

from dataclasses import replace

from placements.block import PlacementError
from placements.hardware import Gpu
from placements.models.gpt.gpt_config import GptConfig, hidden_bytes
from placements.models.gpt.gpt_placement import gpt_stage_layers, gpt_v_shape
from placements.models.gpt.workload import Workload
from placements.models.parallel import LayerStrategy
from placements.models.rates import Rates
from placements.slices.slices import EVEN, sliced
from placements.spec import Placement


def gpt_in_slices(
    config: GptConfig,
    gpu: Gpu,
    num_devices: int = 4,
    num_slices: int = 8,
    partition: str = EVEN,
    *,
    num_gpus: int = 1,
    tick_ms: float | None = None,
    **rates: float,
) -> Placement:
    """Return a GPT as V-shape with sequences cut into slices; see `placements.slices.slices.sliced`.

    What grows with the square of the length is what a layer takes longer than two layers of half the length.

    Args:
        config: The model, and a micro-batch.
        gpu: What every device is made of.
        num_devices: Stages.
        num_slices: Slices of a sequence.
        partition: Their lengths.
        num_gpus: GPUs that each device stands for, all tensor parallel.
        tick_ms: Length of a tick of whole sequences.
        rates: Shares of the GPU's peaks, as of `placements.models.gpt.gpt_placement.gpt_v_shape`.

    Raises:
        PlacementError: An argument is out of its range, or layers are recomputed and keep no keys and values.
    """
    if config.recompute:
        raise PlacementError("recompute: true keeps no keys and values for later slices; use false")
    whole = gpt_v_shape(
        config, gpu, num_devices, num_gpus=num_gpus, data_parallel=1, modes=(), tick_ms=tick_ms, **rates
    )
    counts = gpt_stage_layers(config, gpu, num_devices, num_gpus, **rates)
    half = replace(config, sequence_length=max(1, config.sequence_length // 2))
    strategy = LayerStrategy(num_gpus, 1)
    long, short = (Workload(each, Rates(gpu, **rates), 1).layer_cost(strategy) for each in (config, half))
    square = {
        "F": max(0.0, 2 * (long.forward.time_ms - 2 * short.forward.time_ms)),
        "B": max(0.0, 2 * (long.backward.time_ms - 2 * short.backward.time_ms)),
    }
    attention = {
        block.name: min(1.0, round(counts[stage] * square_ms / whole.ms(block.time), 6))
        for letter, square_ms in square.items()
        for stage in range(num_devices)
        for block in [whole.by_name[f"{letter}{stage}"]]
    }
    kept = 2 * hidden_bytes(config) / num_gpus / long.kept_bytes
    whole = replace(whole, memory_unit_mib=1.0)
    return sliced(whole, num_slices, attention_share=attention, kv_share=round(kept, 6), partition=partition)
