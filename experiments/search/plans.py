"""Planners' plans: from their options to the plan, and to the model that it is for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from experiments.search.placement_options import GptPlacementOptions, PlanPlacementOptions
from placements import Kind, Placement
from placements.hardware import Gpu
from placements.models.gpt.gpt_config import GptConfig
from placements.models.gpt.workload import Workload
from placements.models.layers import Layer, TransformerLayer
from placements.models.parallel import LayerStrategy
from placements.models.rates import Rates
from placements.planners.galvatron import layer_times_ms, recomputed_blocks
from placements.planners.galvatron_file import read_galvatron
from placements.planners.hybrid.joined_plan import JoinedPlan
from placements.planners.hybrid.plan import Plan
from placements.planners.parallel_plan import ParallelPlan
from placements.planners.partition import in_proportion, min_imbalance, min_largest

PLANNERS = {"galvatron": read_galvatron}
"""What reads a plan, by the kind of its placement."""

BALANCES = {"largest": min_largest, "imbalance": min_imbalance}
"""What divides layers into stages, by the name that the command line uses."""


class PlanFiles(NamedTuple):
    """What `experiments.plan` writes of its best plan, in its output directory.

    Attributes:
        plan: The plan.
        placement: Its blocks.
    """

    plan: str
    placement: str


PLAN_FILES = PlanFiles("plan.json", "placement.yaml")


class PlannedRun(NamedTuple):
    """What a plan says of a run.

    Attributes:
        num_micro_batches: Of an iteration.
        micro_batch_size: Samples of one, of all data-parallel groups together.
        recompute: Forward blocks that are computed again for the backward.
        layers: Transformer layers of each forward block that has some: of the chain; or of each branch, and
            then of what joins them.
    """

    num_micro_batches: int
    micro_batch_size: int
    recompute: tuple[str, ...]
    layers: tuple[dict[str, int], ...]

    @property
    def layers_per_block(self) -> dict[str, int]:
        """Of all blocks; empty where the plan says nothing of layers."""
        return {name: count for part in self.layers for name, count in part.items()}

    def shared_layers(self, num_layers: object) -> dict[str, int] | None:
        """Return the layers of each block, the plan's or a number in its proportions; None for none.

        The number is that of a chain, or of each branch; what joins these has half of it, as in
        `runtime.models.zoo.flava`.

        Raises:
            PlanError: There are fewer layers than blocks.
        """
        if not isinstance(num_layers, int) or not self.layers:
            return self.layers_per_block or None
        *branches, last = self.layers
        numbers = [num_layers for _ in branches] + [max(1, num_layers // 2) if branches else num_layers]
        shared: dict[str, int] = {}
        for part, number in zip((*branches, last), numbers, strict=True):
            shared |= zip(part, in_proportion(tuple(part.values()), number), strict=True)
        return shared


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


def of_plan(plan: Plan | JoinedPlan, placement: Placement) -> PlannedRun:
    """Return what a plan of `placements.planners.hybrid` says of a run.

    Args:
        plan: What was planned.
        placement: Its blocks. Where they are not the plan's pieces one by one, as in a wave or an M-shape,
            the plan says nothing of layers and recomputation. Nor does it of layers where a block has none,
            or where there are more than the two branches that a model of the runtime has: a run then shares
            its layers evenly.
    """
    numbers = plan.num_micro_batches, plan.micro_batch_size
    forwards = [block for block in placement.blocks if block.kind is Kind.F]
    parts = _parts(plan)
    wanted = [block for part in parts for block in part]
    if [block.devices for block in forwards] != [block.devices for block in wanted]:
        return PlannedRun(*numbers, (), ())
    names = [f"F{i}" for i in range(len(wanted))]
    recompute = [name for name, block in zip(names, wanted, strict=True) if block.is_recomputed]
    layers = []
    if all(block.num_inner for block in wanted) and len(parts) <= 3:
        left = iter(names)
        layers = [{next(left): block.num_inner for block in part} for part in parts]
    return PlannedRun(*numbers, tuple(recompute), tuple(layers))


def _parts(plan: Plan | JoinedPlan) -> list[list[_PlannedBlock]]:
    """Return the forward blocks of a chain; or of each branch, and then the one that joins them."""
    if isinstance(plan, Plan):
        return [_blocks_of(plan, 0)]
    parts, first = [], 0
    for branch in plan.branches:
        parts.append(_blocks_of(branch, first))
        first += branch.num_stages
    joined = _block(tuple(range(first)), plan.model.layers, (plan.joined,) * len(plan.model.layers))
    return [*parts, [joined]]


def _blocks_of(plan: Plan, first_device: int) -> list[_PlannedBlock]:
    return [
        _block(
            (piece.stage + first_device,),
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


class Planned(NamedTuple):
    """A plan as it is carried out, and the model that it is for.

    Attributes:
        plan: With the stages and the number of micro-batches that the options ask for.
        work: The model.
        given: The plan as its planner wrote it.
        path: Where.
    """

    plan: ParallelPlan
    work: Workload
    given: ParallelPlan
    path: str

    def describe(self) -> str:
        """Return the plan in a line, with what is carried out otherwise and what a run does of it."""
        plan, given = self.plan, self.given
        facts = [
            f"{plan.num_stages} stages of {plan.num_gpus} GPUs with {_listed(plan.stage_layers)} layers, "
            f"{len(plan.pieces)} forward blocks",
            f"{plan.num_micro_batches} micro-batches of {plan.micro_batch_size} samples",
            f"runtime.recompute=[{_listed(recomputed_blocks(plan))}]",
        ]
        if plan.stage_layers != given.stage_layers:
            facts.append(f"not its pp_division {_listed(given.stage_layers)}")
        if plan.num_micro_batches != given.num_micro_batches:
            facts.append(f"not its chunks {given.num_micro_batches}")
        return f"{Path(self.path).name}: {'; '.join(facts)}"


def read_plan(chosen: PlanPlacementOptions, gpu: Gpu, num_micro_batches: int | None = None) -> Planned:
    """Read the plan that the options name, and divide its layers anew if they ask for it.

    Args:
        chosen: The options.
        gpu: What every device is.
        num_micro_batches: Of an iteration, of the plan's size; None for the plan's.

    Raises:
        PlanError: The plan is wrong, or does not fit the model.
        PlacementError: A size or a rate is out of its range.
    """
    plan = given = PLANNERS[chosen.kind](chosen.path, chosen.world_size)
    if num_micro_batches is not None:
        samples = num_micro_batches * given.micro_batch_size
        plan = replace(plan, num_micro_batches=num_micro_batches, global_batch_size=samples)
    work = _workload(chosen, plan, gpu)
    if chosen.balance is not None:
        divided = BALANCES[chosen.balance](layer_times_ms(plan, work), plan.num_stages)
        plan = replace(plan, stage_layers=divided)
    return Planned(plan, work, given, chosen.path)


def _workload(chosen: PlanPlacementOptions, plan: ParallelPlan, gpu: Gpu) -> Workload:
    config = GptConfig(
        len(plan.layers) if chosen.num_layers is None else chosen.num_layers,
        chosen.hidden_size,
        chosen.num_heads,
        chosen.vocab_size,
        chosen.sequence_length,
        plan.micro_batch_size,
        flash_attention=chosen.flash_attention,
    )
    return Workload(config, rates_of(chosen, gpu), plan.num_micro_batches, chosen.overlap_slowdown)


def rates_of(chosen: PlanPlacementOptions | GptPlacementOptions, gpu: Gpu) -> Rates:
    """Return what the options say that a GPU reaches."""
    return Rates(
        gpu,
        chosen.model_flops_utilisation,
        chosen.output_layer_utilisation,
        chosen.memory_efficiency,
        chosen.link_efficiency,
        chosen.reserve_gib,
    )


def _listed(values: tuple[object, ...]) -> str:
    return ",".join(str(value) for value in values)
