"""Searched plans, against all plans there are, and properties of every search."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from made_up_costs import EveryPlan, MadeUpCosts, small_model
from one_line_errors import raises_line

from placements.cluster import Cluster, read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.decision_trees import PAPER, Paradigm, TreeOptions
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.plan_options import PlanOptions, PlanStatus
from placements.planners.hybrid.search import pipeline
from placements.planners.hybrid.search.plan_search import search_plans
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.planners.stage_solver import Check, StageProblem, StageSolution, solve

NEAR = pytest.approx

TREES = (
    TreeOptions((Paradigm.DP, Paradigm.TP), ("none",)),
    TreeOptions((Paradigm.DP, Paradigm.SDP), ("none", "full")),
    TreeOptions((Paradigm.DP,), ("none", "selective", "full")),
)


def some_cluster(rng: random.Random) -> Cluster:
    return rng.choice(
        [
            read_cluster("a100_2"),
            read_cluster("a100_3", gpus_per_node=1),
            read_cluster("a100_4"),
            read_cluster("a100_4", gpus_per_node=2),
            read_cluster("a100_2+v100_2"),
        ]
    )


def min_ms(costs: LayerCosts, cluster: Cluster, batch: int, options: PlanOptions) -> float:
    answer = search_plans(costs, cluster, batch, options)
    return answer.plans[0].time_ms if answer.plans else math.inf


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_of_made_up_costs_is_shorter(seed: int) -> None:
    rng = random.Random(seed)
    costs, cluster, batch = MadeUpCosts(seed, small_model(rng)), some_cluster(rng), rng.randint(1, 4)
    for gib in (100.0, rng.uniform(2, 5), rng.uniform(1, 2), rng.uniform(0.2, 1)):
        options = PlanOptions(trees=TREES[seed % 3], memory_gib=gib, reserve_gib=0.0)
        expected = EveryPlan(costs, cluster, batch, options).min_ms()
        answer = search_plans(costs, cluster, batch, options)
        assert (answer.plans[0].time_ms if answer.plans else math.inf) == NEAR(expected), gib
        assert answer.status == (PlanStatus.INFEASIBLE if math.isinf(expected) else PlanStatus.OPTIMAL)


def test_zero_1_is_allowed_and_used() -> None:
    """Llama 2 13B on 32 A100 reaches 13.27 samples/s without ZeRO-1 and 13.81 with it."""
    costs = ShapeCosts(read_model("llama2_13b"))
    best = search_plans(costs, read_cluster("a100_32"), 512, PlanOptions(TreeOptions(), num_plans=1)).plans[0]
    paper = PlanOptions(TreeOptions(PAPER), num_plans=1)
    assert {strategy.zero for strategy in best.plan.strategies} == {1}
    assert best.samples_per_s == NEAR(13.81, abs=0.01)
    other = search_plans(costs, read_cluster("a100_32"), 512, paper).plans[0]
    assert other.samples_per_s == NEAR(13.27, abs=0.01)


def test_equal_layers_of_a_stage_stand_together() -> None:
    """Recomputed and other layers are grouped; they once took turns, in up to nine blocks of a stage."""
    costs = ShapeCosts(read_model("gpt3_6.7b"))
    options = PlanOptions(memory_gib=40.0, num_stages=(4,), gpus_per_stage=(2,))
    answer = search_plans(costs, read_cluster("a100_8"), 32, options)
    for rated in answer.plans:
        runs = [len({how for _, how, _ in rated.plan.runs(rated.plan.stages[i].layers)}) for i in range(4)]
        assert len(rated.plan.pieces) <= sum(runs) + 2, "each way of sharing once, but for the ends"


@pytest.mark.parametrize("gib", [80, 2.3, 1.5])
@pytest.mark.parametrize("name", ["a100_2", "a100_4"])
def test_no_plan_of_a_model_is_shorter(name: str, gib: float) -> None:
    costs = ShapeCosts(read_model("gpt3_125m", num_layers=2))
    trees = TreeOptions() if name == "a100_2" else TREES[0]
    options = PlanOptions(trees=trees, memory_gib=gib, reserve_gib=0.5)
    cluster = read_cluster(name)
    assert min_ms(costs, cluster, 4, options) == NEAR(EveryPlan(costs, cluster, 4, options).min_ms())


GPT = ShapeCosts(read_model("gpt3_1.3b", num_layers=8))


def fastest(costs: LayerCosts, cluster: str, batch: int, **options: object) -> float:
    """Return the throughput of the best plan; 0 where none fits."""
    answer = search_plans(costs, read_cluster(cluster), batch, PlanOptions(num_plans=1, **options))  # type: ignore[arg-type]
    return answer.plans[0].samples_per_s if answer.plans else 0.0


@pytest.mark.parametrize(("model", "gib"), [("bert_huge_32", 4.5), ("t5_512_4_32", 3.0)])
def test_the_papers_methods_are_never_better(model: str, gib: float) -> None:
    costs = ShapeCosts(read_model(model, num_layers=10))
    rate = {
        (method, inner): fastest(
            costs, "galvatron_titan_8", 16, memory_gib=gib, reserve_gib=1.0, method=method, stage_method=inner
        )
        for method in ("exact", "bmw", "base")
        for inner in ("exact", "paper")
    }
    near = 1 + 1e-9
    assert rate["exact", "exact"] * near >= rate["bmw", "exact"]
    assert rate["bmw", "exact"] * near >= rate["base", "exact"] >= rate["base", "paper"] / near
    assert rate["bmw", "paper"] * near >= rate["base", "paper"]
    assert rate["exact", "exact"] * near >= rate["exact", "paper"]


def test_plans_are_sorted_and_trials_tell_all_numbers() -> None:
    options = PlanOptions(memory_gib=10.0, num_plans=4)
    answer = search_plans(GPT, read_cluster("a100_4"), 8, options)
    times = [plan.time_ms for plan in answer.plans]
    assert times == sorted(times)
    assert len(times) == 4
    expected = {(p, g, m) for g in (1, 2, 4) for p in range(1, 4 // g + 1) for m in (1, 2, 4, 8)}
    assert set(answer.trials) == expected
    assert answer.bound_ms == times[0]
    assert sum(not reason for reason in answer.trials.values()) >= 4
    assert not any("\n" in reason for reason in answer.trials.values())


def test_no_bound_is_above_the_best_where_the_papers_search_is_used() -> None:
    exact = search_plans(GPT, read_cluster("a100_4"), 8, PlanOptions(memory_gib=8.0))
    for method, inner in (("exact", "paper"), ("bmw", "exact"), ("base", "paper")):
        options = PlanOptions(memory_gib=8.0, method=method, stage_method=inner)
        assert search_plans(GPT, read_cluster("a100_4"), 8, options).bound_ms <= exact.bound_ms * (1 + 1e-9)


def test_only_what_is_asked_for_is_tried() -> None:
    """With GPipe, in which a stage holds all micro-batches."""
    numbers = {"num_stages": (1, 2), "gpus_per_stage": (2,), "num_micro_batches": (2, 3)}
    options = PlanOptions(**numbers, idle_gpus=False, pipeline="gpipe")  # type: ignore[arg-type]
    answer = search_plans(GPT, read_cluster("a100_4"), 8, options)
    assert set(answer.trials) == {(2, 2, 2)}
    assert [stage.in_flight for stage in answer.plans[0].stages] == [2, 2]


def test_interrupted_searches_have_what_they_found() -> None:
    def stop(done: int, total: int, *_: float | None) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    answer = search_plans(GPT, read_cluster("a100_4"), 8, PlanOptions(num_plans=100), stop)
    whole = search_plans(GPT, read_cluster("a100_4"), 8, PlanOptions(num_plans=100))
    assert answer.interrupted
    assert 0 < len(answer.plans) < len(whole.plans)
    assert answer.bound_ms <= whole.plans[0].time_ms


def ticking(seconds: float) -> Callable[[], float]:
    """Return a clock that goes on by so much whenever it is looked at."""
    times = itertools.count()
    return lambda: next(times) * seconds


@pytest.mark.parametrize("seed", range(4))
def test_a_search_out_of_time_claims_no_more_than_is_proved(seed: int) -> None:
    """However early it is cut off: its plan is one that there is, and its bound is below the best of all."""
    rng = random.Random(seed)
    costs, cluster, batch = MadeUpCosts(seed, small_model(rng)), some_cluster(rng), rng.randint(1, 4)
    for gib in (100.0, 2.0, 0.8):
        options = PlanOptions(trees=TREES[seed % 3], memory_gib=gib, reserve_gib=0.0, time_limit_s=1.0)
        least = EveryPlan(costs, cluster, batch, options).min_ms()
        times, bounds, statuses = [], [], []
        for num_looks in (1, 2, 4, 8, 20, 50, 10_000):
            answer = search_plans(costs, cluster, batch, options, clock=ticking(1 / num_looks))
            times.append(answer.plans[0].time_ms if answer.plans else math.inf)
            bounds.append(answer.bound_ms)
            statuses.append(answer.status)
            assert bounds[-1] <= least * (1 + 1e-9) <= times[-1] * (1 + 2e-9)
            assert answer.out_of_time == (answer.num_left > 0)
            if answer.status == PlanStatus.OPTIMAL:
                assert times[-1] == NEAR(least)
        assert times == sorted(times, reverse=True)
        assert bounds == sorted(bounds)
        assert statuses[0] == PlanStatus.UNKNOWN
        assert statuses[-1] == (PlanStatus.INFEASIBLE if math.isinf(least) else PlanStatus.OPTIMAL)
        assert not answer.out_of_time


def test_there_is_a_plan_early() -> None:
    """The numbers that are likely to fit come first, before costs of all others are known."""
    whole = search_plans(GPT, read_cluster("a100_32"), 64)
    early = search_plans(GPT, read_cluster("a100_32"), 64, clock=ticking(1.0))
    assert whole.status == PlanStatus.OPTIMAL
    assert early.status == PlanStatus.FEASIBLE
    assert early.num_left > 100
    assert 0 < early.gap_percent <= 100
    assert early.plans[0].time_ms < 3 * whole.plans[0].time_ms


def test_progress_tells_the_best_and_the_bound() -> None:
    seen: list[tuple[float, ...]] = []

    def note(done: int, total: int, best_ms: float | None, bound_ms: float) -> None:
        seen.append((done, total, math.inf if best_ms is None else best_ms, bound_ms))

    answer = search_plans(GPT, read_cluster("a100_8"), 16, PlanOptions(num_plans=1), note)
    done, totals, best_ms, bounds_ms = zip(*seen, strict=True)
    assert done == tuple(sorted(done))
    assert set(totals) == {done[-1]}
    assert best_ms == tuple(sorted(best_ms, reverse=True))
    assert bounds_ms == tuple(sorted(bounds_ms))
    assert (best_ms[-1], bounds_ms[-1]) == (answer.plans[0].time_ms, answer.bound_ms)


def test_what_stages_leave_unproved_is_in_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few labels the choices in stages may not be the best; then neither is the plan called so."""
    costs = MadeUpCosts(5, small_model(random.Random(5)))
    options = PlanOptions(trees=TREES[1], memory_gib=1.5, reserve_gib=0.0)
    best = search_plans(costs, read_cluster("a100_2"), 4, options)

    def unproved(problem: StageProblem, check: Check) -> StageSolution | None:
        solved = solve(problem, check)
        return solved and replace(solved, min_cost=0.9 * solved.cost)

    monkeypatch.setitem(pipeline._SOLVERS, "exact", unproved)
    answer = search_plans(costs, read_cluster("a100_2"), 4, options)
    assert best.status == PlanStatus.OPTIMAL
    assert answer.status == PlanStatus.FEASIBLE
    assert answer.bound_ms >= 0.9 * best.bound_ms * (1 - 1e-9)
    assert answer.gap_percent <= 10 + 1e-6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"time_limit_s": 0.0}, "time_limit_s: 0 is not above 0; give a number of seconds"),
        ({"time_limit_s": math.nan}, "time_limit_s: nan is not above 0; give a number of seconds"),
        ({"method": "best"}, "method: 'best' is not known; use exact or bmw or base or memory"),
        ({"stage_method": "x"}, "stage_method: 'x' is not known; use exact or paper"),
        ({"pipeline": "x"}, "pipeline: 'x' is not known; use 1f1b or gpipe"),
        ({"num_stages": (0,)}, "num_stages: 0 is not a whole number of at least 1; give one"),
        (
            {"num_micro_batches": (1.5,)},
            "num_micro_batches: 1.5 is not a whole number of at least 1; give one",
        ),
        ({"num_plans": 0}, "num_plans: 0 is not at least 1; give 1 or more"),
        ({"memory_gib": 4.0}, "memory_gib: 4 is not above reserve_gib 4; give more, or a smaller reserve"),
    ],
)
def test_wrong_options(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        PlanOptions(**wrong)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_nothing_to_try() -> None:
    cluster = read_cluster("a100_4")
    with pytest.raises(PlanError, match=r"^num_stages, gpus_per_stage, num_micro_batches: leave nothing"):
        search_plans(GPT, cluster, 8, PlanOptions(num_stages=(5,)))
    for batch in (0, -1, 2.5, "8", True):
        with raises_line(PlanError, match=r"^batch: .* is not a whole number of samples above 0; give one$"):
            search_plans(GPT, cluster, batch)  # type: ignore[arg-type]


def test_models_with_branches_are_refused() -> None:
    """Their branches would be left out."""
    with pytest.raises(PlanError, match="^model: flava has branches that join"):
        search_plans(ShapeCosts(read_model("flava")), read_cluster("a100_8"), 8)
