"""The best layouts of a training framework for a model on a cluster, each timed by its schedule.

All layouts are rated by a formula, and the best of them by a schedule whose rules are checked. Frameworks
divide layers evenly if they are not told otherwise; `schedsearch.layouts` searches the division. The module
does not know what a layer costs.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from itertools import chain, islice

from placements.models.chain import ModelShape
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.parallel import Buffer
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import Plan, PlanError, layers_of_stage
from placements.planners.hybrid.plan_options import RatedPlan, StageEstimate
from placements.planners.hybrid.search.layout_search import LayoutEstimate, LayoutSearch
from placements.planners.hybrid.search.plan_search import PlannerReport
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.stages.layout_stages import rounded
from placements.trainers.as_run import Planned, rate
from placements.trainers.job import plan_letters, plan_uniform
from placements.trainers.layers import ModelLayer, ModelLayers
from placements.trainers.layout import PARTS
from schedsearch.layouts.layouts import layout
from schedsearch.planning.plans import LayoutPlans, RankedPlan
from schedsearch.planning.uniform_run import NEAR_TIE, UniformRun, division_bound_ms, layout_in_words
from schedsearch.proof.makespan import makespan_bound
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.side_by_side import side_by_side

_WORK = 0.3
"""Units of work, of about a second each, to search one division."""


def plan_layouts(
    search: LayoutSearch,
    num_plans: int = 5,
    on_progress: PlannerReport | None = None,
    time_limit_s: float = math.inf,
    workers: int = 1,
) -> LayoutPlans:
    """Return the best layouts; see `placements.planners.hybrid.search.layout_search`.

    After a Ctrl-C, or when the time is over, the best of the layouts that are rated until then are timed as
    far as they are, at least one.

    Args:
        search: The layouts that are tried.
        num_plans: Number of layouts to time by a schedule.
        on_progress: Called now and then with the number of layouts rated, and of all; no time, no bound.
        time_limit_s: Seconds after which the search ends.
        workers: Layouts timed side by side.

    Raises:
        PlanError: A schedule would have too many blocks.
    """
    layouts, end_s, limit_gib = list(search.layouts()), time.monotonic() + time_limit_s, search.limit_gib
    rated: list[LayoutEstimate | None] = []
    timed: list[tuple[LayoutEstimate, UniformRun]] = []

    def is_over() -> bool:
        return INTERRUPTS.seen or time.monotonic() >= end_s

    with INTERRUPTS.answered() as ending:
        for estimate in search.rated(layouts):
            if on_progress is not None and len(rated) % 256 == 0:
                on_progress(len(rated), len(layouts), None, 0.0)
            rated.append(estimate)
            if is_over():
                break
        estimates = search.ranked(filter(None, rated))
        fitting = [estimate for estimate in estimates if estimate.gib <= limit_gib]
        likely = sorted(fitting, key=_divided_ms) if can_divide(search.model) else fitting
        tried = dict.fromkeys(chain(*zip(fitting, likely, strict=True)))
        most = num_plans if likely is fitting else 2 * num_plans
        likeliest = iter(islice(tried, 4 * most))  # the formula's memory is not exact
        while len(timed) < most and not (timed and is_over()):
            if not (some := list(islice(likeliest, 1 if is_over() else workers))):
                break
            best_ms = min((known.iteration_ms for _, known in timed), default=math.inf)
            calls = []
            for candidate in some:  # as in the formula, exchanges run beside the pipeline, also in one node
                run = UniformRun(search.model, search.cluster, candidate.layout, search.costs, overlap=True)
                calls.append(partial(_timed, run, limit_gib, _divided_ms(candidate) < best_ms))
            runs = side_by_side(calls, len(calls))
            timed += ((estimate, run) for estimate, run in zip(some, runs, strict=True) if run is not None)
    timed = sorted(timed, key=lambda pair: pair[1].iteration_ms)[:num_plans]
    bounds_ms = (division_bound_ms(estimate.layout, estimate.mean_load_ms) for estimate in fitting)
    return LayoutPlans(
        limit_gib,
        tuple(_ranked(estimate, run, limit_gib) for estimate, run in timed),
        tuple(estimates),
        min(bounds_ms, default=math.inf),
        len(layouts),
        len(layouts) - len(rated),
        ending.interrupted,
    )


def _timed(run: UniformRun, limit_gib: float, is_divided: bool) -> UniformRun | None:
    """Return a layout, in its best division if it is divided; None if it does not fit."""
    if max(run.gib_by_stage) > limit_gib:
        return None
    return with_best_division(run, limit_gib) if is_divided else run


def can_divide(model: ModelShape) -> bool:
    """Return whether a model is an embedding, transformer layers and an output layer, for `layout`."""
    first, *inner, last = map(type, model.layers)
    return first is EmbeddingLayer and last is OutputLayer and set(inner) == {TransformerLayer}


def with_best_division(run: UniformRun, limit_gib: float) -> UniformRun:
    """Return a layout in the best division of its layers that is found within `limit_gib` GiB of each GPU.

    It stays as it is where that gains less than `NEAR_TIE`, where `can_divide` says no, and where only some
    layers of each chunk are recomputed.
    """
    degrees, again = run.layout.degrees, run.layout.recomputed_layers
    if degrees.pipeline == 1 or again is not None or not can_divide(run.model):
        return run
    layers, memory_mib, transfer_ms = layers_to_divide(run, limit_gib)
    numbers = degrees.pipeline, run.layout.num_micro_batches, degrees.chunks
    row = layout(layers, *numbers, memory_mib, transfer_ms, work_limit=_WORK).best
    if row is None or row.pipeline is None:
        return run
    divided = replace(run, layout=replace(run.layout, chunk_layers=row.pipeline.sizes))
    fits = max(divided.gib_by_stage) <= limit_gib
    return divided if fits and divided.iteration_ms * (1 + NEAR_TIE) < run.iteration_ms else run


def layers_to_divide(run: UniformRun, limit_gib: float) -> tuple[ModelLayers, float, float]:
    """Return the layers to divide, and the memory (MiB) and transfer (ms) of devices with `limit_gib` GiB.

    A tied output layer has a table of its own. What a backward holds for a moment is not in the MiB.

    Raises:
        PlanError: The model has other layers; see `can_divide`.
    """
    if not can_divide(run.model):
        wanted = "an embedding, transformer layers and an output layer; give a table of its layers"
        raise PlanError(f"model: {run.model.name} is not {wanted}")
    plan, model = run.plan, run.model.layers
    apart = (*layers_of_stage(model, 0, 1), *layers_of_stage(model, 1, len(model)))
    rows = []
    for i, letter in enumerate(plan_letters(run.model)):
        numbers = plan.micro_batch_size, plan.num_micro_batches
        cost = run.costs.cost(apart[i], plan.strategies[i], *numbers, plan.group(0))
        held_mib = cost.kept_bytes / 2**20, cost.static_bytes / 2**20
        figures = map(rounded, (cost.forward.time_ms, cost.backward.time_ms, *held_mib))
        rows.append(ModelLayer(f"{letter}{i}", PARTS[letter], *map(float, figures)))
    costs = [piece.cost for piece in run.pieces]
    buffers = frozenset[Buffer]().union(*(cost.buffers for cost in costs))
    once_bytes = max(max(cost.backward_bytes, cost.backward_peak_bytes - cost.kept_bytes) for cost in costs)
    once_mib = (once_bytes + sum(buffer.num_bytes for buffer in buffers)) / 2**20
    transfer_ms = float(rounded(max(piece.forward_transfer_ms for piece in run.pieces)))
    return ModelLayers(tuple(rows)), 1024 * limit_gib - once_mib, transfer_ms


def _divided_ms(estimate: LayoutEstimate) -> float:
    """Return the time by the formula if all stages of a layout computed equally long."""
    return estimate.time_ms - estimate.load_ms + estimate.mean_load_ms


def _ranked(estimate: LayoutEstimate, run: UniformRun, limit_gib: float) -> RankedPlan:
    """Return a layout as a ranked plan: stage costs by the planner's formula, peak memory by its schedule."""
    by_formula = rate(run.plan, FrameworkCosts(run.model, replace(run.options, exchanges_apart=False)))
    held = zip(by_formula.stages, run.gib_by_stage, strict=True)
    stages = tuple(stage._replace(peak_mib=1024 * gib) for stage, gib in held)
    is_chain = run.layout.degrees.chunks == 1
    time_ms = _divided_ms(estimate) if run.layout.chunk_layers else estimate.time_ms
    time_ms = by_formula.time_ms if is_chain else time_ms  # that formula has no chunks
    memory = (math.floor(1024 * limit_gib),) * run.plan.num_stages
    schedule, to_order = run.within(memory), run.to_order(memory)
    shape, rated = "v_shape" if is_chain else "loop_shape", RatedPlan(run.plan, time_ms, stages)
    plan = RankedPlan(shape, rated, schedule.placement, run, schedule=schedule)
    return plan.with_bound(to_order.ms(makespan_bound(to_order, run.layout.num_micro_batches)))


def why_no_layout(search: LayoutSearch, layouts: LayoutPlans) -> str:
    """Return in one line why no layout fits."""
    num_gpus = search.cluster.num_gpus
    if not layouts.estimates:
        none = f"no layout of {search.model.name} divides both {num_gpus} GPUs and the batch"
        return f"cluster, batch: {none}; give another of the two, or other micro_batch_sizes or num_stages"
    smallest = min(layouts.estimates, key=lambda estimate: estimate.gib)
    need = f"the smallest, {layout_in_words(smallest.layout)}, needs {smallest.gib:.1f} GiB"
    none = f"no layout fits {layouts.limit_gib:.1f} GiB of each of the {num_gpus} GPUs; {need}"
    return f"cluster: {none}; use more GPUs or larger ones"


def planned_layout(run: UniformRun, limit_gib: float = math.inf) -> Planned:
    """Return a layout as a plan for trainers, with `limit_gib` GiB per GPU for states and activations.

    Trainers have the order made by hand.
    """
    run = replace(run, order=None)

    def rated_as(plan: Plan) -> RatedPlan:
        layout = replace(plan_uniform(plan, run.chunks), chunk_layers=run.layout.chunk_layers)
        return _rated(plan, replace(run, layout=layout))

    costs = run.costs.options
    settings = {
        "overlap_exchanges": run.overlaps_exchanges and run.layout.zero < 3,
        "overlap_tensor_parallel": costs.overlap_tensor_parallel and run.layout.degrees.tensor > 1,
        "sends_tokens_once": costs.sends_tokens_once and run.layout.degrees.expert > 1,
    }
    limits = [limit_gib] * run.plan.num_stages
    return Planned(_rated(run.plan, run), limits, rated_as, run.chunks, job_fields=settings)


def _rated(plan: Plan, run: UniformRun) -> RatedPlan:
    stages = tuple(StageEstimate(0.0, 0.0, 1024 * gib, 0) for gib in run.gib_by_stage)
    return RatedPlan(plan, run.iteration_ms, stages)
