"""Plans as training frameworks are configured: chunks of equal layers, and degrees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_line_errors import raises_line

from placements.cluster import read_cluster
from placements.models.chain import ModelShape
from placements.models.zoo import decoder
from placements.planners.hybrid.plan import PlanError
from placements.planners.hybrid.uniform import Degrees, Layout, chunk_sizes, uniform_plan


def model(num_layers: int, **sizes: Any) -> ModelShape:
    tiny = {"hidden_size": 64, "num_heads": 8, "vocab_size": 128, "sequence_length": 16}
    return decoder("tiny", num_layers=num_layers, **(tiny | sizes))


@pytest.mark.parametrize(
    ("num_layers", "num_chunks", "sizes"),
    [
        (4, 1, [6]),
        (8, 4, [3, 2, 2, 3]),
        (126, 64, [2] * 64),  # Llama 3.1 405B: embedding and output layer count
        (6, 4, [2, 2, 2, 2]),
        (7, 4, [2, 3, 2, 2]),
        (9, 4, [3, 3, 3, 2]),
        (2, 4, [1, 1, 1, 1]),
    ],
)
def test_chunks_by_hand(num_layers: int, num_chunks: int, sizes: list[int]) -> None:
    assert chunk_sizes(model(num_layers), num_chunks) == sizes


@given(st.integers(1, 40), st.integers(1, 12), st.booleans())
def test_chunks_have_all_layers_and_nearly_equal_numbers(
    num_layers: int, num_chunks: int, narrow: bool
) -> None:
    shape = model(num_layers, embedding_size=32) if narrow else model(num_layers)
    ends = 2 if narrow else 1
    if num_layers + 2 < num_chunks:
        with raises_line(PlanError, f"stages: {num_layers} layers of tiny are too few for {num_chunks}"):
            chunk_sizes(shape, num_chunks)
        return
    try:
        sizes = chunk_sizes(shape, num_chunks)
    except PlanError:
        assert num_layers < num_chunks
        return
    assert sum(sizes) == len(shape.layers) == num_layers + 2 * ends
    inner = [sizes[0] - ends, *sizes[1:-1], sizes[-1] - ends] if num_chunks > 1 else [num_layers]
    assert max(inner) - min(inner) <= 2
    assert (max(inner) == min(inner)) >= (num_layers % num_chunks == 0)


def test_a_plan_shares_all_layers_alike() -> None:
    degrees = Degrees(tensor=2, pipeline=2, data=2, context=2, chunks=2)
    plan = uniform_plan(model(8), read_cluster("a100_16"), Layout(degrees, 3, 5))
    assert [list(stage.layers) for stage in plan.stages] == [list(range(5)), list(range(5, 10))]
    assert [list(stage.gpus) for stage in plan.stages] == [list(range(8)), list(range(8, 16))]
    assert (plan.global_batch_size, plan.num_micro_batches, plan.micro_batch_size) == (30, 5, 6)
    inner = plan.strategies[1]
    assert (inner.tensor_parallel, inner.data_parallel, inner.context_parallel) == (2, 2, 2)
    assert (inner.zero, inner.sequence, inner.context) == (1, "megatron", "all_to_all")
    layout = Layout(
        replace(degrees, expert=2), 3, 5, 2, "selective", recompute_modules=("mlp",), shard_gpus=2
    )
    full = replace(layout, sequence_parallel=False, reshards=False)
    assert full.strategy == replace(
        layout.strategy, sequence="none", reshards=False, expert_parallel=2, recompute_modules=("mlp",)
    )
    assert full.plain.strategy == replace(full.strategy, recompute="none")
    assert (Layout(Degrees(), 1, 1).strategy.sequence, full.strategy.shard_gpus) == ("none", 2)


def test_wrong_degrees_and_too_few_gpus() -> None:
    for name, value in (("tensor", 0), ("chunks", 1.5), ("expert", True)):
        with raises_line(PlanError, f"{name}: {value!r} is not a whole number of at least 1; give one"):
            Degrees(**{name: value})
    with raises_line(PlanError, "gpus: ", has="2 x 4 x 2 x 1 need 16 GPUs, not 8; give as many, or smaller"):
        uniform_plan(model(8), read_cluster("a100_8"), Layout(Degrees(2, 4, 2), 1, 8))
