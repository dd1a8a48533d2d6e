"""The search inside a stage, against all choices there are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from stages_at_random import every_choice, some_stage

from placements.planners.stage_search import exact
from placements.planners.stage_search.bmw import solve_as_paper
from placements.planners.stage_search.exact import min_memory, solve
from placements.planners.stage_search.stage_problem import (
    LayerRun,
    StageError,
    StageProblem,
    StrategyCosts,
    peak_mib,
    weigh,
)

SIZES = [(1,), (4,), (5,), (1, 3, 1), (2, 2), (1, 1, 1, 1), (2, 1, 2), (3, 2)]


@pytest.mark.parametrize("seed", range(80))
def test_no_choice_that_fits_is_cheaper(seed: int) -> None:
    rng = random.Random(seed)
    stage = some_stage(rng, rng.choice(SIZES), count=4, num_layouts=rng.choice([1, 2, 3]))
    every = list(every_choice(stage))
    fitting = [each.cost for each in every if stage.fits(each.peak_mib)]
    found = solve(stage)
    assert min_memory(stage) == min(each.peak_mib for each in every)
    assert (found is None) == (not fitting)
    if found is not None:
        assert found == weigh(stage, found.choice, found.min_cost)
        assert stage.fits(found.peak_mib)
        assert found.cost == pytest.approx(min(fitting), abs=1e-9)
        assert found.min_cost == pytest.approx(found.cost)


LARGER = [(1, 6, 1), (12,), (1, 20, 1), (4, 4, 4), (1,) * 9]


@pytest.mark.parametrize("seed", range(14))
def test_never_worse_than_the_paper_nor_with_more_memory(seed: int) -> None:
    rng = random.Random(seed)
    stage = some_stage(rng, rng.choice(LARGER), count=8, num_layouts=3)
    costs = []
    for more_mib in (0, 7, 40):
        roomier = replace(stage, capacity_mib=stage.capacity_mib + more_mib)
        found, paper = solve(roomier), solve_as_paper(roomier)
        if paper is not None:
            assert roomier.fits(paper.peak_mib)
            assert found is not None
            assert found.cost <= paper.cost + 1e-9
        costs.append(float("inf") if found is None else found.cost)
    assert costs == sorted(costs, reverse=True)
    needed = min_memory(stage)
    assert solve(replace(stage, capacity_mib=needed)) is not None
    assert solve(replace(stage, capacity_mib=needed - 1)) is None


def chain(*, recomputed: list[bool], capacity_mib: float = 1e6, in_flight: int = 2) -> StageProblem:
    """Each layer one option, in one layout: static 10, kept 3, transient 5 and then 7."""
    runs = tuple(
        LayerRun(1, StrategyCosts([1], [2], [10], [3], [5], [7], [each], [0])) for each in recomputed
    )
    return StageProblem(runs, {}, in_flight, capacity_mib)


@pytest.mark.parametrize(
    ("recomputed", "peak"),
    [
        ([False, False], 20 + 2 * 6 + 7),  # above all that is kept
        ([True, True], 20 + 2 * 6 + 7),  # one piece: nothing is given back yet
        ([True, False, False], 30 + 2 * 9 + 7),
        ([True, False], 20 + 2 * 6 + 7),
    ],
)
def test_peak_of_pieces(recomputed: list[bool], peak: float) -> None:
    stage = chain(recomputed=recomputed)
    assert peak_mib(stage, [0] * len(recomputed)) == peak


def test_recomputation_uses_what_later_pieces_gave_back() -> None:
    """Static 0; the recomputed layer keeps 1 and needs 20 more, where the plain one after it kept 30."""
    first = StrategyCosts([1], [0], [0], [1], [0], [20], [True], [0])
    last = StrategyCosts([1], [0], [0], [30], [0], [0], [False], [0])
    stage = StageProblem((LayerRun(1, first), LayerRun(1, last)), {}, 3, 1e6)
    assert peak_mib(stage, [0, 0]) == 3 * 31
    assert peak_mib(replace(stage, runs=tuple(reversed(stage.runs))), [0, 0]) == 3 * 31 + 20


def test_costs_are_weighed() -> None:
    stage = replace(chain(recomputed=[False] * 3), num_micro_batches=4)
    found = solve(stage)
    assert found is not None
    assert (found.time_ms, found.sync_ms, found.cost) == (3, 6, 3 + 6 / 4)
    weighed = solve(replace(stage, weights=(10.0, 0.0)))
    assert weighed is not None
    assert weighed.cost == 30


def test_transitions_are_paid_both_ways_as_given() -> None:
    """Two fast layers in layout 1 beside ones that have only layout 0: 2 ms there and 5 ms back."""
    fixed = StrategyCosts([1], [0], [0], [0], [0], [0], [False], [0])
    either = StrategyCosts([9, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [False, False], [0, 1])
    runs = (LayerRun(1, fixed), LayerRun(2, either), LayerRun(1, fixed))
    found = solve(StageProblem(runs, {(0, 1): 2.0, (1, 0): 5.0}, 1, 0.0))
    assert found is not None
    assert (found.choice, found.time_ms) == ((0, 1, 1, 0), 11)


@pytest.mark.parametrize("seed", range(2))
def test_many_equal_layers_as_each_apart_on_a_grid(seed: int) -> None:
    """The paper's table is exact where memory is whole and nothing is transient."""
    rng = random.Random(seed)
    options = [
        StrategyCosts(
            [rng.randint(10, 60) for _ in range(12)],
            [rng.randint(0, 20) for _ in range(12)],
            [rng.randint(5, 30) for _ in range(12)],
            [rng.randint(1, 30) for _ in range(12)],
            [0] * 12,
            [0] * 12,
            [False] * 12,
            [rng.randrange(3) for _ in range(12)],
        )
        for _ in range(2)
    ]
    transitions = {(a, b): float(abs(a - b)) for a in range(3) for b in range(3)}
    stage = StageProblem((LayerRun(30, options[0]), LayerRun(20, options[1])), transitions, 2, 0.0, 4)
    for part in (0.05, 0.3, 0.6):
        low, high = min_memory(stage), 50 * (30 + 2 * 30)
        roomy = replace(stage, capacity_mib=float(round(low + part * (high - low))))
        found, paper = solve(roomy), solve_as_paper(roomy)
        assert found is not None
        assert paper is not None
        assert found.cost == pytest.approx(paper.cost)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_wrong_options(wrong: float) -> None:
    with pytest.raises(StageError, match=r"options\.sync_ms: .* are not all numbers from 0 on"):
        StrategyCosts([1], [wrong], [1], [1], [1], [1], [False], [0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"runs": ()}, "runs: is empty"),
        ({"in_flight": 0}, "in_flight: 0 is not a whole number from 1 on"),
        ({"num_micro_batches": 1.5}, "num_micro_batches: 1.5 is not a whole number"),
        ({"capacity_mib": float("inf")}, "capacity_mib: inf is not finite"),
        ({"weights": (1.0, -1.0)}, "weights: -1.0 is not a number from 0 on"),
        ({"transition_ms": {}}, r"transition_ms\[\(0, 1\)\]: nan is not a number"),
    ],
)
def test_wrong_stages(changed: dict[str, object], message: str) -> None:
    two = StrategyCosts([1, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [False, False], [0, 1])
    given = {"runs": (LayerRun(2, two),), "transition_ms": {(0, 1): 1.0, (1, 0): 1.0}, "in_flight": 1}
    with pytest.raises(StageError, match=message):
        StageProblem(**{"capacity_mib": 1.0, **given, **changed})  # type: ignore[arg-type]
    with pytest.raises(StageError, match=r"runs\[0\].num_layers: 0 is not"):
        StageProblem((LayerRun(0, two),), {}, 1, 1.0)


def test_nothing_costs_and_nothing_fits() -> None:
    stage = replace(chain(recomputed=[True, False]), weights=(0.0, 0.0))
    found = solve(stage)
    assert found is not None
    assert (found.cost, found.time_ms) == (0, 2)
    assert solve(replace(stage, capacity_mib=-1.0)) is None
    assert solve_as_paper(replace(stage, capacity_mib=-1.0)) is None


@pytest.mark.parametrize("seed", range(8))
def test_few_labels_give_a_choice_and_how_far_it_is_from_the_best(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    stage = some_stage(rng, (1,) * 12, count=8, num_layouts=3)
    best = solve(stage)
    monkeypatch.setattr(exact, "MAX_LABELS", (2,))
    found = solve(stage)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert stage.fits(found.peak_mib)
        assert found.min_cost - 1e-9 <= best.cost <= found.cost + 1e-9
