"""One GPU's share of a layer and of a micro-batch: what it keeps, and how long it computes and exchanges.

The module does not know a layer's kind, an optimizer, nor what runs again in a backward.
"""

from __future__ import annotations

from functools import cached_property
from itertools import zip_longest

from placements.cluster import DeviceGroup
from placements.models.costing.options import CostOptions
from placements.models.end_layers import OutputLayer
from placements.models.layers import Layer
from placements.models.machine.measured_rates import CollectiveKind, MeasuredRates
from placements.models.machine.sheet_rates import SheetRates
from placements.models.memory import MemoryItem
from placements.models.operators import SOFTMAX, Product
from placements.models.parallel import Buffer, LayerStrategy, Pass, Recompute, SharingLevel
from placements.models.rates import HOST_US

_EXCHANGED = 4
"""Tensors that go around an attention: queries, keys, values and outputs."""


class LayerShare:
    """One GPU's share of a layer and of a micro-batch.

    Attributes:
        work: Operators of a GPU for each sample.
        samples: Samples, or the share of one, whose tokens the GPU has.
        sharing: GPUs that share the tokens of norms, dropout and boundaries besides.
        again: Recomputation in the backward: none where it needs no weights.
    """

    def __init__(
        self, layer: Layer, strategy: LayerStrategy, samples: int, group: DeviceGroup, options: CostOptions
    ) -> None:
        self.layer, self.strategy, self.group, self.options = layer, strategy, group, options
        self.work = layer.on(
            strategy.matrix_parallel, strategy.expert_parallel, strategy.whole_experts, options.precision
        )
        self.samples = samples / strategy.data_parallel / strategy.token_parallel
        self.sharing = strategy.tensor_parallel if strategy.sequence == "megatron" else 1
        self.again: Recompute = strategy.recompute if layer.reads_weights_backward else "none"

    def bytes_of(self, numbers: float) -> float:
        """Return the bytes of activations of which a sample has so many numbers."""
        return self.options.precision.number_bytes * self.samples * numbers

    @cached_property
    def kept(self) -> list[MemoryItem]:
        """What a micro-batch keeps of the layer where nothing is recomputed."""
        found = []
        for name, num_bytes, is_whole in self.work.kept:
            share = self.samples / self.sharing if is_whole else self.samples
            share *= self.options.framework.softmax_bytes / 4 if name == SOFTMAX else 1
            found.append(MemoryItem("kept", name, share * num_bytes, "each micro-batch"))
        return found

    @property
    def gradients_bytes(self) -> float:
        """Bytes of gradients between products, where they are counted."""
        return self.bytes_of(self.work.gradients) if self.options.framework.has_temporaries else 0.0

    @property
    def buffers(self) -> list[Buffer]:
        """Buffers that layers of a kind hold once: an empty gradient of 2 bytes a number for each shape."""
        if not self.options.framework.has_placeholders:
            return []
        shapes = sorted({(each.inputs, each.outputs) for each in self.work.products})
        return [Buffer(f"placeholder of gradients, {a:g} x {b:g}", 2 * a * b) for a, b in shapes]

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
        options, work = self.options, self.work
        if options.machine is not None or not self.layer.num_routes or options.graphs == "iteration":
            return 0.0, 0.0
        kernels, products, cores = work.kernels, work.products, len(work.cores)
        if options.graphs == "attention":
            # After the router's kernels in order are those of the experts.
            first = next(i for i, kernel in enumerate(kernels) if kernel.name == "router") + 1
            kernels, products, cores = kernels[first:], [each for each in products if each.experts], 0
        others = cores + (2 if self.strategy.expert_parallel > 1 else 0)
        others += len(products) * (1 + options.precision.has_casts)
        forward, backward = (others + sum(kernel.launches[i] for kernel in kernels) for i in (0, 1))
        backward += len(products) + (forward if self.again == "full" else 0)
        return forward * HOST_US / 1e3, backward * HOST_US / 1e3

    def passes(self) -> tuple[Pass, Pass]:
        """Return forward and backward with their all-reduces."""
        if self.rates is not None:
            return self._by_operator(self.rates)
        work, reduces_ms = self.work, self.seen_reduces_ms
        forward_ms = self._flat_ms(work.forward_flops)
        # Products of a backward are those of inputs and of weights; an attention's core has inputs alone.
        frozen_ms = forward_ms - self.core_ms[0] if self.options.frozen_weights else 0.0
        apart = [kernel for kernel in work.kernels if kernel.is_apart]
        numbers = sum(each.forward for each in apart), sum(each.backward for each in apart)
        beside_ms = [self.memory_ms(self.bytes_of(each)) for each in numbers]
        sent_ms = reduces_ms[0], reduces_ms[1] + self.memory_ms(work.gradient_bytes)
        if not forward_ms:
            return Pass(0.0, beside_ms[0] + sent_ms[0]), Pass(0.0, beside_ms[1] + sent_ms[1])
        backward_ms = 2 * forward_ms - frozen_ms
        return Pass(forward_ms + beside_ms[0], sent_ms[0]), Pass(backward_ms + beside_ms[1], sent_ms[1])

    def _by_operator(self, rates: MeasuredRates | SheetRates) -> tuple[Pass, Pass]:
        """Return forward and backward, operator by operator."""
        options, samples = self.options, self.samples
        number_bytes, is_frozen = options.precision.number_bytes, options.frozen_weights
        # Tokens are laid out anew on each way: by GPU, by expert, and for products of 8 or 4 bits, which need
        # a multiple of 16 or 32 tokens of each expert.
        sorts = 1 + (self.strategy.expert_parallel > 1) + options.precision.has_casts
        sorts = 1 if options.graphs == "iteration" else sorts
        times_ms = [rates.product_ms(each, samples * each.tokens, is_frozen) for each in self.work.products]
        times_ms.append(self.core_ms)
        for kernel in self.work.kernels:
            share = samples / self.sharing if kernel.is_whole else samples
            found_ms = rates.kernels[kernel.kind].passes_ms(kernel, share, number_bytes)
            times_ms += [found_ms] * (sorts if kernel.kind == "permute" else 1)
        forward_ms, backward_ms = (sum(of_pass) for of_pass in zip(*times_ms, strict=True))
        if self.work.gradient_bytes:
            backward_ms += rates.kernels["stream"].ms(self.work.gradient_bytes, 2)
        reduces_ms = self.seen_reduces_ms
        return Pass(forward_ms, reduces_ms[0]), Pass(backward_ms, reduces_ms[1])

    @cached_property
    def core_ms(self) -> tuple[float, float]:
        """The time of the attention's core in the forward and in the backward.

        GPUs that exchange heads for tokens each have all tokens of some heads. Where keys go around, each has
        its share of the operations; a causal kernel is taken to be balanced.
        """
        strategy, rates = self.strategy, self.rates
        if rates is None:
            core_ms = self._flat_ms(self.work.core_flops)
            return core_ms, 2 * core_ms
        by_heads = strategy.tensor_parallel if strategy.sequence == "ulysses" else 1
        by_heads *= strategy.context_parallel if strategy.context == "all_to_all" else 1
        forward_ms = backward_ms = 0.0
        for core in self.work.cores:
            own = core._replace(heads=core.heads / by_heads, kv_heads=max(core.kv_heads / by_heads, 1))
            times_ms = rates.core_ms(own, self.samples * by_heads)
            forward_ms, backward_ms = forward_ms + times_ms[0], backward_ms + times_ms[1]
        return forward_ms, backward_ms

    def _flat_ms(self, flops: float) -> float:
        """Return the time of products at one share of the peak, of each sample's operations."""
        options, is_output = self.options, isinstance(self.layer, OutputLayer)
        share = options.output_layer_utilisation if is_output else options.model_flops_utilisation
        peak_tflops = options.precision.peak_tflops(self.group.gpu, exact=is_output)
        return self.samples * flops / (peak_tflops * 1e9 * share)

    def memory_ms(self, num_bytes: float) -> float:
        """Return the time of reading or writing memory."""
        if self.options.machine is not None:
            return self.options.machine.kernels["stream"].ms(num_bytes, 1)
        return num_bytes / (self.group.gpu.memory_bandwidth_gb_s * 1e6 * self.options.memory_efficiency)

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
    def _reduces_ms(self) -> tuple[list[float], list[float]]:
        """Time of each all-reduce in the forward and in the backward."""
        if self.strategy.matrix_parallel == 1:
            return [], []
        level = self.strategy.tensor_level
        kinds: tuple[CollectiveKind, ...] = ("all_reduce",)
        if self.sharing > 1:
            kinds = ("all_gather", "reduce_scatter")
        known_ms = {
            numbers: sum(self.collective_ms(kind, self.bytes_of(numbers), level) for kind in kinds)
            for numbers in {each for pair in self.work.reduces for each in pair}
        } | {0: 0.0}
        pairs = [(known_ms[forward], known_ms[backward]) for forward, backward in self.work.reduces]
        return [forward for forward, _ in pairs], [backward for _, backward in pairs]

    @cached_property
    def seen_reduces_ms(self) -> tuple[float, float]:
        """Time that all-reduces add to the products of the forward and of the backward.

        Where GPUs that share tokens gather and scatter beside products, each part of a layer has those whose
        inputs are gathered, and one whose outputs are summed and scattered. In the backward the gradient of
        the outputs is gathered beside the product that reads it, and that of the inputs is scattered beside
        the gradient of the first weights. Experts wait: they are no one product whose pieces could be sent.
        """
        forward, backward = self._reduces_ms
        if not (self.options.overlap_tensor_parallel and self.sharing > 1):
            return sum(forward), sum(backward)
        parts: list[tuple[float, float]] = []
        first_ms = 0.0
        for product in self.work.products:
            if product.experts:
                break
            if product.split == "inputs":
                parts.append((first_ms, self._one_product_ms(product)))
                first_ms = 0.0
            elif product.split == "outputs":
                first_ms += self._one_product_ms(product)
        forward_ms = backward_ms = 0.0
        for part, own_ms, gradient_ms in zip_longest(parts, forward, backward):
            if part is None or own_ms is None:
                forward_ms, backward_ms = forward_ms + (own_ms or 0.0), backward_ms + (gradient_ms or 0.0)
                continue
            last_ms = self._in_pieces_ms(part[1], own_ms / 2)
            forward_ms += self._in_pieces_ms(part[0], own_ms / 2) + last_ms
            backward_ms += last_ms + self.options.overlapped(part[0], own_ms / 2).copy_ms
        return forward_ms, backward_ms

    def _in_pieces_ms(self, product_ms: float, exchange_ms: float) -> float:
        """Return the time that a gathering or scattering adds to its own product.

        Both are done in as many pieces as GPUs. A piece of the product runs while the next one is fetched, or
        the last one is sent. The GPU's own piece is fetched from nowhere, so that n - 1 pieces of each are
        side by side (Transformer Engine's ring exchange).
        """
        n = self.strategy.tensor_parallel
        return self.options.overlapped(product_ms * (n - 1) / n, exchange_ms).copy_ms

    def _one_product_ms(self, product: Product) -> float:
        """Return the time of a product in the forward."""
        if self.rates is not None:
            return self.rates.product_ms(product, self.samples * product.tokens)[0]
        return self._flat_ms(product.flops)

    @property
    def regathers_ms(self) -> float:
        """The time to gather the inputs of its parts again for the backward."""
        if self.sharing == 1 or not self.layer.reads_weights_backward:
            return 0.0
        return sum(self._reduces_ms[0]) / 2

    @property
    def heads_ms(self) -> float:
        """The time to exchange heads for tokens, of queries, keys, values and outputs one by one, in a pass.

        On a machine that was measured, each is also laid out anew before it is sent, and after.
        """
        strategy, found_ms = self.strategy, 0.0
        levels = []
        if strategy.sequence == "ulysses":
            levels.append((1, strategy.tensor_level))
        if strategy.context == "all_to_all" and strategy.context_parallel > 1:
            levels.append((strategy.matrix_parallel, strategy.context_level))
        heads = sum(core.exchanged_numbers for core in self.layer.on(1).cores) if levels else 0.0
        for degree, level in levels if heads else ():
            num_bytes = self.bytes_of(heads) / degree
            found_ms += _EXCHANGED * self.collective_ms("all_to_all", num_bytes / _EXCHANGED, level)
            if self.options.machine is not None:
                found_ms += self.options.machine.kernels["stream"].ms(2 * 2 * num_bytes, 2 * _EXCHANGED)
        return found_ms

    @property
    def routing_ms(self) -> float:
        """The time to send tokens to their experts and back, in a forward or a backward."""
        strategy, layer, machine = self.strategy, self.layer, self.options.machine
        num_gpus = strategy.expert_parallel
        if num_gpus == 1 or not layer.num_routes:
            return 0.0
        level, once = strategy.expert_level, self.options.sends_tokens_once
        sharing = strategy.tensor_parallel if strategy.whole_experts else 1
        routed = self.bytes_of(layer.routed_elements(num_gpus if once else None)) / sharing
        if once and machine is None:
            num_nodes = self.group.num_nodes(*level)
            to_nodes = self.bytes_of(layer.routed_elements(num_nodes)) / sharing
            return 2 * self.group.all_to_all_ms(routed, *level, to_nodes)
        found_ms = 2 * self.collective_ms("all_to_all", routed, level)
        if machine is not None:
            # The GPUs first tell each other how many tokens each expert gets.
            found_ms += self.collective_ms("all_gather", 8 * layer.num_routes, level)
        return found_ms

    @property
    def ring_ms(self) -> float:
        """The time in which keys and values go around."""
        strategy = self.strategy
        if strategy.context != "ring" or strategy.context_parallel == 1 or not self.work.cores:
            return 0.0
        keys = self.bytes_of(sum(core.key_numbers for core in self.work.cores))
        return (strategy.context_parallel - 1) * self.group.transfer_ms(keys, *strategy.context_level)
