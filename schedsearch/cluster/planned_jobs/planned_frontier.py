"""From a model and GPUs of one type to the frontier of its best plan: planner, schedule, clocks.

The planner proposes, the searched schedule decides, and the time-energy frontier of that schedule tells what
each speed costs. Times and powers are modelled (`placements.hardware`). The module knows no other jobs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placements.cluster import ClusterError as GpusError
from placements.cluster import read_cluster
from placements.files import read_json, write_json
from placements.hardware import GPUS, modelled_profile
from placements.plain_data import Field, in_file
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.parallel_plan import PlanError
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.energy import EnergyError, Frontier, compute_frontier
from schedsearch.planning.planner import plan

SCHEMA_VERSION = 1
"""Version of the file form."""


@dataclass(frozen=True)
class PlannedOn:
    """What is planned.

    Attributes:
        model: A name of `placements.models.zoo`.
        gpu_type: A name of `placements.hardware.GPUS`.
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
    """What came of it.

    Attributes:
        asked: What was planned.
        plan: Stages, GPUs of each and micro-batches of the best plan, in words.
        status: Of its schedule: OPTIMAL where none of this placement is shorter.
        frontier: Of its schedule; None where the model does not fit.
        reason: Why it does not fit; "" where it does.
    """

    asked: PlannedOn
    plan: str = ""
    status: str = ""
    frontier: Frontier | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the file form as plain data."""
        return {
            "schema_version": SCHEMA_VERSION,
            "asked": asdict(self.asked),
            "plan": self.plan,
            "status": self.status,
            "reason": self.reason,
            "frontier": None if self.frontier is None else self.frontier.to_dict(),
        }


def planned_frontier(asked: PlannedOn) -> PlannedFrontier:
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


def kept_frontier(asked: PlannedOn, directory: Path) -> PlannedFrontier:
    """Return what was planned before, from its file in a directory, or plan it and write that file.

    Raises:
        ClusterError: See `planned_frontier`; or a file is wrong, or of other options under the same name.
        PlacementError: See `planned_frontier`.
    """
    path = directory / f"{asked.model}_{asked.gpu_type}_{asked.gpus}_{asked.batch}.json"
    if not path.exists():
        found = planned_frontier(asked)
        directory.mkdir(parents=True, exist_ok=True)
        write_json(path, found.to_dict())
        return found
    data = read_json(path, "a planned frontier", ClusterError)
    with in_file(path, ClusterError), in_file(path, EnergyError):
        return _from_dict(data, asked)


def _from_dict(data: object, asked: PlannedOn) -> PlannedFrontier:
    top = Field(data, "planned frontier", ClusterError, is_root=True)
    top.version(SCHEMA_VERSION)
    if top["asked"].value != asdict(asked):
        raise ClusterError("asked: was planned with other options; remove the file, or choose another folder")
    frontier = top["frontier"].value
    plan, status, reason = (str(top[name].value) for name in ("plan", "status", "reason"))
    found = None if frontier is None else Frontier.from_dict(frontier)
    return PlannedFrontier(asked, plan, status, found, reason)
