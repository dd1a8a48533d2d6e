"""Layouts as trainers run them, timed by schedules."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_options import RatedPlan, StageEstimate
from placements.trainers.as_run import Planned
from placements.trainers.job import plan_uniform
from schedsearch.planning.uniform_run import UniformRun


def planned_layout(run: UniformRun, limit_gib: float = inf) -> Planned:
    """Return a layout as a plan for trainers, each of whose GPUs has so much for states and activations."""

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
    stages = tuple(StageEstimate(0.0, 0.0, 1024 * gib, 0) for gib in run.gib_by_stage)
    return RatedPlan(plan, run.iteration_ms, stages)
