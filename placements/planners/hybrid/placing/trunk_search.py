"""The search for plans of what is between a model's embeddings and output layer, which are on all GPUs.

The layers between are searched as any model, in the memory that the vocabulary leaves. The module does not
know in what order blocks run.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from placements.block import PlacementError
from placements.cluster import Cluster
from placements.models.layers import Layer
from placements.planners.hybrid.placing.planned_placement import trunk_of
from placements.planners.hybrid.placing.shared_layers import PartCosts, SharedLayers, shared_vocabulary
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan
from placements.planners.hybrid.search.plan_search import PlannerReport, search_plans
from placements.planners.hybrid.stage_tables import LayerCosts, layer_costs


class TrunkPlan(NamedTuple):
    """A plan of the layers between, and how all GPUs share the vocabulary.

    Attributes:
        rated: The plan; its time is without the vocabulary.
        shared: The vocabulary.
        time_ms: Time of an iteration: every GPU has the vocabulary of each micro-batch besides.
    """

    rated: RatedPlan
    shared: SharedLayers
    time_ms: float

    @property
    def data_parallel(self) -> int:
        """Groups of all GPUs that each have all rows of the table."""
        return self.shared.strategy.data_parallel


def search_trunks(
    costs: LayerCosts,
    cluster: Cluster,
    global_batch_size: int,
    shape: str,
    options: PlanOptions | None = None,
    on_progress: PlannerReport | None = None,
) -> tuple[TrunkPlan, ...]:
    """Return the best plans by increasing time; empty where none fits.

    All GPUs are used, by at least two stages. For each number of stages and of micro-batches every way to
    share the vocabulary is tried, but for those whose bound is no better than the plans at hand.

    Args:
        costs: Costs of the whole model.
        cluster: The GPUs.
        global_batch_size: Samples of an iteration.
        shape: A key of `placements.planners.hybrid.placing.planned_placement.SHARED_VOCABULARY`.
        options: What is allowed; numbers that it gives restrict those that are tried.
        on_progress: Called with each numbers that were tried, of how many, the least time so far, and what
            no plan is below.

    Raises:
        PlanError: The model has no such vocabulary, or its costs on all GPUs are not known.
        KeyboardInterrupt: From the keyboard.
    """
    options = options or PlanOptions()
    end_s = time.monotonic() + options.time_limit_s
    trunk = PartCosts(trunk_of(costs.model, shape), costs)
    queue = _candidates(costs, trunk, cluster, global_batch_size, options)
    best: dict[tuple[int, int], TrunkPlan] = {}
    for done, candidate in enumerate(queue, 1):
        times_ms = heapq.nsmallest(options.num_plans, (each.time_ms for each in best.values()))
        if len(times_ms) == options.num_plans and candidate.bound_ms >= times_ms[-1]:
            break
        left = replace(options, time_limit_s=max(end_s - time.monotonic(), 1e-3))
        found = _planned(trunk, cluster, global_batch_size, left, candidate)
        key = candidate.num_stages, candidate.num_micro_batches
        if found is not None and (key not in best or found.time_ms < best[key].time_ms):
            best[key] = found
        if on_progress is not None:
            min_ms = min((each.time_ms for each in best.values()), default=None)
            left_ms = queue[done].bound_ms if done < len(queue) else math.inf
            on_progress(done, len(queue), min_ms, left_ms if min_ms is None else min(min_ms, left_ms))
    return tuple(sorted(best.values(), key=lambda each: each.time_ms)[: options.num_plans])


class _Candidate(NamedTuple):
    """Numbers, and a way to share the vocabulary."""

    bound_ms: float
    num_stages: int
    num_micro_batches: int
    shared: SharedLayers


def _candidates(
    costs: LayerCosts, trunk: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions
) -> list[_Candidate]:
    """Return what is to be tried, that of the least bound first.

    Raises:
        PlanError: The vocabulary cannot be shared in any of these ways.
    """
    found: list[_Candidate] = []
    refused: ValueError | None = None
    for num_stages, num_gpus, m in _numbers(cluster, batch, options, len(trunk.model.layers)):
        bound_ms = _bound_ms(trunk, cluster, batch, options, num_stages, m)
        for copies in range(1, num_gpus + 1):
            if bound_ms == math.inf or num_gpus % copies or batch // m % copies:
                continue
            try:
                shared = shared_vocabulary(costs.model, costs, cluster.whole, copies, batch // m, m)
            except PlacementError as error:
                refused = error
                continue
            found.append(_Candidate(bound_ms + shared.iteration_ms(m), num_stages, m, shared))
    if refused is not None and not found:
        raise PlanError(f"the vocabulary cannot be on all GPUs: {refused}")
    return sorted(found, key=lambda each: each[:3])


def _numbers(
    cluster: Cluster, batch: int, options: PlanOptions, num_layers: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the numbers of stages that share all GPUs evenly, GPUs of each, and numbers of micro-batches."""
    for num_stages in range(2, min(cluster.num_gpus, num_layers) + 1):
        num_gpus, rest = divmod(cluster.num_gpus, num_stages)
        wanted = options.num_stages or (num_stages,), options.gpus_per_stage or (num_gpus,)
        if rest == 0 and num_stages in wanted[0] and num_gpus in wanted[1]:
            for m in range(1, batch + 1):
                if batch % m == 0 and m in (options.num_micro_batches or (m,)):
                    yield num_stages, num_gpus, m


def _planned(
    trunk: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions, candidate: _Candidate
) -> TrunkPlan | None:
    """Return the best plan with the numbers of a candidate; None where none fits."""
    shared, m = candidate.shared, candidate.num_micro_batches
    reserve_gib = options.reserve_gib + shared.held_mib / 1024
    if reserve_gib >= (cluster.whole.memory_gib if options.memory_gib is None else options.memory_gib):
        return None
    limited = replace(
        options,
        num_stages=(candidate.num_stages,),
        gpus_per_stage=(cluster.num_gpus // candidate.num_stages,),
        num_micro_batches=(m,),
        reserve_gib=reserve_gib,
        num_plans=1,
    )
    searched = search_plans(trunk, cluster, batch, limited)
    if searched.interrupted:
        raise KeyboardInterrupt
    if not searched.plans:
        return None
    best = searched.plans[0]
    return TrunkPlan(best, shared, best.time_ms + shared.iteration_ms(m))


def _bound_ms(
    trunk: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions, num_stages: int, m: int
) -> float:
    """Return a time that no iteration of the trunk is below, memory aside; infinite where none can be."""
    num_gpus = cluster.num_gpus // num_stages
    groups = [cluster.group(first, num_gpus) for first in range(0, cluster.num_gpus, num_gpus)]

    def min_ms(layer: Layer) -> float:
        """Return the least time of a layer for a micro-batch and its share of the update, on any stage."""
        times_ms = [math.inf]
        for group in {group.pattern: group for group in groups}.values():
            try:
                found = layer_costs(trunk, layer, options.trees, batch // m, m, group)
            except PlanError:
                continue
            times_ms += [
                cost.forward.time_ms + cost.backward.time_ms + cost.update_ms / m for cost in found.values()
            ]
        return min(times_ms)

    counts = Counter(trunk.model.layers)
    least = {layer: min_ms(layer) for layer in counts}
    total = sum(count * least[layer] for layer, count in counts.items())
    return (m - 1) * max(total / num_stages, max(least.values())) + total
