"""The numbers of stages, GPUs in each and micro-batches that a search tries.

The module does not know what a layer costs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from placements.cluster import Cluster
from placements.models.parallel import LayerStrategy
from placements.planners.hybrid.decision_trees import TreeOptions, layer_strategies
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.plan_options import NoPlan, PlanOptions, Trial


class PlanNumbers(NamedTuple):
    """Numbers to try; the first field orders them.

    Attributes:
        bound_ms: No iteration is shorter; 0 where nothing is known yet.
        num_stages: Stages of the pipeline.
        num_gpus: GPUs of each stage.
        num_micro_batches: Micro-batches of an iteration.
        num_bounds: How many of its bounds are counted; each is tighter than the one before.
        strategy: Index of the one strategy of all layers, among those of so many GPUs; -1 where each layer
            has its own.
    """

    bound_ms: float
    num_stages: int
    num_gpus: int
    num_micro_batches: int
    num_bounds: int = 0
    strategy: int = -1

    @property
    def which(self) -> tuple[int, int, int]:
        """The numbers without what is known of them."""
        return self[1:4]

    def trial(self, time_ms: float | None, why_none: NoPlan | None = None) -> Trial:
        """Return what came of it."""
        return Trial(*self.which, self.bound_ms, time_ms, why_none if time_ms is None else None)


def numbers_to_try(cluster: Cluster, num_layers: int, batch: int, options: PlanOptions) -> list[PlanNumbers]:
    """Return all numbers that the options allow.

    Args:
        cluster: The GPUs.
        num_layers: Layers of the model; no fewer than stages.
        batch: Samples of an iteration; a multiple of its micro-batches.
        options: What is allowed.
    """
    found = []
    counts = _allowed([m for m in range(1, batch + 1) if batch % m == 0], options.num_micro_batches)
    for num_gpus in _allowed(_group_sizes(cluster), options.gpus_per_stage):
        most = min(cluster.num_gpus // num_gpus, num_layers)
        for num_stages in _allowed(list(range(1, most + 1)), options.num_stages):
            if _is_wanted(num_stages, num_stages * num_gpus == cluster.num_gpus, options):
                found += [PlanNumbers(0.0, num_stages, num_gpus, m) for m in counts]
    if not options.uniform:
        return found
    sizes = {each.num_gpus: range(len(uniform_strategies(each.num_gpus, options.trees))) for each in found}
    return [each._replace(strategy=i) for each in found for i in sizes[each.num_gpus]]


def uniform_strategies(num_gpus: int, trees: TreeOptions) -> tuple[LayerStrategy, ...]:
    """Return the strategies that all layers of a model may have; none where the trees have none."""
    try:
        return layer_strategies(num_gpus, trees, math.lcm(*trees.expert_parallel))
    except PlanError:
        return ()


def likely_to_fit(numbers: list[PlanNumbers], cluster: Cluster) -> list[PlanNumbers]:
    """Return those to look at for a first plan: on all GPUs, in the smallest micro-batches, nodes first."""
    node = _node_size(cluster)
    smallest = max((each.num_micro_batches for each in numbers), default=1)
    likely = [
        each
        for each in numbers
        if each.num_micro_batches == smallest and each.num_stages * each.num_gpus == cluster.num_gpus
    ]
    return sorted(likely, key=lambda each: abs(math.log2(each.num_gpus / node)))


def _allowed(numbers: list[int], allowed: tuple[int, ...] | None) -> list[int]:
    return [each for each in numbers if allowed is None or each in allowed]


def _node_size(cluster: Cluster) -> int:
    return math.gcd(*(nodes.gpus_per_node for nodes in cluster.nodes))


def _group_sizes(cluster: Cluster) -> list[int]:
    """Return how many GPUs a stage may have: a part of a node, or whole nodes."""
    node = _node_size(cluster)
    parts = [n for n in range(1, node + 1) if node % n == 0]
    return [*parts, *range(2 * node, cluster.num_gpus + 1, node)]


def _is_wanted(num_stages: int, is_on_all_gpus: bool, options: PlanOptions) -> bool:
    if options.method != "exact":
        return is_on_all_gpus and (options.num_stages is not None or num_stages.bit_count() == 1)
    return is_on_all_gpus or options.idle_gpus
