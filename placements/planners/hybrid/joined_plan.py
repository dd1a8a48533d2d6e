"""A plan of a model whose branches join: each branch in stages of its own, the rest on all GPUs.

That is Tessel's K-shape (Fig. 8g). The module does not know what a layer costs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from placements.cluster import Cluster
from placements.hardware import Gpu
from placements.models.chain import ModelShape
from placements.models.parallel import LayerStrategy
from placements.planners.hybrid.plan import Plan
from placements.planners.parallel_plan import PlanError


@dataclass(frozen=True)
class JoinedPlan:
    """A model with branches on a cluster.

    Attributes:
        model: Its layers after the branches, and its branches.
        branches: The plan of each branch, on GPUs of its own; all of one cluster, batch and number of
            micro-batches.
        joined: How all GPUs share each layer after the branches.

    Raises:
        PlanError: A rule is broken.
    """

    model: ModelShape
    branches: tuple[Plan, ...]
    joined: LayerStrategy

    def __post_init__(self) -> None:
        """Check branches, GPUs and samples."""
        if not self.branches or len(self.branches) != len(self.model.branches):
            raise PlanError(
                f"branches: {len(self.branches)} plans for the {len(self.model.branches)} branches of "
                f"{self.model.name}; give one of each"
            )
        first = self.branches[0]
        for i, (plan, branch) in enumerate(zip(self.branches, self.model.branches, strict=True)):
            if plan.model != branch.chained:
                raise PlanError(f"branches[{i}]: is not of the branch {branch.name}; give them in order")
            numbers = (plan.cluster, plan.global_batch_size, plan.num_micro_batches)
            if numbers != (first.cluster, first.global_batch_size, first.num_micro_batches):
                raise PlanError(f"branches[{i}]: has another cluster or batch than the first; use equal ones")
        used = [gpu for plan in self.branches for stage in plan.stages for gpu in stage.gpus]
        if sorted(used) != list(range(self.cluster.num_gpus)):
            raise PlanError(
                f"branches: do not use each of the {self.cluster.num_gpus} GPUs of the cluster once; make "
                "them do so"
            )
        if self.joined.num_gpus != len(used):
            raise PlanError(
                f"joined: is shared by {self.joined.num_gpus} GPUs of the {len(used)} of the branches; make "
                "them equal"
            )

    @property
    def cluster(self) -> Cluster:
        """Its GPUs."""
        return self.branches[0].cluster

    @property
    def stage_gpus(self) -> list[Counter[Gpu]]:
        """Number of GPUs of each kind, for each stage of each branch."""
        return [gpus for plan in self.branches for gpus in plan.stage_gpus]

    @property
    def num_stages(self) -> int:
        """Number of stages of all branches."""
        return sum(plan.num_stages for plan in self.branches)

    @property
    def global_batch_size(self) -> int:
        """Samples of an iteration."""
        return self.branches[0].global_batch_size

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of an iteration."""
        return self.branches[0].num_micro_batches

    @property
    def micro_batch_size(self) -> int:
        """Samples of one micro-batch."""
        return self.branches[0].micro_batch_size
