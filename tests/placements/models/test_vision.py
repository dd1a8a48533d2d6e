"""Convolutional networks against their known sizes."""

import pytest

from placements.models.zoo.convolutional import VISION_MODELS, alexnet, resnet50, vgg16

GIGA_MACS = {"vgg16": 15.47, "alexnet": 0.71, "resnet50": 4.09}
"""Multiply-adds of one image of 224 by 224, as commonly published for these variants."""

PARAMETERS = {"vgg16": 138_357_544, "alexnet": 61_100_840, "resnet50": 25_557_032}


@pytest.mark.parametrize("model", VISION_MODELS)
def test_operations_and_parameters_are_the_published_ones(model: str) -> None:
    layers = VISION_MODELS[model]()
    assert sum(layer.forward_flops for layer in layers) / 2e9 == pytest.approx(GIGA_MACS[model], abs=0.005)
    assert sum(layer.num_parameters for layer in layers) == PARAMETERS[model]
    assert len({layer.name for layer in layers}) == len(layers)


def test_layers_are_those_between_which_a_pipeline_is_cut() -> None:
    vgg, alex, res = vgg16(), alexnet(), resnet50()
    assert [layer.name for layer in vgg][11:] == ["conv12", "conv13", "fc14", "fc15", "fc16"]
    assert [layer.name for layer in alex][4:] == ["conv5", "fc6", "fc7", "fc8"]
    assert (len(res), res[1].name, res[-2].name, res[-1].name) == (18, "block1.1", "block4.3", "fc")


def test_outputs_are_what_the_next_layer_reads() -> None:
    assert [layer.output_size for layer in vgg16()][:2] == [64 * 224**2, 64 * 112**2]
    assert vgg16()[12].output_size == 512 * 7**2
    assert [layer.output_size for layer in alexnet()][:5] == [46656, 32448, 64896, 43264, 9216]
    assert [resnet50()[i].output_size for i in (0, 1, 4, 8, 14, 16)] == [
        64 * 56**2,
        256 * 56**2,
        512 * 28**2,
        1024 * 14**2,
        2048 * 7**2,
        2048 * 7**2,
    ]
    assert [resnet50()[i].num_parameters for i in (1, 2)] == [75_008, 70_400]
