"""Plans of `experiments.plan`: their placement, and what they say of a run."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.search.kinds.files import FilePlacement
from experiments.search.kinds.kind import PlannedRun
from placements import Kind, Placement
from placements.hardware import Gpu
from placements.meaning import REQUIRED, Verbatim, option
from placements.models.layers import Layer
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.placement_file import read_placement
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_file import read_plan_file

log = logging.getLogger(__name__)


class PlanFiles(NamedTuple):
    """What `experiments.plan` writes of its best plan, in its output directory.

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
    data_parallel: int | dict[Any, Any] | None = option(
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
        """Return what the plan says of a run."""
        return of_plan(self.plan, read_placement(self.placement_file))

    def times_from(self, gpu: Gpu) -> tuple[str, bool]:
        """Return of which model and GPUs the times are; warn where another GPU is asked for."""
        kinds = sum(self.device_gpus, Counter[Gpu]())
        if set(kinds) != {gpu}:
            log.warning("warning: profile.gpu is %s, but the plan in %s has other GPUs", gpu.name, self.path)
        names = " and ".join(f"{number} {each.name}" for each, number in kinds.items())
        model = self.plan.model.name
        return f"cost model of schedsearch plan, {model} on {names}, for the plan in {self.path}", False


class _PlannedBlock(NamedTuple):
    """A forward block that a plan wants.

    Attributes:
        devices: Where.
        num_inner: Transformer layers that it has.
        is_recomputed: Whether the first of these is, or of others the first layer.
    """

    devices: tuple[int, ...]
    num_inner: int
    is_recomputed: bool


def of_plan(plan: Plan, placement: Placement) -> PlannedRun:
    """Return what a plan of `placements.planners.hybrid` says of a run.

    Args:
        plan: What was planned.
        placement: Its blocks. Where they are not the plan's pieces one by one, as in a wave or an M-shape,
            the plan says nothing of layers and recomputation. Nor does it of layers where a block has none:
            a run then shares its layers evenly.
    """
    numbers = plan.num_micro_batches, plan.micro_batch_size
    forwards = [block for block in placement.blocks if block.kind is Kind.F]
    wanted = _blocks_of(plan)
    if [block.devices for block in forwards] != [block.devices for block in wanted]:
        return PlannedRun(*numbers, (), {})
    names = [f"F{i}" for i in range(len(wanted))]
    recompute = [name for name, block in zip(names, wanted, strict=True) if block.is_recomputed]
    layers = {name: block.num_inner for name, block in zip(names, wanted, strict=True)}
    return PlannedRun(*numbers, tuple(recompute), layers if all(layers.values()) else {})


def _blocks_of(plan: Plan) -> list[_PlannedBlock]:
    return [
        _block(
            (piece.stage,),
            [plan.model.layers[i] for i in piece.layers],
            tuple(plan.strategies[i] for i in piece.layers),
        )
        for piece in plan.pieces
    ]


def _block(
    devices: tuple[int, ...], layers: Sequence[Layer], strategies: tuple[LayerStrategy, ...]
) -> _PlannedBlock:
    inner = [i for i, layer in enumerate(layers) if isinstance(layer, TransformerLayer)]
    return _PlannedBlock(devices, len(inner), strategies[inner[0] if inner else 0].recompute == "full")
