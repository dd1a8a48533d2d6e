"""The plans of each shape, made placements; where a shape cannot be made, why.

The plans of a chain become a V-shape, a loop or a wave; M- and NN-shapes have a search of their own.
The module does not know which plan is best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from placements import Placement, PlacementError
from placements.cluster import Cluster
from placements.pieces import PIPELINES
from placements.planners.hybrid.placing.planned_placement import (
    CHUNKED,
    SHARED_VOCABULARY,
    balanced_chunks,
    chunked_placement,
    planned_placement,
    shared_vocabulary_placement,
)
from placements.planners.hybrid.placing.trunk_search import TrunkPlan, search_trunks
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan
from placements.planners.hybrid.search.plan_search import PlannerReport
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.planners.parallel_plan import PlanError, UnsuitableShapeError
from schedsearch.core.answer import Status
from schedsearch.planning.layout_plans import LayoutPlans
from schedsearch.planning.plans import (
    HybridPlan,
    ProposedPlan,
    RankedPlan,
    capacities_of,
    chain_of,
    plan_name,
)

SHAPES = ("v_shape", *CHUNKED, *SHARED_VOCABULARY)
"""Placements that can compete."""


@dataclass(frozen=True)
class ShapePlans:
    """The plans of each shape, of the same costs and GPUs.

    Attributes:
        costs: Costs of the whole model.
        cluster: Its GPUs.
        batches: Samples of an iteration, one or more sizes.
        options: What is allowed.
        num_chunks: Chunks of each device in a wave or a loop.
        on_progress: Told about the searches of M- and NN-shapes.
        left_out: Plans that could not be made, and why, a line each.
    """

    costs: LayerCosts
    cluster: Cluster
    batches: Sequence[int]
    options: PlanOptions
    num_chunks: int
    on_progress: PlannerReport | None
    left_out: list[str] = field(default_factory=list)

    def of(self, shape: str, chains: Sequence[RatedPlan]) -> list[ProposedPlan]:
        """Return the best plans of a shape by its formula, at most as many as the options want.

        Args:
            shape: One of `SHAPES`.
            chains: The best plans of all layers in a chain.

        Raises:
            KeyboardInterrupt: From the keyboard.
        """
        try:
            found = self._found(shape, chains)
        except UnsuitableShapeError as error:
            self.left_out.append(f"{shape} {error.reason}")
            return []
        except PlanError as error:
            self.left_out.append(f"{shape}: {error}")
            return []
        if not found:
            self.left_out.append(f"{shape}: none fits with the numbers that are allowed")
        proposed = (self._proposed(shape, each) for each in found)
        return [each for each in proposed if each is not None]

    def _found(self, shape: str, chains: Sequence[RatedPlan]) -> Sequence[HybridPlan]:
        if shape not in SHARED_VOCABULARY:
            return chains
        if self.cluster.num_gpus == 1:
            raise PlanError("of one GPU there is no other shape than v_shape")
        found = [
            each
            for batch in self.batches
            for each in search_trunks(self.costs, self.cluster, batch, shape, self.options, self.on_progress)
        ]
        rates = [each.rated.plan.global_batch_size / each.time_ms for each in found]
        order = sorted(range(len(found)), key=lambda i: -rates[i])
        return [found[i] for i in order[: self.options.num_plans]]

    def _proposed(self, shape: str, found: HybridPlan) -> ProposedPlan | None:
        """Return a plan with its placement; where that cannot be, say why."""
        plan = chain_of(found).plan
        name = plan_name(shape, found)
        if shape in CHUNKED and plan.num_stages == 1:
            self.left_out.append(f"{shape}: of one stage there is no other shape than v_shape")
            return None
        try:
            placement = self._placement(shape, found)
        except (PlanError, PlacementError) as error:
            self.left_out.append(f"{name}: {error}")
            return None
        if shape not in CHUNKED:
            return ProposedPlan(found, shape, placement, found.time_ms)
        (stages,) = PIPELINES[shape](plan.num_stages, self.num_chunks)
        chunks = zip(stages, balanced_chunks(plan, self.costs, self.num_chunks), strict=True)
        return ProposedPlan(found, shape, placement, chunks=tuple(chunks))

    def _placement(self, shape: str, found: HybridPlan) -> Placement:
        plan, capacities_gib = chain_of(found).plan, capacities_of(chain_of(found), self.options)
        if isinstance(found, TrunkPlan):
            return shared_vocabulary_placement(
                self.costs.model, plan, self.costs, found.data_parallel, capacities_gib
            )
        if shape == "v_shape":
            return planned_placement(plan, self.costs, capacities_gib)
        return chunked_placement(plan, self.costs, shape, self.num_chunks, capacities_gib)


def layout_proposals(layouts: LayoutPlans, by_formula: bool) -> list[ProposedPlan]:
    """Return the best layouts of training frameworks as plans, by the schedule that times each.

    Args:
        layouts: What was found.
        by_formula: Without that schedule.
    """
    proposed = []
    for each in layouts.plans:
        shape = "v_shape" if each.layout.degrees.chunks == 1 else "loop_shape"
        schedule = each.schedule(layouts.limit_gib)
        ranked = RankedPlan(
            Status.FEASIBLE,
            each.run.iteration_ms,
            min(each.estimate.load_ms, each.run.iteration_ms),
            each.run.iteration_ms if shape == "v_shape" else None,
            tuple(1024 * gib for gib in each.run.gib_by_stage),
            schedule=schedule,
        )
        searched = None if by_formula else ranked
        chunks = tuple(zip(each.run.devices, each.run.chunks, strict=True))
        proposed.append(
            ProposedPlan(each, shape, schedule.placement, each.rated.time_ms, searched, chunks=chunks)
        )
    return proposed
