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
from dataclasses import dataclass, replace
from typing import NamedTuple

from placements.block import PlacementError
from placements.cluster import Cluster
from placements.models.calibration import CalibrationError
from placements.models.layers import Layer
from placements.models.parallel import LayerStrategy
from placements.planners.hybrid.placing.planned_placement import (
    trunk_of,
    vocabulary_costs,
    vocabulary_places,
)
from placements.planners.hybrid.placing.shared_layers import PartCosts, SharedLayers
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan
from placements.planners.hybrid.search.plan_search import PlannerReport, search_plans
from placements.planners.hybrid.stage_tables import LayerCosts, layer_costs
from placements.planners.parallel_plan import PlanError


@dataclass(frozen=True)
class TrunkPlan:
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
    search = _Search(costs, cluster, global_batch_size, options or PlanOptions(), shape)
    queue = search.candidates()
    best: dict[tuple[int, int], TrunkPlan] = {}
    for done, candidate in enumerate(queue, 1):
        times_ms = heapq.nsmallest(search.options.num_plans, (each.time_ms for each in best.values()))
        if len(times_ms) == search.options.num_plans and candidate.bound_ms >= times_ms[-1]:
            break
        found = search.planned(candidate)
        key = candidate.num_stages, candidate.num_micro_batches
        if found is not None and (key not in best or found.time_ms < best[key].time_ms):
            best[key] = found
        if on_progress is not None:
            min_ms = min((each.time_ms for each in best.values()), default=None)
            left_ms = queue[done].bound_ms if done < len(queue) else math.inf
            on_progress(done, len(queue), min_ms, left_ms if min_ms is None else min(min_ms, left_ms))
    return tuple(sorted(best.values(), key=lambda each: each.time_ms)[: search.options.num_plans])


def even_numbers(
    cluster: Cluster, batch: int, options: PlanOptions, stages: range
) -> Iterator[tuple[int, int]]:
    """Yield the numbers of stages that share all GPUs evenly, each with all numbers of micro-batches.

    Args:
        cluster: The GPUs.
        batch: Samples of an iteration.
        options: May restrict the numbers.
        stages: Stages to choose from.
    """
    counts = [m for m in range(1, batch + 1) if batch % m == 0]
    for num_stages in stages:
        num_gpus, rest = divmod(cluster.num_gpus, num_stages)
        if (
            rest
            or num_stages not in (options.num_stages or (num_stages,))
            or num_gpus not in (options.gpus_per_stage or (num_gpus,))
        ):
            continue
        yield from ((num_stages, m) for m in counts if m in (options.num_micro_batches or (m,)))


class _Candidate(NamedTuple):
    """Numbers, and a way to share the vocabulary; the first field orders them."""

    bound_ms: float
    num_stages: int
    num_micro_batches: int
    shared: SharedLayers


class _Search:
    """One search."""

    def __init__(
        self, costs: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions, shape: str
    ) -> None:
        self.costs, self.cluster, self.batch, self.options = costs, cluster, batch, options
        self.end_s = time.monotonic() + options.time_limit_s
        self.trunk = PartCosts(trunk_of(costs.model, shape), costs)

    def candidates(self) -> list[_Candidate]:
        """Return what is to be tried, that of the least bound first.

        Raises:
            PlanError: The vocabulary cannot be shared in any of these ways.
        """
        found: list[_Candidate] = []
        refused: ValueError | None = None
        most = min(self.cluster.num_gpus, len(self.trunk.model.layers))
        for num_stages, m in even_numbers(self.cluster, self.batch, self.options, range(2, most + 1)):
            bound_ms = self._bound_ms(num_stages, m)
            for copies in self._copies(num_stages, m) if bound_ms < math.inf else ():
                try:
                    shared = self._vocabulary(copies, m)
                except (PlacementError, CalibrationError) as error:
                    refused = error
                    continue
                min_ms = bound_ms + shared.iteration_ms(m)
                found.append(_Candidate(min_ms, num_stages, m, shared))
        if refused is not None and not found:
            raise PlanError(f"the vocabulary cannot be on all GPUs: {refused}")
        return sorted(found, key=lambda each: each[:3])

    def planned(self, candidate: _Candidate) -> TrunkPlan | None:
        """Return the best plan with these numbers; None where none fits."""
        shared, m = candidate.shared, candidate.num_micro_batches
        reserve_gib = self.options.reserve_gib + shared.held_mib / 1024
        own_gib = self.cluster.whole.memory_gib
        if reserve_gib >= (own_gib if self.options.memory_gib is None else self.options.memory_gib):
            return None
        limited = replace(
            self.options,
            num_stages=(candidate.num_stages,),
            gpus_per_stage=(self.cluster.num_gpus // candidate.num_stages,),
            num_micro_batches=(m,),
            reserve_gib=reserve_gib,
            num_plans=1,
            time_limit_s=max(self.end_s - time.monotonic(), 1e-3),
        )
        searched = search_plans(self.trunk, self.cluster, self.batch, limited)
        if searched.interrupted:
            raise KeyboardInterrupt
        if not (plans := searched.plans):
            return None
        return TrunkPlan(plans[0], shared, plans[0].time_ms + shared.iteration_ms(m))

    def _copies(self, num_stages: int, m: int) -> list[int]:
        """Return the numbers of groups that can each have all rows of the table."""
        num_gpus, samples = self.cluster.num_gpus // num_stages, self.batch // m
        return [each for each in range(1, num_gpus + 1) if num_gpus % each == 0 and samples % each == 0]

    def _vocabulary(self, copies: int, m: int) -> SharedLayers:
        """Return the vocabulary, of which as many groups of GPUs have all rows.

        Raises:
            PlacementError: It cannot be shared so.
            CalibrationError: Its time was not measured.
        """
        model, group = self.costs.model, self.cluster.whole
        places = vocabulary_places(model)
        return SharedLayers(
            tuple(model.layers[place] for place in places),
            tuple(place - before for before, place in enumerate(places)),
            LayerStrategy(group.count // copies, copies),
            vocabulary_costs(model, self.costs, group, copies, self.batch // m, m),
        )

    def _bound_ms(self, num_stages: int, m: int) -> float:
        """Return a time that no iteration of the trunk is below, memory aside; infinite where none can be."""
        num_gpus, counts = self.cluster.num_gpus // num_stages, Counter(self.trunk.model.layers)
        least = {layer: self._min_ms(layer, num_gpus, m) for layer in counts}
        total = sum(count * least[layer] for layer, count in counts.items())
        return (m - 1) * max(total / num_stages, max(least.values())) + total

    def _min_ms(self, layer: Layer, num_gpus: int, m: int) -> float:
        """Return the least time of a layer for a micro-batch and its share of the update, on any stage."""
        cluster, times_ms = self.cluster, [math.inf]
        groups = [cluster.group(first, num_gpus) for first in range(0, cluster.num_gpus, num_gpus)]
        for group in {group.pattern: group for group in groups}.values():
            try:
                found = layer_costs(self.trunk, layer, self.options.trees, self.batch // m, m, group)
            except PlanError:
                continue
            times_ms += [
                cost.forward.time_ms + cost.backward.time_ms + cost.update_ms / m for cost in found.values()
            ]
        return min(times_ms)
