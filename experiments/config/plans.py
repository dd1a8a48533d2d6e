"""Planners' plans: from their options to the plan, and to the model that it is for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from experiments.config.records import GptPlacementOptions, PlanPlacementOptions
from placements.hardware import Gpu
from placements.models.rates import Rates
from placements.models.transformer import GptConfig
from placements.models.workload import Workload
from placements.planners.galvatron import layer_times_ms, recomputed_blocks
from placements.planners.galvatron_file import read_galvatron
from placements.planners.parallel_plan import ParallelPlan
from placements.planners.partition import least_imbalance, least_largest

PLANNERS = {"galvatron": read_galvatron}
"""What reads a plan, by the kind of its placement."""

BALANCES = {"largest": least_largest, "imbalance": least_imbalance}
"""What divides layers into stages, by the name that the command line uses."""


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
