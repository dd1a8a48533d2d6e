"""The plans of each shape, made placements; where a shape cannot be made, why.

The plans of a chain become a V-shape; M- and NN-shapes have a search of their own.
The module does not know which plan is best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placements import PlacementError
from placements.cluster import Cluster
from placements.planners.hybrid.placing.planned_placement import planned_placement
from placements.planners.hybrid.placing.shared_layers import SHARED_VOCABULARY, search_trunks
from placements.planners.hybrid.plan import PlanError, UnsuitableShapeError
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan
from placements.planners.hybrid.search.plan_search import PlannerReport
from placements.planners.hybrid.stage_tables import LayerCosts
from schedsearch.planning.plans import RankedPlan, capacities_gib, plan_name

SHAPES = ("v_shape", *SHARED_VOCABULARY)
"""Placements that can compete."""


def chain_plans(
    chains: Sequence[RatedPlan], costs: LayerCosts, options: PlanOptions
) -> Iterator[RankedPlan | str]:
    """Yield plans of all layers in a chain as V-shapes, or lines that say why one cannot be made.

    Args:
        chains: The plans, each with its stages.
        costs: Costs of the whole model.
        options: What is allowed.
    """
    for rated in chains:
        plan, capacities = rated.plan, capacities_gib(rated.plan, options)
        try:
            placement = planned_placement(plan, costs, capacities)
            yield RankedPlan("v_shape", rated, placement, rated.time_ms)
        except (PlanError, PlacementError) as error:
            yield f"{plan_name('v_shape', plan)}: {error}"


def vocabulary_plans(
    shape: str,
    batches: Sequence[int],
    costs: LayerCosts,
    cluster: Cluster,
    options: PlanOptions,
    on_progress: PlannerReport | None,
) -> Iterator[RankedPlan | str]:
    """Yield likewise the best plans of an M- or NN-shape, of one or more sizes of the batch.

    Raises:
        KeyboardInterrupt: From the keyboard.
    """
    if cluster.num_gpus == 1:
        yield f"{shape}: of one GPU there is no other shape than v_shape"
        return
    try:
        found = [
            each
            for batch in batches
            for each in search_trunks(costs, cluster, batch, shape, options, on_progress)
        ]
    except UnsuitableShapeError as error:
        yield f"{shape} {error.reason}"
        return
    except PlanError as error:
        yield f"{shape}: {error}"
        return
    if not found:
        yield f"{shape}: none fits with the numbers that are allowed"
    found.sort(key=lambda each: each.time_ms / each.rated.plan.global_batch_size)
    for each in found[: options.num_plans]:
        plan, capacities = each.rated.plan, capacities_gib(each.rated.plan, options)
        try:
            placement = planned_placement(plan, costs, capacities, shared=each.shared)
            yield RankedPlan(shape, each.rated, placement, each.time_ms, shared=each.shared)
        except (PlanError, PlacementError) as error:
            yield f"{plan_name(shape, plan)}: {error}"
