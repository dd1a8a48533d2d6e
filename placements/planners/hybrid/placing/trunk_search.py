"""The search for plans of what is between a model's embeddings and output layer, which are on all GPUs.

The layers between are searched as any model, in the memory that the vocabulary leaves. The module does not
know in what order blocks run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from placements.cluster import Cluster
from placements.models.parallel import Cost
from placements.planners.hybrid.placing.planned_placement import trunk_of, vocabulary_costs
from placements.planners.hybrid.plan_options import PlanOptions, RatedPlan
from placements.planners.hybrid.plan_search import Report, search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.spec import PlacementError


@dataclass(frozen=True)
class TrunkPlan:
    """A plan of the layers between, and how all GPUs share the vocabulary.

    Attributes:
        rated: The plan; its time is without the vocabulary.
        data_parallel: Groups of all GPUs that each have all rows of the table.
        time_ms: Of an iteration: every GPU has the vocabulary of each micro-batch besides.
    """

    rated: RatedPlan
    data_parallel: int
    time_ms: float


def search_trunks(
    costs: ShapeCosts,
    cluster: Cluster,
    global_batch_size: int,
    shape: str,
    options: PlanOptions | None = None,
    on_progress: Report | None = None,
) -> tuple[TrunkPlan, ...]:
    """Return the best plans by increasing time; empty where none fits.

    All GPUs are used, by at least two stages. For each number of stages and of micro-batches every way to
    share the vocabulary is tried.

    Args:
        costs: Of the whole model.
        cluster: The GPUs.
        global_batch_size: Samples of an iteration.
        shape: A key of `placements.planners.hybrid.placing.planned_placement.SHARED_VOCABULARY`.
        options: What is allowed; numbers that it gives restrict those that are tried.
        on_progress: Called with each numbers that were tried, of how many, and the least time so far;
            the bound is 0.

    Raises:
        PlanError: The model has no such vocabulary.
        KeyboardInterrupt: From the keyboard.
    """
    options = options or PlanOptions()
    trunk = replace(costs, model=trunk_of(costs.model, shape))
    numbers = list(_numbers(cluster, global_batch_size, options))
    best: dict[tuple[int, int], TrunkPlan] = {}
    for done, (num_stages, m, data_parallel) in enumerate(numbers, 1):
        found = _searched(costs, trunk, cluster, global_batch_size, options, (num_stages, m, data_parallel))
        key = num_stages, m
        if found is not None and (key not in best or found.time_ms < best[key].time_ms):
            best[key] = found
        if on_progress is not None:
            least_ms = min((each.time_ms for each in best.values()), default=None)
            on_progress(done, len(numbers), least_ms, 0.0)
    return tuple(sorted(best.values(), key=lambda each: each.time_ms)[: options.num_plans])


def even_numbers(
    cluster: Cluster, batch: int, options: PlanOptions, stages: range
) -> Iterator[tuple[int, int]]:
    """Yield the numbers of stages that share all GPUs evenly, each with all numbers of micro-batches.

    Args:
        cluster: The GPUs.
        batch: Samples of an iteration.
        options: May restrict the numbers.
        stages: To choose from.
    """
    counts = [m for m in range(1, batch + 1) if batch % m == 0]
    for num_stages in stages:
        num_gpus, rest = divmod(cluster.num_gpus, num_stages)
        if (
            rest
            or num_stages not in (options.num_stages or (num_stages,))
            or num_gpus not in (options.gpus_per_stage or (num_gpus,))
        ):
            continue
        yield from ((num_stages, m) for m in counts if m in (options.num_micro_batches or (m,)))


def _numbers(cluster: Cluster, batch: int, options: PlanOptions) -> Iterator[tuple[int, int, int]]:
    """Yield numbers of stages, of micro-batches, and of groups with all rows of the table."""
    for num_stages, m in even_numbers(cluster, batch, options, range(2, cluster.num_gpus + 1)):
        num_gpus = cluster.num_gpus // num_stages
        for copies in range(1, num_gpus + 1):
            if num_gpus % copies == 0 and batch // m % copies == 0:
                yield num_stages, m, copies


def _searched(
    costs: ShapeCosts,
    trunk: ShapeCosts,
    cluster: Cluster,
    batch: int,
    options: PlanOptions,
    numbers: tuple[int, int, int],
) -> TrunkPlan | None:
    """Return the best plan with these numbers; None where none fits."""
    num_stages, m, data_parallel = numbers
    try:
        vocabulary = vocabulary_costs(costs.model, costs, cluster.whole, data_parallel, batch // m, m)
    except PlacementError:
        return None
    reserve_gib = options.reserve_gib + held_bytes(vocabulary) / 2**30
    if reserve_gib >= (cluster.whole.memory_gib if options.memory_gib is None else options.memory_gib):
        return None
    limited = replace(
        options,
        num_stages=(num_stages,),
        gpus_per_stage=(cluster.num_gpus // num_stages,),
        num_micro_batches=(m,),
        reserve_gib=reserve_gib,
        num_plans=1,
    )
    searched = search_plans(trunk, cluster, batch, limited)
    if searched.interrupted:
        raise KeyboardInterrupt
    if not (plans := searched.plans):
        return None
    each = sum(vocabulary, Cost())
    beside_ms = m * (each.forward.time_ms + each.backward.time_ms) + each.update_ms
    return TrunkPlan(plans[0], data_parallel, plans[0].time_ms + beside_ms)


def held_bytes(vocabulary: tuple[Cost, ...]) -> float:
    """Return the memory of each GPU that embeddings and output layer need, with two micro-batches at once."""
    return sum(cost.static_bytes + 2 * cost.kept_bytes for cost in vocabulary) + max(
        max(cost.forward_bytes, cost.backward_bytes) for cost in vocabulary
    )
