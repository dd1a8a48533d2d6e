"""Placements of a GPT, with times and memory from its shape and the data sheet of a GPU.

Times are computed, not measured: those of `placements.models.rates`, and where a device stands for several
GPUs, those of `placements.models.parallel`. The module does not know in what order blocks run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from placements.hardware import Gpu
from placements.models.gpt_costs import (
    BlockPair,
    SharedGpt,
    capacities,
    even_shares,
    least_largest_shares,
    stage_pairs,
)
from placements.models.rates import COPY_COMPUTE_SHARE, Rates, tick_for
from placements.models.transformer import (
    HALF_BYTES,
    GptConfig,
    hidden_bytes,
    position_parameters,
    table_parameters,
)
from placements.spec import Block, Kind, Placement, PlacementError, in_chain

__all__ = ["GPT_11B", "GptConfig", "gpt_compute_shares", "gpt_m_shape", "gpt_v_shape"]

GPT_11B = GptConfig(
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    vocab_size=1_000_000,
    sequence_length=2048,
    micro_batch_size=2,
)
"""GPT-11B of Tessel (Table III). Two samples per micro-batch of 2048 tokens are our choice: the memory of
four A100 then holds seven micro-batches at once and not sixteen, so that it matters."""


def gpt_m_shape(
    config: GptConfig,
    gpu: Gpu,
    num_devices: int = 4,
    *,
    num_gpus: int = 1,
    data_parallel: int = 1,
    tick_ms: float | None = None,
    **rates: float,
) -> Placement:
    """Return a GPT whose vocabulary stands on all devices and whose layers stand in stages (Tessel, Fig. 8a).

    Tessel's runs end with a sum in place of the output layer; ours have it, with the loss, because
    pre-training does. It is tied to the embedding, so both stand on the same rows of every device. ::

        0 | E  F0 .  .  .  H  HB .  .  .  .  .  .  B0 B0 EB
        1 | E  .  F1 .  .  H  HB .  .  .  .  B1 B1 .  .  EB
        2 | E  .  .  F2 .  H  HB .  .  B2 B2 .  .  .  .  EB
        3 | E  .  .  .  F3 H  HB B3 B3 .  .  .  .  .  .  EB

    E looks tokens up and all-reduces the result; H is the output layer with the loss. HB all-reduces the
    gradient of its input; EB adds the gradient of the embedding to that of the whole table. E's output is
    counted on every device until EB, which is more than they hold: it is needed on the first stage's device
    alone, as that stage's input.

    Where devices stand for several GPUs, those share the device's layers and rows (tensor parallel).

    Args:
        config: The model and its micro-batch.
        gpu: What every device is made of.
        num_devices: Stages of layers, and shards of the vocabulary.
        num_gpus: That each device stands for.
        data_parallel: 1: groups of a block on all devices would not be those of a stage.
        tick_ms: Length of a tick; by default the longest power of ten of which the shortest block has at
            least 100.
        rates: What the GPU reaches, by the names of `placements.models.rates.Rates`.

    Returns:
        Memory in MiB, rounded up; the capacity is what weights, gradients, optimizer and reserve leave.

    Raises:
        PlacementError: An argument is out of its range, or one micro-batch does not fit.
    """
    if data_parallel != 1:
        raise PlacementError(
            f"data_parallel: {data_parallel} is not 1, and arrangement m_shape is not costed with groups "
            "that share the samples; use arrangement=v_shape, or give 1"
        )
    shared = SharedGpt.of(config, Rates(gpu, **rates), num_devices, num_gpus, data_parallel)
    shards = num_devices * num_gpus
    rows = math.ceil(config.vocab_size / shards)
    everywhere = tuple(range(num_devices))
    shares = even_shares(config.num_layers, num_devices)
    looked_up, out = shared.ends(shards)
    embedding = BlockPair(
        "E",
        "EB",
        everywhere,
        looked_up.forward.time_ms,
        looked_up.backward.time_ms,
        hidden_bytes(config),
    )
    output = BlockPair("H", "HB", everywhere, out.forward.time_ms, out.backward.time_ms, out.kept_bytes)
    parameters = [share * shared.layer_parameters + table_parameters(config, rows) for share in shares]
    parameters[0] += position_parameters(config)
    pairs = [embedding, *stage_pairs(shared, shares), output]
    return _placement("gpt_m_shape", shared, pairs, parameters, tick_ms)


def gpt_v_shape(
    config: GptConfig,
    gpu: Gpu,
    num_devices: int = 4,
    *,
    num_gpus: int = 1,
    data_parallel: int = 1,
    tick_ms: float | None = None,
    **rates: float,
) -> Placement:
    """Return a GPT in one stage per device, embedding in the first, output layer and loss in the last.

    The layers are split so that the largest stage takes the least time; a first or last stage may be left
    without any. First and last device each hold the whole table, as a tied table on two devices must be.

    Where devices stand for several GPUs, these are equal groups, each with its share of the samples, and
    the GPUs of a group share layers and table (tensor parallel). With several groups an O for each device
    exchanges their gradients after the last micro-batch; what the weights' update itself takes is left out,
    as it is with one.

    Args:
        config: The model, and a micro-batch of all groups together.
        gpu: What every device is made of.
        num_devices: Stages.
        num_gpus: That each device stands for.
        data_parallel: Groups of so many; a divisor.
        tick_ms: Length of a tick.
        rates: See `gpt_m_shape`.

    Returns:
        Memory in MiB, as in `gpt_m_shape`.

    Raises:
        PlacementError: An argument is out of its range, or one micro-batch does not fit.
    """
    shared = SharedGpt.of(config, Rates(gpu, **rates), num_devices, num_gpus, data_parallel)
    config, shards, last = shared.config, shared.strategy.tensor_parallel, num_devices - 1
    rows, (looked_up, out) = math.ceil(config.vocab_size / shards), shared.ends(shards)
    forward, backward, kept = ([0.0] * num_devices for _ in range(3))
    for place, end in ((0, looked_up), (last, out)):
        forward[place] += end.forward.time_ms
        backward[place] += end.backward.time_ms
        kept[place] += end.kept_bytes
    layer_ms = shared.layer_forward.time_ms + shared.layer_backward.time_ms
    shares = least_largest_shares(
        config.num_layers, layer_ms, [a + b for a, b in zip(forward, backward, strict=True)]
    )
    pairs = [
        BlockPair(
            layers.forward,
            layers.backward,
            layers.devices,
            layers.forward_ms + forward[i],
            layers.backward_ms + backward[i],
            layers.kept_bytes + kept[i],
        )
        for i, layers in enumerate(stage_pairs(shared, shares))
    ]
    parameters = [share * shared.layer_parameters for share in shares]
    parameters[0] += table_parameters(config, rows) + position_parameters(config)
    parameters[last] += table_parameters(config, rows) if last else 0
    return _placement("gpt_v_shape", shared, pairs, parameters, tick_ms)


def gpt_compute_shares(placement: Placement, config: GptConfig, rates: Rates) -> dict[str, float]:
    """Return the share of time that depends on the clock, of the blocks where it is not the GPU's own.

    Layers and output layer are matrix products, for which the power model of `placements.hardware.Gpu`
    has the share; the embedding's two blocks in an M-shape and the exchange of gradients are not. Where
    several GPUs share a layer, part of its time is the sum of what they computed, which is not one either.

    Args:
        placement: From `gpt_m_shape` or `gpt_v_shape`.
        config: The model that it is of.
        rates: Of its GPUs.

    Returns:
        By block name, 0 to 1; for `placements.hardware.modelled_profile`.
    """
    shares = {
        block.name: COPY_COMPUTE_SHARE
        for block in placement.blocks
        if block.name in ("E", "EB") or block.kind is Kind.O
    }
    groups = placement.by_name["F0"].data_parallel
    shared = SharedGpt.of(config, rates, placement.num_devices, placement.gpus[0], groups)
    if shared.strategy.tensor_parallel > 1:
        own, stages = rates.gpu.power.compute_share, range(placement.num_devices)
        for letter, part in (("F", shared.layer_forward), ("B", shared.layer_backward)):
            share = (own * part.product_ms + COPY_COMPUTE_SHARE * part.copy_ms) / part.time_ms
            shares |= {f"{letter}{stage}": share for stage in stages}
    return shares


def _placement(
    name: str,
    shared: SharedGpt,
    pairs: Sequence[BlockPair],
    parameters: Sequence[float],
    tick_ms: float | None,
) -> Placement:
    """Return the chain of the pairs' forwards and, in reverse, their backwards."""
    shortest_ms = min(min(pair.forward_ms, pair.backward_ms) for pair in pairs)
    tick_ms = tick_for(shortest_ms, tick_ms)
    groups = shared.strategy.data_parallel
    whole = [
        Block(pair.forward, Kind.F, pair.devices, round(pair.forward_ms / tick_ms), pair.kept_mib)
        for pair in pairs
    ]
    whole += [
        Block(pair.backward, Kind.B, pair.devices, round(pair.backward_ms / tick_ms), -pair.kept_mib)
        for pair in reversed(pairs)
    ]
    blocks = [replace(block, data_parallel=groups) for block in in_chain(whole)]
    transfer_ticks = math.ceil(shared.rates.transfer_ms(hidden_bytes(shared.config)) / tick_ms)
    return Placement(
        name,
        len(parameters),
        (*blocks, *(_exchanges(shared, parameters, tick_ms) if groups > 1 else ())),
        tick_ms,
        transfer=tuple(
            (before.name, after.name, transfer_ticks)
            for before, after in itertools.pairwise(blocks)
            if not set(after.devices) <= set(before.devices)
        ),
        memory=capacities(shared, pairs, parameters),
        num_gpus=(shared.strategy.tensor_parallel * groups,) * len(parameters),
    )


def _exchanges(shared: SharedGpt, parameters: Sequence[float], tick_ms: float) -> list[Block]:
    """Return the block of each device that sums the gradients of its groups, after its last backward."""
    times_ms = [
        shared.rates.all_reduce_ms(HALF_BYTES * count, shared.strategy.data_parallel) for count in parameters
    ]
    return [
        Block(f"O{stage}", Kind.O, (stage,), max(1, round(time_ms / tick_ms)), after=(f"B{stage}",))
        for stage, time_ms in enumerate(times_ms)
    ]
