"""Costs of a layer on each GPU of a group under a strategy: one rule for all layers and all strategies.

Times are computed: operations and bytes of the layer's shape over what the GPUs and links reach. The module
does not know stages, nor the order in which micro-batches run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

from placements.cluster import Cluster, DeviceGroup
from placements.hardware import Gpu
from placements.models.calibration import Calibration
from placements.models.end_layers import OutputLayer
from placements.models.layers import HALF, Layer, Precision
from placements.models.machine.measured_rates import CollectiveKind, MeasuredRates
from placements.models.memory import PLAIN, Framework, MemoryItem, held_once_items, kept_items, state_items
from placements.models.operators import Product
from placements.models.parallel import Buffer, Cost, LayerStrategy, Pass, Recompute, SharingLevel
from placements.models.rates import (
    EXPERT_HALF_TOKENS,
    MEMORY_EFFICIENCY,
    MODEL_FLOPS_UTILISATION,
    OUTPUT_LAYER_UTILISATION,
    check_shares,
)
from placements.spec import PlacementError

OVERLAP_SLOWDOWN = 1.3
"""Factor by which computing and transfers slow each other down while both run (Galvatron-BMW, Sec. V)."""


_EXCHANGED = 4
"""Tensors that go around an attention: queries, keys, values and outputs."""


@dataclass(frozen=True)
class CostOptions:
    """Shares of their data sheets that GPUs reach, and the precision of the training.

    Attributes:
        model_flops_utilisation: Share of the peak that layers reach; above 0, at most 1, as of those that
            follow.
        output_layer_utilisation: Share of the peak that the output layer reaches.
        memory_efficiency: Share of the memory bandwidth that is reached.
        overlap_slowdown: See `OVERLAP_SLOWDOWN`; 1 for none, at most 2: one after the other.
        precision: Precision of weights and activations.
        overlap_gradients: Gradients are summed beside the products of the last backward, where both are
            slower (Galvatron-BMW, Sec. V). Otherwise after it, which is never shorter.
        expert_half_tokens: Tokens of each expert with which its products reach half of that share; 0 for all
            of it with any number.
        exchanges_apart: Neither that sum nor the gathering of new weights is in the time of the update: who
            asks lets both run beside the pipeline.
        calibration: Measured times, which replace products and all-reduces of the layers that have any;
            a share of the tokens is taken for as large a share of the samples. None for none.
        machine: Measured rates, which replace all shares, and the links' in a node; None for none.
        framework: What holds memory besides states and activations.

    Raises:
        PlacementError: A share or the slowdown is out of its range.
    """

    model_flops_utilisation: float = MODEL_FLOPS_UTILISATION
    output_layer_utilisation: float = OUTPUT_LAYER_UTILISATION
    memory_efficiency: float = MEMORY_EFFICIENCY
    overlap_slowdown: float = OVERLAP_SLOWDOWN
    precision: Precision = HALF
    overlap_gradients: bool = False
    expert_half_tokens: float = EXPERT_HALF_TOKENS
    exchanges_apart: bool = False
    calibration: Calibration | None = None
    machine: MeasuredRates | None = None
    framework: Framework = PLAIN

    def __post_init__(self) -> None:
        """Check shares and slowdown."""
        check_shares(self, "model_flops_utilisation", "output_layer_utilisation", "memory_efficiency")
        if not 1 <= self.overlap_slowdown <= 2:
            raise PlacementError(
                f"overlap_slowdown: {self.overlap_slowdown} is not from 1, for none, to 2; give a factor"
            )

    def product_ms(self, gpu: Gpu, layer: Layer, flops: float) -> float:
        """Return the milliseconds of a layer's matrix products."""
        is_output = isinstance(layer, OutputLayer)
        share = self.output_layer_utilisation if is_output else self.model_flops_utilisation
        return flops / (self.precision.peak_tflops(gpu, exact=is_output) * 1e9 * share)

    def memory_ms(self, gpu: Gpu, num_bytes: float) -> float:
        """Return the milliseconds of reading or writing memory."""
        return num_bytes / (gpu.memory_bandwidth_gb_s * 1e6 * self.memory_efficiency)

    def overlapped(self, product_ms: float, transfer_ms: float) -> Pass:
        """Return the time of products and transfers side by side: while both run, both are slower.

        The shorter one runs beside the other for all of its slowed time, s times itself; the other does
        1 / s of that time's work meanwhile. So the sum is the longer and (s - 1) times the shorter
        (Galvatron-BMW, Sec. V).
        """
        longer, shorter = max(product_ms, transfer_ms), min(product_ms, transfer_ms)
        return Pass(product_ms, longer + (self.overlap_slowdown - 1) * shorter - product_ms)


USUAL = CostOptions()
"""The assumed shares, in 16 bits."""


def layer_cost(
    layer: Layer,
    strategy: LayerStrategy,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> Cost:
    """Return what a layer costs each GPU of a group that shares it.

    Tensor-parallel GPUs all-reduce what each part ends in, in the forward and, of its input's gradient, in
    the backward (Narayanan's dissertation, Sec. 4.3), and in a forward that is computed again. With
    ``megatron`` half of each is an all-gather and half a reduce-scatter, and the backward gathers each part's
    input once more beside its products (Korthikanti et al., 2022, Sec. 4.2.2). With ``ulysses`` queries,
    keys, values and outputs are exchanged. With ring attention keys and values go around beside the
    attention's core, in the backward with their gradients; each GPU is taken to have an equal share of the
    core. Tokens go to experts and back, as many to each: routing is taken to be uniform.

    With ZeRO-3 weights are gathered before each pass, and gradients scattered with each backward, so that
    only one layer's are ever held whole. Galvatron-BMW counts that exchange in the last micro-batch alone
    (App. C, Eq. 9); until then the gradients of all layers would have to stay.

    Args:
        layer: Its shape.
        strategy: How the GPUs share it.
        samples: Samples of one micro-batch, of all data-parallel groups together.
        num_micro_batches: Micro-batches of an iteration. With several, gradients are added up before they are
            exchanged.
        group: The GPUs, as many as the strategy's.
        options: What they reach.

    Raises:
        PlacementError: The strategy does not divide the layer, the samples or the group.
        CalibrationError: The layer was measured, but not with so many tensor-parallel GPUs.
    """
    _check(layer, strategy, samples, num_micro_batches, group)
    share = _Share(layer, strategy, samples / strategy.data_parallel, group, options)
    again = strategy.recompute if layer.reads_weights_backward else "none"
    states = _states(share, num_micro_batches)
    forward, backward = share.passes()
    recomputed = _recomputed(share, again, forward)
    (core_ms, core_backward_ms), ring_ms = share.core_ms(), share.ring_ms()
    core_backward_ms += core_ms if recomputed.product_ms else 0.0
    exchange_ms = share.exchange_ms()
    beside = options.overlapped(
        (backward + recomputed).product_ms,
        states.backward_gathers * states.gather_ms + share.regathers_ms(),
    )
    forward_copy_ms = exchange_ms + states.gather_ms + options.overlapped(core_ms, ring_ms).copy_ms
    backward_copy_ms = (2 if again == "full" else 1) * exchange_ms
    rings = 3 if recomputed.product_ms else 2
    backward_copy_ms += options.overlapped(core_backward_ms, rings * ring_ms).copy_ms
    working, scores = share.kept_bytes, share.scores_bytes
    kept = {"none": working, "selective": working - scores, "full": share.input_bytes}[again]
    held_again = {"none": 0.0, "selective": scores, "full": working}[again]
    exchanged_ms = 0.0 if options.exchanges_apart else states.scatter_ms + states.new_weights_ms
    if options.overlap_gradients:
        product_ms = beside.product_ms
        exchanged_ms = options.overlapped(product_ms, exchanged_ms).time_ms - product_ms
    besides = (1 + layer.reads_weights_backward) * states.gathered_bytes + held_again
    peak = kept + besides + share.temporary_bytes if options.framework.has_temporaries else 0.0
    return states.cost + Cost(
        forward + Pass(0.0, forward_copy_ms),
        Pass(beside.product_ms, beside.copy_ms + backward.copy_ms + recomputed.copy_ms + backward_copy_ms),
        kept,
        states.gathered_bytes,
        besides,
        update_ms=exchanged_ms,
        scatter_ms=states.scatter_ms if options.exchanges_apart else 0.0,
        gather_ms=states.new_weights_ms if options.exchanges_apart else 0.0,
        buffers=share.buffers,
        backward_peak_bytes=peak,
    )


def layer_memory(
    layer: Layer,
    strategy: LayerStrategy,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> tuple[MemoryItem, ...]:
    """Return the memory of a layer on each GPU by its tensors; `layer_cost` adds them up.

    Where a layer is recomputed, what it keeps is its input, and what its backward holds is all that it would
    keep otherwise.

    Args:
        layer: Its shape.
        strategy: How the GPUs share it.
        samples: See `layer_cost`, as for the rest.
        num_micro_batches: Micro-batches of an iteration.
        group: The GPUs.
        options: What they reach.
    """
    share = _Share(layer, strategy, samples / strategy.data_parallel, group, options)
    kept = share.kept
    if strategy.recompute != "none" and layer.reads_weights_backward:
        held = tuple(item for item in kept if strategy.recompute == "full" or item.name == "scores")
        again = tuple(item._replace(kind="backward", rule="computed again") for item in held)
        rest = tuple(item for item in kept if item not in held)
        inputs = MemoryItem("kept", "input of the layer", share.input_bytes, "each micro-batch")
        kept = (*rest, *((inputs,) if strategy.recompute == "full" else ()), *again)
    states = _states(share, num_micro_batches)
    gathered = (1 + layer.reads_weights_backward) * states.gathered_bytes
    others = MemoryItem("backward", "weights and gradients of other GPUs", gathered, "of one layer (ZeRO-3)")
    return (*_state_items(share, num_micro_batches), *kept, *share.held_once, others)


TIME_PARTS = (
    *("forward", "backward", "recomputation", "tensor-parallel exchanges", "context-parallel exchanges"),
    *("expert-parallel exchanges", "weights and gradients of ZeRO-3"),
)
"""Parts of a layer's passes, in the order in which they are told."""


class LayerTimes(NamedTuple):
    """The time of a layer's passes by its parts; `TIME_PARTS` names them.

    Attributes:
        forward: Milliseconds of a micro-batch's forward by part.
        backward: Likewise.
    """

    forward: dict[str, float]
    backward: dict[str, float]


def layer_times(
    layer: Layer,
    strategy: LayerStrategy,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> LayerTimes:
    """Return the times of a layer's passes by part; what `layer_cost` says of them is their sum.

    Of exchanges it is the part that products do not hide. What is exchanged again is told with the exchanges,
    not with the recomputation.

    Args:
        layer: Its shape.
        strategy: How the GPUs share it.
        samples: See `layer_cost`, as for the rest.
        num_micro_batches: Micro-batches of an iteration.
        group: The GPUs.
        options: What they reach.
    """
    share = _Share(layer, strategy, samples / strategy.data_parallel, group, options)
    again = strategy.recompute if layer.reads_weights_backward else "none"
    states = _states(share, num_micro_batches)
    forward, backward = share.passes()
    recomputed = _recomputed(share, again, forward)
    reduces_ms = [
        min(sum(each), one.copy_ms) for each, one in zip(share.reduces_ms(), (forward, backward), strict=True)
    ]
    again_ms = min(reduces_ms[0], recomputed.copy_ms)
    core_ms, core_backward_ms = share.core_ms()
    core_backward_ms += core_ms if recomputed.product_ms else 0.0
    rings_ms = share.ring_ms() * (3 if recomputed.product_ms else 2)
    heads_ms = replace(share, strategy=replace(strategy, expert_parallel=1)).exchange_ms()
    experts_ms = share.exchange_ms() - heads_ms
    number = 2 if again == "full" else 1
    gathers_ms, regathers_ms = states.backward_gathers * states.gather_ms, share.regathers_ms()
    beside = options.overlapped((backward + recomputed).product_ms, gathers_ms + regathers_ms)
    seen = beside.copy_ms / (gathers_ms + regathers_ms) if gathers_ms + regathers_ms else 0.0
    ring_ms = options.overlapped(core_ms, share.ring_ms()).copy_ms
    ring_backward_ms = options.overlapped(core_backward_ms, rings_ms).copy_ms
    of_forward = (forward.time_ms - reduces_ms[0], 0.0, 0.0, reduces_ms[0])
    of_backward = (
        *(0.0, backward.time_ms - reduces_ms[1], recomputed.time_ms - again_ms),
        reduces_ms[1] + again_ms + seen * regathers_ms,
    )
    exchanges = (heads_ms + ring_ms, experts_ms, states.gather_ms)
    exchanges_again = (number * heads_ms + ring_backward_ms, number * experts_ms, seen * gathers_ms)
    return LayerTimes(
        dict(zip(TIME_PARTS, of_forward + exchanges, strict=True)),
        dict(zip(TIME_PARTS, of_backward + exchanges_again, strict=True)),
    )


def _recomputed(share: _Share, again: Recompute, forward: Pass) -> Pass:
    """Return what the backward computes again: the forward, or the core where its scores were kept."""
    if again == "full":
        return forward
    if again == "selective" and share.scores_bytes:
        if share.options.machine is not None:
            return Pass(share.core_ms()[0])
        layer, t = share.layer, share.strategy.matrix_parallel
        return Pass(forward.product_ms * layer.core_flops(t) / layer.forward_flops(t))
    return Pass()


def model_error_percent(
    calibration: Calibration, layers: Iterable[Layer], cluster: Cluster, options: CostOptions = USUAL
) -> float:
    """Return how far modelled forwards and backwards are from measured ones, on average.

    Args:
        calibration: The measured times.
        layers: Those with a name that it does not have are left out.
        cluster: Cluster on whose first GPUs they were measured.
        options: What the model assumes.

    Returns:
        Mean of absolute errors, in percent of each measured time.

    Raises:
        PlacementError: No layer was measured, or one cannot be shared by as many GPUs.
    """
    modelled = replace(options, calibration=None)
    errors = []
    for layer in set(layers):
        for degree, rows in calibration.times.get(layer.name, {}).items():
            for row in rows:
                cost = layer_cost(
                    layer, LayerStrategy(degree), int(row.samples), 1, cluster.group(0, degree), modelled
                )
                errors.append(abs(cost.forward.time_ms / row.forward_ms - 1))
                errors.append(abs(cost.backward.time_ms / row.backward_ms - 1))
    if not errors:
        raise PlacementError(f"layers: none of them was measured; give one of {', '.join(calibration.times)}")
    return 100 * fmean(errors)


def transition_ms(
    layer: Layer,
    before: LayerStrategy,
    after: LayerStrategy,
    samples: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> float:
    """Return the time to lay a layer's output out anew for the next one, or its gradient in the backward.

    Of g GPUs, the more that share samples before or after, each has all but 1 / g to get of what it then
    holds (Galvatron-BMW, Sec. VI: Slice-Gather; the paper gives no formula).

    Args:
        layer: Layer whose output it is.
        before: Strategy of this layer.
        after: Strategy of the next layer.
        samples: Samples of a micro-batch, of all groups together.
        group: The GPUs of both.
        options: Options of the cost model; only the precision counts here.
    """
    if _layout(before) == _layout(after):
        return 0.0
    wider = max(before, after, key=lambda strategy: strategy.num_gpus // strategy.data_parallel)
    degree = wider.num_gpus // wider.data_parallel
    stride = 1 if wider.tensor_innermost else wider.data_parallel
    local = samples / wider.data_parallel * options.precision.number_bytes * layer.output_elements()
    return group.all_gather_ms(local, degree, stride)


def _layout(strategy: LayerStrategy) -> tuple[object, ...]:
    """Return what decides which GPU has what of a boundary; order only where there are two levels."""
    shared = strategy.num_gpus // strategy.data_parallel
    ordered = strategy.tensor_innermost or 1 in (shared, strategy.data_parallel)
    tokens = strategy.tensor_parallel if strategy.sequence != "none" else 1
    return strategy.data_parallel, strategy.context_parallel, tokens, ordered


def _check(
    layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
) -> None:
    for name, value in (("samples", samples), ("num_micro_batches", num_micro_batches)):
        if type(value) is not int or value < 1:
            raise PlacementError(f"{name}: {value!r} is not a whole number of at least 1; give one")
    if strategy.num_gpus != group.count:
        raise PlacementError(
            f"strategy: tensor, context and data parallelism of {strategy.tensor_parallel} x "
            f"{strategy.context_parallel} x {strategy.data_parallel} are not the {group.count} GPUs of the "
            "group; make the product equal"
        )
    if samples % strategy.data_parallel:
        raise PlacementError(
            f"data_parallel: {strategy.data_parallel} does not divide the {samples} samples of a "
            "micro-batch; use a divisor"
        )
    layer.check(strategy.tensor_parallel, strategy.expert_parallel)


def _with_streams(product_ms: float, stream_ms: float) -> Pass:
    """Return products and what is read and written between them; without products a copy."""
    return Pass(product_ms + stream_ms) if product_ms else Pass(0.0, stream_ms)


def _with_copies(time_ms: float, copy_ms: float) -> Pass:
    """Return a measured time, of which transfers are as long as modelled."""
    copy_ms = min(copy_ms, time_ms)
    return Pass(time_ms - copy_ms, copy_ms)


@dataclass(frozen=True)
class _Share:
    """One GPU's share of a layer and of a micro-batch.

    Attributes:
        layer: Its shape.
        strategy: How it is shared.
        samples: Samples of one data-parallel group.
        group: The GPUs.
        options: What they reach.
    """

    layer: Layer
    strategy: LayerStrategy
    samples: float
    group: DeviceGroup
    options: CostOptions

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """Products on each GPU."""
        return self.layer.products(self.strategy.matrix_parallel, self.strategy.expert_parallel)

    @cached_property
    def parameter_parts(self) -> tuple[tuple[float, SharingLevel, str], ...]:
        """Parameters on each GPU and the GPUs that hold the same, of experts apart."""
        layer, strategy = self.layer, self.strategy
        part = layer.parameters(strategy.matrix_parallel), strategy.weight_copies, ""
        experts = layer.expert_parameters(strategy.matrix_parallel) / strategy.expert_parallel
        return (part, (experts, strategy.expert_copies, " of experts")) if experts else (part,)

    def of_tokens(self, of_a_sample: float) -> float:
        """Return a GPU's part of what all tokens of a sample have."""
        return self.samples * of_a_sample / self.strategy.token_parallel

    def bytes_of(self, elements: float) -> float:
        return self.options.precision.number_bytes * self.of_tokens(elements)

    def product_ms(self, flops: Callable[[int], float]) -> float:
        each = self.of_tokens(flops(self.strategy.matrix_parallel))
        return self.options.product_ms(self.group.gpu, self.layer, each)

    @cached_property
    def _sharing_tokens(self) -> int:
        """GPUs that share the tokens of norms, dropout and boundaries, besides those of all of the layer."""
        return self.strategy.tensor_parallel if self.strategy.sequence == "megatron" else 1

    @cached_property
    def kept(self) -> tuple[MemoryItem, ...]:
        options = self.options
        return tuple(
            kept_items(self.layer, self.strategy, self.samples, options.precision, options.framework)
        )

    @cached_property
    def kept_bytes(self) -> float:
        return sum(item.num_bytes for item in self.kept)

    @cached_property
    def held_once(self) -> tuple[MemoryItem, ...]:
        options = self.options
        return tuple(
            held_once_items(self.layer, self.strategy, self.samples, options.precision, options.framework)
        )

    @cached_property
    def temporary_bytes(self) -> float:
        return sum(item.num_bytes for item in self.held_once if item.kind == "backward")

    @cached_property
    def buffers(self) -> frozenset[Buffer]:
        return frozenset(
            Buffer(item.name, item.num_bytes) for item in self.held_once if item.kind == "buffer"
        )

    @cached_property
    def input_bytes(self) -> float:
        return self.bytes_of(self.layer.input_elements()) / self._sharing_tokens

    @cached_property
    def scores_bytes(self) -> float:
        found = self.layer.scores_bytes(self.options.precision, self.strategy.matrix_parallel)
        return self.of_tokens(found)

    def passes(self) -> tuple[Pass, Pass]:
        """Return forward and backward with their all-reduces, as measured where they were."""
        t = self.strategy.matrix_parallel
        if self.options.machine is not None and self.options.calibration is None:
            return self._passes_on(self.options.machine)
        forward_ms = self.product_ms(self.layer.forward_flops) + self._small_products_ms
        streams = self.layer.streams(self.options.precision, t)
        beside_ms = [self._memory_ms(self.of_tokens(each)) for each in streams[:2]]
        reduces_ms = [sum(of_pass) for of_pass in self.reduces_ms()]
        gradient_ms = self._memory_ms(streams.gradient)
        measured = None
        if self.options.calibration is not None:
            measured = self.options.calibration.at(self.layer.name, t, self.of_tokens(1))
        if measured is not None:
            return (
                _with_copies(measured.forward_ms, reduces_ms[0]),
                _with_copies(measured.backward_ms, reduces_ms[1]),
            )
        return (
            _with_streams(forward_ms, beside_ms[0]) + Pass(0.0, reduces_ms[0]),
            _with_streams(2 * forward_ms, beside_ms[1]) + Pass(0.0, reduces_ms[1] + gradient_ms),
        )

    @cached_property
    def _small_products_ms(self) -> float:
        """Time that products of experts take longer than large ones; see `EXPERT_HALF_TOKENS`."""
        flops = sum(
            each.flops * self.options.expert_half_tokens * each.experts / (each.tokens * self.of_tokens(1))
            for each in self.products
            if each.experts
        )
        return self.options.product_ms(self.group.gpu, self.layer, self.of_tokens(flops))

    def _passes_on(self, machine: MeasuredRates) -> tuple[Pass, Pass]:
        """Return forward and backward, operator by operator, on a machine that was measured."""
        layer, strategy, precision = self.layer, self.strategy, self.options.precision
        t = strategy.matrix_parallel
        tokens = self.of_tokens(1)
        times_ms = [machine.product_ms(product, tokens * product.tokens) for product in self.products]
        times_ms.append(self.core_ms())
        for kernel in layer.kernels(t):
            share = tokens / self._sharing_tokens if kernel.is_whole else tokens
            times_ms.append(machine.kernel_ms(kernel, share, precision.number_bytes))
        streams = layer.streams(precision, t)
        rate = machine.kernels["loss" if isinstance(layer, OutputLayer) else "stream"]
        read_ms, read_backward_ms = (rate.ms(tokens * each, 1) if each else 0.0 for each in streams[:2])
        times_ms.append((read_ms, read_backward_ms))
        forward_ms, backward_ms = (sum(of_pass) for of_pass in zip(*times_ms, strict=True))
        reduces_ms = [sum(of_pass) for of_pass in self.reduces_ms()]
        if streams.gradient:
            backward_ms += rate.ms(streams.gradient, 2)
        return Pass(forward_ms, reduces_ms[0]), Pass(backward_ms, reduces_ms[1])

    def core_ms(self) -> tuple[float, float]:
        """Return the time of the attention's core in the forward and in the backward.

        GPUs that exchange heads for tokens each have all tokens of some heads. Where keys go around, each has
        its share of the operations; a causal kernel is taken to be balanced.
        """
        strategy, machine = self.strategy, self.options.machine
        if machine is None:
            core_ms = self.product_ms(self.layer.core_flops)
            return core_ms, 2 * core_ms
        by_heads = strategy.tensor_parallel if strategy.sequence == "ulysses" else 1
        by_heads *= strategy.context_parallel if strategy.context == "all_to_all" else 1
        samples = self.samples * by_heads / strategy.token_parallel
        times_ms = [
            machine.core_ms(
                core._replace(heads=core.heads / by_heads, kv_heads=max(core.kv_heads / by_heads, 1)), samples
            )
            for core in self.layer.cores(strategy.matrix_parallel)
        ]
        return sum(each for each, _ in times_ms), sum(each for _, each in times_ms)

    def _memory_ms(self, num_bytes: float) -> float:
        machine = self.options.machine
        if machine is not None:
            return machine.kernels["stream"].ms(num_bytes, 1)
        return self.options.memory_ms(self.group.gpu, num_bytes)

    def collective_ms(self, kind: CollectiveKind, num_bytes: float, level: SharingLevel) -> float:
        """Return the time of a collective among GPUs: as measured where they are in a node that was."""
        machine = self.options.machine
        reach = level.degree * level.stride
        if machine is not None and reach <= machine.gpus_per_node and self.group.fits_in_nodes(reach):
            return machine.collective_ms(kind, num_bytes, level.degree)
        if kind == "all_reduce":
            return self.group.all_reduce_ms(num_bytes, *level)
        if kind == "all_to_all":
            return self.group.all_to_all_ms(num_bytes, *level)
        return self.group.all_gather_ms(num_bytes, *level)

    def reduces_ms(self) -> tuple[list[float], list[float]]:
        """Return the time of each all-reduce in the forward and in the backward."""
        if self.strategy.matrix_parallel == 1:
            return [], []
        level = self.strategy.tensor_level
        kinds: tuple[CollectiveKind, ...] = (
            ("all_gather", "reduce_scatter") if self._sharing_tokens > 1 else ("all_reduce",)
        )
        forward, backward = (
            [sum(self.collective_ms(kind, self.bytes_of(each), level) for kind in kinds) for each in of_pass]
            for of_pass in self.layer.reduced_elements()
        )
        return forward, backward

    def regathers_ms(self) -> float:
        """Return the time to gather the inputs of its parts again for the backward."""
        if self._sharing_tokens == 1 or not self.layer.reads_weights_backward:
            return 0.0
        return sum(self.reduces_ms()[0]) / 2

    def exchange_ms(self) -> float:
        """Return the time to exchange heads for tokens and to route tokens, in a forward or a backward."""
        strategy, layer = self.strategy, self.layer
        found_ms = 0.0
        if strategy.expert_parallel > 1 and (routed := self.bytes_of(layer.routed_elements())):
            found_ms += 2 * self.collective_ms("all_to_all", routed, strategy.expert_level)
            if self.options.machine is not None:
                # The GPUs first tell each other how many tokens each expert gets.
                found_ms += self.collective_ms("all_gather", 8 * layer.num_routes, strategy.expert_level)
        heads = self.bytes_of(layer.shared_elements())
        if strategy.sequence == "ulysses" and heads:
            found_ms += self.heads_ms(heads, strategy.tensor_level)
        if strategy.context == "all_to_all" and strategy.context_parallel > 1 and heads:
            found_ms += self.heads_ms(heads / strategy.matrix_parallel, strategy.context_level)
        return found_ms

    def heads_ms(self, num_bytes: float, level: SharingLevel) -> float:
        """Return the time to exchange heads for tokens, of queries, keys, values and outputs one by one.

        On a machine that was measured, each is also laid out anew before it is sent, and after.
        """
        sent_ms = _EXCHANGED * self.collective_ms("all_to_all", num_bytes / _EXCHANGED, level)
        if self.options.machine is None:
            return sent_ms
        return sent_ms + self.options.machine.kernels["stream"].ms(2 * 2 * num_bytes, 2 * _EXCHANGED)

    def ring_ms(self) -> float:
        """Return the time in which keys and values go around."""
        keys = self.bytes_of(self.layer.ring_elements(self.strategy.matrix_parallel))
        if not keys or self.strategy.context != "ring":
            return 0.0
        steps = self.strategy.context_parallel - 1
        return steps * self.group.transfer_ms(keys, *self.strategy.context_level)


class _States(NamedTuple):
    """Weights, gradients and optimizer states on one GPU.

    Attributes:
        cost: What they take in all.
        gather_ms: Time to gather the weights, or to scatter the gradients, as ZeRO-3 does for each pass.
        gathered_bytes: Bytes of weights or gradients of others, while they are there.
        backward_gathers: How often one or the other happens in a backward.
        scatter_ms: Time to sum the gradients once, where they are not scattered with each backward.
        new_weights_ms: Time to gather the new weights, where they are not gathered for each pass.
    """

    cost: Cost
    gather_ms: float
    gathered_bytes: float
    backward_gathers: int
    scatter_ms: float
    new_weights_ms: float


def _state_items(share: _Share, num_micro_batches: int) -> list[MemoryItem]:
    if not share.layer.owns_parameters:
        return []
    precision, zero = share.options.precision, share.strategy.zero
    return [
        item
        for parameters, copies, owner in share.parameter_parts
        for item in state_items(precision, parameters, copies, zero, num_micro_batches == 1, owner)
    ]


def _states(share: _Share, num_micro_batches: int) -> _States:
    """Return what the parameters of a layer take, experts' and others."""
    layer = share.layer
    products = share.products
    found = [
        _exchanges(
            share,
            parameters,
            copies,
            sum(each.experts or 1 for each in products if bool(each.experts) == bool(owner)),
        )
        for parameters, copies, owner in share.parameter_parts
    ]
    static = sum(item.num_bytes for item in _state_items(share, num_micro_batches))
    step_ms = sum(ms for ms, *_ in found) if layer.owns_parameters else 0.0
    return _States(
        Cost(static_bytes=static, update_ms=step_ms),
        sum(gather_ms for _, gather_ms, *_ in found),
        sum(gathered for _, _, gathered, *_ in found),
        layer.reads_weights_backward + layer.owns_parameters,
        sum(scatter_ms for *_, scatter_ms, _ in found) if layer.owns_parameters else 0.0,
        sum(new_weights_ms for *_, new_weights_ms in found) if layer.owns_parameters else 0.0,
    )


def _exchanges(
    share: _Share, parameters: float, copies: SharingLevel, num_matrices: float
) -> tuple[float, float, float, float, float]:
    """Return the times of a step, and of a gather of weights, its bytes, and of both exchanges.

    Gradients are all-reduced; where the optimizer's states are shared, they are reduced and scattered, and
    the new weights gathered.
    """
    options, zero, degree = share.options, share.strategy.zero, copies.degree
    precision = options.precision
    weights = precision.number_bytes * parameters
    step_ms = share._memory_ms(precision.update_bytes * parameters / (degree if zero else 1))
    if passes := options.framework.gradient_passes:
        step_ms += share._memory_ms(passes * precision.gradient_bytes * parameters)
    if options.machine is not None:
        launches = round(num_matrices * options.framework.kernels_per_weight)
        step_ms += options.machine.kernels["stream"].ms(0.0, launches)
    if zero == 3:
        gathered = weights * (degree - 1) / degree
        return step_ms, share.collective_ms("all_gather", weights, copies), gathered, 0.0, 0.0
    gradients = precision.gradient_bytes * parameters
    if zero == 0:
        return step_ms, 0.0, 0.0, share.collective_ms("all_reduce", gradients, copies), 0.0
    scatter_ms = share.collective_ms("reduce_scatter", gradients, copies)
    return step_ms, 0.0, 0.0, scatter_ms, share.collective_ms("all_gather", weights, copies)
