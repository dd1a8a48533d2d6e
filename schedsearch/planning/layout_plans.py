"""The best layouts of a training framework for a model on a cluster, each timed by its schedule.

All layouts are rated by a formula, and the best of them by a schedule whose rules are checked. The module
does not know what a layer costs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from placements.block import PlacementError
from placements.cluster import Cluster
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.planners.hybrid.plan_options import RatedPlan
from placements.planners.hybrid.search.layout_search import LayoutEstimate, LayoutOptions, LayoutSearch
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.planners.hybrid.uniform import Layout
from placements.planners.parallel_plan import PlanError
from placements.trainers.as_run import rate
from schedsearch.metrics import in_flight
from schedsearch.planning.uniform_run import UniformRun
from schedsearch.schedule import Schedule


@dataclass(frozen=True)
class LayoutPlan:
    """A layout, as the formula and as a schedule have it.

    Attributes:
        estimate: What the formula says.
        run: The layout with its schedule.
    """

    estimate: LayoutEstimate
    run: UniformRun

    @property
    def layout(self) -> Layout:
        """How the GPUs share the model."""
        return self.estimate.layout

    @property
    def gib(self) -> float:
        """The most that a GPU holds."""
        return max(self.run.gib_by_stage)

    @cached_property
    def rated(self) -> RatedPlan:
        """Its stages by the formula of all plans, which has no chunks, with what its schedule holds."""
        run = self.run
        found = rate(run.plan, FrameworkCosts(run.model, replace(run.options, exchanges_apart=False)))
        held = zip(found.stages, run.gib_by_stage, in_flight(run.schedule).tolist(), strict=True)
        stages = tuple(each._replace(peak_mib=1024 * gib, in_flight=most) for each, gib, most in held)
        is_plain = self.layout.degrees.chunks == 1
        return RatedPlan(run.plan, found.time_ms if is_plain else self.estimate.time_ms, stages)

    def schedule(self, limit_gib: float) -> Schedule:
        """Return its schedule whose updates take all that comes after a stage's last backward.

        Args:
            limit_gib: Memory of a GPU that it may use.
        """
        placement = self.run.placement
        updates = sorted(placement.optimizer_blocks, key=lambda block: block.devices)
        ticks = {
            block.name: max(1, round((end.ms - end.backward_ms) / placement.tick_ms))
            for block, end in zip(updates, self.run.ends, strict=True)
        }
        blocks = tuple(replace(block, time=ticks.get(block.name, block.time)) for block in placement.blocks)
        placement = replace(placement, blocks=blocks).with_memory(math.floor(1024 * limit_gib))
        return replace(self.run.schedule, placement=placement)


@dataclass(frozen=True)
class LayoutPlans:
    """The layouts of a model on a cluster.

    Attributes:
        model: Its layers.
        cluster: Its GPUs.
        limit_gib: Memory of a GPU that a layout may use.
        plans: The best, by increasing time of their schedules, the user's own that fit among them; empty
            where nothing fits.
        estimates: All that were rated, those that fit first, by increasing time.
        bound_ms: No schedule of a layout that fits by the formula is shorter than this: the least load of a
            fullest stage.
        left: Layouts that were not rated, as there was a Ctrl-C; else none.
        interrupted: There was a Ctrl-C: what follows it was not looked at.
        own: The user's own layouts, whether they fit or not.
    """

    model: ModelShape
    cluster: Cluster
    limit_gib: float
    plans: tuple[LayoutPlan, ...]
    estimates: tuple[LayoutEstimate, ...]
    bound_ms: float
    left: tuple[Layout, ...] = ()
    interrupted: bool = False
    own: tuple[LayoutPlan, ...] = ()

    @property
    def num_fitting(self) -> int:
        """How many layouts fit the memory."""
        return sum(each.gib <= self.limit_gib for each in self.estimates)

    @property
    def without_pipeline(self) -> LayoutEstimate | None:
        """The best layout of one stage that fits; None where none does."""
        fitting = (each for each in self.estimates if each.gib <= self.limit_gib)
        return next((each for each in fitting if each.layout.degrees.pipeline == 1), None)

    @property
    def smallest(self) -> LayoutEstimate | None:
        """The layout that holds least; None where there is none."""
        return min(self.estimates, key=lambda each: each.gib, default=None)

    def with_first(self, best: object) -> LayoutPlans:
        """Return the same with one of the best before the others, if it is one of them."""
        return replace(self, plans=tuple(sorted(self.plans, key=lambda plan: plan is not best)))

    def nearest(self, layout: Layout) -> LayoutEstimate | None:
        """Return the layout that fits with the fewest settings that differ, of several the shortest."""
        wanted = settings_of(layout)

        def num_different(each: LayoutEstimate) -> int:
            found = settings_of(each.layout)
            return sum(found[name] != wanted[name] for name in SETTINGS if name not in _FOLLOWS)

        fitting = (each for each in self.estimates if each.gib <= self.limit_gib)
        return min(fitting, key=lambda each: (num_different(each), each.time_ms), default=None)


SETTINGS = (
    *("tensor", "pipeline", "chunks", "context", "expert", "whole_experts", "data", "zero"),
    *("micro_batch_size", "num_micro_batches", "recompute", "recomputed_layers"),
)
"""What is told of a layout: fields of it and of its degrees."""

_FOLLOWS = ("data", "num_micro_batches")
"""Those that follow from the others with GPUs and batch."""


def settings_of(layout: Layout) -> dict[str, object]:
    """Return `SETTINGS` of a layout, and other fields, by name."""
    return {**vars(layout.degrees), **vars(layout)}


def plan_layouts(
    model: ModelShape,
    cluster: Cluster,
    batch: int,
    costs: CostOptions,
    options: LayoutOptions,
    num_plans: int = 5,
    on_progress: Callable[[int, int], None] | None = None,
    own: Sequence[Layout] = (),
    time_limit_s: float = math.inf,
) -> LayoutPlans:
    """Return the best layouts; see `placements.planners.hybrid.search.layout_search`.

    Args:
        model: Its layers.
        cluster: Its GPUs, all of which are used.
        batch: Samples of an iteration.
        costs: What GPUs reach, and the framework.
        options: The layouts that are tried.
        num_plans: How many are timed by a schedule.
        on_progress: See `LayoutSearch.estimates`.
        own: Layouts that are timed beside the best.
        time_limit_s: After which it ends as after a Ctrl-C.

    After a Ctrl-C the layouts that are rated and timed until then are kept; where none is timed yet, the best
    one still is.

    Raises:
        PlanError: A schedule would have too many blocks, or a layout of the user's own is impossible.
        KeyboardInterrupt: There was a second Ctrl-C.
    """
    search = LayoutSearch(model, cluster, batch, costs, options)
    own_plans = tuple(_own_plan(search, layout) for layout in own)
    layouts = list(search.layouts())
    rated: list[LayoutEstimate | None] = []
    interrupted = False
    end_s = time.monotonic() + time_limit_s
    try:
        for each in search.rated(layouts, on_progress):
            rated.append(each)  # kept where it is interrupted
            if time.monotonic() >= end_s:
                break
    except KeyboardInterrupt:
        interrupted = True
    estimates = search.ranked(filter(None, rated))
    fitting = [each for each in estimates if each.gib <= search.limit_gib]
    timed: list[LayoutPlan] = []
    if not interrupted:
        try:
            for plan in _timed(search, fitting, num_plans):
                timed.append(plan)  # likewise
                if time.monotonic() >= end_s:
                    break
        except KeyboardInterrupt:
            interrupted = True
    if interrupted and not timed:
        timed = list(_timed(search, fitting, 1))
    known = {plan.layout for plan in timed}
    timed += [plan for plan in own_plans if plan.gib <= search.limit_gib and plan.layout not in known]
    timed.sort(key=lambda plan: plan.run.iteration_ms)
    rated_ms = (each.load_ms for each in (*fitting, *(plan.estimate for plan in timed)))
    bound_ms = min(rated_ms, default=float("inf"))
    left = tuple(layouts[len(rated) :])
    return LayoutPlans(
        *(model, cluster, search.limit_gib, tuple(timed), tuple(estimates), bound_ms, left, interrupted),
        own=own_plans,
    )


def _own_plan(search: LayoutSearch, layout: Layout) -> LayoutPlan:
    """Return a layout of the user's own."""
    degrees, tokens = layout.degrees, search.num_tokens
    try:
        if tokens % degrees.context:
            raise PlanError(
                f"cp: {degrees.context} does not divide the {tokens} tokens of a sample; use a divisor"
            )
        if degrees.expert > 1 and not any(layer.num_routes for layer in search.model.layers):
            raise PlanError(f"ep: {search.model.name} has no experts to share; leave it out")
        return _plan_of(search, search.estimate(layout))
    except (PlacementError, PlanError) as error:
        raise PlanError(f"{layout_in_words(layout)}: {error}") from None


def _plan_of(search: LayoutSearch, estimate: LayoutEstimate) -> LayoutPlan:
    # As in the formula, exchanges run beside the pipeline, also in one node.
    run = UniformRun(search.model, search.cluster, estimate.layout, search.costs, overlap=True)
    return LayoutPlan(estimate, run)


def _timed(search: LayoutSearch, estimates: list[LayoutEstimate], count: int) -> Iterator[LayoutPlan]:
    """Yield the first layouts that fit by their schedule too; the formula's memory is not exact."""
    for estimate in estimates[: 4 * count]:
        plan = _plan_of(search, estimate)
        if plan.gib <= search.limit_gib:
            yield plan
            count -= 1
        if not count:
            return


def why_no_layout(found: LayoutPlans) -> str:
    """Return a line that says why no layout fits."""
    num_gpus, smallest = found.cluster.num_gpus, found.smallest
    if smallest is None:
        name = found.model.name
        return (
            f"cluster, batch: no layout of {name} divides both {num_gpus} GPUs and the batch; give another "
            "of the two, or other micro_batch_sizes"
        )
    return (
        f"cluster: no layout fits {found.limit_gib:.1f} GiB of each of the {num_gpus} GPUs; "
        f"the smallest, {layout_in_words(smallest.layout)}, needs {smallest.gib:.1f} GiB; use more GPUs or "
        "larger ones"
    )


def layout_in_words(layout: Layout) -> str:
    """Return a layout by the names that frameworks use, without degrees of 1.

    >>> from placements.planners.hybrid.uniform import Degrees
    >>> layout_in_words(Layout(Degrees(4, 8, 2, chunks=3), 1, 16, recompute="full"))
    'TP 4, PP 8, VP 3, DP 2, micro-batches 16 x 1, recompute full'
    """
    degrees = layout.degrees
    parts = {
        "TP": degrees.tensor,
        "PP": degrees.pipeline,
        "VP": degrees.chunks,
        "CP": degrees.context,
        "EP": degrees.expert,
        "DP": degrees.data,
    }
    words = [f"{name} {degree}" for name, degree in parts.items() if degree > 1]
    words += ["experts whole"] if degrees.whole_experts else []
    words.append(f"micro-batches {layout.num_micro_batches} x {layout.micro_batch_size}")
    if layout.recompute != "none":
        number = layout.recomputed_layers
        words.append(f"recompute {layout.recompute}" + ("" if number is None else f" of {number} a chunk"))
    return ", ".join(words + ([f"ZeRO-{layout.zero}"] if layout.zero != 1 else []))
