"""Why no plan fits, and the least memory of a GPU with which one would.

The module knows plans of all layers in a chain alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from placements.cluster import Cluster
from placements.planners.hybrid.plan_options import PlanOptions, PlanSearchResult
from placements.planners.hybrid.plan_search import search_plans
from placements.planners.hybrid.stage_tables import LayerCosts


def why_no_plan(
    cluster: Cluster, costs: LayerCosts, options: PlanOptions, searches: Mapping[int, PlanSearchResult]
) -> str:
    """Return a line that says why no plan fits, and the smallest memory or number of GPUs that would do.

    Args:
        cluster: The GPUs.
        costs: Of the layers in a chain.
        options: What was allowed.
        searches: Of each batch size: what was tried.
    """
    name, sizes = costs.model.name, list(searches)
    trials = [trial for found in searches.values() for trial in found.trials]
    short = [trial.reason for trial in trials if trial.reason.startswith("out of memory")]
    if not short:
        return f"{name}: nothing can be planned: {trials[0].reason if trials else 'nothing was tried'}"
    least_gib = least_memory_gib(costs, cluster, sizes, options)
    remedy = (
        "recomputation, a smaller batch or more GPUs"
        if least_gib is None
        else f"at least {least_gib:.1f} GiB"
    )
    own_gib = cluster.group(0, 1).memory_gib if options.memory_gib is None else options.memory_gib
    return (
        f"memory_gib: {own_gib:g} GiB less {options.reserve_gib:g} in reserve are too little for "
        f"{name} on {cluster.num_gpus} GPUs; {remedy} would do"
    )


def least_memory_gib(
    costs: LayerCosts, cluster: Cluster, sizes: Sequence[int], options: PlanOptions, most_gib: float = 2.0**16
) -> float | None:
    """Return the least memory of each GPU, to a tenth of a GiB, with which some plan fits; None for none.

    Args:
        costs: Of the layers in a chain.
        cluster: The GPUs.
        sizes: Samples of an iteration, one of which is to fit.
        options: What is allowed, but for the memory.
        most_gib: With which there is no plan where this is too little.
    """

    def fits(tenths: int) -> bool:
        tried = replace(options, memory_gib=tenths / 10, num_plans=1)
        return any(search_plans(costs, cluster, size, tried).plans for size in sizes)

    low = math.floor(options.reserve_gib * 10)
    high = max(2 * low, low + 10)
    while not fits(high):
        low, high = high, 2 * high
        if high > most_gib * 10:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high / 10
