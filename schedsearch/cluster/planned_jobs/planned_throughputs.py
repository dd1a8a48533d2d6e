"""From the frontiers of models on GPUs to a table of throughputs, as a cluster's policies read it.

A job type is a model, its scale factor the number of GPUs, and a step an iteration of the model's batch. The
module plans nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.planned_jobs.frontier_points import frontier_points, operating_point
from schedsearch.cluster.planned_jobs.planned_frontier import PlannedFrontier, PlanRequest
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs

PointsOfJobs = dict[tuple[str, int], dict[str, tuple[JobOperatingPoint, ...]]]


@dataclass(frozen=True, eq=False)
class PlannedThroughputs:
    """The table, and the one to compare with.

    Attributes:
        throughputs: Throughputs with several operating points, the fastest first.
        highest_clocks: Throughputs with one point: every block at its highest clock.
        losses: Loss of each frontier that was thinned, see `FrontierPoints.loss`.
        left_out: What does not fit, and why.
    """

    throughputs: Throughputs
    highest_clocks: Throughputs
    losses: Mapping[PlanRequest, float]
    left_out: Mapping[PlanRequest, str]

    def counts(self, model: str) -> tuple[int, ...]:
        """Return the numbers of GPUs of one type on which a model runs, ascending."""
        return tuple(sorted(gpus for name, gpus in self.throughputs.alone if name == model))


def planned_throughputs(
    found: Iterable[PlannedFrontier], max_points: int = 4, idle_power_w: Mapping[str, float] | None = None
) -> PlannedThroughputs:
    """Return the table of frontiers.

    Args:
        found: Frontiers that were found: one of each model, GPU type and number of GPUs; all of a model for
            the same batch.
        max_points: Operating points of each.
        idle_power_w: Power of one GPU of each type without a job; 0 where nothing is said.

    Raises:
        ClusterError: Two are of one model but of different batches, or of the same GPUs; then a step would
            not be the same work.
    """
    alone: PointsOfJobs = defaultdict(dict)
    highest: PointsOfJobs = defaultdict(dict)
    losses: dict[PlanRequest, float] = {}
    left_out: dict[PlanRequest, str] = {}
    batches: dict[str, int] = {}
    for one in found:
        asked = one.asked
        if batches.setdefault(asked.model, asked.batch) != asked.batch:
            raise ClusterError(
                f"{asked.model}: is planned for batches of {batches[asked.model]} and {asked.batch}; use one"
            )
        if one.frontier is None:
            left_out[asked] = one.reason
            continue
        key = asked.model, asked.gpus
        if asked.gpu_type in alone[key]:
            raise ClusterError(f"{asked.model}: is planned twice for {asked.gpus} {asked.gpu_type}; give one")
        thin = frontier_points(one.frontier, max_points, (idle_power_w or {}).get(asked.gpu_type, 0.0))
        alone[key][asked.gpu_type], losses[asked] = thin.points, thin.loss
        highest[key][asked.gpu_type] = (operating_point(one.frontier.all_maximum),)
    return PlannedThroughputs(Throughputs(dict(alone)), Throughputs(dict(highest)), losses, left_out)
