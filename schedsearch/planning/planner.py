"""The plans of a model on a cluster, in several shapes, ranked by the schedules that are found for them.

The planner proposes by a formula, the schedule decides. The module does not know what a layer costs.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from placements.cluster import Cluster, read_cluster
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.layers import BF16, HALF
from placements.models.memory import FRAMEWORKS
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import USUAL, Paradigm, TreeOptions
from placements.planners.hybrid.placing.planned_placement import SHARED_VOCABULARY
from placements.planners.hybrid.placing.shared_layers import PartCosts
from placements.planners.hybrid.plan_options import OUT_OF_MEMORY, PlanOptions, PlanSearchResult
from placements.planners.hybrid.search.layout_search import LayoutOptions, LayoutSearch
from placements.planners.hybrid.search.plan_search import PlannerReport, search_plans
from placements.planners.hybrid.shape_costs import FrameworkCosts, ShapeCosts
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.planners.hybrid.uniform import Layout
from placements.planners.parallel_plan import PlanError
from schedsearch.planning.layout_plans import plan_layouts, why_no_layout
from schedsearch.planning.plans import LayoutPlans, Plans, RankedPlan
from schedsearch.planning.ranking import RankingReport, rank
from schedsearch.planning.shape_plans import SHAPES, chain_plans, vocabulary_plans

RANKS = ("schedule", "formula")
"""Measures that rank plans: the searched schedule, or the planner's formula."""

PLANNERS = ("hybrid", "layouts")
"""Those that can be asked for alone: every layer in its own strategy, or all alike as frameworks have it."""

TRAINED = CostOptions(overlap_weights=True, framework=FRAMEWORKS["megatron"])
"""What GPUs reach where nothing else is given: as the layouts of Megatron-LM are run."""

NEAR_TIE = 0.01
"""Share by which an iteration may be longer and counts as equal: costs are no more exact than that. Of equal
plans the simplest comes first."""


_SHARED = ("memory_gib", "reserve_gib", "num_stages", "gpus_per_stage", "num_micro_batches")
"""Options of both planners."""


def plan(
    model: str | ModelShape,
    cluster: str | Cluster,
    batch: int | Sequence[int],
    *,
    options: PlanOptions | None = None,
    costs: LayerCosts | None = None,
    planner: str | None = None,
    layouts: LayoutOptions | None = None,
    own: Sequence[Layout] = (),
    rank_by: str = "schedule",
    shapes: Sequence[str] = ("v_shape",),
    num_chunks: int = 2,
    time_limit_s: float | None = None,
    seed: int = 0,
    on_progress: PlannerReport | None = None,
    on_search: RankingReport | None = None,
    on_layouts: Callable[[int, int], None] | None = None,
) -> Plans:
    """Return the best plans of a model on a cluster, with the schedule as the judge.

    Two planners propose: of plans whose layers each have a strategy (Galvatron-BMW), and of layouts as
    training frameworks are configured. Costs are the same for both, and so is the time of a plan of both.

    Args:
        model: A model, the name of one, or the path of its `config.json`; see `placements.models.zoo`.
            Branches are one after the other.
        cluster: GPUs, or their name; see `placements.cluster.read_cluster`.
        batch: Samples of an iteration; of several the one with the most samples per second is first.
        options: How GPUs may share layers, and what numbers are tried.
        costs: What layers cost; by default as `TRAINED` says.
        planner: One of `PLANNERS`, for it alone; None for both, where `layouts` can be compared.
        layouts: Layouts that are tried; what `options` have of them is taken from there.
        own: The user's own, of one batch size; they compete where they fit.
        rank_by: One of `RANKS`.
        shapes: Those of `schedsearch.planning.shape_plans.SHAPES` that compete.
        num_chunks: Chunks of each device in a wave or a loop.
        time_limit_s: For all of it: planners have even shares of half, the searches of schedules what these
            leave; None for that of `options`.
        seed: Seed of the searches.
        on_progress: Told about the planner; see `placements.planners.hybrid.search.plan_search`. There is no
            bound, 0, where layouts, or several batches or shapes, compete.
        on_search: Told about the searches of schedules.
        on_layouts: See `placements.planners.hybrid.search.layout_search.LayoutSearch.estimates`.

    Raises:
        PlanError: An option is wrong, or no plan fits; then the smallest memory that would do is said.
        PlacementError: A model's name or size is wrong.
        ClusterError: A cluster is wrong.

    >>> found = plan("gpt3_1.3b", "a100_8", 64, rank_by="formula")
    >>> found.best.plan.num_gpus
    8
    """
    model = in_bf16(read_model(model)) if isinstance(model, str) else model
    cluster = read_cluster(cluster) if isinstance(cluster, str) else cluster
    is_computed = costs is None or isinstance(costs, ShapeCosts)
    options = options or PlanOptions(TreeOptions(sequence_parallel=is_computed))
    options = options if time_limit_s is None else replace(options, time_limit_s=time_limit_s)
    costs = FrameworkCosts(model, TRAINED) if costs is None else costs
    _check(rank_by, shapes, planner)
    sizes = list(batch) if isinstance(batch, Sequence) else [batch]
    alone = "" if planner == "hybrid" else _why_no_layouts(cluster, costs, options, shapes)
    if alone and (own or planner == "layouts"):
        raise PlanError(f"{'explain' if own else 'planner'}: layouts cannot be compared: {alone}")
    with_layouts, with_hybrid = planner != "hybrid" and not alone, planner != "layouts"
    if on_progress is not None and (with_layouts or len(sizes) * len(shapes) > 1):
        on_progress = _without_bound(on_progress)
    trunks = [shape for shape in dict.fromkeys(shapes) if shape in SHARED_VOCABULARY]
    steps = len(sizes) * (with_hybrid * (1 + len(trunks)) + with_layouts)
    end_s = time.monotonic() + options.time_limit_s
    share = replace(options, time_limit_s=options.time_limit_s / 2 / steps)
    chain, whole = PartCosts(model.chained, costs), PartCosts(model, costs)
    searches: dict[int, PlanSearchResult] = {}
    made: list[RankedPlan | str] = []
    interrupted = False
    if with_hybrid:
        searches = {size: search_plans(chain, cluster, size, share, on_progress) for size in sizes}
        interrupted = any(found.interrupted for found in searches.values())
        chains = [each for found in searches.values() for each in found.plans]
        chains = sorted(chains, key=lambda each: -each.samples_per_s)[: options.num_plans]
        try:
            for shape in dict.fromkeys(shapes):
                if shape not in trunks:
                    made += chain_plans(shape, chains, whole, options, num_chunks)
                elif not interrupted:
                    made += vocabulary_plans(shape, sizes, whole, cluster, share, on_progress)
        except KeyboardInterrupt:
            interrupted = True
    proposed = [each for each in made if isinstance(each, RankedPlan)]
    left_out = list(dict.fromkeys(each for each in made if isinstance(each, str)))
    left_out += [f"layouts: not compared: {alone}"] if alone else []
    known: dict[int, LayoutPlans] = {}
    why_none = ""
    for size in sizes if with_layouts and not interrupted else ():
        assert isinstance(costs, ShapeCosts), "else there are no layouts"
        allowed = _allowed(layouts or LayoutOptions(), options)
        search = LayoutSearch(model, cluster, size, replace(costs.options, exchanges_apart=True), allowed)
        mine = [each for each in own if each.batch == size]
        try:
            known[size] = plan_layouts(search, options.num_plans, on_layouts, mine, share.time_limit_s)
            why_none = why_none or why_no_layout(search, known[size])
        except PlanError as error:
            if own or not with_hybrid:
                raise
            left_out.append(f"layouts: {error}")
    proposed += [each for found in known.values() for each in found.plans]
    interrupted = interrupted or any(found.interrupted for found in known.values())
    if with_hybrid and not any(found.plans for found in searches.values()) and not interrupted:
        why_none = _why_no_plan(cluster, chain, options, searches)
        left_out.insert(0, f"v_shape: {why_none}")
    elif with_hybrid:
        why_none = f"shapes: no plan of these can be made: {', '.join(left_out[:1])}; add v_shape"
    if not proposed and not interrupted:
        raise PlanError(why_none)
    if rank_by == "formula":
        proposed = [each.by_formula for each in proposed]
    else:
        unique = {each.name: each for each in proposed if each.status is None}
        proposed = [each for each in proposed if each.status is not None] + rank(
            list(unique.values()),
            max(end_s - time.monotonic(), 1e-3),
            seed=seed,
            on_progress=on_search,
            interrupted=interrupted,
        )
    found = tuple(_in_order(proposed, own))
    return Plans(
        *(model, cluster, options, costs, rank_by, found, searches, known, tuple(left_out), interrupted)
    )


def in_bf16(model: ModelShape) -> ModelShape:
    """Return a model in 16 bits whose gradients are added up in 32, as is usual."""
    return replace(model, precision=BF16) if model.precision == HALF else model


def _why_no_layouts(cluster: Cluster, costs: LayerCosts, options: PlanOptions, shapes: Sequence[str]) -> str:
    """Return which part of a question layouts have no answer to; empty where they have one."""
    computed = costs.options if isinstance(costs, ShapeCosts) else None
    reasons = {
        "layers have measured times": computed is None or computed.calibration is not None,
        "overlap_gradients is true": computed is not None and computed.overlap_gradients,
        "sequence_parallel is false": not options.trees.sequence_parallel,
        "method, stage_method or pipeline is given": (options.method, options.stage_method, options.pipeline)
        != ("exact", "exact", "1f1b"),
        "paradigms has no zero1 or sdp": not {Paradigm.ZERO1, Paradigm.SDP} & set(options.trees.paradigms),
        "shapes has no v_shape": "v_shape" not in shapes,
        "the model has branches": bool(costs.model.branches),
        "GPUs are of several kinds": len({nodes.gpu for nodes in cluster.nodes}) > 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _why_no_plan(
    cluster: Cluster, costs: LayerCosts, options: PlanOptions, searches: Mapping[int, PlanSearchResult]
) -> str:
    """Return why no chain of stages was found; where memory is short, with how much would do."""
    of_model = f"{costs.model.name} on {cluster.num_gpus} GPUs"
    if any(found.out_of_time for found in searches.values()):
        limit = f"time_limit_s: {options.time_limit_s:g} s were over before a plan of {of_model} was found"
        return f"{limit}; give more, or fewer numbers to try"
    trials = [trial for found in searches.values() for trial in found.trials]
    if not any(trial.reason.startswith(OUT_OF_MEMORY) for trial in trials):
        reason = trials[0].reason if trials else "nothing was tried"
        return f"{costs.model.name}: nothing can be planned: {reason}"

    def stop(_: int, __: int, min_ms: float | None, ___: float) -> None:
        if min_ms is not None:  # the first plan is enough
            raise KeyboardInterrupt

    def fits(tenths: int) -> bool:
        allowed = replace(options, memory_gib=tenths / 10, num_plans=1)
        return any(search_plans(costs, cluster, size, allowed, stop).plans for size in searches)

    low = math.floor(options.reserve_gib * 10)
    high = next((each for each in (2**i + low for i in range(4, 20)) if fits(each)), None)
    remedy = "recomputation or a smaller batch"
    if high is not None:
        tenths = bisect_left(range(high), True, low + 1, key=fits)
        remedy = f"at least {tenths / 10:.1f} GiB, or more GPUs,"
    own_gib = cluster.group(0, 1).memory_gib if options.memory_gib is None else options.memory_gib
    return (
        f"memory_gib: {own_gib:g} GiB less {options.reserve_gib:g} in reserve are too little for {of_model}; "
        f"{remedy} would do"
    )


def _allowed(layouts: LayoutOptions, options: PlanOptions) -> LayoutOptions:
    """Return the layouts that are tried, as far as the options of all plans restrict them."""
    trees, usual = options.trees, options.trees.paradigms == USUAL
    zero = {Paradigm.ZERO1: 1, Paradigm.SDP: 3}
    return replace(
        layouts,
        max_tensor=trees.max_tensor_parallel if Paradigm.TP in trees.paradigms else 1,
        max_context=layouts.max_context if usual or Paradigm.CP in trees.paradigms else 1,
        zero=tuple(stage for paradigm, stage in zero.items() if paradigm in trees.paradigms),
        recompute=trees.recompute,
        expert_parallel=None if trees.expert_parallel == (1,) else trees.expert_parallel,
        **{name: getattr(options, name) for name in _SHARED},
    )


def _without_bound(report: PlannerReport) -> PlannerReport:
    """Return who is told of one of several batches or shapes, whose bound is not that of all."""
    return lambda done, total, best_ms, _: report(done, total, best_ms, 0.0)


def _check(rank_by: str, shapes: Sequence[str], planner: str | None) -> None:
    names = [("planner", planner, PLANNERS), ("rank", rank_by, RANKS)]
    for where, name, known in names + [("shapes", shape, SHAPES) for shape in shapes or ("",)]:
        if name is not None and name not in known:
            raise PlanError(f"{where}: {name!r} is not known; use {', '.join(known)}")


def _in_order(proposed: Sequence[RankedPlan], own: Sequence[Layout]) -> Iterator[RankedPlan]:
    """Yield plans by throughput without those that look the same, and of equal ones the simplest first.

    A layout of the user's own that is the fastest of all stays the first.
    """
    unique: dict[str, RankedPlan] = {}
    for each in sorted(proposed, key=lambda each: -(each.samples_per_s or 0.0)):
        unique.setdefault(each.name, each)
    left = list(unique.values())
    fastest = left[0] if left and left[0].run is not None and left[0].run.layout in own else None
    while left:
        rate = left[0].samples_per_s
        near = [each for each in left if (each.samples_per_s or 0.0) * (1 + NEAR_TIE) >= (rate or 0.0)]
        left = left[len(near) :]
        near.sort(key=lambda each: (each is not fastest, each.complexity))
        yield near[0]
        yield from (replace(each, is_equal=rate is not None) for each in near[1:])
