"""The strategies of a stage: dynamic programming against all assignments."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from galvatron_constants import constants_of, entry
from galvatron_oracle import stages_of

from experiments.reproduce.galvatron.search_2022.layer_costs import layer_memory_mib, other_memory_mib
from experiments.reproduce.galvatron.search_2022.stage_division import divide
from experiments.reproduce.galvatron.search_2022.stage_search import (
    StageCosts,
    best_strategies,
    fits,
    min_time_s,
)
from experiments.reproduce.galvatron.search_2022.strategies import GalvatronStrategy


def stage_of(seed: int, capacity_mib: int) -> StageCosts:
    """A stage of five layers of two types, where transitions cost about as much as layers."""
    random = np.random.default_rng(seed)
    transitions = random.uniform(0, 3, (4, 4)) * (random.random((4, 4)) < 0.6)
    np.fill_diagonal(transitions, 0)
    types = np.array([0, 0, 1, 1, 1])
    return StageCosts(
        types, random.uniform(1, 5, (2, 4)), random.integers(1, 30, (2, 4)), transitions, capacity_mib
    )


def time_of(stage: StageCosts, chosen: tuple[int, ...]) -> float:
    layers = sum(stage.time_s[kind, strategy] for kind, strategy in zip(stage.types, chosen, strict=True))
    return float(layers + sum(stage.transitions_s[pair] for pair in itertools.pairwise(chosen)))


def memory_of(stage: StageCosts, chosen: tuple[int, ...]) -> int:
    return int(
        sum(stage.memory_mib[kind, strategy] for kind, strategy in zip(stage.types, chosen, strict=True))
    )


@pytest.mark.parametrize("capacity_mib", [10, 25, 40, 60, 90, 200])
@pytest.mark.parametrize("seed", range(10))
def test_it_is_the_best_of_all_assignments(seed: int, capacity_mib: int) -> None:
    stage = stage_of(seed, capacity_mib)
    every = itertools.product(range(4), repeat=5)
    fitting = [chosen for chosen in every if memory_of(stage, chosen) <= capacity_mib]
    found = best_strategies(stage)
    assert fits(stage) == bool(fitting) == (found is not None)
    if found is not None:
        time_s, chosen = found
        assert chosen in fitting
        assert time_s == pytest.approx(min(time_of(stage, each) for each in fitting))
        assert time_s == pytest.approx(time_of(stage, chosen))
        assert min_time_s(stage) <= time_s + 1e-9


def test_the_bound_is_exact_where_memory_is_ample() -> None:
    stage = stage_of(0, 10_000)
    assert min_time_s(stage) == pytest.approx(float(stage.time_s.min(axis=1)[stage.types].sum()))


def test_of_equal_choices_it_is_the_first() -> None:
    ones = np.ones((1, 3))
    stage = StageCosts(np.zeros(4, np.int64), ones, ones.astype(np.int64), np.zeros((3, 3)), 100)
    assert best_strategies(stage) == (4.0, (0, 0, 0, 0))


def test_layers_are_divided_by_memory_from_the_end() -> None:
    """Each layer of the second type is larger; the first stage has the embedding too."""
    data = entry("t5_64_8gpus", 2)
    for memory, parameters in zip(data["mem"], (25, 100), strict=True):
        shares = dict.fromkeys(memory["tp_activation_per_bsz_dict"], 1e-6)
        memory |= {"parameter_size": parameters, "tp_activation_per_bsz_dict": shares}
        memory |= {"other_model_states": 176, "other_activation_per_bsz": 0}
    constants = constants_of("t5_64_8gpus", data)
    strategies = (GalvatronStrategy(4, 1, 2),)
    # 100 and 400 MiB for a layer, and 1200 MiB of others: 4 stages of 1300 MiB.
    assert [
        math.ceil(layer_memory_mib(constants, layer, strategies[0], 8)) for layer in constants.layer_types
    ] == [101, 401]
    assert other_memory_mib(constants, strategies[0], 8) == (1200, 0, 0, 0)
    assert divide(constants, (8, 8), strategies, 8) == (3, 7, 3, 3)
    assert divide(constants, (8, 8), (GalvatronStrategy(1, 1, 8),), 8) == (16,)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("name", "counts"), [("t5_64_8gpus", (16, 16)), ("swin_64_8gpus", (2, 2, 26, 2))])
def test_layers_are_divided_as_described(name: str, counts: tuple[int, ...], seed: int) -> None:
    data = entry(name, len(counts), seed)
    constants = constants_of(name, data)
    kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
    for num_stages in (2, 4, 8):
        strategies = tuple(each for each in constants.strategies if each.num_stages == num_stages)
        for batch in (8, 24, 56):
            parts = stages_of(data, 8, kinds, data["strategies"], num_stages, batch)
            assert divide(constants, counts, strategies, batch) == tuple(map(len, parts))
