"""Decision trees: the counts of the paper, strategies by hand, options and their errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from one_line_errors import raises_line

from placements.models.parallel import LayerStrategy
from placements.planners.hybrid.decision_trees import PAPER, Paradigm, TreeOptions, layer_strategies
from placements.planners.hybrid.plan import PlanError

PLAIN = TreeOptions(PAPER, ("none",))


def test_counts_are_those_of_the_paper() -> None:
    """Galvatron-BMW, Sec. III-B: 44 strategies for 8 GPUs over all pipeline degrees, 22 of the tree alone."""
    counts = {
        both: [sum(len(layer_strategies(2**i, options)) for i in range(power + 1)) for power in (3, 4, 5, 6)]
        for both, options in ((True, TreeOptions(PAPER)), (False, PLAIN))
    }
    assert counts == {True: [44, 74, 112, 158], False: [22, 37, 56, 79]}


@pytest.mark.parametrize("num_gpus", [1, 2, 3, 4, 6, 8, 12, 16, 24])
@pytest.mark.parametrize("paradigms", [tuple(Paradigm), (Paradigm.DP, Paradigm.TP), (Paradigm.SDP,)])
def test_strategies_are_of_all_gpus_and_different(num_gpus: int, paradigms: tuple[Paradigm, ...]) -> None:
    strategies = layer_strategies(num_gpus, TreeOptions(paradigms), num_experts=8)
    assert {strategy.num_gpus for strategy in strategies} == {num_gpus}
    assert len(set(strategies)) == len(strategies)


def test_strategies_of_the_paper_by_hand() -> None:
    expected = {
        LayerStrategy(1, 4),
        LayerStrategy(1, 4, 3),
        LayerStrategy(4, 1),
        LayerStrategy(2, 2),
        LayerStrategy(2, 2, tensor_innermost=False),
        LayerStrategy(2, 2, 3),
        LayerStrategy(2, 2, 3, tensor_innermost=False),
    }
    plain = layer_strategies(4, PLAIN)
    assert set(plain) == expected
    both = layer_strategies(4, TreeOptions(PAPER))
    assert both == (*plain, *(replace(strategy, recompute="full") for strategy in plain))


@pytest.mark.parametrize(("paradigm", "zero"), [("dp", 0), ("zero1", 1), ("zero2", 2), ("sdp", 3)])
def test_paradigms_that_share_samples(paradigm: str, zero: int) -> None:
    options = TreeOptions((Paradigm(paradigm),), ("none",))
    assert layer_strategies(4, options) == (LayerStrategy(1, 4, zero),)


def test_ulysses_shares_heads_as_tensor_parallelism_does() -> None:
    options = TreeOptions((Paradigm.TP, Paradigm.ULYSSES), ("none",))
    assert layer_strategies(4, options) == (LayerStrategy(4), LayerStrategy(4, sequence="ulysses"))


def test_context_parallelism() -> None:
    options = TreeOptions((Paradigm.DP, Paradigm.CP), ("none",))
    assert set(layer_strategies(4, options)) == {
        LayerStrategy(1, 4),
        LayerStrategy(1, 1, context_parallel=4),
        LayerStrategy(1, 2, context_parallel=2),
    }


def test_sequence_parallelism_is_beside_tensor_parallelism_alone() -> None:
    strategies = layer_strategies(4, replace(PLAIN, sequence_parallel=True))
    assert {(strategy.tensor_parallel > 1, strategy.sequence) for strategy in strategies} == {
        (False, "none"),
        (True, "megatron"),
    }


def test_experts_are_shared_by_copies_of_the_weights() -> None:
    options = TreeOptions((Paradigm.DP, Paradigm.TP), ("none",), expert_parallel=(1, 2, 4))
    assert all(strategy.expert_parallel == 1 for strategy in layer_strategies(4, options))
    strategies = layer_strategies(4, options, num_experts=6)
    degrees = {(strategy.tensor_parallel, strategy.expert_parallel) for strategy in strategies}
    assert degrees == {(1, 1), (1, 2), (2, 1), (2, 2), (4, 1)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"paradigms": ()}, "paradigms: is empty; allow at least one"),
        ({"expert_parallel": (1, 0)}, "expert_parallel: 0 is not at least 1; give 1 or more"),
        ({"max_tensor_parallel": 0}, "max_tensor_parallel: 0 is not at least 1; give 1 or more"),
    ],
)
def test_wrong_options(wrong: dict[str, object], message: str) -> None:
    with raises_line(PlanError, match=f"^{message}$"):
        TreeOptions(**wrong)  # type: ignore[arg-type]


def test_nothing_is_left() -> None:
    with raises_line(PlanError, "paradigms: tp cannot share a layer among 4 GPUs; allow "):
        layer_strategies(4, TreeOptions((Paradigm.TP,), max_tensor_parallel=2))
