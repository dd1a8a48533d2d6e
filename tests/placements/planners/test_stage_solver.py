"""The search inside a stage, against all choices there are."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from stages_at_random import every_choice, made_costs, some_options, some_stage

from placements.planners import stage_solver
from placements.planners.bmw import solve_as_paper
from placements.planners.stage_solver import StageProblem, peak_mib, solve, weigh

SIZES = [(1,), (4,), (5,), (1, 3, 1), (2, 2), (1, 1, 1, 1), (2, 1, 2), (3, 2)]


@pytest.mark.parametrize("seed", range(80))
def test_no_choice_that_fits_is_cheaper(seed: int) -> None:
    rng = random.Random(seed)
    stage = some_stage(rng, rng.choice(SIZES), count=4, num_layouts=rng.choice([1, 2, 3]))
    fitting = [answer.cost for answer in every_choice(stage) if answer.peak_mib <= stage.room_mib]
    answer = solve(stage)
    assert (answer is None) == (not fitting)
    if answer is not None:
        assert answer == weigh(stage, answer.choice, answer.min_cost)
        assert answer.peak_mib <= stage.room_mib
        assert answer.cost == pytest.approx(min(fitting), abs=1e-9)
        assert answer.min_cost == pytest.approx(answer.cost)


LARGER = [(1, 6, 1), (12,), (1, 20, 1), (4, 4, 4), (1,) * 9]


@pytest.mark.parametrize("seed", range(14))
def test_never_worse_than_the_paper_nor_with_more_memory(seed: int) -> None:
    rng = random.Random(seed)
    stage = some_stage(rng, rng.choice(LARGER), count=8, num_layouts=3)
    costs = []
    for more_mib in (0, 7, 40):
        roomier = replace(stage, capacity_mib=stage.capacity_mib + more_mib)
        answer, paper = solve(roomier), solve_as_paper(roomier)
        if paper is not None:
            assert paper.peak_mib <= roomier.room_mib
            assert answer.cost <= paper.cost + 1e-9
        costs.append(math.inf if answer is None else answer.cost)
    assert costs == sorted(costs, reverse=True)


def chain(*, recomputed: list[bool], in_flight: int = 2) -> StageProblem:
    """Each layer one option, in one layout: static 10, kept 3, transient 7."""
    layers = tuple(made_costs([1], [2], [10], [3], [7], [again], [0]) for again in recomputed)
    return StageProblem(layers, np.zeros((1, 1)), in_flight, 1e6)


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
    assert peak_mib(chain(recomputed=recomputed), [0] * len(recomputed)) == peak


def test_recomputation_uses_what_later_pieces_gave_back() -> None:
    """Static 0; the recomputed layer keeps 1 and needs 20 more, where the plain one after it kept 30."""
    layers = made_costs([1], [0], [0], [1], [20], [True], [0]), made_costs(*[[0]] * 3, [30], *[[0]] * 3)
    stage = StageProblem(layers, np.zeros((1, 1)), 3, 1e6)
    assert peak_mib(stage, [0, 0]) == 3 * 31
    assert peak_mib(replace(stage, layers=layers[::-1]), [0, 0]) == 3 * 31 + 20


def test_transitions_are_paid_both_ways_as_given() -> None:
    """Two fast layers in layout 1 beside ones that have only layout 0: 2 ms there and 5 ms back."""
    fixed = made_costs([1], *[[0]] * 6)
    either = made_costs([9, 1], *[[0, 0]] * 5, [0, 1])
    stage = StageProblem((fixed, either, either, fixed), np.array([[0.0, 2.0], [5.0, 0.0]]), 1, 0.0)
    answer = solve(stage)
    assert (answer.choice, answer.time_ms) == ((0, 1, 1, 0), 11)


def test_many_equal_layers_as_each_apart_on_a_grid() -> None:
    """The paper's table is exact where memory is whole and nothing is transient."""
    rng = random.Random(0)
    options = [some_options(rng, 12, 3, most=30) for _ in range(2)]
    options = [layer._replace(transient_mib=0 * layer.time_ms, piece=layer.piece & ~1) for layer in options]
    transitions = np.abs(np.subtract.outer(range(3), range(3))) * 1.0
    stage = StageProblem((options[0],) * 30 + (options[1],) * 20, transitions, 2, 0.0)
    low, high = (sum(float(end(layer.weight_mib(2))) for layer in stage.layers) for end in (np.min, np.max))
    for part in (0.05, 0.3, 0.6):
        roomy = replace(stage, capacity_mib=float(round(low + part * (high - low))))
        answer, paper = solve(roomy), solve_as_paper(roomy)
        assert answer.cost == pytest.approx(paper.cost)


def test_nothing_fits() -> None:
    stage = replace(chain(recomputed=[True, False]), capacity_mib=-1.0)
    assert solve(stage) is None
    assert solve_as_paper(stage) is None


@pytest.mark.parametrize("seed", range(8))
def test_few_labels_give_a_choice_and_how_far_it_is_from_the_best(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    stage = some_stage(rng, (1,) * 12, count=8, num_layouts=3)
    best = solve(stage)
    monkeypatch.setattr(stage_solver, "MAX_LABELS", (2,))
    answer = solve(stage)
    assert (answer is None) == (best is None)
    if answer is not None and best is not None:
        assert answer.peak_mib <= stage.room_mib
        assert answer.min_cost - 1e-9 <= best.cost <= answer.cost + 1e-9
