"""All layouts of a training framework for a model on a cluster, and what a formula says of each.

A layout shares every layer alike. The formula has the load of the fullest stage, the ends of the pipeline,
and the exchanges that it cannot hide. Among the best a schedule decides, in `schedsearch.planning`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, product
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.block import PlacementError
from placements.cluster import Cluster, DeviceGroup
from placements.models.chain import ModelShape
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import CostOptions
from placements.models.layers import Layer
from placements.models.parallel import Buffer, ContextSharing, Cost, Recompute
from placements.planners.hybrid.plan import PlanError, alike, layers_of_stage
from placements.planners.hybrid.uniform import Degrees, Layout, chunk_sizes, is_end, num_before

_GIB = 2**30


@dataclass(frozen=True)
class LayoutOptions:
    """The layouts that are tried.

    Attributes:
        micro_batch_sizes: Samples of a micro-batch of one data-parallel group.
        max_tensor: Largest degree of tensor parallelism; None for the GPUs of a node.
        max_pipeline: Most stages.
        max_chunks: Most chunks of a stage.
        max_context: Largest degree of context parallelism.
        context_sharing: How context-parallel GPUs attend to each other's tokens.
        recompute: What backwards may compute again.
        zero: Stages of ZeRO, those above 1 without a pipeline.
        memory_gib: Memory of each GPU; None for its own.
        reserve_gib: Memory of each GPU that stays free: for the CUDA context and fragments.
        num_stages: Numbers of stages; None for all, as for the next three.
        gpus_per_stage: GPUs of each stage.
        num_micro_batches: Micro-batches of an iteration.
        expert_parallel: Degrees of expert parallelism.
    """

    micro_batch_sizes: tuple[int, ...] = (1, 2, 4)
    max_tensor: int | None = None
    max_pipeline: int = 64
    max_chunks: int = 24
    max_context: int = 8
    context_sharing: ContextSharing = "all_to_all"
    recompute: tuple[Recompute, ...] = ("none", "selective", "full")
    zero: tuple[int, ...] = (1, 3)
    memory_gib: float | None = None
    reserve_gib: float = 4.0
    num_stages: tuple[int, ...] | None = None
    gpus_per_stage: tuple[int, ...] | None = None
    num_micro_batches: tuple[int, ...] | None = None
    expert_parallel: tuple[int, ...] | None = None

    def allow(self, degrees: Degrees, num_micro_batches: int) -> bool:
        """Return whether the numbers of a layout are among those that are tried."""
        pairs = (
            (degrees.pipeline, self.num_stages),
            (degrees.num_gpus // degrees.pipeline, self.gpus_per_stage),
            (num_micro_batches, self.num_micro_batches),
            (degrees.expert, self.expert_parallel),
        )
        return all(allowed is None or number in allowed for number, allowed in pairs)


class LayoutEstimate(NamedTuple):
    """What the formula says of a layout.

    Attributes:
        layout: The layout.
        time_ms: Time of an iteration.
        load_ms: Time that its fullest stage computes: no schedule of the layout is shorter.
        gib: The most that a GPU holds.
    """

    layout: Layout
    time_ms: float
    load_ms: float
    gib: float


class _LayerSums(NamedTuple):
    """What the layers of a model cost under a layout.

    Attributes:
        sums: Sums over the layers before each, in ms and bytes: forward and backward, states, kept of one
            micro-batch, update, exchanges; shape ``(num_layers + 1, 5)``.
        buffer_bytes: Held once.
        temporary_bytes: Most that the backward of a layer holds besides what is kept.
        transfer_ms: Transfer from a stage to the next.
    """

    sums: NDArray[np.float64]
    buffer_bytes: float
    temporary_bytes: float
    transfer_ms: float


_NUM_BEST = 20
"""Layouts whose order is that of the formula; none that is rated less exactly is among them."""

_EXCHANGED = 4
"""Column of the exchanges in `_LayerSums.sums`."""


@dataclass(frozen=True)
class LayoutSearch:
    """The layouts of a model on a cluster.

    Attributes:
        model: Its layers.
        cluster: Its GPUs, all of which are used.
        batch: Samples of an iteration.
        costs: What GPUs reach, and the framework.
        options: The layouts that are tried.
    """

    model: ModelShape
    cluster: Cluster
    batch: int
    costs: CostOptions
    options: LayoutOptions = LayoutOptions()
    _known_ends: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False, compare=False)
    _known_costs: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    def layouts(self) -> Iterator[Layout]:
        """Yield every layout whose degrees divide the model, the GPUs and the batch."""
        options, num_gpus = self.options, self.cluster.num_gpus
        in_node = min(nodes.gpus_per_node for nodes in self.cluster.nodes)
        experts = max((layer.num_routes for layer in self.model.layers), default=0)
        tensors = _divisors(num_gpus, options.max_tensor or in_node)
        tensors = [t for t in tensors if t <= in_node and self._divides(t)]
        for tensor, context in product(tensors, _divisors(num_gpus, options.max_context)):
            if num_gpus % (tensor * context) or self.num_tokens % context:
                continue
            rest = num_gpus // (tensor * context)
            for pipeline in _divisors(rest, options.max_pipeline):
                data = rest // pipeline
                sharing = self._expert_sharing(tensor, pipeline, data * context, experts)
                for (expert, whole), size in product(sharing, options.micro_batch_sizes):
                    number, left = divmod(self.batch, data * size)
                    if left or number < pipeline:
                        continue
                    how = tensor, pipeline, data, context, expert
                    if not options.allow(Degrees(*how), number):
                        continue
                    for recompute, zero in product(self._recompute, options.zero):
                        for chunks in self._chunks(pipeline) if zero <= 1 or pipeline == 1 else ():
                            degrees = Degrees(*how, chunks, whole, options.context_sharing)
                            yield Layout(degrees, size, number, zero, recompute)

    def estimates(self) -> list[LayoutEstimate]:
        """Return the estimates of all layouts in the order of `ranked`."""
        return self.ranked(filter(None, self.rated(self.layouts())))

    def rated(self, layouts: Iterable[Layout]) -> Iterator[LayoutEstimate | None]:
        """Yield the estimate of each layout; None where a degree does not divide, or layers are too few.

        Nor has one whose load alone takes longer than the best, or that computes again what fits without.

        Args:
            layouts: Those that differ in recomputation or chunks alone stand together, in this order.
        """
        best_ms, plain = [inf] * _NUM_BEST, dict[Layout, LayoutEstimate | None]()
        for layout in layouts:
            kept = replace(layout, recompute="none")
            found, known = None, plain.get(kept)
            with suppress(PlacementError, PlanError):
                if kept not in plain:
                    is_likely = self._min_load_ms(layout) <= best_ms[-1]
                else:  # it may be worth computing again what does not fit
                    is_likely = known is not None and known.gib > self.limit_gib
                    is_likely &= known is not None and known.load_ms <= best_ms[-1]
                found = self.estimate(layout) if is_likely else None
            if layout == kept:
                plain[kept] = found
            if found is not None and found.gib <= self.limit_gib:
                best_ms = sorted([*best_ms, found.time_ms])[:_NUM_BEST]
            yield found

    def ranked(self, estimates: Iterable[LayoutEstimate]) -> list[LayoutEstimate]:
        """Return estimates that fit the memory first, by increasing time.

        Those that fit with some of their layers computed again come with as few of these as fit.
        """
        limit = self.limit_gib
        found = list(estimates)
        found += self._partly_recomputed(found)
        return sorted(found, key=lambda each: (each.gib > limit, each.time_ms, -each.layout.degrees.data))

    def _partly_recomputed(self, found: list[LayoutEstimate]) -> list[LayoutEstimate]:
        """Return layouts that compute again as few layers as fit, where that can be shorter than the best."""
        limit = self.limit_gib
        best_ms = min((each.time_ms for each in found if each.gib <= limit), default=inf)
        fits = {each.layout for each in found if each.layout.recompute == "full" and each.gib <= limit}
        return [
            self.least_recomputed(each.layout)
            for each in found
            if each.layout.recompute == "none" and each.gib > limit and each.time_ms < best_ms
            if replace(each.layout, recompute="full") in fits
        ]

    def least_recomputed(self, layout: Layout) -> LayoutEstimate:
        """Return the estimate of a layout of which as few layers are computed again as fit; at most all.

        Raises:
            PlacementError: A layer cannot be shared so.
            PlanError: There are fewer layers than chunks.
        """
        none = self.estimate(replace(layout, recompute="none", recomputed_layers=None))
        if none.gib <= self.limit_gib:
            return none
        full = self.estimate(replace(layout, recompute="full", recomputed_layers=None))
        if full.gib > self.limit_gib:
            return full
        degrees = layout.degrees
        low, high = 0, int(np.diff(self._ends(degrees.pipeline * degrees.chunks)).max())
        while high - low > 1:
            middle = (low + high) // 2
            part = self.estimate(replace(layout, recompute="full", recomputed_layers=middle))
            low, high, full = (low, middle, part) if part.gib <= self.limit_gib else (middle, high, full)
        return full

    @property
    def limit_gib(self) -> float:
        """Memory of a GPU that a layout may use."""
        given = self.options.memory_gib
        return (self.cluster.whole.memory_gib if given is None else given) - self.options.reserve_gib

    def estimate(self, layout: Layout) -> LayoutEstimate:
        """Return what the formula says of a layout.

        With m micro-batches, p stages and v chunks: m times the time of the fullest stage, the ends of
        (p - 1) / v stages (Narayanan's dissertation, Sec. 4.2.2), updates, and what is not hidden of
        exchanges: the first chunk's. A stage holds its states, what 2 (p - d - 1) + (v - 1) p + 1 chunks
        keep of the micro-batches in flight, and what one backward needs besides.

        Raises:
            PlacementError: A layer cannot be shared so.
            PlanError: There are fewer layers than chunks.
        """
        degrees, m = layout.degrees, layout.num_micro_batches
        p, v = degrees.pipeline, degrees.chunks
        ends = self._ends(p * v)
        costs = self._costs(layout)
        temporary_bytes = costs.temporary_bytes
        sums = np.diff(costs.sums[ends], axis=0)
        if layout.recomputed_layers is not None:
            kept_whole = self._costs(replace(layout, recompute="none", recomputed_layers=None))
            first, end = ends[:-1], ends[1:]
            before = np.where(first == 0, num_before(self.model), 0)
            middle = np.minimum(first + before + layout.recomputed_layers, end)
            sums = costs.sums[middle] - costs.sums[first] + kept_whole.sums[end] - kept_whole.sums[middle]
            temporary_bytes = max(temporary_bytes, kept_whole.temporary_bytes)
        # Sums over the layers of each chunk; shape (chunks, stages, figures).
        chunks = sums.reshape(v, p, -1)
        stages = chunks.sum(axis=0)
        load, static, kept, update, exchanged = stages.T
        in_flight = np.array([_in_flight(p, v, stage, m) for stage in range(p)])
        held = static + costs.buffer_bytes + in_flight * kept / v + temporary_bytes
        seen_ms = float(chunks[0, :, _EXCHANGED].max())
        hidden_ms = max(float(exchanged.max()) - seen_ms, 0.0)
        tail_ms = float(update.max()) + seen_ms + (self.costs.overlap_slowdown - 1) * hidden_ms
        ends_ms = float(load.sum() - load.max()) / v + 2 * (p - 1) * costs.transfer_ms
        load_ms = m * float(load.max())
        return LayoutEstimate(layout, load_ms + ends_ms + tail_ms, load_ms, float(held.max()) / _GIB)

    def _expert_sharing(
        self, tensor: int, pipeline: int, copies: int, experts: int
    ) -> list[tuple[int, bool]]:
        """Return degrees of expert parallelism, and whether each expert is whole on its GPU."""
        found = []
        for whole in (False, True) if tensor > 1 and experts else (False,):
            degrees = _divisors(copies * tensor if whole else copies, experts or 1)
            found += [
                (each, whole)
                for each in degrees
                if experts % each == 0 and self._may_fit(tensor, pipeline, each * (1 if whole else tensor))
            ]
        return found

    def _may_fit(self, tensor: int, pipeline: int, expert: int) -> bool:
        """Return whether an equal share of weights and gradients fits; with ZeRO-3 it may."""
        if pipeline == 1 and max(self.options.zero) == 3:
            return True
        num_bytes = self.costs.precision.weight_bytes + self.costs.precision.gradient_bytes
        parameters = self._num_parameters[0] / tensor + self._num_parameters[1] / expert
        return num_bytes * parameters / pipeline <= self.limit_gib * _GIB

    @cached_property
    def _num_parameters(self) -> tuple[float, float]:
        """Parameters of all layers, without experts and of experts."""
        runs = [(count, layer) for count, layer in self.model.runs if layer.owns_parameters]
        return (
            sum(count * layer.parameters(1) for count, layer in runs),
            sum(count * layer.expert_parameters(1) for count, layer in runs),
        )

    def _ends(self, num_chunks: int) -> NDArray[np.int64]:
        """Return the first layer of each chunk, and the number of layers."""
        if num_chunks not in self._known_ends:
            sizes = chunk_sizes(self.model, num_chunks)
            self._known_ends[num_chunks] = np.array(list(accumulate(sizes, initial=0)))
        return self._known_ends[num_chunks]

    def _costs(self, layout: Layout) -> _LayerSums:
        """Return the costs of all layers; chunks of a stage do not change them."""
        found: _LayerSums = self._known(layout, None, self._computed_costs)
        return found

    def _cost(self, layout: Layout, kind: int) -> Cost:
        """Return the cost of a kind of layer."""
        degrees, layer = layout.degrees, self._kinds[kind]
        group = self.cluster.group(0, degrees.num_gpus // degrees.pipeline)
        samples, m = layout.micro_batch_size * degrees.data, layout.num_micro_batches
        how = alike(layout.strategy, layer)
        found: Cost = self._known(
            layout, kind, lambda _: layer_cost(layer, how, samples, m, group, self.costs)
        )
        return found

    def _known(self, layout: Layout, kind: int | None, compute: Callable[[Layout], Any]) -> Any:
        degrees, size = replace(layout.degrees, chunks=1), layout.micro_batch_size
        key = degrees, size, layout.zero, layout.recompute, layout.num_micro_batches == 1, kind
        if key not in self._known_costs:
            self._known_costs[key] = compute(layout)
        return self._known_costs[key]

    def _min_load_ms(self, layout: Layout) -> float:
        """Return a time that no fullest stage takes less than, by the most frequent kind of layer alone."""
        kind, count = Counter(self._kind_of).most_common(1)[0]
        cost = self._cost(layout, kind)
        layers = -(-count // layout.degrees.pipeline)
        return layout.num_micro_batches * layers * (cost.forward.time_ms + cost.backward.time_ms)

    def _computed_costs(self, layout: Layout) -> _LayerSums:
        degrees = layout.degrees
        group = self.cluster.group(0, degrees.num_gpus // degrees.pipeline)
        kinds = [self._cost(layout, kind) for kind in range(len(self._kinds))]
        rows = np.array(
            [
                (
                    cost.forward.time_ms + cost.backward.time_ms,
                    cost.static_bytes,
                    cost.kept_bytes,
                    cost.update_ms,
                    cost.scatter_ms + cost.gather_ms,
                )
                for cost in kinds
            ]
        )
        sums = np.zeros((len(self._kind_of) + 1, rows.shape[1]))
        np.cumsum(rows[self._kind_of], axis=0, out=sums[1:])
        buffers = frozenset[Buffer]().union(*(cost.buffers for cost in kinds))
        return _LayerSums(
            sums,
            sum(each.num_bytes for each in buffers),
            max(max(cost.backward_bytes, cost.backward_peak_bytes - cost.kept_bytes) for cost in kinds),
            self._transfer_ms(layout, group),
        )

    @cached_property
    def _kinds(self) -> list[Layer]:
        """Different layers; a tied output layer has a table of its own, as in a pipeline."""
        return list(dict.fromkeys(self._layers))

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        layers = self.model.layers
        return (*layers_of_stage(layers, 0, 1), *layers_of_stage(layers, 1, len(layers)))

    @cached_property
    def _kind_of(self) -> list[int]:
        places = {layer: i for i, layer in enumerate(self._kinds)}
        return [places[layer] for layer in self._layers]

    def _transfer_ms(self, layout: Layout, group: DeviceGroup) -> float:
        if layout.degrees.pipeline == 1:
            return 0.0
        after = self.cluster.group(group.count, group.count)
        samples = layout.micro_batch_size * layout.degrees.data
        middle = self.model.layers[len(self.model.layers) // 2]
        num_bytes = self.costs.precision.number_bytes * samples * middle.output_elements()
        return group.next_transfer_ms(after, num_bytes / group.count)

    @cached_property
    def _recompute(self) -> tuple[Recompute, ...]:
        """What may be computed again: scores only where an attention keeps them."""
        keeps = any(layer.scores_bytes(self.costs.precision, 1) for layer in self._kinds)
        return tuple(each for each in self.options.recompute if keeps or each != "selective")

    def _chunks(self, pipeline: int) -> list[int]:
        """Return numbers of chunks: 1, and with a pipeline those by which the layers divide evenly.

        Embedding and output layer may count as layers; see `chunk_sizes`.
        """
        count = self._num_inner
        most = self.options.max_chunks if pipeline > 1 else 1
        even = (v for v in range(2, most + 1) if 0 in (count % (pipeline * v), (count + 2) % (pipeline * v)))
        return [1, *even]

    @cached_property
    def _num_inner(self) -> int:
        """Layers without embedding and output layer."""
        return sum(not is_end(layer) for layer in self.model.layers)

    def _divides(self, tensor: int) -> bool:
        try:
            for layer in {layer for _, layer in self.model.runs}:
                layer.check(tensor, 1)
        except PlacementError:
            return False
        return True

    @property
    def num_tokens(self) -> int:
        """Tokens of a sample."""
        return max(getattr(layer, "sequence_length", 1) for layer in self.model.layers)


def _in_flight(p: int, v: int, stage: int, m: int) -> float:
    """Return the chunks' micro-batches that a stage holds at once."""
    return min(p - stage, m) if v == 1 else min(2 * (p - stage - 1) + (v - 1) * p + 1, m * v)


def _divisors(number: int, most: int) -> list[int]:
    return [each for each in range(1, min(number, most) + 1) if number % each == 0]
