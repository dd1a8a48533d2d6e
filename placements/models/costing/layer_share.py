"""One GPU's share of a layer and of a micro-batch: times of its products and exchanges, and what it keeps.

The module does not know an optimizer, nor what runs again in a backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from placements.cluster import DeviceGroup
from placements.models.costing.options import CostOptions
from placements.models.costing.overlap import PartProducts, part_ms, parts_of
from placements.models.end_layers import SOFTMAX, OutputLayer
from placements.models.layers import Layer
from placements.models.machine.measured_rates import CollectiveKind, MeasuredRates
from placements.models.machine.sheet_rates import SheetRates
from placements.models.memory import MemoryItem
from placements.models.operators import Product
from placements.models.parallel import Buffer, LayerStrategy, Pass, Recompute, SharingLevel
from placements.models.rates import HOST_US

_EXCHANGED = 4
"""Tensors that go around an attention: queries, keys, values and outputs."""


@dataclass(frozen=True)
class LayerShare:
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
        strategy = self.strategy
        return strategy.with_whole_experts(
            self.layer.products(strategy.matrix_parallel, strategy.expert_parallel)
        )

    @cached_property
    def parameter_parts(self) -> tuple[tuple[float, SharingLevel, str], ...]:
        """Parameters on each GPU and the GPUs that hold the same, of experts apart."""
        layer, strategy = self.layer, self.strategy
        part = layer.parameters(strategy.matrix_parallel), strategy.weight_copies, ""
        experts = layer.expert_parameters(strategy.expert_tensor_parallel) / strategy.expert_parallel
        return (part, (experts, strategy.expert_copies, " of experts")) if experts else (part,)

    @property
    def again(self) -> Recompute:
        """What a backward computes again: nothing where it needs no weights."""
        return self.strategy.recompute if self.layer.reads_weights_backward else "none"

    def of_tokens(self, of_a_sample: float) -> float:
        """Return a GPU's part of what all tokens of a sample have."""
        return self.samples * of_a_sample / self.strategy.token_parallel

    def bytes_of(self, elements: float) -> float:
        """Return the bytes of a GPU's part of what a sample has so many numbers of."""
        return self.options.precision.number_bytes * self.of_tokens(elements)

    def product_ms(self, flops: Callable[[int], float]) -> float:
        """Return the time of products, of a sample's operations by the GPUs that share each matrix."""
        each = self.of_tokens(flops(self.strategy.matrix_parallel))
        return self.options.product_ms(self.group.gpu, self.layer, each)

    @cached_property
    def _sharing_tokens(self) -> int:
        """GPUs that share the tokens of norms, dropout and boundaries, besides those of all of the layer."""
        return self.strategy.tensor_parallel if self.strategy.sequence == "megatron" else 1

    @cached_property
    def kept(self) -> tuple[MemoryItem, ...]:
        """What a micro-batch keeps of the layer where nothing is recomputed."""
        options, tokens = self.options, self.of_tokens(1)
        found = []
        for tensor in self.layer.kept_tensors(options.precision, self.strategy.matrix_parallel):
            share = tokens / self._sharing_tokens if tensor.is_whole else tokens
            size = options.precision.bytes_of(tensor)
            if tensor.name == SOFTMAX:
                size = tensor.numbers * options.framework.softmax_bytes
            found.append(MemoryItem("kept", tensor.name, share * size, "each micro-batch"))
        return tuple(found)

    @cached_property
    def kept_bytes(self) -> float:
        """Bytes of all of that."""
        return sum(item.num_bytes for item in self.kept)

    @cached_property
    def held_once(self) -> tuple[MemoryItem, ...]:
        """What a backward holds for a while, and what all layers of a kind hold once."""
        framework, t = self.options.framework, self.strategy.matrix_parallel
        found = []
        if framework.has_temporaries:
            num_bytes = self.bytes_of(self.layer.backward_numbers(t))
            found.append(
                MemoryItem("backward", "gradients between products", num_bytes, "largest of its parts")
            )
        if framework.has_placeholders:
            products = self.strategy.with_whole_experts(self.layer.products(t))
            for inputs, outputs in sorted({(each.inputs, each.outputs) for each in products}):
                name = f"placeholder of gradients, {inputs:g} x {outputs:g}"
                num_bytes, rule = 2 * inputs * outputs, "2 bytes a number, once for each shape"
                found.append(MemoryItem("buffer", name, num_bytes, rule))
        return tuple(found)

    @cached_property
    def temporary_bytes(self) -> float:
        """Bytes that a backward holds for a while."""
        return sum(item.num_bytes for item in self.held_once if item.kind == "backward")

    @cached_property
    def buffers(self) -> frozenset[Buffer]:
        """What all layers of a kind hold once."""
        return frozenset(
            Buffer(item.name, item.num_bytes) for item in self.held_once if item.kind == "buffer"
        )

    @cached_property
    def input_bytes(self) -> float:
        """Bytes of the layer's input."""
        return self.bytes_of(self.layer.input_elements()) / self._sharing_tokens

    @cached_property
    def scores_bytes(self) -> float:
        """Bytes of the scores that are kept."""
        found = self.layer.scores_bytes(self.options.precision, self.strategy.matrix_parallel)
        return self.of_tokens(found)

    @cached_property
    def rates(self) -> MeasuredRates | SheetRates | None:
        """Rates by operator: as measured; of layers with experts from the data sheet; None for one share."""
        options = self.options
        if options.machine is not None or not self.layer.num_routes:
            return options.machine
        shares = options.model_flops_utilisation, options.memory_efficiency, options.expert_half_tokens
        return SheetRates(self.group.gpu, options.precision, *shares)

    @property
    def host_ms(self) -> tuple[float, float]:
        """Time of the host for the kernels of a forward and of a backward, which are not shorter.

        It counts for layers with experts, which are many small kernels; see `HOST_US` and `Graphs`.
        """
        options, layer, t = self.options, self.layer, self.strategy.matrix_parallel
        is_known = options.machine is not None or options.calibration is not None
        if is_known or not layer.num_routes or options.graphs == "iteration":
            return 0.0, 0.0
        kernels, products, cores = layer.kernels(t), self.products, len(layer.cores(t))
        if options.graphs == "attention":
            # After the router's kernels in order are those of the experts.
            first = next(i for i, kernel in enumerate(kernels) if kernel.name == "router") + 1
            kernels, products, cores = kernels[first:], tuple(each for each in products if each.experts), 0
        others = cores + (2 if self.strategy.expert_parallel > 1 else 0)
        others += len(products) * (1 + options.precision.has_casts)
        forward, backward = (others + sum(kernel.launches[i] for kernel in kernels) for i in (0, 1))
        backward += len(products) + (forward if self.again == "full" else 0)
        return forward * HOST_US / 1e3, backward * HOST_US / 1e3

    @cached_property
    def _sorts(self) -> int:
        """Times that tokens are laid out anew on each way: by GPU, by expert, and for products of 8 bits.

        Products of 8 or 4 bits need a multiple of 16 or 32 tokens of each expert.
        """
        options = self.options
        if options.graphs == "iteration":
            return 1
        return 1 + (self.strategy.expert_parallel > 1) + options.precision.has_casts

    def passes(self) -> tuple[Pass, Pass]:
        """Return forward and backward with their all-reduces, as measured where they were."""
        t = self.strategy.matrix_parallel
        measured = None
        if self.options.calibration is not None:
            measured = self.options.calibration.at(self.layer.name, t, self.of_tokens(1))
        if measured is not None:
            forward, backward = map(_with_copies, measured, map(sum, self.reduces_ms))
            return forward, backward
        if self.rates is not None:
            return self._passes_on(self.rates)
        forward_ms = self.product_ms(self.layer.forward_flops)
        streams = self.layer.streams(self.options.precision, t)
        beside_ms = [self.memory_ms(self.of_tokens(each)) for each in streams[:2]]
        reduces_ms = self.seen_reduces_ms
        gradient_ms = self.memory_ms(streams.gradient)
        # Products of a backward are those of inputs and of weights; an attention's core has inputs alone.
        frozen_ms = forward_ms - self.core_ms()[0] if self.options.frozen_weights else 0.0
        return (
            _with_streams(forward_ms, beside_ms[0]) + Pass(0.0, reduces_ms[0]),
            _with_streams(2 * forward_ms - frozen_ms, beside_ms[1]) + Pass(0.0, reduces_ms[1] + gradient_ms),
        )

    def _passes_on(self, machine: MeasuredRates | SheetRates) -> tuple[Pass, Pass]:
        """Return forward and backward, operator by operator."""
        layer, strategy, precision = self.layer, self.strategy, self.options.precision
        t = strategy.matrix_parallel
        tokens = self.of_tokens(1)
        is_frozen = self.options.frozen_weights
        times_ms = [
            machine.product_ms(product, tokens * product.tokens, is_frozen) for product in self.products
        ]
        times_ms.append(self.core_ms())
        for kernel in layer.kernels(t):
            share = tokens / self._sharing_tokens if kernel.is_whole else tokens
            found_ms = machine.kernels[kernel.kind].passes_ms(kernel, share, precision.number_bytes)
            times_ms += [found_ms] * (self._sorts if kernel.kind == "permute" else 1)
        streams = layer.streams(precision, t)
        rate = machine.kernels["loss" if isinstance(layer, OutputLayer) else "stream"]
        read_ms, read_backward_ms = (rate.ms(tokens * each, 1) if each else 0.0 for each in streams[:2])
        times_ms.append((read_ms, read_backward_ms))
        forward_ms, backward_ms = (sum(of_pass) for of_pass in zip(*times_ms, strict=True))
        reduces_ms = self.seen_reduces_ms
        if streams.gradient:
            backward_ms += rate.ms(streams.gradient, 2)
        return Pass(forward_ms, reduces_ms[0]), Pass(backward_ms, reduces_ms[1])

    def core_ms(self) -> tuple[float, float]:
        """Return the time of the attention's core in the forward and in the backward.

        GPUs that exchange heads for tokens each have all tokens of some heads. Where keys go around, each has
        its share of the operations; a causal kernel is taken to be balanced.
        """
        strategy, machine = self.strategy, self.rates
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

    def memory_ms(self, num_bytes: float) -> float:
        """Return the time of reading or writing memory."""
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

    @cached_property
    def reduces_ms(self) -> tuple[list[float], list[float]]:
        """Time of each all-reduce in the forward and in the backward."""
        if self.strategy.matrix_parallel == 1:
            return [], []
        level = self.strategy.tensor_level
        kinds: tuple[CollectiveKind, ...] = (
            ("all_gather", "reduce_scatter") if self._sharing_tokens > 1 else ("all_reduce",)
        )
        forward, backward = (
            [sum(self.collective_ms(kind, self.bytes_of(each), level) for kind in kinds) for each in of_pass]
            for of_pass in self.layer.reduced_elements(self.strategy.whole_experts)
        )
        return forward, backward

    @cached_property
    def seen_reduces_ms(self) -> tuple[float, float]:
        """Time that all-reduces add to the products of the forward and of the backward."""
        forward, backward = self.reduces_ms
        parts: list[PartProducts | None] = []
        if self.options.overlap_tensor_parallel and self._sharing_tokens > 1:
            parts = parts_of(tuple((each, self._one_product_ms(each)) for each in self.products))
        forward_ms = backward_ms = 0.0
        for part, own_ms, gradient_ms in zip_longest(parts, forward, backward):
            added = own_ms or 0.0, gradient_ms or 0.0
            if part is not None and own_ms is not None:
                added = part_ms(self.options, part, own_ms, self.strategy.tensor_parallel)
            forward_ms, backward_ms = forward_ms + added[0], backward_ms + added[1]
        return forward_ms, backward_ms

    def _one_product_ms(self, product: Product) -> float:
        """Return the time of a product in the forward."""
        if self.rates is not None:
            return self.rates.product_ms(product, self.of_tokens(product.tokens))[0]
        return self.options.product_ms(self.group.gpu, self.layer, self.of_tokens(product.flops))

    def regathers_ms(self) -> float:
        """Return the time to gather the inputs of its parts again for the backward."""
        if self._sharing_tokens == 1 or not self.layer.reads_weights_backward:
            return 0.0
        return sum(self.reduces_ms[0]) / 2

    def exchange_ms(self) -> float:
        """Return the time to exchange heads for tokens, in a forward or a backward."""
        strategy, layer = self.strategy, self.layer
        found_ms = 0.0
        heads = self.bytes_of(layer.shared_elements())
        if strategy.sequence == "ulysses" and heads:
            found_ms += self.heads_ms(heads, strategy.tensor_level)
        if strategy.context == "all_to_all" and strategy.context_parallel > 1 and heads:
            found_ms += self.heads_ms(heads / strategy.matrix_parallel, strategy.context_level)
        return found_ms

    def routing_ms(self) -> float:
        """Return the time to send tokens to their experts and back, in a forward or a backward."""
        strategy, layer = self.strategy, self.layer
        num_gpus = strategy.expert_parallel
        if num_gpus == 1 or not layer.num_routes:
            return 0.0
        level, once = strategy.expert_level, self.options.sends_tokens_once
        sharing = strategy.tensor_parallel if strategy.whole_experts else 1
        routed = self.bytes_of(layer.routed_elements(num_gpus if once else None)) / sharing
        if once and self.options.machine is None:
            num_nodes = self.group.num_nodes(*level)
            to_nodes = self.bytes_of(layer.routed_elements(num_nodes)) / sharing
            return 2 * self.group.all_to_all_ms(routed, *level, to_nodes)
        found_ms = 2 * self.collective_ms("all_to_all", routed, level)
        if self.options.machine is not None:
            # The GPUs first tell each other how many tokens each expert gets.
            found_ms += self.collective_ms("all_gather", 8 * layer.num_routes, level)
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


def _with_streams(product_ms: float, stream_ms: float) -> Pass:
    """Return products and what is read and written between them; without products a copy."""
    return Pass(product_ms + stream_ms) if product_ms else Pass(0.0, stream_ms)


def _with_copies(time_ms: float, copy_ms: float) -> Pass:
    """Return a measured time, of which transfers are as long as modelled."""
    copy_ms = min(copy_ms, time_ms)
    return Pass(time_ms - copy_ms, copy_ms)
