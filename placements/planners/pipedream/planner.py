"""PipeDream's planner: stages and their workers such that the slowest of all takes the least time.

Beside it are the plans that people make without one: data parallel, and a stage for each worker. The answer
is exact for the cost model (Sec. 2.4.1), which has no start-up and no idle time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from placements.planners.hybrid.plan import PlanError
from placements.planners.pipedream.closed_sets import ClosedSets, closed_sets
from placements.planners.pipedream.plan import SYNCS, PipelinePlan, PlanPart, plan_of
from placements.planners.pipedream.profile_graph import ProfileGraph
from placements.planners.pipedream.stage_tables import FewestStages, StageTables
from placements.planners.pipedream.topology import Level, check_levels, num_workers


def best_plan(
    graph: ProfileGraph, levels: Sequence[Level], sync: str = "per_worker", memory_mib: float | None = None
) -> PipelinePlan:
    """Return the plan of least time for one input, on all workers.

    Where several plans are equally good, it is one of fewest stages, with few workers for the last ones.

    Args:
        graph: The model; see `placements.planners.pipedream.profile_graph.for_planning`.
        levels: Workers, from the innermost level to the outermost.
        sync: How the exchange of gradients counts; see `SYNCS`. PipeDream's prose has ``per_worker``, its
            formula ``printed``.
        memory_mib: Memory of each worker, for weights and activations of all inputs in flight; None for no
            limit.

    Raises:
        PlanError: An argument is out of its range, or no plan fits the memory.

    >>> from placements.planners.pipedream.profile_graph import ProfiledNode, chain_graph
    >>> layers = [(6, 8e6, 0), (6, 1e6, 1e5), (4, 0, 8e7)]
    >>> graph = chain_graph(ProfiledNode(f"{i}", "", 1, t - 1, a, w) for i, (t, a, w) in enumerate(layers))
    >>> plan = best_plan(graph, [Level(4, gb_per_s=1.0)])
    >>> plan.configuration, plan.time_ms, plan.bottleneck
    ('3-1', 4.0, 'compute')
    """
    _check(levels, sync, memory_mib)
    plan = _plan(StageTables(closed_sets(graph), levels, sync, memory_mib))
    if plan is None:
        raise PlanError(
            f"memory_mib: {memory_mib:g} is too little for any plan; give more memory or workers, or smaller "
            "inputs"
        )
    return plan


def straight_plan(
    graph: ProfileGraph, levels: Sequence[Level], sync: str = "per_worker", memory_mib: float | None = None
) -> PipelinePlan:
    """Return the best plan with a stage for each worker; see `best_plan`.

    Raises:
        PlanError: Likewise; or there are fewer nodes than workers.
    """
    _check(levels, sync, memory_mib)
    if num_workers(levels) > len(graph.nodes):
        raise PlanError(
            f"levels: have {num_workers(levels)} workers for {len(graph.nodes)} nodes; give at most one "
            "worker for each"
        )
    plan = _plan(StageTables(closed_sets(graph), levels, sync, memory_mib, is_replicated=False))
    if plan is None:
        raise PlanError(f"memory_mib: {memory_mib:g} is too little for a stage on each worker; give more")
    return plan


def data_parallel_plan(
    graph: ProfileGraph, levels: Sequence[Level], sync: str = "per_worker"
) -> PipelinePlan:
    """Return the plan with one stage on all workers; see `best_plan`. Its memory is not limited.

    Raises:
        PlanError: An argument is out of its range.
    """
    _check(levels, sync, None)
    sets = closed_sets(graph)
    return plan_of(sets, levels, sync, _one_stage(sets, levels))


def _plan(tables: StageTables) -> PipelinePlan | None:
    """Return the plan of least time, and of such with fewest stages; None where none fits the memory."""
    min_ms = tables.best()
    if not math.isfinite(min_ms):
        return None
    given = tables.sets, tables.levels, tables.sync, tables.memory_mib, tables.is_replicated
    return plan_of(tables.sets, tables.levels, tables.sync, FewestStages(*given, min_ms).parts())


def _one_stage(sets: ClosedSets, levels: Sequence[Level]) -> tuple[PlanPart, ...]:
    inner = _one_stage(sets, levels[:-1]) if len(levels) > 1 else ()
    return (PlanPart(0, len(sets) - 1, levels[-1].count, inner),)


def _check(levels: Sequence[Level], sync: str, memory_mib: float | None) -> None:
    check_levels(levels)
    if sync not in SYNCS:
        raise PlanError(f"sync: {sync!r} is not known; use one of {', '.join(SYNCS)}")
    if memory_mib is not None and not memory_mib > 0:
        raise PlanError(f"memory_mib: {memory_mib!r} is not above 0; give MiB, or leave it out")
