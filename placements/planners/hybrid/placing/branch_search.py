"""The search for plans of models whose branches join: each branch in stages of its own, the rest on all GPUs.

That is Tessel's K-shape (Fig. 8g): branches run side by side on different GPUs, and what joins them is shared
by all. Each branch is searched as any model, in the memory that the joined layers leave. The module does not
know in what order blocks run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placements.cluster import Cluster
from placements.models.chain import ModelShape
from placements.models.parallel import Cost, LayerStrategy
from placements.models.piece_placement import PieceCost, piece_placement
from placements.planners.hybrid.joined_plan import JoinedPlan
from placements.planners.hybrid.placing.planned_placement import plan_pieces
from placements.planners.hybrid.placing.shared_layers import PartCosts, SharedLayers
from placements.planners.hybrid.placing.trunk_search import even_numbers
from placements.planners.hybrid.plan import Plan, StagePlan, layers_of_stage
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan
from placements.planners.hybrid.search.plan_search import PlannerReport, search_plans
from placements.planners.hybrid.stage_tables import LayerCosts, layer_table
from placements.planners.parallel_plan import PlanError
from placements.planners.partition import in_proportion
from placements.spec import Placement


@dataclass(frozen=True)
class BranchedPlan:
    """A plan of a model with branches.

    Attributes:
        model: The whole.
        branches: The plan of each branch, on GPUs of its own; its time is without what is joined.
        shared: The layers after the branches, which all GPUs share.
        time_ms: Time of an iteration: the longest branch, and on every GPU the joined layers of each
            micro-batch.
    """

    model: ModelShape
    branches: tuple[RatedPlan, ...]
    shared: SharedLayers
    time_ms: float

    @property
    def joined(self) -> LayerStrategy:
        """How all GPUs share each layer after the branches."""
        return self.shared.strategy

    @property
    def plan(self) -> JoinedPlan:
        """The plan without what it costs."""
        return JoinedPlan(self.model, tuple(each.plan for each in self.branches), self.joined)

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of an iteration."""
        return self.branches[0].plan.num_micro_batches

    @property
    def num_stages(self) -> int:
        """Stages of all branches."""
        return sum(each.plan.num_stages for each in self.branches)


def search_branches(
    costs: LayerCosts,
    cluster: Cluster,
    global_batch_size: int,
    options: PlanOptions | None = None,
    on_progress: PlannerReport | None = None,
) -> tuple[BranchedPlan, ...]:
    """Return the best plans by increasing time; empty where none fits.

    All GPUs are used. Stages are given to branches in proportion to their operations. The joined layers are
    all shared alike. Branches are planned by method exact, whatever the options say.

    Args:
        costs: Costs of the whole model.
        cluster: GPUs of one kind.
        global_batch_size: Samples of an iteration.
        options: What is allowed; numbers that it gives restrict those that are tried.
        on_progress: Called with each numbers that were tried, of how many, and the least time so far;
            nothing is proved, so the bound is 0.

    Raises:
        PlanError: The model has no branches, or the cluster several kinds of GPUs.
        KeyboardInterrupt: From the keyboard.
    """
    options, model = replace(options or PlanOptions(), method="exact"), costs.model
    if not model.branches:
        raise PlanError(f"model: {model.name} has no branches; plan it as a chain")
    if len({nodes.gpu for nodes in cluster.nodes}) > 1:
        raise PlanError("cluster: has several kinds of GPUs, and a K-shape is planned on one; give one kind")
    found: list[BranchedPlan] = []
    most = sum(len(branch.chained.layers) for branch in model.branches)
    stages = range(len(model.branches), min(cluster.num_gpus, most) + 1)
    numbers = list(even_numbers(cluster, global_batch_size, options, stages))
    for done, (num_stages, m) in enumerate(numbers, 1):
        for shared in _joined(costs, cluster, global_batch_size // m, m, options):
            plan = _planned(costs, cluster, global_batch_size, options, (num_stages, m), shared)
            if plan is not None:
                found.append(plan)
                break
        if on_progress is not None:
            on_progress(done, len(numbers), min((each.time_ms for each in found), default=None), 0.0)
    return tuple(sorted(found, key=lambda each: each.time_ms)[: options.num_plans])


def branched_placement(
    plan: BranchedPlan, costs: LayerCosts, capacity_gib: float, tick_ms: float | None = None
) -> Placement:
    """Return the blocks of a plan: each branch a chain on its devices, then one piece on all of them.

    Args:
        plan: Stages, GPUs and layers.
        costs: Costs of the whole model.
        capacity_gib: What each GPU has for states and activations.
        tick_ms: Length of a tick; see `placements.models.rates.tick_for`.
    """
    first = plan.branches[0].plan
    cluster, samples = first.cluster, first.micro_batch_size
    pieces: list[PieceCost] = []
    ends, first_device, transfer_ms = [], 0, 0.0
    for rated in plan.branches:
        own = plan_pieces(rated.plan, costs)
        for i, piece in enumerate(own):
            devices = tuple(device + first_device for device in piece.devices)
            after = (len(pieces) - 1,) if i else ()
            pieces.append(piece._replace(devices=devices, after=after))
        ends.append(len(pieces) - 1)
        first_device += rated.plan.num_stages
        last = rated.plan.group(rated.plan.num_stages - 1)
        transfer_ms = max(transfer_ms, costs.transfer_ms(rated.plan.layers[-1], samples, last, cluster.whole))
    everywhere = tuple(range(plan.num_stages))
    pieces.append(
        PieceCost(
            everywhere,
            sum(plan.shared.costs, Cost()),
            plan.joined.data_parallel,
            transfer_ms,
            transfer_ms,
            tuple(ends),
        )
    )
    num_gpus = cluster.num_gpus // plan.num_stages
    return piece_placement(
        f"{plan.model.name} planned k_shape",
        pieces,
        [math.floor(capacity_gib * 1024)] * plan.num_stages,
        [num_gpus] * plan.num_stages,
        tick_ms,
        cluster.node_of[: num_gpus * plan.num_stages],
    )


def _joined(
    costs: LayerCosts, cluster: Cluster, samples: int, m: int, options: PlanOptions
) -> list[SharedLayers]:
    """Return the ways in which all GPUs can share all joined layers, fastest first."""
    layers = layers_of_stage(costs.model.layers, 0, len(costs.model.layers))
    strategies: Sequence[LayerStrategy] | None = None
    try:
        for layer in dict.fromkeys(layers):
            table = layer_table(costs, layer, options.trees, samples, m, cluster.whole)
            known = table.strategies
            strategies = known if strategies is None else [each for each in strategies if each in known]
    except PlanError:
        return []
    places = (max(len(branch.chained.layers) for branch in costs.model.branches),) * len(layers)
    found = []
    for strategy in strategies or ():
        each = (costs.cost(layer, strategy, samples, m, cluster.whole) for layer in layers)
        found.append(SharedLayers(layers, places, strategy, (sum(each, Cost()),)))
    return sorted(found, key=lambda each: each.iteration_ms(m))


def _planned(
    costs: LayerCosts,
    cluster: Cluster,
    batch: int,
    options: PlanOptions,
    numbers: tuple[int, int],
    shared: SharedLayers,
) -> BranchedPlan | None:
    """Return the plan with these numbers; None where a branch does not fit beside the joined layers."""
    (num_stages, m), model = numbers, costs.model
    reserve_gib = options.reserve_gib + shared.held_mib / 1024
    if reserve_gib >= (cluster.whole.memory_gib if options.memory_gib is None else options.memory_gib):
        return None
    branches = [branch.chained for branch in model.branches]
    num_gpus, first, found = cluster.num_gpus // num_stages, 0, []
    for branch, share in zip(branches, _stages_of(branches, num_stages), strict=True):
        limited = replace(
            options,
            num_stages=(share,),
            gpus_per_stage=(num_gpus,),
            num_micro_batches=(m,),
            reserve_gib=reserve_gib,
            idle_gpus=True,
            num_plans=1,
        )
        try:
            searched = search_plans(PartCosts(branch, costs), cluster, batch, limited)
        except PlanError:
            return None
        if searched.interrupted:
            raise KeyboardInterrupt
        if not searched.plans:
            return None
        found.append(_on(searched.plans[0], first))
        first += share * num_gpus
    longest_ms = max(each.time_ms for each in found)
    return BranchedPlan(model, tuple(found), shared, longest_ms + shared.iteration_ms(m))


def _stages_of(branches: Sequence[ModelShape], num_stages: int) -> tuple[int, ...]:
    """Return how many stages each branch has, in proportion to its operations."""
    weights = [branch.forward_flops for branch in branches]
    most = max(weights)
    return in_proportion([max(1, round(100 * each / most)) if most else 1 for each in weights], num_stages)


def _on(rated: RatedPlan, first_gpu: int) -> RatedPlan:
    """Return a plan on later GPUs of its cluster."""
    stages = tuple(
        StagePlan(
            range(each.gpus.start + first_gpu, each.gpus.stop + first_gpu), each.layers, each.strategies
        )
        for each in rated.plan.stages
    )
    plan: Plan = replace(rated.plan, stages=stages)
    return rated._replace(plan=plan)
