"""All layouts of a training framework for a model on a cluster, and a formula's estimate of each.

A layout shares every layer alike. The formula has the load of the fullest stage, the ends of the pipeline,
and the exchanges that it cannot hide. Schedules then decide among the best, in `schedsearch.planning`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, product
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.block import PlacementError
from placements.cluster import Cluster
from placements.models.chain import ModelShape
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import CostOptions
from placements.models.parallel import Buffer, ContextSharing, Cost, LayerStrategy, Recompute
from placements.planners.hybrid.decision_trees import divisors
from placements.planners.hybrid.plan import PlanError, alike, layers_of_stage
from placements.planners.hybrid.uniform import Degrees, Layout, chunk_sizes, is_end, num_before

_GIB = 2**30
_MOST_STAGES = 64


@dataclass(frozen=True)
class LayoutOptions:
    """The layouts that are tried.

    Attributes:
        micro_batch_sizes: Samples of a micro-batch of one data-parallel group.
        max_tensor: Largest degree of tensor parallelism; None for the GPUs of a node.
        max_chunks: Most chunks of a stage.
        max_context: Largest degree of context parallelism.
        recompute: Parts that backwards may compute again.
        zero: Stages of ZeRO, those above 1 without a pipeline.
        memory_gib: Memory of each GPU; None for its own.
        reserve_gib: Memory of each GPU that stays free: for the CUDA context and fragments.
        num_stages: Numbers of stages; None for all, as for the next three.
    """

    micro_batch_sizes: tuple[int, ...] = (1, 2, 4)
    max_tensor: int | None = None
    max_chunks: int = 24
    max_context: int = 8
    recompute: tuple[Recompute, ...] = ("none", "selective", "full")
    zero: tuple[int, ...] = (1, 3)
    memory_gib: float | None = None
    reserve_gib: float = 4.0
    num_stages: tuple[int, ...] | None = None
    gpus_per_stage: tuple[int, ...] | None = None
    num_micro_batches: tuple[int, ...] | None = None
    expert_parallel: tuple[int, ...] | None = None


class LayoutEstimate(NamedTuple):
    """The formula's time and memory of a layout.

    Attributes:
        layout: The layout.
        time_ms: Time of an iteration.
        load_ms: Time that its fullest stage computes: no schedule of the layout is shorter.
        mean_load_ms: Time that its stages compute on average: no division of its layers is shorter.
        gib: Peak memory of a GPU.
    """

    layout: Layout
    time_ms: float
    load_ms: float
    mean_load_ms: float
    gib: float


_NUM_BEST = 20
"""Number of the formula's best layouts that are always estimated; slower loads are left out."""


class LayoutSearch:
    """The layouts of a model on all GPUs of a cluster; `costs` has the reached shares and the framework.

    Attributes:
        limit_gib: Memory of a GPU that a layout may use.
    """

    def __init__(
        self,
        model: ModelShape,
        cluster: Cluster,
        batch: int,
        costs: CostOptions,
        options: LayoutOptions = LayoutOptions(),
    ) -> None:
        self.model, self.cluster, self.batch, self.costs, self.options = model, cluster, batch, costs, options
        given = options.memory_gib
        self.limit_gib = (cluster.whole.memory_gib if given is None else given) - options.reserve_gib
        # Distinct layers, and the index of each layer's; a tied output layer has its own table.
        layers = model.layers
        apart = (*layers_of_stage(layers, 0, 1), *layers_of_stage(layers, 1, len(layers)))
        self._kinds = list(dict.fromkeys(apart))
        self._which = [self._kinds.index(layer) for layer in apart]
        self._ends, self._cost = cache(self._ends_of), cache(self._cost_of)
        self._costs = cache(self._costs_of)

    def layouts(self) -> Iterator[Layout]:
        """Yield every layout whose degrees divide the GPUs, the tokens, the experts and the batch."""
        options, layers, num_gpus = self.options, self.model.layers, self.cluster.num_gpus
        in_node = min(nodes.gpus_per_node for nodes in self.cluster.nodes)
        experts = max(layer.num_routes for layer in layers)
        tokens = max(getattr(layer, "sequence_length", 1) for layer in layers)
        keeps_scores = any(core.writes_scores for layer in layers for core in layer.on(1).cores)
        recompute = [mode for mode in options.recompute if keeps_scores or mode != "selective"]
        precision = self.costs.precision
        held = self.model.num_parameters * (precision.weight_bytes + precision.gradient_bytes)
        degrees = (
            (tensor, pipeline, context, whole)
            for tensor in divisors(num_gpus, min(options.max_tensor or in_node, in_node))
            for context in divisors(num_gpus, options.max_context)
            for pipeline in divisors(num_gpus, _MOST_STAGES)
            if num_gpus % (tensor * context * pipeline) == 0 and tokens % context == 0
            for whole in ((False, True) if tensor > 1 and experts else (False,))
        )
        for tensor, pipeline, context, whole in degrees:
            data = num_gpus // (tensor * context * pipeline)
            copies = data * context * (tensor if whole else 1)
            for expert, size in product(divisors(copies, experts or 1), options.micro_batch_sizes):
                number, left = divmod(self.batch, data * size)
                pairs = (
                    (pipeline, options.num_stages),
                    (num_gpus // pipeline, options.gpus_per_stage),
                    (number, options.num_micro_batches),
                    (expert, options.expert_parallel),
                )
                is_whole = left == experts % expert == 0 and number >= pipeline
                if not is_whole or any(known is not None and count not in known for count, known in pairs):
                    continue
                shared = pipeline * max(tensor, expert if whole else expert * tensor)
                if held / shared > self.limit_gib * _GIB and (pipeline > 1 or max(options.zero) < 3):
                    continue
                for again, zero in product(recompute, options.zero):
                    for chunks in self._chunks(pipeline) if zero <= 1 or pipeline == 1 else ():
                        # Between nodes keys go around, which are fewer than all heads.
                        sharing: ContextSharing = "all_to_all" if tensor * context <= in_node else "ring"
                        how = Degrees(tensor, pipeline, data, context, expert, chunks, whole, sharing)
                        yield Layout(how, size, number, zero, again)

    def _chunks(self, pipeline: int) -> list[int]:
        """Return numbers of chunks: 1, and with a pipeline also numbers that divide the layers evenly.

        Embedding and output layer may count as layers; see `chunk_sizes`.
        """
        count = sum(number for number, layer in self.model.runs if not is_end(layer))
        most = self.options.max_chunks if pipeline > 1 else 1
        even = (v for v in range(2, most + 1) if 0 in (count % (pipeline * v), (count + 2) % (pipeline * v)))
        return [1, *even]

    def rated(self, layouts: Iterable[Layout]) -> Iterator[LayoutEstimate | None]:
        """Yield the estimate of each layout; None if a degree does not divide, or layers are too few.

        Nor is a layout estimated whose load alone takes longer than the `_NUM_BEST` best, or that recomputes
        although it fits without; therefore layouts without recomputation come before others.
        """
        limit, best_ms = self.limit_gib, [inf] * _NUM_BEST
        plain = dict[tuple[object, ...], LayoutEstimate | None]()
        for layout in layouts:
            estimate, key = None, (layout.degrees, layout.micro_batch_size, layout.zero)
            with suppress(PlacementError, PlanError):
                if layout.recompute == "none" or key not in plain:
                    is_likely = self._min_load_ms(layout) <= best_ms[-1]
                else:  # it may be worth computing again what does not fit
                    known = plain[key]
                    is_likely = known is not None and known.gib > limit and known.load_ms <= best_ms[-1]
                estimate = self.estimate(layout) if is_likely else None
            if layout.recompute == "none":
                plain[key] = estimate
            if estimate is not None and estimate.gib <= limit:
                best_ms = sorted([*best_ms, estimate.time_ms])[:_NUM_BEST]
            yield estimate

    def ranked(self, estimates: Iterable[LayoutEstimate]) -> list[LayoutEstimate]:
        """Return estimates that fit the memory first, by increasing time.

        Layouts that fit with all layers computed again, and are shorter than the best without, come with as
        few of these as fit, too.
        """
        ranking, limit = list(estimates), self.limit_gib
        best_ms = min((rated.time_ms for rated in ranking if rated.gib <= limit), default=inf)
        fits = {rated.layout for rated in ranking if rated.layout.recompute == "full" and rated.gib <= limit}
        ranking += [
            self.least_recomputed(rated.layout)
            for rated in ranking
            if rated.layout.recompute == "none" and rated.gib > limit and rated.time_ms < best_ms
            if replace(rated.layout, recompute="full") in fits
        ]
        return sorted(ranking, key=lambda row: (row.gib > limit, row.time_ms, -row.layout.degrees.data))

    def least_recomputed(self, layout: Layout) -> LayoutEstimate:
        """Return the estimate of a layout of which as few layers are computed again as fit; at most all.

        Raises:
            PlacementError: A layer cannot be shared so.
            PlanError: There are fewer layers than chunks.
        """
        most = int(np.diff(self._ends(layout.degrees.pipeline * layout.degrees.chunks)).max())

        def part(number: int) -> LayoutEstimate:
            again: Recompute = "full" if number else "none"
            few = number if 0 < number < most else None
            return self.estimate(replace(layout, recompute=again, recomputed_layers=few))

        if (none := part(0)).gib <= self.limit_gib:
            return none
        return part(bisect_left(range(most), True, 1, key=lambda number: part(number).gib <= self.limit_gib))

    def estimate(self, layout: Layout) -> LayoutEstimate:
        """Return the formula's estimate of a layout.

        With m micro-batches, p stages and v chunks: m times the time of the fullest stage, the ends of
        (p - 1) / v stages (Narayanan's dissertation, Sec. 4.2.2), updates, and the exchanges not hidden: the
        first chunk's. A stage holds its states, the activations of the 2 (p - d - 1) + (v - 1) p + 1 chunks
        in flight, and the memory that only one backward needs.

        Raises:
            PlacementError: A layer cannot be shared so.
            PlanError: There are fewer layers than chunks.
        """
        degrees, size, m = layout.degrees, layout.micro_batch_size, layout.num_micro_batches
        p, v = degrees.pipeline, degrees.chunks
        ends = self._ends(p * v)
        until, once_bytes, transfer_ms = self._costs(layout.strategy, size, min(m, 2))
        sums = np.diff(until[ends], axis=0)
        if layout.recomputed_layers is not None:
            kept, kept_once_bytes, _ = self._costs(layout.plain.strategy, size, min(m, 2))
            first, end = ends[:-1], ends[1:]
            before = np.where(first == 0, num_before(self.model), 0)
            middle = np.minimum(first + before + layout.recomputed_layers, end)
            sums = until[middle] - until[first] + kept[end] - kept[middle]
            once_bytes = max(once_bytes, kept_once_bytes)
        # Sums over the layers of each chunk; shape (chunks, stages, figures).
        chunks = sums.reshape(v, p, -1)
        load, static, kept_bytes, update, exchanged = chunks.sum(axis=0).T
        after = np.arange(p)[::-1]
        in_flight = np.minimum(after + 1, m) if v == 1 else np.minimum(2 * after + (v - 1) * p + 1, m * v)
        held = static + in_flight * kept_bytes / v + once_bytes
        seen_ms = float(chunks[0, :, -1].max())
        hidden_ms = max(float(exchanged.max()) - seen_ms, 0.0)
        tail_ms = float(update.max()) + seen_ms + (self.costs.overlap_slowdown - 1) * hidden_ms
        ends_ms = float(load.sum() - load.max()) / v + 2 * (p - 1) * transfer_ms
        load_ms, mean_load_ms = m * float(load.max()), m * float(load.mean())
        time_ms = load_ms + ends_ms + tail_ms
        return LayoutEstimate(layout, time_ms, load_ms, mean_load_ms, float(held.max()) / _GIB)

    def _min_load_ms(self, layout: Layout) -> float:
        """Return a bound of the fullest stage's time in any division, by the most frequent layer alone."""
        kind, count = Counter(self._which).most_common(1)[0]
        m, most = layout.num_micro_batches, count / layout.degrees.pipeline
        cost = self._cost(kind, layout.strategy, layout.micro_batch_size, min(m, 2))
        return m * most * (cost.forward.time_ms + cost.backward.time_ms)

    def _ends_of(self, num_chunks: int) -> NDArray[np.int64]:
        """Return the first layer of each chunk, and the number of layers."""
        return np.array([*accumulate(chunk_sizes(self.model, num_chunks), initial=0)])

    def _cost_of(self, kind: int, strategy: LayerStrategy, size: int, m: int) -> Cost:
        """Return the cost of a kind of layer, for a data-parallel group's samples, 1 micro-batch or more."""
        layer, samples = self._kinds[kind], size * strategy.data_parallel
        group = self.cluster.group(0, strategy.num_gpus)
        return layer_cost(layer, alike(strategy, layer), samples, m, group, self.costs)

    def _costs_of(
        self, strategy: LayerStrategy, size: int, m: int
    ) -> tuple[NDArray[np.float64], float, float]:
        """Return costs of all layers, shared in one way; see `_cost_of`.

        First are sums over the layers before each, in ms and bytes: forward and backward, states, kept of one
        micro-batch, update, exchanges; shape ``(num_layers + 1, 5)``. Then come the bytes held once: buffers,
        and the most that a layer's backward holds besides what is kept; and the ms of a transfer to the next
        stage.
        """
        costs = [self._cost(kind, strategy, size, m) for kind in range(len(self._kinds))]
        rows = [
            (
                cost.forward.time_ms + cost.backward.time_ms,
                cost.static_bytes,
                cost.kept_bytes,
                cost.update_ms,
                cost.scatter_ms + cost.gather_ms,
            )
            for cost in costs
        ]
        sums = np.pad(np.cumsum(np.array(rows)[self._which], axis=0), ((1, 0), (0, 0)))
        buffers = frozenset[Buffer]().union(*(cost.buffers for cost in costs))
        transfer_ms, group = 0.0, self.cluster.group(0, strategy.num_gpus)
        if group.count < self.cluster.num_gpus:
            middle = self.model.layers[len(self._which) // 2]
            numbers = size * strategy.data_parallel * middle.output_elements()
            num_bytes = self.costs.precision.number_bytes * numbers / group.count
            after = self.cluster.group(group.count, group.count)
            transfer_ms = self.costs.communication_factor * group.next_transfer_ms(after, num_bytes)
        more = max(max(cost.backward_bytes, cost.backward_peak_bytes - cost.kept_bytes) for cost in costs)
        return sums, sum(buffer.num_bytes for buffer in buffers) + more, transfer_ms
