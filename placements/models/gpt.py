"""Placements of a GPT, with times and memory from its shape and the data sheet of a GPU.

Times are computed, not measured: those of `placements.models.rates`. The module does not know in what order
blocks run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from placements.hardware import Gpu
from placements.models.rates import (
    COPY_COMPUTE_SHARE,
    LINK_EFFICIENCY,
    MEMORY_EFFICIENCY,
    MODEL_FLOPS_UTILISATION,
    OUTPUT_LAYER_UTILISATION,
    RESERVE_GIB,
    Rates,
    layer_backward_ms,
    layer_forward_ms,
    lookup_ms,
    output_backward_ms,
    output_forward_ms,
    table_gradient_ms,
    tick_for,
)
from placements.models.transformer import (
    STATIC_BYTES,
    GptConfig,
    hidden_bytes,
    layer_activation_bytes,
    layer_parameters,
    layer_working_bytes,
    output_activation_bytes,
    position_parameters,
    table_parameters,
)
from placements.spec import Block, Kind, Placement, PlacementError

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
    model_flops_utilisation: float = MODEL_FLOPS_UTILISATION,
    output_layer_utilisation: float = OUTPUT_LAYER_UTILISATION,
    memory_efficiency: float = MEMORY_EFFICIENCY,
    link_efficiency: float = LINK_EFFICIENCY,
    reserve_gib: float = RESERVE_GIB,
    tick_ms: float | None = None,
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

    Args:
        config: The model and its micro-batch.
        gpu: What every device is.
        num_devices: Stages of layers, and shards of the vocabulary.
        model_flops_utilisation: Share of the peak that layers reach; above 0, at most 1.
        output_layer_utilisation: Likewise, of the output layer.
        memory_efficiency: Share of the memory bandwidth that is reached; above 0, at most 1.
        link_efficiency: Likewise, of the link bandwidth.
        reserve_gib: Memory that neither parameters nor activations may use.
        tick_ms: Length of a tick; by default the longest power of ten of which the shortest block has at
            least 100.

    Returns:
        Memory in MiB, rounded up; the capacity is what weights, gradients, optimizer and reserve leave.

    Raises:
        PlacementError: An argument is out of its range, or one micro-batch does not fit.
    """
    rates = Rates(
        gpu,
        model_flops_utilisation,
        output_layer_utilisation,
        memory_efficiency,
        link_efficiency,
        reserve_gib,
    )
    _check_stages(config, num_devices)
    rows = math.ceil(config.vocab_size / num_devices)
    everywhere = tuple(range(num_devices))
    shares = _even_shares(config.num_layers, num_devices)
    embedding = _Pair(
        "E",
        "EB",
        everywhere,
        lookup_ms(config, rates) + rates.all_reduce_ms(hidden_bytes(config), num_devices),
        table_gradient_ms(config, rates, rows),
        hidden_bytes(config),
    )
    output = _Pair(
        "H",
        "HB",
        everywhere,
        output_forward_ms(config, rates, rows),
        output_backward_ms(config, rates, rows) + rates.all_reduce_ms(hidden_bytes(config), num_devices),
        output_activation_bytes(config, rows),
    )
    parameters = [share * layer_parameters(config) + table_parameters(config, rows) for share in shares]
    parameters[0] += position_parameters(config)
    pairs = [embedding, *_stages(config, rates, shares), output]
    return _placement("gpt_m_shape", config, rates, pairs, parameters, tick_ms)


def gpt_v_shape(
    config: GptConfig,
    gpu: Gpu,
    num_devices: int = 4,
    *,
    model_flops_utilisation: float = MODEL_FLOPS_UTILISATION,
    output_layer_utilisation: float = OUTPUT_LAYER_UTILISATION,
    memory_efficiency: float = MEMORY_EFFICIENCY,
    link_efficiency: float = LINK_EFFICIENCY,
    reserve_gib: float = RESERVE_GIB,
    tick_ms: float | None = None,
) -> Placement:
    """Return a GPT in one stage per device, embedding in the first, output layer and loss in the last.

    The layers are split so that the largest stage takes the least time; a first or last stage may be left
    without any. First and last device each hold the whole table, as a tied table on two devices must be.

    Args:
        config: The model and its micro-batch.
        gpu: What every device is.
        num_devices: Stages.
        model_flops_utilisation: See `gpt_m_shape`, as for those that follow.
        output_layer_utilisation: Share of the peak.
        memory_efficiency: Share of the memory bandwidth.
        link_efficiency: Share of the link bandwidth.
        reserve_gib: Memory that neither parameters nor activations may use.
        tick_ms: Length of a tick.

    Returns:
        Memory in MiB, as in `gpt_m_shape`.

    Raises:
        PlacementError: An argument is out of its range, or one micro-batch does not fit.
    """
    rates = Rates(
        gpu,
        model_flops_utilisation,
        output_layer_utilisation,
        memory_efficiency,
        link_efficiency,
        reserve_gib,
    )
    _check_stages(config, num_devices)
    rows, last = config.vocab_size, num_devices - 1
    forward, backward, kept = ([0.0] * num_devices for _ in range(3))
    forward[0] += lookup_ms(config, rates)
    backward[0] += table_gradient_ms(config, rates, rows)
    forward[last] += output_forward_ms(config, rates, rows)
    backward[last] += output_backward_ms(config, rates, rows)
    kept[last] += output_activation_bytes(config, rows)
    layer_ms = layer_forward_ms(config, rates) + layer_backward_ms(config, rates)
    shares = _least_largest_shares(
        config.num_layers, layer_ms, [a + b for a, b in zip(forward, backward, strict=True)]
    )
    pairs = [
        _Pair(
            layers.forward,
            layers.backward,
            layers.devices,
            layers.forward_ms + forward[i],
            layers.backward_ms + backward[i],
            layers.kept_bytes + kept[i],
        )
        for i, layers in enumerate(_stages(config, rates, shares))
    ]
    parameters = [share * layer_parameters(config) for share in shares]
    parameters[0] += table_parameters(config, rows) + position_parameters(config)
    parameters[last] += table_parameters(config, rows) if last else 0
    return _placement("gpt_v_shape", config, rates, pairs, parameters, tick_ms)


def gpt_compute_shares(placement: Placement) -> dict[str, float]:
    """Return the share of time that depends on the clock, of the blocks where it is not the GPU's own.

    Layers and output layer are matrix products, for which the power model of `placements.hardware.Gpu`
    has the share; the embedding's two blocks in an M-shape are not.

    Args:
        placement: From `gpt_m_shape` or `gpt_v_shape`; of a V-shape no block differs.

    Returns:
        By block name, 0 to 1; for `placements.hardware.modelled_profile`.
    """
    return {name: COPY_COMPUTE_SHARE for name in ("E", "EB") if name in placement.by_name}


@dataclass(frozen=True)
class _Pair:
    """A forward block and its backward, before times become ticks.

    Attributes:
        forward: Name of the forward block.
        backward: Name of the backward block.
        devices: Of both.
        forward_ms: Time of the forward.
        backward_ms: Time of the backward.
        kept_bytes: What each device holds from the one to the other.
    """

    forward: str
    backward: str
    devices: tuple[int, ...]
    forward_ms: float
    backward_ms: float
    kept_bytes: float

    @property
    def kept_mib(self) -> int:
        """Return what each device holds, rounded up."""
        return math.ceil(self.kept_bytes / 2**20)


def _even_shares(num_layers: int, num_stages: int) -> list[int]:
    """Return the layers of each stage, as even as possible; earlier stages have the extra ones.

    >>> _even_shares(10, 4)
    [3, 3, 2, 2]
    """
    fewer, extra = divmod(num_layers, num_stages)
    return [fewer + (stage < extra) for stage in range(num_stages)]


def _least_largest_shares(num_layers: int, layer_ms: float, other_ms: Sequence[float]) -> list[int]:
    """Return the layers of each stage such that the largest stage takes the least time.

    Layers cost the same, so each may go where it makes the least sum; a stage between the ends gets at
    least one.

    >>> _least_largest_shares(10, 1.0, [0.5, 0.0, 0.0, 2.8])
    [3, 3, 3, 1]
    """
    last = len(other_ms) - 1
    shares = [0 if stage in (0, last) and other_ms[stage] > 0 else 1 for stage in range(last + 1)]
    for _ in range(num_layers - sum(shares)):
        sums = [other + (share + 1) * layer_ms for share, other in zip(shares, other_ms, strict=True)]
        shares[sums.index(min(sums))] += 1
    return shares


def _stages(config: GptConfig, rates: Rates, shares: Sequence[int]) -> list[_Pair]:
    return [
        _Pair(
            f"F{stage}",
            f"B{stage}",
            (stage,),
            share * layer_forward_ms(config, rates),
            share * layer_backward_ms(config, rates),
            share * layer_activation_bytes(config),
        )
        for stage, share in enumerate(shares)
    ]


def _placement(
    name: str,
    config: GptConfig,
    rates: Rates,
    pairs: Sequence[_Pair],
    parameters: Sequence[int],
    tick_ms: float | None,
) -> Placement:
    """Return the chain of the pairs' forwards and, in reverse, their backwards."""
    shortest_ms = min(min(pair.forward_ms, pair.backward_ms) for pair in pairs)
    tick_ms = tick_for(shortest_ms, tick_ms)
    blocks = _chain(pairs, tick_ms)
    transfer_ticks = math.ceil(rates.transfer_ms(hidden_bytes(config)) / tick_ms)
    return Placement(
        name,
        len(parameters),
        tuple(blocks),
        tick_ms,
        transfer=tuple(
            (before.name, after.name, transfer_ticks)
            for before, after in itertools.pairwise(blocks)
            if not set(after.devices) <= set(before.devices)
        ),
        memory=_capacities(config, rates, pairs, parameters),
    )


def _chain(pairs: Sequence[_Pair], tick_ms: float) -> list[Block]:
    """Return the blocks, each after the one before it."""
    whole = [(pair.forward, Kind.F, pair, pair.forward_ms, pair.kept_mib) for pair in pairs]
    whole += [(pair.backward, Kind.B, pair, pair.backward_ms, -pair.kept_mib) for pair in reversed(pairs)]
    afters: list[tuple[str, ...]] = [(), *((name,) for name, *_ in whole)]
    return [
        Block(name, kind, pair.devices, round(time_ms / tick_ms), memory, after)
        for (name, kind, pair, time_ms, memory), after in zip(whole, afters, strict=False)
    ]


def _capacities(
    config: GptConfig, rates: Rates, pairs: Sequence[_Pair], parameters: Sequence[int]
) -> tuple[int, ...]:
    """Return the MiB that each device has for activations.

    Raises:
        PlacementError: They do not hold those of one micro-batch.
    """
    working_gib = layer_working_bytes(config) / 2**30 if config.recompute else 0.0
    capacities = []
    for device, count in enumerate(parameters):
        static_gib = STATIC_BYTES * count / 2**30
        needed_mib = sum(pair.kept_mib for pair in pairs if device in pair.devices)
        free_gib = rates.gpu.memory_gib - rates.reserve_gib - static_gib - working_gib
        capacities.append(math.floor(free_gib * 1024))
        if capacities[-1] < needed_mib:
            raise PlacementError(
                f"num_devices: with {len(parameters)}, device {device} needs {static_gib:.1f} GiB for "
                f"parameters, {needed_mib / 1024 + working_gib:.1f} for one micro-batch and "
                f"{rates.reserve_gib:g} in reserve; {rates.gpu.name} has {rates.gpu.memory_gib:g}; use more "
                "devices, a smaller micro_batch_size or a smaller vocab_size"
            )
    return tuple(capacities)


def _check_stages(config: GptConfig, num_devices: int) -> None:
    if isinstance(num_devices, bool) or not isinstance(num_devices, int) or num_devices < 1:
        raise PlacementError(f"num_devices: {num_devices!r} is not a whole number of at least 1; give one")
    if config.num_layers < num_devices:
        raise PlacementError(
            f"num_layers: {config.num_layers} is fewer than {num_devices} stages; use at least {num_devices}"
        )
