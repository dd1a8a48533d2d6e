"""What the parts of a GPT cost one GPU where several share them: tensor parallel, data parallel, ZeRO.

A layer's GPUs are equal data-parallel groups; each computes its share of the micro-batch's samples, and the
GPUs of a group share the layer (tensor parallel). The module does not know a stage or a device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from placements.models.rates import (
    Rates,
    layer_backward_ms,
    layer_forward_ms,
    lookup_ms,
    output_backward_ms,
    output_forward_ms,
    table_gradient_ms,
)
from placements.models.transformer import (
    HALF_BYTES,
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
from placements.spec import PlacementError

OVERLAP_SLOWDOWN = 1.3
"""By how much computing and transfers slow each other down while both run (Galvatron-BMW, Sec. V)."""

_UPDATE_BYTES = 28
"""Bytes per parameter of an optimizer step: the gradient and three 32-bit states read (2 + 12), these states
and the 16-bit weight written (12 + 2)."""


@dataclass(frozen=True)
class LayerStrategy:
    """How the GPUs of a stage share a layer.

    Attributes:
        tensor_parallel: GPUs that share the layer's matrices, t.
        data_parallel: Groups of so many, d, each with its share of the samples.
        zero: What the groups hold once and not each: 0 nothing; 2 the optimizer's states, and gradients
            where there is one micro-batch; 3 everything (ZeRO's stages; Galvatron-BMW's SDP).
        checkpoint: The layer keeps only its input, and its backward runs its forward again.
    """

    tensor_parallel: int
    data_parallel: int
    zero: int = 0
    checkpoint: bool = False


@dataclass(frozen=True)
class VocabularyStrategy:
    """How the GPUs of a stage share the embedding or the output layer.

    Attributes:
        parallel: GPUs that share a sample.
        by_sequence: They share its tokens, each with the whole table, and not the table's rows.
        zero: See `LayerStrategy`, among all GPUs that hold the same rows.
    """

    parallel: int = 1
    by_sequence: bool = False
    zero: int = 0

    @property
    def spread(self) -> int:
        """GPUs that compute the same tokens."""
        return 1 if self.by_sequence else self.parallel


@dataclass(frozen=True)
class Pass:
    """The time of one forward or backward, in parts that depend on the clock more and less.

    Attributes:
        product_ms: Matrix products.
        copy_ms: What it takes besides, for memory and links.
    """

    product_ms: float = 0.0
    copy_ms: float = 0.0

    @property
    def time_ms(self) -> float:
        """All of it."""
        return self.product_ms + self.copy_ms

    def __add__(self, other: Pass) -> Pass:
        """Return the time of one after the other."""
        return Pass(self.product_ms + other.product_ms, self.copy_ms + other.copy_ms)


_NOTHING = Pass()


@dataclass(frozen=True)
class Cost:
    """What some layers cost each GPU.

    Attributes:
        forward: Of one micro-batch.
        backward: Likewise.
        kept_bytes: Held from the forward to the backward.
        forward_bytes: More, held only during the forward.
        backward_bytes: Likewise, during the backward.
        static_bytes: Weights, gradients and the optimizer's states.
        update_ms: Gradients exchanged and weights updated, once after the last micro-batch.
    """

    forward: Pass = _NOTHING
    backward: Pass = _NOTHING
    kept_bytes: float = 0.0
    forward_bytes: float = 0.0
    backward_bytes: float = 0.0
    static_bytes: float = 0.0
    update_ms: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of one after the other; what is held only for a while is not held twice."""
        return Cost(
            self.forward + other.forward,
            self.backward + other.backward,
            self.kept_bytes + other.kept_bytes,
            max(self.forward_bytes, other.forward_bytes),
            max(self.backward_bytes, other.backward_bytes),
            self.static_bytes + other.static_bytes,
            self.update_ms + other.update_ms,
        )


@dataclass(frozen=True)
class Workload:
    """What all layers of a model have in common.

    Attributes:
        config: The model, and a micro-batch of all data-parallel groups together; `recompute` is each
            layer's own, whatever it says.
        rates: What a GPU reaches.
        num_micro_batches: Of an iteration; of several, gradients are added up before they are exchanged.
        overlap_slowdown: See `OVERLAP_SLOWDOWN`; 1 for none, at most 2: one after the other.

    Raises:
        PlacementError: The slowdown is out of its range.
    """

    config: GptConfig
    rates: Rates
    num_micro_batches: int
    overlap_slowdown: float = OVERLAP_SLOWDOWN

    def __post_init__(self) -> None:
        """Check the slowdown."""
        if not 1 <= self.overlap_slowdown <= 2:
            raise PlacementError(
                f"overlap_slowdown: {self.overlap_slowdown} is not from 1, for none, to 2; give a factor"
            )

    def overlapped(self, product_ms: float, transfer_ms: float) -> Pass:
        """Return the time of products and transfers side by side: while both run, both are slower.

        The shorter one runs beside the other for all of its slowed time, s times itself; the other does
        1 / s of that time's work meanwhile. So the sum is the longer and (s - 1) times the shorter
        (Galvatron-BMW, Sec. V).
        """
        longer, shorter = max(product_ms, transfer_ms), min(product_ms, transfer_ms)
        return Pass(product_ms, longer + (self.overlap_slowdown - 1) * shorter - product_ms)

    def of_group(self, groups: int, checkpoint: bool = False) -> GptConfig:
        """Return the model with one group's share of a micro-batch."""
        return replace(
            self.config, micro_batch_size=self.config.micro_batch_size // groups, recompute=checkpoint
        )


def layer_cost(work: Workload, strategy: LayerStrategy) -> Cost:
    """Return what a transformer layer costs.

    Attention and feed-forward part each end in an all-reduce of their output in the forward and of their
    input's gradient in the backward, and in the forward that is computed again. With ZeRO-3 weights are
    gathered before each pass, and gradients scattered with each backward, so that only one layer's are ever
    held whole. Galvatron-BMW counts that exchange in the last micro-batch alone (App. C, Eq. 9); until then
    the gradients of all layers would have to stay.
    """
    t, d, rates = strategy.tensor_parallel, strategy.data_parallel, work.rates
    config = work.of_group(d, strategy.checkpoint)
    states = _states(work, layer_parameters(config) / t, d, strategy.zero)
    reduce_ms = 2 * rates.all_reduce_ms(hidden_bytes(config), t)
    backward = work.overlapped(layer_backward_ms(config, rates) / t, 2 * states.gather_ms)
    working = layer_working_bytes(config, t)
    return states.cost + Cost(
        Pass(layer_forward_ms(config, rates) / t, reduce_ms + states.gather_ms),
        Pass(backward.product_ms, backward.copy_ms + (2 if strategy.checkpoint else 1) * reduce_ms),
        layer_activation_bytes(config) if strategy.checkpoint else working,
        states.gathered_bytes,
        2 * states.gathered_bytes + (working if strategy.checkpoint else 0),
    )


def embedding_cost(work: Workload, strategy: VocabularyStrategy, num_gpus: int) -> Cost:
    """Return what the embedding of tokens and positions costs on each of a stage's GPUs."""
    config, rows, share, sharing = _vocabulary(work, strategy, num_gpus)
    parameters = table_parameters(config, rows) + position_parameters(config)
    states = _states(work, parameters, sharing, strategy.zero)
    sum_ms = work.rates.all_reduce_ms(hidden_bytes(config), strategy.spread)
    return states.cost + Cost(
        Pass(0.0, share * lookup_ms(config, work.rates) + sum_ms + states.gather_ms),
        Pass(0.0, table_gradient_ms(config, work.rates, rows) + states.gather_ms),
        forward_bytes=states.gathered_bytes,
        backward_bytes=states.gathered_bytes,
    )


def output_cost(work: Workload, strategy: VocabularyStrategy, num_gpus: int, tied: bool) -> Cost:
    """Return what the output layer and the loss cost on each of a stage's GPUs.

    Args:
        work: The model.
        strategy: How they share it.
        num_gpus: Of the stage.
        tied: The same GPUs hold the embedding, whose table it is.
    """
    config, rows, share, sharing = _vocabulary(work, strategy, num_gpus)
    states = _states(work, table_parameters(config, rows), sharing, strategy.zero)
    sum_ms = work.rates.all_reduce_ms(hidden_bytes(config), strategy.spread)
    backward = work.overlapped(
        share * output_backward_ms(config, work.rates, rows), (1 if tied else 2) * states.gather_ms
    )
    cost = Cost(
        Pass(share * output_forward_ms(config, work.rates, rows), states.gather_ms),
        Pass(backward.product_ms, backward.copy_ms + sum_ms),
        share * output_activation_bytes(config, rows),
        states.gathered_bytes,
        2 * states.gathered_bytes,
    )
    return cost if tied else cost + states.cost


def _vocabulary(
    work: Workload, strategy: VocabularyStrategy, num_gpus: int
) -> tuple[GptConfig, int, float, int]:
    """Return one group's model, a GPU's rows and share of its tokens, and how many GPUs hold these rows."""
    config = work.of_group(num_gpus // strategy.parallel)
    if strategy.by_sequence:
        return config, config.vocab_size, 1 / strategy.parallel, num_gpus
    return config, math.ceil(config.vocab_size / strategy.parallel), 1.0, num_gpus // strategy.parallel


class _States(NamedTuple):
    """Weights, gradients and optimizer states on one GPU.

    Attributes:
        cost: What they take in all.
        gather_ms: To gather the weights, or to scatter the gradients, as ZeRO-3 does for each pass.
        gathered_bytes: Of the weights or gradients of others, while they are there.
    """

    cost: Cost
    gather_ms: float
    gathered_bytes: float


def _states(work: Workload, parameters: float, sharing: int, zero: int) -> _States:
    """Return what parameters take that so many GPUs hold together.

    With ZeRO-2 gradients stand whole on each GPU while several micro-batches add to them.
    """
    half, whole = HALF_BYTES * parameters, STATIC_BYTES * parameters
    step_ms = work.rates.memory_ms(_UPDATE_BYTES * parameters / (sharing if zero else 1))
    if zero == 3:
        gathered = half * (sharing - 1) / sharing
        gather_ms = work.rates.all_gather_ms(half, sharing)
        return _States(Cost(static_bytes=whole / sharing, update_ms=step_ms), gather_ms, gathered)
    exchange_ms = work.rates.all_reduce_ms(half, sharing)
    on_each = whole if zero == 0 else half * (1 if work.num_micro_batches == 1 else 2)
    static = on_each + (whole - on_each) / sharing
    return _States(Cost(static_bytes=static, update_ms=step_ms + exchange_ms), 0.0, 0.0)
