"""Vocabularies on all GPUs: models that look up twice, their M- and NN-shapes, and the search for both."""

from __future__ import annotations

import pytest

from placements.block import Kind
from placements.cluster import read_cluster
from placements.models.end_layers import EmbeddingLayer, OutputLayer
from placements.models.zoo import read_model
from placements.planners.hybrid.placing.planned_placement import planned_placement
from placements.planners.hybrid.placing.shared_layers import search_trunks, trunk_of
from placements.planners.hybrid.plan import PlanError, layers_of_stage
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.shape_costs import ShapeCosts
from placements.spec import Placement

CLUSTER = read_cluster("v100_4")
OPTIONS = PlanOptions(num_stages=(2,), num_micro_batches=(4,), num_plans=1)

GPT = read_model("gpt_11b", num_layers=4, hidden_size=1024, num_heads=16, vocab_size=200_000)
T5 = read_model("mt5_1.8b", num_layers=8, vocab_size=200_000, sequence_length=128, second_lookup=True)


def test_the_second_lookup_has_no_table_of_its_own() -> None:
    plain = read_model("mt5_1.8b", num_layers=8, vocab_size=200_000, sequence_length=128)
    assert T5.num_parameters == plain.num_parameters
    assert len(T5.layers) == len(plain.layers) + 1
    again = T5.layers[5]
    assert isinstance(again, EmbeddingLayer) and again.tied
    # The encoder's output passes on with what is looked up, which alone is all-reduced.
    assert again.output_elements() == 2 * 128 * 1024 == T5.layers[6].output_elements()
    assert again.on(1).reduces == [(128 * 1024, 0)]


@pytest.mark.parametrize(
    ("first", "end", "tied"),
    [(0, 11, [False, True, True]), (0, 6, [False, True]), (2, 11, [False, True]), (6, 11, [False])],
)
def test_the_first_of_a_stage_has_the_table(first: int, end: int, tied: list[bool]) -> None:
    layers = layers_of_stage(T5.layers, first, end)
    assert [layer.tied for layer in layers if isinstance(layer, (EmbeddingLayer, OutputLayer))] == tied


def nn_placement(costs: ShapeCosts, shape: str) -> Placement:
    trunk = search_trunks(costs, read_cluster("v100_2"), 8, shape, OPTIONS)[0]
    plan = trunk.plan
    return planned_placement(plan, costs, [28.0] * plan.num_stages, shared=trunk.shared)


@pytest.mark.parametrize(("model", "shape", "lookups"), [(GPT, "m_shape", 1), (T5, "nn_shape", 2)])
def test_the_vocabulary_is_on_all_devices(model: object, shape: str, lookups: int) -> None:
    costs = ShapeCosts(model)  # type: ignore[arg-type]
    placement = nn_placement(costs, shape)
    forwards = [block for block in placement.blocks if block.kind is Kind.F]
    everywhere = [i for i, block in enumerate(forwards) if block.devices == (0, 1)]
    assert len(everywhere) == lookups + 1
    assert everywhere[0] == 0 and everywhere[-1] == len(forwards) - 1
    # Stages come in order, each on one device.
    order = [block.devices[0] for block in forwards if len(block.devices) == 1]
    assert order == sorted(order) and set(order) == {0, 1}
    # Each of the two GPUs has half of the one table, and its layers.
    assert min(placement.static) > 16 * 200_000 * 1024 / 2 / 2**20
    assert sum(placement.static) * 2**20 == pytest.approx(16 * costs.model.num_parameters, rel=0.01)


def test_the_encoders_output_is_sent_on_after_the_second_lookup() -> None:
    placement = nn_placement(ShapeCosts(T5), "nn_shape")
    forwards = [block for block in placement.blocks if block.kind is Kind.F]
    second = [i for i, block in enumerate(forwards) if block.devices == (0, 1)][1]
    before, after = forwards[second - 1].devices[0], forwards[second + 1].devices[0]
    ticks = placement.transfer_time(f"F{second}", f"F{second + 1}")
    assert (ticks > 0) == (before != after)


def test_trunks_are_sorted_and_slower_than_without_the_vocabulary() -> None:
    trunks = search_trunks(ShapeCosts(GPT), CLUSTER, 8, "m_shape")
    assert 1 < len(trunks) <= 5
    assert [trunk.time_ms for trunk in trunks] == sorted(trunk.time_ms for trunk in trunks)
    for trunk in trunks:
        assert trunk.shared is not None and trunk.time_ms > trunk.shared.iteration_ms(
            trunk.plan.num_micro_batches
        )
        assert trunk.plan.num_stages >= 2
        assert trunk.plan.num_gpus == 4


def test_nothing_fits_in_no_memory() -> None:
    assert search_trunks(ShapeCosts(GPT), CLUSTER, 8, "m_shape", PlanOptions(memory_gib=4.5)) == ()


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (
            T5,
            "m_shape",
            "shapes: m_shape needs a model from an embedding to an output layer, which mt5_1.8b is",
        ),
        (GPT, "nn_shape", "nn_shape needs a model from an embedding over a second one to an output layer"),
        (read_model("vit_huge_32"), "m_shape", "which vit_huge_32 is not; leave it out"),
    ],
)
def test_other_models_have_no_such_shape(model: object, shape: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        trunk_of(model, shape)  # type: ignore[arg-type]
