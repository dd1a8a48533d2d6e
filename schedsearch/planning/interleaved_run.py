"""A plan with several chunks on each device as frameworks run it: interleaved 1F1B, checked to be valid."""

from __future__ import annotations

from collections.abc import Sequence

from placements.layouts.megatron_arguments import group_size
from placements.planners.hybrid.exports.as_run import RunLimits
from placements.planners.hybrid.placing.planned_placement import chunk_pieces, placement_of_pieces
from placements.planners.hybrid.plan import Plan
from schedsearch.baselines import interleaved_one_f_one_b
from schedsearch.schedule import with_optimizer
from schedsearch.validate import validate


def interleaved_run(plan: Plan, limits: RunLimits, chunks: Sequence[range]) -> tuple[float, int]:
    """Return the ms of an iteration, and the micro-batches of a group.

    Args:
        plan: Its layers' strategies, and its devices.
        limits: What layers cost, and the memory of each stage.
        chunks: Layers of each virtual stage, in a loop over the devices.

    Raises:
        InvalidScheduleError: It does not fit the memory.
    """
    devices = [i % plan.num_stages for i in range(len(chunks))]
    pieces = chunk_pieces(plan, limits.costs, chunks, devices, are_whole=True)
    placement = placement_of_pieces("interleaved", plan, pieces, limits.capacities_gib)
    group = group_size(plan.num_stages, plan.num_micro_batches)
    found = interleaved_one_f_one_b(placement.per_micro_batch, plan.num_micro_batches, group)
    found = validate(with_optimizer(placement, found))
    return placement.ms(found.makespan), group
