"""The plans of a model on a cluster, in several shapes, ranked by the schedules that are found for them.

The planner proposes by a formula, the schedule decides. The module does not know what a layer costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placements.cluster import Cluster, read_cluster
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.zoo import read_model
from placements.planners.hybrid.placing.planned_placement import CHUNKED
from placements.planners.hybrid.placing.shared_layers import PartCosts
from placements.planners.hybrid.plan_options import PlanOptions, PlanSearchResult, RatedPlan
from placements.planners.hybrid.search.plan_search import PlannerReport, search_plans
from placements.planners.hybrid.search.rules_of_thumb import rules_of_thumb
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.planners.parallel_plan import PlanError
from schedsearch.planning.plans import Plans, ProposedPlan
from schedsearch.planning.power import mixed_profile
from schedsearch.planning.ranking import RankingReport, rank
from schedsearch.planning.shape_plans import SHAPES, ShapePlans
from schedsearch.planning.short_memory import why_no_plan

RANKS = ("schedule", "formula", "energy")
"""Measures that rank plans: the searched schedule, the planner's formula, the energy at a deadline."""


NEAR_TIE = 0.01
"""Share by which an iteration of a uniform V-shape may be longer and it is still preferred to another plan.
The formula is no more exact than that, and a uniform V-shape is what other systems can run."""


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
    on_progress: PlannerReport | None = None,
    on_search: RankingReport | None = None,
) -> Plans:
    """Return the best plans of a model on a cluster (Galvatron-BMW, with the schedule as the judge).

    Args:
        model: A model, the name of one, or the path of its `config.json`; see `placements.models.zoo`.
            Branches are one after the other.
        cluster: GPUs, or their name; see `placements.cluster.read_cluster`.
        batch: Samples of an iteration; of several the one with the most samples per second is first.
        options: How GPUs may share layers, and what numbers are tried.
        costs: What layers cost; by default the rules of `placements.models.costing`, with gradients summed
            beside the last backward.
        rank_by: One of `RANKS`.
        shapes: Those of `schedsearch.planning.shape_plans.SHAPES` that compete.
        num_chunks: Chunks of each device in a wave or a loop.
        search_time_limit_s: For the schedule of each placement.
        deadline_ms: Longest time of an iteration, where plans are ranked by energy.
        seed: Seed of the searches.
        on_progress: Told about the planner; see `placements.planners.hybrid.search.plan_search`. There is no
            bound, 0, where several batches or shapes compete.
        on_search: Told about the searches of schedules.

    Raises:
        PlanError: An option is wrong, or no plan fits; then the smallest memory that would do is said.
        PlacementError: A model's name or size is wrong.
        ClusterError: A cluster is wrong.

    >>> found = plan("gpt3_1.3b", "a100_8", 64, rank_by="formula")
    >>> found.best.rated.plan.num_gpus
    8
    """
    model = read_model(model) if isinstance(model, str) else model
    cluster = read_cluster(cluster) if isinstance(cluster, str) else cluster
    options = options or PlanOptions()
    costs = ShapeCosts(model, CostOptions(overlap_gradients=True)) if costs is None else costs
    _check(rank_by, shapes, num_chunks, deadline_ms)
    sizes = list(batch) if isinstance(batch, Sequence) else [batch]
    if on_progress is not None and len(sizes) * len(shapes) > 1:
        on_progress = _without_bound(on_progress)
    chain = PartCosts(model.chained, costs)
    searches = {size: _searched(chain, cluster, size, options, on_progress) for size in sizes}
    interrupted = any(found.interrupted for found in searches.values())
    making = ShapePlans(PartCosts(model, costs), cluster, list(searches), options, num_chunks, on_progress)
    proposed, was_interrupted = _proposed(making, shapes, searches, interrupted)
    interrupted = interrupted or was_interrupted
    left_out = list(dict.fromkeys(making.left_out))
    if not any(found.plans for found in searches.values()) and not interrupted:
        if any(found.out_of_time for found in searches.values()):
            why = (
                f"time_limit_s: {options.time_limit_s:g} s were over before a plan of {model.name} on "
                f"{cluster.num_gpus} GPUs was found; give more, or fewer numbers to try"
            )
        else:
            why = why_no_plan(cluster, chain, options, searches)
        if not proposed:
            raise PlanError(why)
        left_out.insert(0, f"v_shape: {why}")
    if not proposed and not interrupted:
        raise PlanError(f"shapes: no plan of these can be made: {left_out[0]}; add v_shape")
    if rank_by == "formula" or interrupted:
        proposed.sort(key=lambda each: -(each.samples_per_s or 0.0))
    else:
        proposed = _ranked(proposed, rank_by, search_time_limit_s, deadline_ms, seed, on_search)
    return Plans(
        model, cluster, options, costs, rank_by, tuple(proposed), searches, tuple(left_out), interrupted
    )


def _without_bound(report: PlannerReport) -> PlannerReport:
    """Return who is told of one of several batches or shapes, whose bound is not that of all."""
    return lambda done, total, best_ms, _: report(done, total, best_ms, 0.0)


def _searched(
    costs: LayerCosts,
    cluster: Cluster,
    batch: int,
    options: PlanOptions,
    on_progress: PlannerReport | None,
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
    making: ShapePlans, shapes: Sequence[str], searches: dict[int, PlanSearchResult], interrupted: bool
) -> tuple[list[ProposedPlan], bool]:
    """Return the plans of all shapes, and whether that was interrupted; then no more are searched."""
    chains = sorted(
        (_simple(making, each) for found in searches.values() for each in found.plans),
        key=lambda each: -each.samples_per_s,
    )[: making.options.num_plans]
    proposed: list[ProposedPlan] = []
    try:
        for shape in dict.fromkeys(shapes):
            if not interrupted or shape in ("v_shape", *CHUNKED):
                proposed += making.of(shape, chains)
    except KeyboardInterrupt:
        return proposed, True
    return proposed, False


def _simple(making: ShapePlans, rated: RatedPlan) -> RatedPlan:
    """Return the best uniform plan with the numbers of another, where it is at most a near tie longer."""
    plan, options = rated.plan, making.options
    if options.method != "exact" or plan.is_uniform:
        return rated
    same = replace(
        options,
        uniform=True,
        num_stages=(plan.num_stages,),
        gpus_per_stage=(len(plan.stages[0].gpus),),
        num_micro_batches=(plan.num_micro_batches,),
        num_plans=1,
    )
    costs = PartCosts(plan.model, making.costs)
    found = search_plans(costs, making.cluster, plan.global_batch_size, same).plans
    is_near = bool(found) and found[0].time_ms <= (1 + NEAR_TIE) * rated.time_ms
    return found[0] if is_near else rated


def _ranked(
    proposed: Sequence[ProposedPlan],
    rank_by: str,
    time_limit_s: float,
    deadline_ms: float | None,
    seed: int,
    on_search: RankingReport | None,
) -> list[ProposedPlan]:
    by_name = {each.name: each for each in proposed}
    ranked = rank(
        [each.candidate for each in by_name.values()],
        time_limit_s,
        profiles=[mixed_profile(each.candidate.placement, each.plan.stage_gpus) for each in by_name.values()]
        if rank_by == "energy"
        else None,
        deadline_ms=deadline_ms if rank_by == "energy" else None,
        seed=seed,
        on_progress=on_search,
    )
    found = [replace(by_name[each.candidate.name], ranked=each) for each in ranked]
    if rank_by == "schedule" and (best := found[0].samples_per_s):
        simple = [each.is_uniform and each.candidate.shape == "v_shape" for each in found]
        near = [(each.samples_per_s or 0.0) * (1 + NEAR_TIE) >= best for each in found]
        near = [is_near and is_simple for is_near, is_simple in zip(near, simple, strict=True)]
        found.insert(0, found.pop(near.index(True) if True in near else 0))
    return found
