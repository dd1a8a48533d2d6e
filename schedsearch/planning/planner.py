"""The planner: plans of a model on a cluster, in several shapes, ranked by their schedules.

Formulas propose, the schedule decides. The module does not know what a layer costs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from placements import PlacementError
from placements.cluster import Cluster, read_cluster
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.layers import BF16, HALF
from placements.models.memory import FRAMEWORKS
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import USUAL, Paradigm, TreeOptions
from placements.planners.hybrid.placing.planned_placement import planned_placement
from placements.planners.hybrid.placing.shared_layers import SHARED_VOCABULARY, PartCosts, search_trunks
from placements.planners.hybrid.plan import PlanError, UnsuitableShapeError
from placements.planners.hybrid.plan_options import OUT_OF_MEMORY, PlanOptions, PlanSearchResult, RatedPlan
from placements.planners.hybrid.search.layout_search import LayoutOptions, LayoutSearch
from placements.planners.hybrid.search.plan_search import PlannerReport, search_plans
from placements.planners.hybrid.shape_costs import FrameworkCosts, ShapeCosts
from placements.planners.hybrid.stage_tables import LayerCosts
from schedsearch.planning.layout_plans import plan_layouts, why_no_layout
from schedsearch.planning.plans import LayoutPlans, Plans, RankedPlan, capacities_gib, plan_name
from schedsearch.planning.ranking import RankingReport, rank, simulated
from schedsearch.planning.uniform_run import NEAR_TIE

SHAPES = ("v_shape", *SHARED_VOCABULARY)
"""Placements that can compete."""

RANKS = ("schedule", "simulation")
"""Ways to rank plans: by a searched schedule, or by the simulated hand-made one."""

TRAINED = CostOptions(None, overlap_weights=True, framework=FRAMEWORKS["megatron"])
"""Default cost options: rates by shape, overlap and framework as in Megatron-LM's runs."""

_NUMBERS = ("num_stages", "gpus_per_stage", "num_micro_batches")
"""Options of the numbers to try, which layouts and strategies share."""

_PROMISING = 4
"""Number of promising layouts around which strategies are searched first."""

_PROMISING_SHARE = 1.25
"""Most time of a promising layout by the formula, as a multiple of the best layout's time."""


def plan(
    model: str | ModelShape,
    cluster: str | Cluster,
    batch: int | Sequence[int],
    *,
    options: PlanOptions | None = None,
    costs: LayerCosts | None = None,
    uniform: bool = False,
    layouts: LayoutOptions | None = None,
    rank_by: str = "schedule",
    shapes: Sequence[str] = ("v_shape",),
    time_limit_s: float | None = None,
    on_progress: PlannerReport | None = None,
    on_search: RankingReport | None = None,
    workers: int = 1,
) -> Plans:
    """Return the best plans of a model on a cluster, with the schedule as the judge.

    All layouts of training frameworks, whose layers are all shared alike, are rated by a formula, and the
    best timed by their schedules. Then strategies of each layer (Galvatron-BMW) are searched: first with the
    numbers of promising layouts, then with all, as far as they may be faster than what is known. Costs are
    the same for both, and so is the time of a plan of both.

    Args:
        model: A model, the name of one, or the path of its `config.json`; see `placements.models.zoo`.
            Branches are one after the other.
        cluster: GPUs, or their name; see `placements.cluster.read_cluster`.
        batch: Samples of an iteration; of several the one with the most samples per second is first.
        options: Allowed strategies of layers, and the numbers to try. With a paper's method, no layouts
            are made.
        costs: Costs of layers; by default with the options `TRAINED`.
        uniform: Layouts alone.
        layouts: Layouts to try; fields that `options` also have are taken from there.
        rank_by: One of `RANKS`.
        shapes: Some of `SHAPES`, which compete.
        time_limit_s: Seconds in all: planning has half, the searches of schedules the rest; None for the
            time limit of `options`.
        on_progress: Called with the planner's progress; see `placements.planners.hybrid.search.plan_search`.
            The bound is 0 (none) if layouts, or several batches or shapes, compete.
        on_search: Called with the progress of the searches of schedules.
        workers: Processes that time layouts, and search schedules, side by side.

    Raises:
        PlanError: An option is wrong, or no plan fits; then the smallest memory that would do is said.
        PlacementError: A model's name or size is wrong.
        ClusterError: A cluster is wrong.

    >>> plans = plan("gpt3_1.3b", "a100_8", 64, rank_by="simulation")
    >>> plans.best.plan.num_gpus
    8
    """
    model = in_bf16(read_model(model)) if isinstance(model, str) else model
    cluster = read_cluster(cluster) if isinstance(cluster, str) else cluster
    is_computed = costs is None or isinstance(costs, ShapeCosts)
    options = options or PlanOptions(TreeOptions(sequence_parallel=is_computed))
    options = options if time_limit_s is None else replace(options, time_limit_s=time_limit_s)
    costs = FrameworkCosts(model, TRAINED) if costs is None else costs
    for where, names, known in (("rank", (rank_by,), RANKS), ("shapes", tuple(shapes) or ("",), SHAPES)):
        for name in names:
            if name not in known:
                raise PlanError(f"{where}: {name!r} is not known; use {', '.join(known)}")
    if type(workers) is not int or workers < 1:
        raise PlanError(f"workers: {workers!r} is not a whole number of at least 1; give one")
    why_not = _why_no_layouts(cluster, costs, options, shapes)
    if why_not and uniform:
        raise PlanError(f"uniform: layouts cannot be compared: {why_not}")
    sizes = tuple(dict.fromkeys(batch)) if isinstance(batch, Sequence) else (batch,)
    for size in sizes:
        if type(size) is not int or size < 1:
            raise PlanError(f"batch: {size!r} is not a whole number of samples above 0; give one")
    end_s = time.monotonic() + options.time_limit_s
    shapes = [] if uniform else list(dict.fromkeys(shapes))
    planning = _Planning(model, cluster, costs, options, sizes, shapes, on_progress, workers)
    planning.run(None if why_not else _allowed(layouts or LayoutOptions(), options))
    made = _unique(map(simulated, planning.made))
    if rank_by == "schedule":
        left_s = max(end_s - time.monotonic(), 1e-3)
        is_cut = planning.interrupted
        made = _unique(rank(made, left_s, on_progress=on_search, interrupted=is_cut, workers=workers))
    if why_not and options.method == "exact":
        planning.left_out.append(f"layouts: not compared: {why_not}")
    return Plans(
        *(model, cluster, options, costs, tuple(_in_order(made))),
        *(planning.searches, planning.layouts, tuple(planning.left_out), planning.interrupted),
    )


def in_bf16(model: ModelShape) -> ModelShape:
    """Return a model with BF16 (gradients summed in 32 bits) instead of half precision; others unchanged."""
    return replace(model, precision=BF16) if model.precision == HALF else model


def _why_no_layouts(cluster: Cluster, costs: LayerCosts, options: PlanOptions, shapes: Sequence[str]) -> str:
    """Return in words which option the layouts of frameworks do not support; empty if they support all."""
    reasons = {
        "layers have measured times": not isinstance(costs, ShapeCosts),
        "sequence_parallel is false": not options.trees.sequence_parallel,
        "a paper's method is asked for": (options.method, options.stage_method, options.pipeline)
        != ("exact", "exact", "1f1b"),
        "paradigms has no zero1 or sdp": not {Paradigm.ZERO1, Paradigm.SDP} & set(options.trees.paradigms),
        "shapes has no v_shape": "v_shape" not in shapes,
        "the model has branches": bool(costs.model.branches),
        "GPUs are of several kinds": len({nodes.gpu for nodes in cluster.nodes}) > 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


@dataclass
class _Planning:
    """A planner's question, and the plans made so far, by shape."""

    model: ModelShape
    cluster: Cluster
    costs: LayerCosts
    options: PlanOptions
    sizes: Sequence[int]
    shapes: Sequence[str]
    report: PlannerReport | None
    workers: int
    layouts: dict[int, LayoutPlans] = field(default_factory=dict)
    searches: dict[int, PlanSearchResult] = field(default_factory=dict)
    made: list[RankedPlan] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    why_none: str = ""
    interrupted: bool = False
    steps_left: int = 0

    def run(self, allowed: LayoutOptions | None) -> None:
        """Make the plans of all batches and shapes; layouts where some are allowed.

        Raises:
            PlanError: Nothing fits, or nothing can be tried.
        """
        self.end_s = time.monotonic() + self.options.time_limit_s / 2
        trunks = [shape for shape in self.shapes if shape != "v_shape"]
        with_layouts, with_search = allowed is not None, bool(self.shapes)
        self.steps_left = len(self.sizes) * (with_layouts + with_search) + len(trunks)
        if self.report and (with_layouts or len(self.sizes) * len(self.shapes) > 1):
            report = self.report
            self.report = lambda done, total, best_ms, _: report(done, total, best_ms, 0.0)
        chains: list[RatedPlan] = []
        for size in self.sizes:
            if allowed is not None and not self.interrupted:
                self._rate_layouts(size, allowed)
            if with_search and not self.interrupted:
                chains += self._search(size)
        if with_search and not chains and not self.made and not self.interrupted:
            self.why_none = self._why_no_chain()
            self.left_out.append(f"v_shape: {self.why_none}")
        try:
            if "v_shape" in self.shapes:
                self._place("v_shape", chains)
            for shape in trunks if not self.interrupted else ():
                self._plan_trunk(shape)
        except KeyboardInterrupt:
            self.interrupted = True
        if not self.made and not self.interrupted:
            why = f"shapes: no plan of these can be made: {', '.join(self.left_out[:1])}; add v_shape"
            raise PlanError(why if chains else self.why_none or why)

    def _place(self, shape: str, plans: Iterable[RatedPlan]) -> None:
        """Make ranked plans, with placements, of the best given ones."""
        best = sorted(plans, key=lambda rated: rated.time_ms / rated.plan.global_batch_size)
        costs = PartCosts(self.model, self.costs)
        for rated in best[: self.options.num_plans]:
            plan, capacities = rated.plan, capacities_gib(rated.plan, self.options)
            try:
                placement = planned_placement(plan, costs, capacities, shared=rated.shared)
                self.made.append(RankedPlan(shape, rated, placement))
            except (PlanError, PlacementError) as error:
                self.left_out.append(f"{plan_name(shape, plan)}: {error}")

    def _plan_trunk(self, shape: str) -> None:
        """Make the best plans of an M- or NN-shape."""
        if self.cluster.num_gpus == 1:
            self.left_out.append(f"{shape}: of one GPU there is no other shape than v_shape")
            return
        costs, others = PartCosts(self.model, self.costs), (shape, self._share(), self.report)
        try:
            plans = [
                rated for size in self.sizes for rated in search_trunks(costs, self.cluster, size, *others)
            ]
            self._place(shape, plans)
            if not plans:
                self.left_out.append(f"{shape}: none fits with the numbers that are allowed")
        except UnsuitableShapeError as error:
            self.left_out.append(f"{shape} {error.reason}")
        except PlanError as error:
            self.left_out.append(f"{shape}: {error}")

    def _share(self) -> PlanOptions:
        """Return the options with an even share of the time that is left for planning."""
        left_s = max(self.end_s - time.monotonic(), 1e-3) / max(self.steps_left, 1)
        self.steps_left -= 1
        return replace(self.options, time_limit_s=left_s)

    def _rate_layouts(self, size: int, allowed: LayoutOptions) -> None:
        assert isinstance(self.costs, ShapeCosts), "else there are no layouts"
        costs, share = replace(self.costs.options, exchanges_apart=True), self._share()
        search = LayoutSearch(self.model, self.cluster, size, costs, allowed)
        try:
            layouts = plan_layouts(search, share.num_plans, self.report, share.time_limit_s, self.workers)
        except PlanError as error:
            if not self.shapes:
                raise
            self.left_out.append(f"layouts: {error}")
            return
        self.layouts[size] = layouts
        self.made += layouts.plans
        self.interrupted = layouts.interrupted
        self.why_none = "" if layouts.plans else why_no_layout(search, layouts)

    def _search(self, size: int) -> list[RatedPlan]:
        """Return plans with individual strategies for layers, at most `NEAR_TIE` slower than the layouts."""
        share, layouts = self._share(), self.layouts.get(size)
        end_s, chain = time.monotonic() + share.time_limit_s, PartCosts(self.model.chained, self.costs)
        known_ms = (ranked.iteration_ms or math.inf for ranked in (layouts.plans if layouts else ()))
        best_ms, plans = min(known_ms, default=math.inf), list[RatedPlan]()
        for numbers in (*islice(_promising(share, layouts), _PROMISING), None):
            asked = numbers or replace(share, time_limit_s=max(end_s - time.monotonic(), 1e-3))
            below_ms = (1 + NEAR_TIE) * best_ms
            result = search_plans(chain, self.cluster, size, asked, self.report, below_ms=below_ms)
            plans += result.plans
            best_ms = min([best_ms, *(rated.time_ms for rated in result.plans)])
            if numbers is None:
                self.searches[size] = result
            if result.interrupted:
                self.interrupted = True
                break
        return plans

    def _why_no_chain(self) -> str:
        """Return why no chain of stages was found."""
        options, of_model = self.options, f"{self.model.name} on {self.cluster.num_gpus} GPUs"
        if any(search.out_of_time for search in self.searches.values()):
            limit = f"{options.time_limit_s:g} s were over before a plan of {of_model} was found"
            return f"time_limit_s: {limit}; give more, or fewer numbers to try"
        reasons = [reason for search in self.searches.values() for reason in search.trials.values()]
        if not any(reason.startswith(OUT_OF_MEMORY) for reason in reasons):
            return f"{self.model.name}: nothing can be planned: {[*reasons, 'nothing was tried'][0]}"
        own_gib = self.cluster.group(0, 1).memory_gib if options.memory_gib is None else options.memory_gib
        little = f"{own_gib:g} GiB less {options.reserve_gib:g} in reserve are too little for {of_model}"
        return f"memory_gib: {little}; use more or larger GPUs, recomputation or a smaller batch"


def _promising(options: PlanOptions, plans: LayoutPlans | None) -> Iterator[PlanOptions]:
    """Yield options with the counts of the best layouts that have context or expert parallelism.

    The counts are stages, GPUs per stage and micro-batches. The general search covers other layouts.
    """
    fitting = [rated for rated in plans.estimates if rated.gib <= plans.limit_gib] if plans else []
    near = [rated.layout for rated in fitting if rated.time_ms <= _PROMISING_SHARE * fitting[0].time_ms]
    numbers = (
        (d.pipeline, d.num_gpus // d.pipeline, layout.num_micro_batches, d.context, d.expert)
        for layout in near
        if (d := layout.degrees).context * d.expert > 1
    )
    limit_s, trees = options.time_limit_s / (2 * _PROMISING), options.trees
    for *counts, context, expert in dict.fromkeys(numbers):
        paradigms = (*trees.paradigms, *((Paradigm.CP,) if context > 1 else ()))
        experts = tuple(dict.fromkeys((*trees.expert_parallel, expert)))
        wider = replace(trees, paradigms=tuple(dict.fromkeys(paradigms)), expert_parallel=experts)
        given: dict[str, Any] = {name: (count,) for name, count in zip(_NUMBERS, counts, strict=True)}
        yield replace(options, trees=wider, time_limit_s=limit_s, **given)


def _allowed(layouts: LayoutOptions, options: PlanOptions) -> LayoutOptions:
    """Return the layout options, restricted by the options of all plans."""
    trees, usual = options.trees, options.trees.paradigms == USUAL
    zero = {Paradigm.ZERO1: 1, Paradigm.SDP: 3}
    return replace(
        layouts,
        max_tensor=trees.max_tensor_parallel if Paradigm.TP in trees.paradigms else 1,
        max_context=layouts.max_context if usual or Paradigm.CP in trees.paradigms else 1,
        zero=tuple(stage for paradigm, stage in zero.items() if paradigm in trees.paradigms),
        recompute=trees.recompute,
        expert_parallel=None if trees.expert_parallel == (1,) else trees.expert_parallel,
        **{name: getattr(options, name) for name in ("memory_gib", "reserve_gib", *_NUMBERS)},
    )


def _unique(made: Iterable[RankedPlan]) -> list[RankedPlan]:
    """Return plans by throughput, without plans that have the name of a faster one."""
    unique: dict[str, RankedPlan] = {}
    for ranked in sorted(made, key=lambda ranked: -(ranked.samples_per_s or 0.0)):
        unique.setdefault(ranked.name, ranked)
    return list(unique.values())


def _in_order(left: list[RankedPlan]) -> Iterator[RankedPlan]:
    """Yield plans by throughput; among plans of nearly equal throughput, the simplest first."""
    while left:
        rate = left[0].samples_per_s
        near = [ranked for ranked in left if (ranked.samples_per_s or 0.0) * (1 + NEAR_TIE) >= (rate or 0.0)]
        left = left[len(near) :]
        near.sort(key=lambda ranked: ranked.complexity)
        yield near[0]
        yield from (replace(ranked, is_equal=rate is not None) for ranked in near[1:])
