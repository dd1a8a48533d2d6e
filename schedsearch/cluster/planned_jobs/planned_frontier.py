"""From a model and GPUs of one type to the frontier of its best plan: planner, schedule, clocks.

The planner proposes, the searched schedule decides, and the time-energy frontier of that schedule tells what
each speed costs. Times and powers are modelled (`placements.hardware`). The module knows no other jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

from placements.cluster import GpusError, read_cluster
from placements.gpus import GPUS
from placements.hardware import modelled_profile
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.parallel_plan import PlanError
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.energy import Frontier, compute_frontier
from schedsearch.planning.planner import plan


@dataclass(frozen=True)
class PlanRequest:
    """A model, and the GPUs that it is planned for.

    Attributes:
        model: A name of `placements.models.zoo`.
        gpu_type: A name of `placements.gpus.GPUS`.
        gpus: How many, in the vendor's usual machines.
        batch: Samples of a step, whatever the number of GPUs.
        num_plans: Deadlines of the frontier.
        search_time_limit_s: For the schedule of each plan that the planner proposes.
    """

    model: str
    gpu_type: str
    gpus: int
    batch: int
    num_plans: int = 30
    search_time_limit_s: float = 5.0


@dataclass(frozen=True)
class PlannedFrontier:
    """The best plan, and the frontier of its schedule.

    Attributes:
        asked: What was planned.
        plan: Stages, GPUs of each and micro-batches of the best plan, in words.
        status: Status of its schedule: OPTIMAL where none of this placement is shorter.
        frontier: Frontier of its schedule; None where the model does not fit.
        reason: Why it does not fit; "" where it does.
    """

    asked: PlanRequest
    plan: str = ""
    status: str = ""
    frontier: Frontier | None = None
    reason: str = ""


def planned_frontier(asked: PlanRequest) -> PlannedFrontier:
    """Plan a model on GPUs, search schedules for the best plans, and compute the frontier of the best.

    Raises:
        ClusterError: The GPU type is not known, or the GPUs are no whole machines.
        PlacementError: The model is not known.
    """
    if asked.gpu_type not in GPUS:
        raise ClusterError(f"{asked.gpu_type!r} is not a GPU that can be planned for; use {', '.join(GPUS)}")
    try:
        cluster = read_cluster(f"{asked.gpu_type}_{asked.gpus}")
    except GpusError as error:
        raise ClusterError(str(error)) from None
    try:
        best = plan(
            asked.model,
            cluster,
            asked.batch,
            options=PlanOptions(num_plans=3, idle_gpus=False),
            search_time_limit_s=asked.search_time_limit_s,
        ).best
    except PlanError as error:
        return PlannedFrontier(asked, reason=str(error))
    ranked = best.ranked
    if ranked is None or ranked.schedule is None:
        return PlannedFrontier(asked, best.name, reason=ranked.note if ranked else "no schedule was searched")
    profile = modelled_profile(best.candidate.placement, GPUS[asked.gpu_type])
    frontier = compute_frontier(ranked.schedule, profile, num_plans=asked.num_plans)
    return PlannedFrontier(asked, best.name, str(ranked.status), frontier)
