"""Layouts of a training framework: times by formula and by schedule, and memory."""

from __future__ import annotations

import signal
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Any

import pytest
from made_up_layouts import BATCH, COSTS, routed, sixteen
from one_line_errors import raises_line

from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.search.layout_search import LayoutOptions, LayoutSearch
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.metrics import peak_memory
from schedsearch.planning.layout_plans import plan_layouts, planned_layout, why_no_layout, with_best_division
from schedsearch.planning.plans import LayoutPlans, RankedPlan
from schedsearch.planning.ranking import rank
from schedsearch.planning.uniform_run import UniformRun, division_bound_ms, layout_in_words
from schedsearch.validate import validate


def search(**options: Any) -> LayoutSearch:
    return LayoutSearch(routed(), sixteen(), BATCH, COSTS, LayoutOptions(**options))


@cache
def layout_plans() -> LayoutPlans:
    return plan_layouts(search(max_context=2), 4)


def test_every_layout_is_tried_once() -> None:
    layouts = list(search(max_context=2).layouts())
    assert layout_plans().num_layouts == len(layouts) >= len(layout_plans().estimates)
    assert len(layouts) == len(set(layouts))
    for layout in layouts:
        degrees = layout.degrees
        assert degrees.num_gpus == 16
        assert layout.batch == BATCH
        assert 8 % degrees.expert == 0
        sharing = degrees.data * degrees.context * (degrees.tensor if degrees.whole_experts else 1)
        assert sharing % degrees.expert == 0
        assert not degrees.whole_experts or degrees.tensor > 1
        assert layout.zero == 1 or degrees.pipeline == 1
    tried = {(layout.degrees.tensor, layout.degrees.pipeline, layout.degrees.expert) for layout in layouts}
    assert {(1, 1, 8), (8, 2, 1), (2, 4, 2), (4, 2, 2)} <= tried
    assert {layout.degrees.chunks for layout in layouts if layout.degrees.pipeline == 2} >= {1, 2, 4}


def test_the_formula_is_near_the_schedule_and_its_load_is_a_bound() -> None:
    """The formula leaves out only how exchanges of chunks fall beside the last backwards."""
    fitting = [estimate for estimate in layout_plans().estimates if estimate.gib <= layout_plans().limit_gib]
    for estimate in fitting[:: max(len(fitting) // 12, 1)]:
        run = UniformRun(routed(), sixteen(), estimate.layout, COSTS, overlap=True)
        assert run.iteration_ms >= estimate.load_ms
        assert estimate.time_ms == pytest.approx(run.iteration_ms, rel=0.15)
        # Buffers and the largest backward are those of any stage, so that memory is rather too high.
        assert 0.95 <= estimate.gib / max(run.gib_by_stage) <= 1.3


def runs_of(plans: tuple[RankedPlan, ...]) -> list[UniformRun]:
    return [plan.run for plan in plans if plan.run is not None]


def test_the_best_plans() -> None:
    runs = runs_of(layout_plans().plans)
    times = [run.iteration_ms for run in runs]
    assert times == sorted(times) == [plan.iteration_ms for plan in layout_plans().plans]
    assert layout_plans().bound_ms <= times[0]
    for run in runs:
        gib = max(run.gib_by_stage)
        assert gib <= layout_plans().limit_gib


def test_little_memory_asks_for_more_sharing() -> None:
    """Less memory never makes an iteration shorter; with too little nothing fits."""
    before, few = 0.0, {"max_context": 1, "micro_batch_sizes": (1,)}
    for reserve in (4.0, 50.0, 70.0):
        plans = plan_layouts(search(**few, reserve_gib=reserve), 2).plans
        assert runs_of(plans)[0].iteration_ms >= before * (1 - 1e-9)
        before = runs_of(plans)[0].iteration_ms
    none = plan_layouts(search(**few, reserve_gib=79.0), 2)
    assert (none.plans, none.bound_ms) == ((), float("inf"))
    assert "the smallest, TP8 " in why_no_layout(search(**few), none)


def run(degrees: Degrees, m: int, schedule: str | None = None, overlap: bool | None = None) -> UniformRun:
    layout = Layout(degrees, 1, m)
    return UniformRun(routed(), sixteen(), layout, COSTS, overlap, schedule_name=schedule)


def test_schedules_by_name_and_what_they_need() -> None:
    """One model on four stages: a split backward fills idle time of 1F1B; a wave has two chunks."""
    plain = run(Degrees(1, 4, 4), 8).iteration_ms
    assert run(Degrees(1, 4, 4), 8, "zb_h1").iteration_ms < plain
    wave = run(Degrees(1, 4, 4, chunks=2), 8, "zb_v")
    assert wave.devices == (0, 1, 2, 3, 3, 2, 1, 0)
    assert run(Degrees(1, 4, 4, chunks=2), 8).devices == (0, 1, 2, 3) * 2
    assert wave.iteration_ms < plain
    with raises_line(PlanError, "schedule: 'mine' is not known; use one of "):
        run(Degrees(1, 4, 4), 8, "mine").schedule  # noqa: B018


def test_exchanges_beside_the_pipeline_are_shorter_than_after_it() -> None:
    after, beside = (run(Degrees(1, 2, 8, chunks=2), 8, overlap=overlap) for overlap in (False, True))
    whole = [piece.cost.scatter_ms + piece.cost.gather_ms for piece in beside.pieces]
    assert beside.iteration_ms < after.iteration_ms < beside.iteration_ms + sum(whole)
    assert run(Degrees(1, 2, 8), 8).overlaps_exchanges is False, "eight GPUs are in one node"
    assert run(Degrees(1, 1, 16), 8).overlaps_exchanges


def test_interrupted_while_layouts_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts timed until then are kept, at least the best one."""
    before, seen = UniformRun.gib_by_stage, list[UniformRun]()

    def stop_at(*numbers: int) -> None:
        def gib(run: UniformRun) -> tuple[float, ...]:
            seen.append(run)
            if len(seen) in numbers:
                signal.raise_signal(signal.SIGINT)
            return tuple(before.func(run))

        seen.clear()
        monkeypatch.setattr(UniformRun, "gib_by_stage", property(gib))

    few = search(max_context=2, micro_batch_sizes=(1,))
    for number in (1, 2):
        stop_at(number)
        kept = plan_layouts(few, 4)
        assert (kept.interrupted, kept.num_left) == (True, 0)
        assert 1 <= len(kept.plans) < 4


def test_as_few_layers_are_computed_again_as_fit() -> None:
    layout = Layout(Degrees(2, 2, 4), 2, 4)
    none, full = (search().estimate(replace(layout, recompute=kind)) for kind in ("none", "full"))
    middle = search(memory_gib=(none.gib + full.gib) / 2, reserve_gib=0.0)
    least = middle.least_recomputed(layout)
    number = least.layout.recomputed_layers
    assert number is not None and 0 < number < 5
    fewer = middle.estimate(replace(least.layout, recomputed_layers=number - 1))
    assert least.gib <= middle.limit_gib < fewer.gib
    assert none.time_ms <= fewer.time_ms < least.time_ms < full.time_ms
    assert layout_in_words(least.layout).endswith(f"recompute full of {number} a chunk")
    run = UniformRun(routed(), sixteen(), least.layout, COSTS, overlap=True)
    assert least.time_ms == pytest.approx(run.iteration_ms, rel=0.15)
    again = [strategy.recompute for strategy in run.plan.strategies]
    assert again.count("full") == 2 * number


def test_layers_are_divided_so_that_the_stage_with_the_output_has_fewer() -> None:
    """Once only even divisions were known: 5 % longer for Llama 3 70B in 8 bits."""
    even = UniformRun(read_model("gpt3_2.7b"), read_cluster("a100_4"), Layout(Degrees(1, 4, 1), 1, 32))
    limit_gib = max(even.gib_by_stage) + 2
    divided = with_best_division(even, limit_gib)
    sizes = divided.layout.chunk_layers
    assert sizes is not None and sum(sizes) == len(even.model.layers) and sizes[-1] < max(sizes)
    assert divided.iteration_ms < 0.99 * even.iteration_ms
    assert max(divided.gib_by_stage) <= limit_gib
    assert fmean(divided.loads_ms) == pytest.approx(fmean(even.loads_ms))
    assert fmean(even.loads_ms) <= max(divided.loads_ms) < max(even.loads_ms)


@pytest.mark.parametrize("m", [1, 3, 8, 40])
def test_no_division_in_any_order_is_under_its_bound(m: int) -> None:
    """All stages of the division in which the bound is exact end together, however they are ordered."""
    layout, mean_ms = Layout(Degrees(pipeline=4), 1, m), 100.0
    bound_ms = division_bound_ms(layout, mean_ms)
    own_ms = [bound_ms / m * (1 - 1 / m) ** d for d in range(4)]
    assert sum(own_ms) == pytest.approx(4 * mean_ms / m)
    assert [m * ms + sum(own_ms[:d]) for d, ms in enumerate(own_ms)] == pytest.approx([bound_ms] * 4)
    even = UniformRun(read_model("gpt3_2.7b"), read_cluster("a100_4"), Layout(Degrees(1, 4, 1), 1, m))
    best = with_best_division(even, 1e3)
    assert fmean(best.loads_ms) <= division_bound_ms(best.layout, fmean(best.loads_ms)) < best.iteration_ms


def test_a_division_that_gains_nothing_is_not_taken() -> None:
    assert with_best_division(run := runs_of(layout_plans().plans)[0], 0.0) is run
    one = UniformRun(routed(), sixteen(), Layout(Degrees(data=16), 1, 4), COSTS)
    assert with_best_division(one, 1e3) is one


def test_a_searched_order_is_taken_where_it_is_faster_and_is_what_is_priced() -> None:
    """Uneven stages and few micro-batches: another order of the same blocks in the same memory."""
    options = LayoutOptions((1,), 1, 1, 1, num_stages=(8,))
    one = LayoutSearch(read_model("llama3_8b"), read_cluster("h100_8"), 8, COSTS, options)
    (plan,) = plan_layouts(one, 1).plans
    by_hand, memory, (searched,) = plan.run, plan.placement.memory, rank([plan])
    run, schedule = searched.run, searched.schedule
    assert by_hand and memory and run and schedule
    assert searched.name == "PP8 uneven searched, 8x1"
    assert run.iteration_ms == searched.iteration_ms < 0.99 * by_hand.iteration_ms
    assert max(by_hand.loads_ms) < (searched.bound_ms or 0.0) <= run.iteration_ms
    assert schedule.placement.ms(validate(schedule).makespan) == pytest.approx(run.iteration_ms, rel=1e-3)
    assert (peak_memory(schedule) <= memory).all()
    assert planned_layout(run).rated.time_ms == by_hand.iteration_ms, "trainers run the one made by hand"
    assert rank([plan.with_bound(by_hand.iteration_ms)])[0].run is by_hand, "there is nothing to gain"


def test_two_workers_time_layouts_and_search_orders_side_by_side() -> None:
    """None is slower than one after the other, where a layout that cannot be the best is not divided."""
    options = LayoutOptions((1,), 1, 1, 1, num_stages=(4, 8))
    two = LayoutSearch(read_model("llama3_8b"), read_cluster("h100_8"), 8, COSTS, options)
    plans, beside = (plan_layouts(two, 2, workers=workers).plans for workers in (1, 2))
    assert len(plans) == 2 and plans[0].run == beside[0].run
    assert plans[1].iteration_ms >= beside[1].iteration_ms
    searched = (rank(plans, 300.0, workers=workers) for workers in (1, 2))
    assert len({tuple(plan.name for plan in plans) for plans in searched}) == 1


def test_an_uneven_layout_is_rated_in_its_own_division_where_its_layers_are_shared_otherwise() -> None:
    even = UniformRun(read_model("llama3_8b"), read_cluster("h100_8"), Layout(Degrees(1, 4, 2), 1, 8))
    uneven = replace(even, layout=replace(even.layout, chunk_layers=(9, 9, 9, 7)))
    again = replace(uneven.layout, recompute="full")
    rated = planned_layout(uneven).rate(replace(uneven, layout=again).plan)
    assert rated.time_ms == pytest.approx(replace(uneven, layout=again).iteration_ms)
