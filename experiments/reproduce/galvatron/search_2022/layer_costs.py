"""Time and memory of layers under a strategy, for a whole batch (Galvatron-BMW, Sec. V).

It does not know which strategies are chosen together.
"""

from __future__ import annotations

from experiments.reproduce.galvatron.search_2022.constants import (
    Constants,
    LayerConstants,
    all_reduce_groups,
)
from experiments.reproduce.galvatron.search_2022.micro_batches import num_micro_batches
from experiments.reproduce.galvatron.search_2022.strategies import GalvatronStrategy

CONTEXT_MIB = 1024
"""What a process takes on its GPU before anything else."""

_MIB = 2**20
_FLOAT_BYTES = 4

_SECONDS = 0.0011
"""From ms to s, and a tenth more."""

_USUAL_LAYERS = 24
"""Of which the overhead is where the constants do not say it. Defect: it is the same for any model."""


def layer_time_s(
    constants: Constants, layer: LayerConstants, strategy: GalvatronStrategy, batch: int, num_layers: int
) -> float:
    """Return the time of one layer for a batch, in s, with its share of the pipeline's fill and drain.

    Args:
        constants: Constants of the model.
        layer: One of its types.
        strategy: Strategy of the layer.
        batch: Samples of an iteration.
        num_layers: Number of layers of the whole model.
    """
    stages, tensor, data = strategy.degrees
    on_16_gpus = constants.num_gpus == 16
    samples = batch / data
    forward = layer.forward_ms * samples / tensor
    backward = forward * layer.backward_over_forward
    data_group, tensor_group = all_reduce_groups(strategy)
    coefficients = layer.all_reduce_ms_per_mib[stages]
    gradients = 2 * (data - 1) / data * layer.synchronized_mib / tensor * coefficients[data_group]
    boundary = samples * layer.sequence_length * layer.hidden_size * _FLOAT_BYTES / _MIB
    all_reduces = 6 if layer.is_decoder else 4
    activations = 2 * (tensor - 1) / tensor * boundary * all_reduces * coefficients[tensor_group]
    divisor = num_layers if layer.divided_by_layers else _USUAL_LAYERS

    alone = forward + backward + activations
    time = alone
    if data > 1:  # defect: without an exchange of gradients the overhead is missing
        exchanged = gradients / 2 if strategy.sharded and on_16_gpus else gradients
        share = _overlapped_share(strategy, layer.is_decoder, constants.num_gpus)
        time = forward + (1 - share) * backward + activations + layer.extra_overhead_ms / divisor
        stage_wise = not on_16_gpus and tensor == 1 and stages > 1 and not strategy.sharded
        time += _overlap(layer, exchanged, share * backward, stages if stage_wise else 1)
    if stages > 1:
        number = num_micro_batches(constants.family, constants.num_gpus, strategy, samples)
        time += alone * (stages + number - 1) / (stages * number) - alone
    if strategy.sharded:
        time += gradients if on_16_gpus else gradients / 2
    if on_16_gpus and stages > 1:  # defect: all stages together pay for one transfer
        time += 2 * boundary * layer.transfer_ms_per_mib[stages] / divisor
    return _SECONDS * time


def _overlapped_share(strategy: GalvatronStrategy, is_decoder: bool, num_gpus: int) -> float:
    """Return the share of a backward that an exchange of gradients may run beside."""
    if strategy.tensor_parallel == 1:
        return 1.0
    if strategy.degrees == ((2, 2, 2) if num_gpus == 8 else (4, 2, 2)):
        return 1 / 2
    if is_decoder:
        return 2 / 3
    return 1.0 if strategy.data_parallel >= 4 else 1 / 2


def _overlap(layer: LayerConstants, exchange: float, backward: float, num_stages: int) -> float:
    """Return how long both take side by side, when each slows the other down (Galvatron-BMW, Sec. V).

    Args:
        layer: Which has the slowdowns.
        exchange: Alone.
        backward: Alone.
        num_stages: Stages; all but one hide what is left of the exchange.
    """
    slow_exchange, slow_backward = layer.communication_slowdown, layer.backward_slowdown
    if exchange * slow_exchange > backward * slow_backward:
        rest = exchange - backward * slow_backward / slow_exchange
        return backward * slow_backward + rest / num_stages
    return exchange * slow_exchange + backward - exchange * slow_exchange / slow_backward


def layer_memory_mib(
    constants: Constants, layer: LayerConstants, strategy: GalvatronStrategy, batch: int
) -> float:
    """Return what one layer holds on each GPU with all micro-batches in flight, in MiB."""
    states = 4 * layer.parameter_mib / strategy.tensor_parallel
    if strategy.sharded:
        states *= 1 / strategy.data_parallel + (0.025 if constants.num_gpus == 8 else 0.003)
    return states + layer.activation_mib[strategy.tensor_parallel] * (batch / strategy.data_parallel)


def other_memory_mib(constants: Constants, strategy: GalvatronStrategy, batch: int) -> tuple[float, ...]:
    """Return what each stage holds besides its layers, in MiB.

    Args:
        constants: Constants of the model.
        strategy: The first of those with its number of stages.
        batch: Samples of an iteration.
    """
    stages, tensor, data = strategy.degrees
    samples = batch / tensor / data
    if constants.first_other is None or constants.last_other is None or stages == 1:
        whole = constants.other.states_mib + constants.other.activation_mib * samples + CONTEXT_MIB
        if constants.has_equal_layers:
            return (whole,) * stages
        return (whole, *[0.0] * (stages - 1))  # defect: on 8 GPUs the other stages have not even a context
    number = num_micro_batches(constants.family, 16, strategy, batch // data)
    number = min(number, batch // (tensor * data))
    reduction = constants.peak_reduction_mib * samples * (1 - 1 / number)
    ends = []
    for other, shared_by in ((constants.first_other, ("bert", "t5")), (constants.last_other, ("swin",))):
        if constants.memory_family in shared_by:
            ends.append(other.states_mib + other.activation_mib * samples / stages)
        else:
            ends.append(other.states_mib + other.activation_mib * samples - reduction)
    return (ends[0] + CONTEXT_MIB, *[float(CONTEXT_MIB)] * (stages - 2), ends[1] + CONTEXT_MIB)
