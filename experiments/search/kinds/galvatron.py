"""A plan as Galvatron's search writes it: its placement, and the model that it is for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.config.options import require_known, require_least
from experiments.search.kinds.kind import Built, ModelledKind, PlannedRun, RunPlan
from placements import Profile
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.hardware import Gpu, modelled_profile
from placements.models.gpt.gpt_config import GptConfig
from placements.models.gpt.workload import Workload
from placements.planners.galvatron import (
    layer_times_ms,
    plan_compute_shares,
    plan_placement,
    recomputed_blocks,
)
from placements.planners.galvatron_file import read_galvatron
from placements.planners.parallel_plan import ParallelPlan
from placements.planners.partition import min_imbalance, min_largest

BALANCES = {"largest": min_largest, "imbalance": min_imbalance}
"""What divides layers into stages, by the name that the command line uses."""


@dataclass(frozen=True, kw_only=True)
class GalvatronPlacement(ModelledKind):
    """The `placement` group of a planner's plan; see `placements.planners` and `placements.models.rates`."""

    kind: str = option("galvatron", "who made the plan; set by placement=")
    path: Verbatim = option(REQUIRED, "a galvatron_config_*.json, as Galvatron's search writes it")
    balance: str | None = option(None, "largest | imbalance: divides the stages again; null: as in the file")
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
        """Return what the plan says of a run; the model of the run shares its layers itself."""
        plan = self.planned(gpu).plan
        return PlannedRun(plan.num_micro_batches, plan.micro_batch_size, tuple(recomputed_blocks(plan)), {})

    def planned(self, gpu: Gpu, num_micro_batches: int | None = None) -> RunPlan:
        """Return the plan, with its layers divided anew if the options ask for it.

        Args:
            gpu: What every device is.
            num_micro_batches: Of an iteration, of the plan's size; None for the plan's.

        Raises:
            OptionError: An option is wrong.
            PlanError: The plan is wrong, or does not fit the model.
            PlacementError: A size or a rate is out of its range.
        """
        if self.balance is not None:
            require_known("placement.balance", self.balance, BALANCES)
        plan = given = read_galvatron(self.path, self.world_size)
        if num_micro_batches is not None:
            samples = num_micro_batches * given.micro_batch_size
            plan = replace(plan, num_micro_batches=num_micro_batches, global_batch_size=samples)
        work = self._workload(plan, gpu)
        if self.balance is not None:
            divided = BALANCES[self.balance](layer_times_ms(plan, work), plan.num_stages)
            plan = replace(plan, stage_layers=divided)
        return RunPlan(plan, work, given, self.path)

    def _workload(self, plan: ParallelPlan, gpu: Gpu) -> Workload:
        config = GptConfig(
            len(plan.layers) if self.num_layers is None else self.num_layers,
            self.hidden_size,
            self.num_heads,
            self.vocab_size,
            self.sequence_length,
            plan.micro_batch_size,
            flash_attention=self.flash_attention,
        )
        return Workload(config, self.rates(gpu), plan.num_micro_batches, self.overlap_slowdown)

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the placement of the plan."""
        require_least("search.num_micro_batches", num_micro_batches, 1)
        planned = self.planned(gpu, num_micro_batches)
        return Built(
            plan_placement(planned.plan, planned.work, self.tick_ms),
            f"cost model of a GPT on {gpu.name}, for the plan {self.path}",
            lambda each: modelled_profile(each, gpu, plan_compute_shares(planned.plan, planned.work)),
            memory_unit_mib=1.0,
            planned=planned,
        )
