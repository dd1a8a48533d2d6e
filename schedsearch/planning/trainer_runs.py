"""Plans as trainers run them: layouts, and plans with several chunks on each device, timed by schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from placements.layouts.megatron_arguments import group_size
from placements.planners.hybrid.placing.planned_placement import chunk_pieces, placement_of_pieces
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import RatedPlan, StageEstimate
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.trainers.as_run import Planned
from placements.trainers.job import plan_uniform
from schedsearch.baselines import interleaved_one_f_one_b
from schedsearch.metrics import peak_memory
from schedsearch.planning.uniform_run import UniformRun
from schedsearch.schedule import with_optimizer
from schedsearch.validate import validate

_UNLIMITED = 100.0
"""Memory of a device, of its GPU's: what does not fit is timed too."""


def planned_layout(run: UniformRun, limit_gib: float = inf) -> Planned:
    """Return a layout as a plan for trainers.

    Args:
        run: The layout, and what times it.
        limit_gib: What each GPU has for states and activations.
    """

    def rate(plan: Plan) -> RatedPlan:
        return _rated(plan, replace(run, layout=plan_uniform(plan, run.chunks)))

    costs = run.costs.options
    told = {
        "overlap_exchanges": run.overlaps_exchanges and run.layout.zero < 3,
        "overlap_tensor_parallel": costs.overlap_tensor_parallel and run.layout.degrees.tensor > 1,
        "sends_tokens_once": costs.sends_tokens_once and run.layout.degrees.expert > 1,
    }
    limits = [limit_gib] * run.plan.num_stages
    return Planned(_rated(run.plan, run), limits, rate, run.chunks, told=told)


def _rated(plan: Plan, run: UniformRun) -> RatedPlan:
    return _with_peaks(plan, run.iteration_ms, (1024 * gib for gib in run.gib_by_stage))


def _with_peaks(plan: Plan, time_ms: float, peaks_mib: Iterable[float]) -> RatedPlan:
    return RatedPlan(plan, time_ms, tuple(StageEstimate(0.0, 0.0, peak, 0) for peak in peaks_mib))


def planned_loop(
    plan: Plan, costs: LayerCosts, capacities_gib: Sequence[float], chunks: Sequence[range]
) -> Planned:
    """Return a plan with several chunks on each device as interleaved 1F1B runs it.

    Args:
        plan: Its layers' strategies, and its devices.
        costs: What layers cost.
        capacities_gib: Memory of each stage.
        chunks: Layers of each virtual stage, in a loop over the devices.

    Raises:
        UnsuitablePlacementError: There are fewer micro-batches than devices.
    """
    devices = [i % plan.num_stages for i in range(len(chunks))]
    unlimited = [_UNLIMITED * gib for gib in capacities_gib]

    def rate(other: Plan) -> RatedPlan:
        pieces = chunk_pieces(other, costs, chunks, devices, are_whole=True)
        placement = placement_of_pieces("interleaved", other, pieces, unlimited)
        group = group_size(other.num_stages, other.num_micro_batches)
        found = interleaved_one_f_one_b(placement.per_micro_batch, other.num_micro_batches, group)
        found = validate(with_optimizer(placement, found))
        peaks = (placement.mib(int(most)) for most in peak_memory(found))
        return _with_peaks(other, placement.ms(found.makespan), peaks)

    return Planned(rate(plan), capacities_gib, rate, chunks)
