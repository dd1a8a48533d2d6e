"""Plans of `experiments.plan`: their placement, and their part in a run."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.search.kinds.files import PLACEMENT, FilePlacement
from experiments.search.kinds.kind import Built, PlannedRun
from placements import Kind, Placement, Profile
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.hardware import Gpu
from placements.models.training_figures import IterationWork
from placements.placement_file import read_placement

if TYPE_CHECKING:
    from placements.planners.hybrid.plan import Plan

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PlannedPlacement(FilePlacement):
    """The `placement` group of the output of `experiments.plan`."""

    kind: str = option("planned", "set by placement=")
    path: Verbatim | None = option(REQUIRED, "the output directory of experiments.plan")
    data_parallel: int | None = option(
        None, "groups of each block's GPUs that share the samples; null: the plan's", min=1
    )

    @property
    def plan(self) -> Plan:
        """The plan."""
        from placements.planners.hybrid.plan_file import read_plan_file

        return read_plan_file(self.given / "plan.json")

    @property
    def device_gpus(self) -> list[Counter[Gpu]]:
        """The GPUs of each device."""
        return self.plan.stage_gpus

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the placement of the plan, with its work; plans of M- and NN-shapes are of a part of it."""
        built, plan = super().build(gpu, num_micro_batches, profile), self.plan
        if not plan.model.num_tokens:
            return built
        samples, gpus = num_micro_batches * plan.micro_batch_size, sum(plan.stage_gpus, Counter[Gpu]())
        return replace(built, work=IterationWork.of(plan.model, gpus, samples), plan=plan)

    def run(self, gpu: Gpu) -> PlannedRun:
        """Return the plan's part in a run."""
        return of_plan(self.plan, read_placement(self.given / PLACEMENT))

    def source(self, gpu: Gpu) -> tuple[Path, str, bool]:
        """Return the placement's file and the source of its times; warn of another GPU than the plan's."""
        kinds = sum(self.device_gpus, Counter[Gpu]())
        if set(kinds) != {gpu}:
            log.warning("warning: profile.gpu is %s, but the plan in %s has other GPUs", gpu.name, self.path)
        gpus = " and ".join(f"{number} {kind.name}" for kind, number in kinds.items())
        what = f"{self.plan.model.name} on {gpus}, for the plan in {self.path}"
        return self.given / PLACEMENT, f"cost model of schedsearch plan, {what}", False


def of_plan(plan: Plan, placement: Placement) -> PlannedRun:
    """Return the part of a plan of `placements.planners.hybrid` in a run.

    Args:
        plan: The plan.
        placement: Its blocks. Where they are not the plan's pieces one by one, as in a wave or an M-shape,
            the plan says nothing of layers and recomputation. Nor does it of layers where a block has none:
            a run then shares its layers evenly.
    """
    numbers = plan.num_micro_batches, plan.micro_batch_size
    forwards = [block for block in placement.blocks if block.kind is Kind.F]
    if [block.devices for block in forwards] != [(piece.stage,) for piece in plan.pieces]:
        return PlannedRun(*numbers, (), {})
    layers = plan.block_layers
    return PlannedRun(*numbers, plan.recomputed_blocks, layers if all(layers.values()) else {})
