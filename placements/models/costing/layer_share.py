"""One GPU's share of a layer and of a micro-batch: times of its products, kernels and exchanges.

The module does not know an optimizer, nor the time of recomputation.
"""

from __future__ import annotations

from functools import cached_property

from placements.cluster import DeviceGroup
from placements.models.costing.options import CostOptions
from placements.models.end_layers import OutputLayer
from placements.models.layers import Layer
from placements.models.machine.machine_rates import CollectiveKind
from placements.models.operators import Product
from placements.models.parallel import LayerStrategy, Pass, Recompute, SharingLevel
from placements.models.transformer import TransformerLayer

_Ms = tuple[float, float]
"""Milliseconds of a forward and of a backward."""


class LayerShare:
    """One GPU's share of a layer and of a micro-batch.

    Attributes:
        work: Operators of a GPU for each sample, or the share of one, of the `samples` whose tokens it has.
        products: Products of `work`; an eager framework has those of joined matrices one by one, which are
            taken to be as fast.
        sharing: GPUs that share the tokens of norms, dropout and boundaries besides.
        again: Recomputation in the backward: none where it needs no weights.
        by_operator: `rates` are asked for products and cores, as of layers with experts; otherwise these have
            one share of the peak, which stands for all kernels but the loss too.
    """

    def __init__(
        self, layer: Layer, strategy: LayerStrategy, samples: int, group: DeviceGroup, options: CostOptions
    ) -> None:
        self.layer, self.strategy, self.group, self.options = layer, strategy, group, options
        degrees = strategy.matrix_parallel, strategy.expert_parallel, strategy.expert_tensor_parallel
        self.work = layer.on(*degrees, options.precision)
        self.products = [part for product in self.work.products for part in self._parts(product)]
        self.samples = samples / strategy.data_parallel / strategy.token_parallel
        self.sharing = strategy.tensor_parallel if strategy.sequence == "megatron" else 1
        self.again: Recompute = strategy.recompute if layer.reads_weights_backward else "none"
        is_output = isinstance(layer, OutputLayer)
        self.rates = options.rates_on(group.gpu, is_output)
        self.by_operator = self.rates.is_measured or layer.num_routes > 0
        reached = options.output_layer_utilisation if is_output else options.share_of_peak
        peak_tflops = options.precision.peak_tflops(group.gpu, exact=is_output)
        self._ms_per_flop = options.compute_factor * self.samples / (reached * peak_tflops * 1e9)

    def bytes_of(self, numbers: float) -> float:
        """Return the bytes of activations with a given number of elements in a sample."""
        return self.options.precision.number_bytes * self.samples * numbers

    @property
    def gradients_bytes(self) -> float:
        """Bytes of gradients between products; 0 if the framework's temporaries are not counted."""
        return self.bytes_of(self.work.gradients) if self.options.framework.has_temporaries else 0.0

    @property
    def host_ms(self) -> _Ms:
        """Time of the host for the kernels of a forward and of a backward, which are not shorter.

        See `Framework.host_us` and `Graphs`. Where a machine was measured, its kernels' latency has it.
        """
        options, work = self.options, self.work
        if options.machine is not None or options.graphs == "iteration":
            return 0.0, 0.0
        kernels, products, cores = work.kernels, self.products, work.cores
        if options.graphs == "attention" and self.layer.num_routes:
            # After the router's kernels in order are those of the experts.
            first = [kernel.name for kernel in kernels].index("router") + 1
            kernels, products, cores = kernels[first:], [part for part in products if part.experts], []
        exchanges = len(self.reduces_ms) * (1 + (self.sharing > 1))
        exchanges += 2 if self.strategy.expert_parallel > 1 and self.layer.num_routes else 0
        counts = []
        for i in (0, 1):
            count = (i + 1) * (len(products) + sum(1 + core.writes_scores for core in cores)) + exchanges
            count += len(products) * options.precision.has_casts
            if options.is_compiled:
                count += len(products)
            else:
                count += sum(kernel.launches[i] for kernel in kernels) + sum(core.launches for core in cores)
            counts.append(count)
        counts[1] += counts[0] if self.again == "full" else 0
        return counts[0] * options.framework.host_us / 1e3, counts[1] * options.framework.host_us / 1e3

    def passes(self) -> tuple[Pass, Pass]:
        """Return forward and backward with their all-reduces."""
        work, sent_ms = self.work, self.seen_reduces_ms
        times_ms = [self.core_ms, *self.products_ms, *self.kernels_ms.values()]
        if work.gradient_bytes:
            times_ms.append((0.0, self.memory_ms(work.gradient_bytes, 2)))
        passes_ms = tuple(sum(of_pass) for of_pass in zip(*times_ms, strict=True))
        if not self.by_operator and not work.forward_flops:
            return Pass(0.0, passes_ms[0] + sent_ms[0]), Pass(0.0, passes_ms[1] + sent_ms[1])
        return Pass(passes_ms[0], sent_ms[0]), Pass(passes_ms[1], sent_ms[1])

    @cached_property
    def kernels_ms(self) -> dict[str, _Ms]:
        """The time of the kernels of each name in the forward and in the backward."""
        options, times_ms = self.options, dict[str, _Ms]()
        # Tokens are laid out anew on each way: by GPU, by expert, and for products of 8 or 4 bits, which need
        # a multiple of 16 or 32 tokens of each expert.
        sorts = 1 + (self.strategy.expert_parallel > 1) + options.precision.has_casts
        sorts = 1 if options.graphs == "iteration" else sorts
        for kernel in self.work.kernels:
            if self.by_operator or kernel.kind == "loss" or not self.work.products:
                share = self.samples / self.sharing if kernel.is_whole else self.samples
                rate, number_bytes = self.rates.kernels[kernel.kind], options.precision.number_bytes
                slowed = options.compute_factor * (sorts if kernel.kind == "permute" else 1)
                if options.framework.is_eager and not options.is_compiled:
                    slowed *= kernel.eager
                forward_ms, backward_ms = times_ms.get(kernel.name, (0.0, 0.0))
                forward_ms += slowed * rate.ms(kernel.forward * share * number_bytes, kernel.launches[0])
                backward_ms += slowed * rate.ms(kernel.backward * share * number_bytes, kernel.launches[1])
                times_ms[kernel.name] = forward_ms, backward_ms
        return times_ms

    def _parts(self, product: Product) -> list[Product]:
        return product.apart if self.options.framework.is_eager else [product]

    @cached_property
    def products_ms(self) -> list[_Ms]:
        """The time of each product in the forward and in the backward (gradients of input and of weights).

        The last is of operations of no known shape, at one share of the peak.
        """
        is_frozen, others = self.options.precision.is_frozen, [self.work.other_flops]
        times_ms = list[_Ms]()
        if self.by_operator:
            for product in self.work.products:
                passes_ms = self.rates.product_ms(product, self.samples * product.tokens, is_frozen)
                for part in self._parts(product):
                    share = self.options.compute_factor * part.outputs / product.outputs
                    times_ms.append((share * passes_ms[0], share * passes_ms[1]))
        else:
            others = [*(part.flops for part in self.products), *others]
        flat_ms = (self._ms_per_flop * flops for flops in others)
        return [*times_ms, *((flop_ms, flop_ms if is_frozen else 2 * flop_ms) for flop_ms in flat_ms)]

    @cached_property
    def core_ms(self) -> _Ms:
        """The time of the attention's core in the forward and in the backward.

        GPUs that exchange heads for tokens each have all tokens of some heads. Where keys go around, each has
        its share of the operations; a causal kernel is taken to be balanced.
        """
        strategy = self.strategy
        if not self.by_operator:
            core_ms = self._ms_per_flop * self.work.core_flops
            return core_ms, 2 * core_ms
        forward_ms = self._ms_per_flop * self.work.other_core_flops
        backward_ms = 2 * forward_ms
        by_heads = strategy.tensor_parallel if strategy.sequence == "ulysses" else 1
        by_heads *= strategy.context_parallel if strategy.context == "all_to_all" else 1
        factor = self.options.compute_factor
        for core in self.work.cores:
            local = core._replace(heads=core.heads / by_heads, kv_heads=max(core.kv_heads / by_heads, 1))
            times_ms = self.rates.core_ms(local, self.samples * by_heads)
            forward_ms, backward_ms = forward_ms + factor * times_ms[0], backward_ms + factor * times_ms[1]
        return forward_ms, backward_ms

    def memory_ms(self, num_bytes: float, launches: int = 1) -> float:
        """Return the time of kernels that read and write `num_bytes` in all."""
        return self.options.compute_factor * self.rates.kernels["stream"].ms(num_bytes, launches)

    def collective_ms(self, kind: CollectiveKind, num_bytes: float, level: SharingLevel) -> float:
        """Return the time of a collective among GPUs: as measured if they fit in a measured node."""
        rates, group, factor = self.rates, self.group, self.options.communication_factor
        reach = level.degree * level.stride
        is_inside = group.fits_in_nodes(reach) and group.cluster.link_bandwidth_gb_s is None
        if rates.is_measured and reach <= rates.gpus_per_node and is_inside:
            return factor * rates.collective_ms(kind, num_bytes, level.degree)
        if kind == "all_to_all":
            return factor * group.all_to_all_ms(num_bytes, *level)
        return factor * (2 if kind == "all_reduce" else 1) * group.all_gather_ms(num_bytes, *level)

    @cached_property
    def reduces_ms(self) -> list[_Ms]:
        """Time of each all-reduce in the forward and in the backward."""
        if self.strategy.matrix_parallel == 1:
            return []
        level = self.strategy.tensor_level
        kinds: tuple[CollectiveKind, ...] = ("all_reduce",)
        if self.sharing > 1:
            kinds = ("all_gather", "reduce_scatter")
        known_ms = {
            numbers: sum(self.collective_ms(kind, self.bytes_of(numbers), level) for kind in kinds)
            for numbers in {size for pair in self.work.reduces for size in pair}
        } | {0: 0.0}
        return [(known_ms[forward], known_ms[backward]) for forward, backward in self.work.reduces]

    @property
    def seen_reduces_ms(self) -> _Ms:
        """Time that all-reduces add to the products of the forward and of the backward.

        Where GPUs that share tokens gather and scatter beside products, each part of a layer has those whose
        inputs are gathered, and one whose outputs are summed and scattered. In the backward the gradient of
        the outputs is gathered beside the product that reads it, and that of the inputs is scattered beside
        the gradient of the first weights. Experts wait: they are no one product whose pieces could be sent.

        A product and its own exchange are done in as many pieces as GPUs, of which n - 1 are side by side:
        the GPU's own piece is fetched from nowhere (Transformer Engine's ring exchange).
        """
        n, overlapped = self.strategy.tensor_parallel, self.options.overlapped
        parts: list[_Ms] = []
        if self.options.overlap_tensor_parallel and self.sharing > 1:
            first_ms = 0.0
            for product, (product_ms, _) in zip(self.products, self.products_ms, strict=False):
                if product.experts:
                    break
                if product.split == "outputs":
                    first_ms += product_ms
                elif product.split == "inputs":
                    parts.append((first_ms, product_ms))
                    first_ms = 0.0
        forward_ms = backward_ms = 0.0
        for i, (reduce_ms, gradient_ms) in enumerate(self.reduces_ms):
            if i < len(parts):
                half_ms = reduce_ms / 2
                first_ms, last_ms = (overlapped(ms * (n - 1) / n, half_ms).copy_ms for ms in parts[i])
                reduce_ms = first_ms + last_ms
                # Torch adds up the gradients of several products before it scatters them.
                is_beside = not self.options.framework.is_eager
                gradient_ms = last_ms + overlapped(is_beside * parts[i][0], half_ms).copy_ms
            forward_ms, backward_ms = forward_ms + reduce_ms, backward_ms + gradient_ms
        return forward_ms, backward_ms

    @property
    def heads_ms(self) -> float:
        """The time to exchange heads for tokens, of queries, keys, values and outputs one by one, in a pass.

        On a machine that was measured, each is also laid out anew before it is sent, and after.
        """
        strategy, levels, exchange_ms = self.strategy, [], 0.0
        if strategy.sequence == "ulysses":
            levels.append((1, strategy.tensor_level))
        if strategy.context == "all_to_all" and strategy.context_parallel > 1:
            levels.append((strategy.matrix_parallel, strategy.context_level))
        heads = sum(core.exchanged_numbers for core in self.layer.on(1).cores) if levels else 0.0
        for degree, level in levels if heads else ():
            num_bytes = self.bytes_of(heads) / degree
            exchange_ms += 4 * self.collective_ms("all_to_all", num_bytes / 4, level)
            if self.options.machine is not None:
                exchange_ms += self.memory_ms(2 * 2 * num_bytes, 2 * 4)
        return exchange_ms

    @property
    def routing_ms(self) -> float:
        """The time to send tokens to their experts and back, in a forward or a backward."""
        strategy, layer, machine = self.strategy, self.layer, self.options.machine
        if strategy.expert_parallel == 1 or not isinstance(layer, TransformerLayer) or not layer.has_experts:
            return 0.0
        level, once = strategy.expert_level, self.options.sends_tokens_once
        sharing = strategy.tensor_parallel if strategy.whole_experts else 1
        routed = self.bytes_of(layer.routed_elements(level.degree if once else None)) / sharing
        if once and machine is None:
            to_nodes = self.bytes_of(layer.routed_elements(self.group.num_nodes(*level))) / sharing
            factor = 2 * self.options.communication_factor
            return factor * self.group.all_to_all_ms(routed, *level, to_nodes)
        exchange_ms = 2 * self.collective_ms("all_to_all", routed, level)
        if machine is not None:
            # The GPUs first tell each other how many tokens each expert gets.
            exchange_ms += self.collective_ms("all_gather", 8 * layer.num_routes, level)
        return exchange_ms

    @property
    def ring_ms(self) -> float:
        """The time in which keys and values go around."""
        strategy = self.strategy
        if strategy.context != "ring" or strategy.context_parallel == 1 or not self.work.cores:
            return 0.0
        keys = self.bytes_of(sum(core.key_numbers for core in self.work.cores))
        factor = self.options.communication_factor * (strategy.context_parallel - 1)
        return factor * self.group.transfer_ms(keys, *strategy.context_level)
