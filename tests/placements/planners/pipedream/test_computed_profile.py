"""The configurations of the paper's Table 2.2, from shapes alone."""

from __future__ import annotations

import pytest

from placements.models.zoo.convolutional import VISION_MODELS, vgg16
from placements.planners.parallel_plan import PlanError
from placements.planners.pipedream.computed_profile import computed_profile
from placements.planners.pipedream.planner import best_plan
from placements.planners.pipedream.topology import Level

BATCH_SIZES = {"vgg16": 64, "alexnet": 256, "resnet50": 128}
FLAT = [Level(16, 1.25)]

PUBLISHED = {  # by what each worker sends, and by the printed formula
    "vgg16": ("15-1", "12-3-1"),
    "alexnet": ("15-1", "15-1"),
    "resnet50": ("16", "8-8"),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_shapes_give_the_configurations_of_the_paper(model: str) -> None:
    graph = computed_profile(VISION_MODELS[model](), BATCH_SIZES[model], tflops=10.0)
    found = tuple(best_plan(graph, FLAT, sync).configuration for sync in ("per_worker", "printed"))
    assert found == PUBLISHED[model]


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("tflops", [8.0, 20.0])
def test_they_do_not_depend_on_the_rate(model: str, tflops: float) -> None:
    graph = computed_profile(VISION_MODELS[model](), BATCH_SIZES[model], tflops)
    assert best_plan(graph, FLAT).configuration == PUBLISHED[model][0]


def test_convolutions_are_shared_and_fully_connected_layers_are_not() -> None:
    stages = best_plan(computed_profile(vgg16(), 64, 10.0), FLAT).stages
    assert [len(stage.nodes) for stage in stages] == [13, 3]
    assert stages[1].nodes == ("fc14", "fc15", "fc16")
    assert best_plan(computed_profile(vgg16(), 64, 7.0), FLAT).configuration == "16", "slow compute"


def test_what_a_layer_takes() -> None:
    node = computed_profile(vgg16(), 2, 10.0).nodes[0]
    flops = 2 * 2 * 64 * 27 * 224**2
    assert (node.forward_ms, node.backward_ms) == (flops / 1e10, 2 * flops / 1e10)
    assert (node.activation_bytes, node.parameter_bytes) == (4 * 2 * 64 * 224**2, 4 * 1792)


def test_wrong_figures_are_named() -> None:
    with pytest.raises(PlanError, match="^batch_size: 0 is not at least 1"):
        computed_profile(vgg16(), 0, 10.0)
    with pytest.raises(PlanError, match="^tflops: -1.0 is not above 0"):
        computed_profile(vgg16(), 1, -1.0)
