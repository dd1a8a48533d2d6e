"""Megatron's rules of thumb: what a search should be better than.

The module knows which numbers the rules try, in which order; `plan_search` tells what fits and what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from placements.cluster import Cluster
from placements.planners.hybrid.decision_trees import Paradigm
from placements.planners.hybrid.plan_options import PlanOptions, PlanSearchResult
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.stage_tables import LayerCosts


def rules_of_thumb(
    costs: LayerCosts, cluster: Cluster, global_batch_size: int, options: PlanOptions
) -> PlanSearchResult:
    """Return the plan of the rules (Narayanan's dissertation, Sec. 4.3).

    Layers are shared inside a node first, and stages put on several (Takeaway 1). The first numbers with
    which the model fits are taken, and all other GPUs are replicas (2). The micro-batch has the size of the
    least time (3, Eq. 4.1). All layers are shared alike but for recomputation, and divided evenly in time.
    Optimizer states are sharded (ZeRO-1) where the options allow it.

    Args:
        costs: Costs of the model's layers.
        cluster: All of its GPUs are used.
        global_batch_size: Samples of an iteration.
        options: What is held, what may be recomputed, and which numbers may be tried.

    Returns:
        With one plan, or none where nothing fits; then the trials of all numbers.

    Raises:
        PlanError: Nothing can be tried at all.
    """
    rules = replace(options, method="base", stage_method="exact", idle_gpus=False, num_plans=1)
    tried: PlanSearchResult | None = None
    for t, p in _degrees(cluster):
        if options.num_stages is not None and p not in options.num_stages:
            continue
        data = Paradigm.ZERO1 if Paradigm.ZERO1 in options.trees.paradigms else Paradigm.DP
        trees = replace(options.trees, paradigms=(data, Paradigm.TP), tensor_parallel=(t,))
        numbers = replace(rules, trees=trees, num_stages=(p,), gpus_per_stage=(cluster.num_gpus // p,))
        found = search_plans(costs, cluster, global_batch_size, numbers)
        trials = (*(tried.trials if tried else ()), *found.trials)
        tried = replace(found, trials=trials)
        if found.plans:
            return tried
    return tried or PlanSearchResult((), (), 0.0, 0)


def _degrees(cluster: Cluster) -> Iterator[tuple[int, int]]:
    """Yield the degrees of tensor parallelism and stages that are tried: more of the first up to a node."""
    node = math.gcd(*(nodes.gpus_per_node for nodes in cluster.nodes))
    inside = [t for t in range(1, node + 1) if node % t == 0]
    yield from ((t, 1) for t in inside)
    left = cluster.num_gpus // node
    yield from ((node, p) for p in range(2, left + 1) if left % p == 0)
