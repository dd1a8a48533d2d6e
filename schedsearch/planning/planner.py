"""The plans of a model on a cluster, in several shapes, ranked by the schedules that are found for them.

The planner proposes by a formula, the schedule decides. The module does not know what a layer costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placements import PlacementError
from placements.cluster import Cluster, read_cluster
from placements.hardware import modelled_profile
from placements.models.chain import ModelShape
from placements.models.costs import CostOptions
from placements.models.zoo import read_model
from placements.planners.hybrid.placing.planned_placement import (
    CHUNKED,
    SHARED_VOCABULARY,
    chunked_placement,
    planned_placement,
    shared_vocabulary_placement,
    trunk_of,
    vocabulary_costs,
)
from placements.planners.hybrid.placing.trunk_search import held_bytes
from placements.planners.hybrid.plan_file import plan_to_dict
from placements.planners.hybrid.plan_options import PlanOptions, PlanSearchResult, RatedPlan, Trial
from placements.planners.hybrid.plan_search import search_plans
from placements.planners.hybrid.rules_of_thumb import rules_of_thumb
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.planners.parallel_plan import PlanError
from schedsearch.planning.ranking import Candidate, RankedPlan, Report, rank
from schedsearch.shown import Shown

RANKS = ("schedule", "formula", "energy")
"""What plans are ranked by: the searched schedule, the planner's formula, the energy at a deadline."""

SHAPES = ("v_shape", *CHUNKED, *SHARED_VOCABULARY)
"""Placements that can be made of a plan."""


@dataclass(frozen=True)
class ProposedPlan:
    """A plan in one shape.

    Attributes:
        rated: The plan; of an M- or NN-shape that of the layers between embeddings and output layer.
        candidate: Its placement.
        ranked: What its search found; None where plans are ranked by the formula alone.
    """

    rated: RatedPlan
    candidate: Candidate
    ranked: RankedPlan | None = None

    @property
    def name(self) -> str:
        """Its shape and numbers."""
        return self.candidate.name

    @property
    def samples_per_s(self) -> float | None:
        """Throughput of the searched schedule, or by the formula where none was searched."""
        return self.rated.samples_per_s if self.ranked is None else self.ranked.samples_per_s


@dataclass(frozen=True)
class Plans(Shown):
    """The plans of a model on a cluster, best first.

    Attributes:
        model: What is planned.
        cluster: For which GPUs.
        options: What was allowed.
        costs: What layers cost.
        ranked_by: One of `RANKS`.
        proposed: In the order of the ranking.
        searches: Of each batch size: what the planner tried.
        left_out: Shapes that were not made, and why, a line each.
        interrupted: From the keyboard; then this is what there was until then.
    """

    model: ModelShape
    cluster: Cluster
    options: PlanOptions
    costs: LayerCosts = field(repr=False)
    ranked_by: str
    proposed: tuple[ProposedPlan, ...]
    searches: dict[int, PlanSearchResult] = field(repr=False)
    left_out: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def best(self) -> ProposedPlan:
        """The first.

        Raises:
            PlanError: There is none: nothing fits.
        """
        if not self.proposed:
            raise PlanError(f"{self.model.name}: no plan fits; see the trials")
        return self.proposed[0]

    @property
    def trials(self) -> tuple[tuple[int, Trial], ...]:
        """All numbers that were tried, with the batch size."""
        return tuple((batch, trial) for batch, found in self.searches.items() for trial in found.trials)

    @property
    def favourite(self) -> ProposedPlan | None:
        """The plan that the formula has first, of those that it is for; None where there are none."""
        known = [each for each in self.proposed if each.candidate.formula_ms is not None]
        return max(known, key=lambda each: each.rated.samples_per_s, default=None)

    def rows(self) -> list[dict[str, Any]]:
        """Return the figures of each plan by `PLAN_COLUMNS`; None where one does not apply."""
        return [_row(each) for each in self.proposed]

    def to_dict(self) -> dict[str, Any]:
        """Return the plans and their figures as plain data; each plan in its file form."""
        return {
            "ranked_by": self.ranked_by,
            "plans": [
                row | {"plan": plan_to_dict(each.rated.plan)}
                for row, each in zip(self.rows(), self.proposed, strict=True)
            ],
            "left_out": list(self.left_out),
        }


PLAN_COLUMNS = (
    *("name", "shape", "stages", "gpus_per_stage", "micro_batches", "batch", "formula_ms", "iteration_ms"),
    *("iteration_bound_ms", "one_f_one_b_ms", "status", "samples_per_s", "peak_memory_mib", "energy_j"),
    *("search_seconds", "note"),
)
"""Of the table of plans, in order."""


def _row(proposed: ProposedPlan) -> dict[str, Any]:
    plan, ranked = proposed.rated.plan, proposed.ranked
    peaks = [stage.peak_mib for stage in proposed.rated.stages]
    return {
        "name": proposed.name,
        "shape": proposed.candidate.shape,
        "stages": plan.num_stages,
        "gpus_per_stage": len(plan.stages[0].gpus),
        "micro_batches": plan.num_micro_batches,
        "batch": plan.global_batch_size,
        "formula_ms": proposed.candidate.formula_ms,
        "iteration_ms": ranked and ranked.iteration_ms,
        "iteration_bound_ms": ranked and ranked.iteration_bound_ms,
        "one_f_one_b_ms": ranked and ranked.one_f_one_b_ms,
        "status": str(ranked.status) if ranked else "",
        "samples_per_s": proposed.samples_per_s,
        "peak_memory_mib": ranked.peak_mib if ranked and ranked.peak_mib is not None else max(peaks),
        "energy_j": ranked and ranked.energy_j,
        "search_seconds": ranked and ranked.search_seconds,
        "note": ranked.note if ranked else "",
    }


def plan(
    model: str | ModelShape,
    cluster: str | Cluster,
    batch: int | Sequence[int],
    *,
    options: PlanOptions | None = None,
    costs: LayerCosts | None = None,
    rank_by: str = "schedule",
    shapes: Sequence[str] = ("v_shape",),
    num_chunks: int = 2,
    search_time_limit_s: float = 10.0,
    deadline_ms: float | None = None,
    seed: int = 0,
    on_progress: Callable[[int, int, float | None, float], None] | None = None,
    on_search: Report | None = None,
) -> Plans:
    """Return the best plans of a model on a cluster (Galvatron-BMW, with the schedule as the judge).

    Args:
        model: A model, or the name of one; see `placements.models.zoo`. Branches are planned one after the
            other; side by side they are by `placements.planners.hybrid.placing.branch_search`.
        cluster: GPUs, or their name; see `placements.cluster.read_cluster`.
        batch: Samples of an iteration; of several the one with the most samples per second is first.
        options: How GPUs may share layers, and what numbers are tried.
        costs: What layers cost; by default the rules of `placements.models.costs`, with gradients summed
            beside the last backward.
        rank_by: One of `RANKS`.
        shapes: Those of `SHAPES` that compete.
        num_chunks: Of each device in a wave or a loop.
        search_time_limit_s: For the schedule of each placement.
        deadline_ms: Of an iteration, where plans are ranked by energy.
        seed: Of the searches.
        on_progress: Told about the planner; see `placements.planners.hybrid.plan_search`.
        on_search: Told about the searches of schedules.

    Raises:
        PlanError: An option is wrong, or no plan fits; then the smallest memory that would do is said.
        PlacementError: A model's name or size is wrong.
        ClusterError: A cluster is wrong.

    >>> found = plan("gpt3_1.3b", "a100_8", 64, rank_by="formula")
    >>> found.best.rated.plan.num_gpus
    8
    """
    model = (read_model(model) if isinstance(model, str) else model).chained
    cluster = read_cluster(cluster) if isinstance(cluster, str) else cluster
    options = options or PlanOptions()
    costs = ShapeCosts(model, CostOptions(overlap_gradients=True)) if costs is None else costs
    _check(rank_by, shapes, num_chunks, deadline_ms)
    sizes = list(batch) if isinstance(batch, Sequence) else [batch]
    searches = {size: _searched(costs, cluster, size, options, on_progress) for size in sizes}
    interrupted = any(found.interrupted for found in searches.values())
    rated = sorted(
        (each for found in searches.values() for each in found.plans), key=lambda each: -each.samples_per_s
    )[: options.num_plans]
    if not rated and any(found.out_of_time for found in searches.values()):
        raise PlanError(
            f"time_limit_s: {options.time_limit_s:g} s were over before a plan of {model.name} on "
            f"{cluster.num_gpus} GPUs was found; give more, or fewer numbers to try"
        )
    if not rated and not interrupted:
        raise PlanError(why_no_plan(model, cluster, costs, sizes, options, searches))
    left_out: list[str] = []
    proposed = [
        each
        for shape in shapes
        for one in rated
        for each in _proposed(one, costs, options, shape, num_chunks, left_out)
    ]
    if rank_by != "formula" and not interrupted:
        proposed = _ranked(proposed, rank_by, search_time_limit_s, deadline_ms, seed, on_search)
    return Plans(
        model,
        cluster,
        options,
        costs,
        rank_by,
        tuple(proposed),
        searches,
        tuple(dict.fromkeys(left_out)),
        interrupted,
    )


def _searched(
    costs: LayerCosts,
    cluster: Cluster,
    batch: int,
    options: PlanOptions,
    on_progress: Callable[[int, int, float | None, float], None] | None,
) -> PlanSearchResult:
    if options.method == "megatron":
        return rules_of_thumb(costs, cluster, batch, options)
    return search_plans(costs, cluster, batch, options, on_progress)


def _check(rank_by: str, shapes: Sequence[str], num_chunks: int, deadline_ms: float | None) -> None:
    if rank_by not in RANKS:
        raise PlanError(f"rank: {rank_by!r} is not known; use {', '.join(RANKS)}")
    if not shapes:
        raise PlanError(f"shapes: is empty; give one or more of {', '.join(SHAPES)}")
    for shape in shapes:
        if shape not in SHAPES:
            raise PlanError(f"shapes: {shape!r} is not known; use {', '.join(SHAPES)}")
    if type(num_chunks) is not int or num_chunks < 1:
        raise PlanError(f"num_chunks: {num_chunks!r} is not a whole number of at least 1; give one")
    if rank_by == "energy" and (deadline_ms is None or not deadline_ms > 0):
        raise PlanError(
            f"deadline_ms: {deadline_ms} is not a time above 0, by which energy is compared; give one"
        )


def _proposed(
    rated: RatedPlan,
    costs: LayerCosts,
    options: PlanOptions,
    shape: str,
    num_chunks: int,
    left_out: list[str],
) -> Iterator[ProposedPlan]:
    """Yield the plan in a shape; where that cannot be, say why."""
    plan = rated.plan
    capacities_gib = capacities_of(rated, options)
    stages, gpus = _counted(plan.num_stages, "stage"), _counted(len(plan.stages[0].gpus), "GPU")
    batches = _counted(plan.num_micro_batches, "micro-batch", "micro-batches")
    name = f"{shape}, {stages} x {gpus}, {batches} of {plan.micro_batch_size}"
    try:
        if shape == "v_shape":
            placement = planned_placement(plan, costs, capacities_gib)
        elif plan.num_stages == 1:
            left_out.append(f"{shape}: of one stage there is no other shape than v_shape")
            return
        elif shape in SHARED_VOCABULARY:
            data_parallel = plan.strategies[1].data_parallel
            rated = _trunk(rated, costs, options, shape, data_parallel)
            placement = shared_vocabulary_placement(
                plan.model, rated.plan, costs, data_parallel, capacities_gib
            )
        else:
            placement = chunked_placement(plan, costs, shape, num_chunks, capacities_gib)
    except (PlanError, PlacementError) as error:
        left_out.append(f"{name}: {error}")
        return
    yield ProposedPlan(
        rated,
        Candidate(
            name,
            shape,
            placement,
            plan.num_micro_batches,
            plan.global_batch_size,
            rated.time_ms if shape == "v_shape" else None,
        ),
    )


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def capacities_of(rated: RatedPlan, options: PlanOptions) -> tuple[float, ...]:
    """Return the GiB that each GPU of a stage has for states and activations, by stage."""
    groups = [rated.plan.group(stage) for stage in range(rated.plan.num_stages)]
    given_gib = [group.memory_gib if options.memory_gib is None else options.memory_gib for group in groups]
    return tuple(each - options.reserve_gib for each in given_gib)


def _trunk(
    rated: RatedPlan, costs: LayerCosts, options: PlanOptions, shape: str, data_parallel: int
) -> RatedPlan:
    """Return the plan of the layers between embeddings and output layer, with memory left for these.

    Raises:
        PlanError: The model has not both of them, or what is left is too little.
    """
    plan = rated.plan
    trunk = trunk_of(plan.model, shape)
    group = plan.cluster.group(0, plan.num_gpus)
    ends = vocabulary_costs(
        plan.model, costs, group, data_parallel, plan.micro_batch_size, plan.num_micro_batches
    )
    found = search_plans(
        replace(costs, model=trunk) if isinstance(costs, ShapeCosts) else costs,
        plan.cluster,
        plan.global_batch_size,
        replace(
            options,
            num_stages=(plan.num_stages,),
            gpus_per_stage=(len(plan.stages[0].gpus),),
            num_micro_batches=(plan.num_micro_batches,),
            reserve_gib=options.reserve_gib + held_bytes(ends) / 2**30,
            num_plans=1,
        ),
    )
    if not found.plans:
        raise PlanError(found.trials[0].reason)
    return found.plans[0]


def _ranked(
    proposed: Sequence[ProposedPlan],
    rank_by: str,
    time_limit_s: float,
    deadline_ms: float | None,
    seed: int,
    on_search: Report | None,
) -> list[ProposedPlan]:
    by_name = {each.name: each for each in proposed}
    candidates = [each.candidate for each in by_name.values()]
    profiles = None
    if rank_by == "energy":
        profiles = [
            modelled_profile(each.candidate.placement, each.rated.plan.group(0).gpu)
            for each in by_name.values()
        ]
    ranked = rank(
        candidates,
        time_limit_s,
        profiles=profiles,
        deadline_ms=deadline_ms if rank_by == "energy" else None,
        seed=seed,
        on_progress=on_search,
    )
    return [replace(by_name[each.candidate.name], ranked=each) for each in ranked]


def why_no_plan(
    model: ModelShape,
    cluster: Cluster,
    costs: LayerCosts,
    sizes: Sequence[int],
    options: PlanOptions,
    searches: dict[int, PlanSearchResult],
) -> str:
    """Return a line that says why no plan fits, and the smallest memory or number of GPUs that would do."""
    trials = [trial for found in searches.values() for trial in found.trials]
    short = [trial.reason for trial in trials if trial.reason.startswith("out of memory")]
    if not short:
        return f"{model.name}: nothing can be planned: {trials[0].reason if trials else 'nothing was tried'}"
    least_gib = least_memory_gib(costs, cluster, sizes, options)
    remedy = (
        "recomputation, a smaller batch or more GPUs"
        if least_gib is None
        else f"at least {least_gib:.1f} GiB"
    )
    own_gib = cluster.group(0, 1).memory_gib if options.memory_gib is None else options.memory_gib
    return (
        f"memory_gib: {own_gib:g} GiB less {options.reserve_gib:g} in reserve are too little for "
        f"{model.name} on {cluster.num_gpus} GPUs; {remedy} would do"
    )


def least_memory_gib(
    costs: LayerCosts, cluster: Cluster, sizes: Sequence[int], options: PlanOptions, most_gib: float = 2.0**16
) -> float | None:
    """Return the least memory of each GPU, to a tenth of a GiB, with which some plan fits; None for none."""

    def fits(tenths: int) -> bool:
        tried = replace(options, memory_gib=tenths / 10, num_plans=1)
        return any(search_plans(costs, cluster, size, tried).plans for size in sizes)

    low = math.floor(options.reserve_gib * 10)
    high = max(2 * low, low + 10)
    while not fits(high):
        low, high = high, 2 * high
        if high > most_gib * 10:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high / 10
