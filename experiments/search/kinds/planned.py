"""Plans of `experiments.plan`: their placement, and their part in a run."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.search.kinds.files import FilePlacement
from experiments.search.kinds.kind import PlannedRun
from placements import Kind, Placement
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.hardware import Gpu
from placements.placement_file import read_placement
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_file import read_plan_file

log = logging.getLogger(__name__)


class PlanFiles(NamedTuple):
    """Files of `experiments.plan` about its best plan, in its output directory.

    Attributes:
        plan: The plan.
        placement: Its blocks.
    """

    plan: str
    placement: str


PLAN_FILES = PlanFiles("plan.json", "placement.yaml")


@dataclass(frozen=True, kw_only=True)
class PlannedPlacement(FilePlacement):
    """The `placement` group of the output of `experiments.plan`."""

    kind: str = option("planned", "set by placement=")
    path: Verbatim | None = option(REQUIRED, "the output directory of experiments.plan")
    data_parallel: int | Mapping[Any, Any] | None = option(
        None,
        "groups of a block's GPUs that share the samples: one number, or as in {F0: 2}; null: the plan's",
    )

    @property
    def placement_file(self) -> Path:
        """The file of the placement."""
        return self.given / PLAN_FILES.placement

    @property
    def plan(self) -> Plan:
        """The plan."""
        return read_plan_file(self.given / PLAN_FILES.plan)

    @property
    def device_gpus(self) -> list[Counter[Gpu]]:
        """The GPUs of each device."""
        return self.plan.stage_gpus

    def run(self, gpu: Gpu) -> PlannedRun:
        """Return the plan's part in a run."""
        return of_plan(self.plan, read_placement(self.placement_file))

    def times_from(self, gpu: Gpu) -> tuple[str, bool]:
        """Return of which model and GPUs the times are; warn where another GPU is asked for."""
        kinds = sum(self.device_gpus, Counter[Gpu]())
        if set(kinds) != {gpu}:
            log.warning("warning: profile.gpu is %s, but the plan in %s has other GPUs", gpu.name, self.path)
        names = " and ".join(f"{number} {each.name}" for each, number in kinds.items())
        model = self.plan.model.name
        return f"cost model of schedsearch plan, {model} on {names}, for the plan in {self.path}", False


def of_plan(plan: Plan, placement: Placement) -> PlannedRun:
    """Return the part of a plan of `placements.planners.hybrid` in a run.

    Args:
        plan: What was planned.
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
