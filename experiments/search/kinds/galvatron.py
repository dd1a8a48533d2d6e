"""A plan as Galvatron's search writes it: its placement, and the model that it is for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from experiments.config.options import require_least
from experiments.search.kinds.kind import Built, ModelledKind, PlannedRun, RunPlan
from placements import Profile
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.hardware import Gpu, modelled_profile
from placements.models.chain import ModelShape
from placements.planners.hybrid.placing.gpt import gpt_model, one_node
from placements.planners.hybrid.placing.planned_placement import (
    chunk_pieces,
    compute_shares,
    placement_of_pieces,
)
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.trainers.galvatron import read_galvatron


@dataclass(frozen=True, kw_only=True)
class GalvatronPlacement(ModelledKind):
    """The `placement` group of a planner's plan; see `placements.planners`."""

    kind: str = option("galvatron", "who made the plan; set by placement=")
    path: Verbatim = option(REQUIRED, "a galvatron_config_*.json, as Galvatron's search writes it")
    world_size: int | None = option(None, "GPUs of all stages together; null: the file's")
    num_layers: int | None = option(
        None,
        "transformer layers; null: as many as the file has; the file does not have the model's other sizes",
    )
    hidden_size: int = option(4096, "hidden size of the model")
    num_heads: int = option(32, "attention heads")
    vocab_size: int = option(50304, "entries of the vocabulary")
    sequence_length: int = option(2048, "tokens of a sample")
    flash_attention: bool = option(
        True, "true: attention keeps no scores; false: they are kept for the backward"
    )
    overlap_slowdown: float = option(1.3, "factor on computing and transfers while both run")
    tick_ms: float | None = option(
        None, "duration of a tick, in ms; null: so short that the shortest block has a hundred ticks or more"
    )

    def run(self, gpu: Gpu) -> PlannedRun:
        """Return the plan's part in a run; the model of the run shares its layers itself."""
        plan = self.planned(gpu).plan
        return PlannedRun(plan.num_micro_batches, plan.micro_batch_size, plan.recomputed_blocks, {})

    def planned(self, gpu: Gpu, num_micro_batches: int | None = None) -> RunPlan:
        """Return the plan, with a number of its micro-batches; None for its own.

        Raises:
            PlanError: The plan is wrong, or does not fit the model.
            PlacementError: A size or a rate is out of its range.
        """
        cluster = partial(one_node, gpu, link_efficiency=self.link_efficiency)
        plan = given = read_galvatron(self.path, self._model, cluster, self.world_size)
        if num_micro_batches is not None:
            samples = num_micro_batches * given.micro_batch_size
            plan = replace(plan, num_micro_batches=num_micro_batches, global_batch_size=samples)
        return RunPlan(plan, given, self.path)

    def _model(self, num_layers: int) -> ModelShape:
        return gpt_model(
            num_layers if self.num_layers is None else self.num_layers,
            self.hidden_size,
            self.num_heads,
            self.vocab_size,
            self.sequence_length,
            flash_attention=self.flash_attention,
        )

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the placement of the plan."""
        require_least("search.num_micro_batches", num_micro_batches, 1)
        planned = self.planned(gpu, num_micro_batches)
        plan = planned.plan
        options = replace(self.reached, overlap_slowdown=self.overlap_slowdown)
        pieces = chunk_pieces(plan, ShapeCosts(plan.model, options))
        capacities_gib = [gpu.memory_gib - self.reserve_gib] * plan.num_stages
        return Built(
            placement_of_pieces("as planned by Galvatron", plan, pieces, capacities_gib, self.tick_ms),
            f"cost model of a GPT on {gpu.name}, for the plan {self.path}",
            lambda each: modelled_profile(each, gpu, compute_shares(pieces, each, gpu)),
            memory_unit_mib=1.0,
            planned=planned,
        )
