"""A plan as Galvatron's search writes it: its placement, and the model that it is for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.search.kinds.kind import Built, ModelledKind, PlannedRun
from placements import Profile
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.forms.reading import json_file
from placements.hardware import Gpu, modelled_profile
from placements.models.training_figures import IterationWork

if TYPE_CHECKING:
    from placements.planners.hybrid.plan import Plan


@dataclass(frozen=True, kw_only=True)
class GalvatronPlacement(ModelledKind):
    """The `placement` group of a planner's plan; see `placements.planners`."""

    kind: str = option("galvatron", "planner of the plan; set by placement=")
    path: Verbatim = option(REQUIRED, "a galvatron_config_*.json, as Galvatron's search writes it")
    world_size: int | None = option(None, "GPUs of all stages together; null: the file's")
    num_layers: int | None = option(
        None,
        "transformer layers; null: as many as the file has; the file does not have the model's other sizes",
    )
    overlap_slowdown: float = option(1.3, "factor on computing and transfers while both run")

    def run(self, gpu: Gpu) -> PlannedRun:
        """Return the plan's part in a run; the model of the run shares its layers itself."""
        plan = self.plan(gpu)
        return PlannedRun(plan.num_micro_batches, plan.micro_batch_size, plan.recomputed_blocks, {})

    def plan(self, gpu: Gpu) -> Plan:
        """Return the plan as it is written.

        Raises:
            PlanError: The plan is wrong, or does not fit the model.
            PlacementError: A size or a rate is out of its range.
        """
        from placements.planners.hybrid.placing.gpt import one_node
        from placements.planners.hybrid.plan import PlanError
        from placements.trainers.galvatron import galvatron_plan

        cluster = partial(one_node, gpu, link_efficiency=self.link_efficiency)
        with json_file(self.path, "a galvatron_config_*.json", PlanError) as data:
            return galvatron_plan(
                data.value, lambda layers: self.gpt(self.num_layers or layers), cluster, self.world_size
            )

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the placement of the plan."""
        from placements.planners.hybrid.placing.planned_placement import (
            chunk_pieces,
            compute_shares,
            placement_of_pieces,
        )
        from placements.planners.hybrid.shape_costs import ShapeCosts

        given = self.plan(gpu)
        samples = num_micro_batches * given.micro_batch_size
        plan = replace(given, num_micro_batches=num_micro_batches, global_batch_size=samples)
        options = replace(self.reached, overlap_slowdown=self.overlap_slowdown)
        pieces = chunk_pieces(plan, ShapeCosts(plan.model, options))
        capacities_gib = [gpu.memory_gib - self.reserve_gib] * plan.num_stages
        layers, again = (",".join(map(str, counts)) for counts in (plan.stage_layers, plan.recomputed_blocks))
        is_changed = num_micro_batches != given.num_micro_batches
        in_words = (
            f"{Path(self.path).name}: {plan.num_stages} stages of {len(plan.stages[0].gpus)} GPUs with "
            f"{layers} layers, {len(plan.pieces)} forward blocks; {num_micro_batches} micro-batches of "
            f"{plan.micro_batch_size} samples; runtime.recompute=[{again}]"
        ) + f"; not its chunks {given.num_micro_batches}" * is_changed
        return Built(
            placement_of_pieces("as planned by Galvatron", plan, pieces, capacities_gib, self.tick_ms),
            f"cost model of a GPT on {gpu.name}, for the plan {self.path}",
            lambda placement: modelled_profile(placement, gpu, compute_shares(pieces, placement, gpu)),
            planned=plan,
            in_words=in_words,
            work=IterationWork.of(plan.model, {gpu: plan.num_gpus}, samples),
        )
