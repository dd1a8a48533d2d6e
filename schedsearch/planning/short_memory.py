"""Why no plan fits, and the least memory of a GPU, or number of GPUs, with which one would.

The module knows plans of all layers in a chain alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from placements.cluster import Cluster
from placements.planners.hybrid.plan_options import Obstacle, PlanOptions, PlanSearchResult
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.stage_tables import LayerCosts


def why_no_plan(
    cluster: Cluster, costs: LayerCosts, options: PlanOptions, searches: Mapping[int, PlanSearchResult]
) -> str:
    """Return a line that says why no plan fits, and the smallest memory or number of GPUs that would do.

    Args:
        cluster: The GPUs.
        costs: Costs of the layers in a chain.
        options: What was allowed.
        searches: What was tried, for each batch size.
    """
    name, sizes = costs.model.name, list(searches)
    trials = [trial for found in searches.values() for trial in found.trials]
    if not any(trial.fails_by(Obstacle.MEMORY) for trial in trials):
        return f"{name}: nothing can be planned: {trials[0].reason if trials else 'nothing was tried'}"
    min_gib, gpus = (
        min_memory_gib(costs, cluster, sizes, options),
        min_gpus(costs, cluster, sizes, options),
    )
    ways = [] if min_gib is None else [f"at least {min_gib:.1f} GiB"]
    ways += [] if gpus is None else [f"{gpus} of these GPUs"]
    remedy = " or ".join(ways) or "recomputation or a smaller batch"
    none = "" if gpus else f", but no number of these GPUs up to {_MAX_GPUS}"
    own_gib = cluster.group(0, 1).memory_gib if options.memory_gib is None else options.memory_gib
    return (
        f"memory_gib: {own_gib:g} GiB less {options.reserve_gib:g} in reserve are too little for "
        f"{name} on {cluster.num_gpus} GPUs; {remedy} would do{none}"
    )


_MAX_GPUS = 1024
"""GPUs with which a plan is looked for at most."""


def min_gpus(costs: LayerCosts, cluster: Cluster, sizes: Sequence[int], options: PlanOptions) -> int | None:
    """Return with how many such GPUs some plan fits, in more equal nodes; None where not with `_MAX_GPUS`.

    Where there are several kinds of nodes, each kind grows by the same factor.

    Args:
        costs: Costs of the layers in a chain.
        cluster: Cluster with whose GPUs none fits.
        sizes: Samples of an iteration, one of which is to fit.
        options: What is allowed.
    """
    step = 1 if len(cluster.nodes) > 1 else cluster.nodes[0].num_nodes

    def grown(steps: int) -> Cluster:
        nodes = (replace(each, num_nodes=each.num_nodes * steps // step) for each in cluster.nodes)
        return replace(cluster, nodes=tuple(nodes))

    most = _MAX_GPUS * step / cluster.num_gpus
    found = _first(lambda steps: _fits(costs, grown(steps), sizes, options), step, 2 * step, most)
    return None if found is None else grown(found).num_gpus


def _first(holds: Callable[[int], bool], low: int, high: int, most: float) -> int | None:
    """Return the first number after low from which on something holds, high or more; None up to the most."""
    while not holds(high):
        low, high = high, 2 * high
        if high > most:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _fits(costs: LayerCosts, cluster: Cluster, sizes: Sequence[int], options: PlanOptions) -> bool:
    """Return whether there is a plan: a search ends with its first one."""

    def stop(_: int, __: int, min_ms: float | None, ___: float) -> None:
        if min_ms is not None:
            raise KeyboardInterrupt

    tried = replace(options, num_plans=1)
    return any(search_plans(costs, cluster, size, tried, stop).plans for size in sizes)


def min_memory_gib(
    costs: LayerCosts, cluster: Cluster, sizes: Sequence[int], options: PlanOptions, max_gib: float = 2.0**16
) -> float | None:
    """Return the least memory of each GPU, to a tenth of a GiB, with which some plan fits; None for none.

    Args:
        costs: Costs of the layers in a chain.
        cluster: The GPUs.
        sizes: Samples of an iteration, one of which is to fit.
        options: What is allowed, but for the memory.
        max_gib: With which there is no plan where this is too little.
    """

    def fits(tenths: int) -> bool:
        return _fits(costs, cluster, sizes, replace(options, memory_gib=tenths / 10))

    low = math.floor(options.reserve_gib * 10)
    tenths = _first(fits, low, max(2 * low, low + 10), max_gib * 10)
    return None if tenths is None else tenths / 10
