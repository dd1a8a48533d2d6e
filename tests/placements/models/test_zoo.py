"""Models by name: published parameters and activations, changed sizes, and one-line errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from places import SHARED_DATA
from told import told

from placements import PlacementError
from placements.models.layers import HALF, SINGLE
from placements.models.zoo import MODELS, read_model
from placements.models.zoo.convolutional import VISION_MODELS, alexnet, resnet50, vgg16

TABLE_I = {
    "bert_huge_32": (672e6, 3149.39),
    "bert_huge_48": (987e6, 4657.51),
    "bert_xhuge": (10.2e9, 24210.05),
    "vit_huge_32": (632e6, 646.5),
    "vit_huge_48": (947e6, 968.59),
    "vit_xhuge": (10.1e9, 5313.9),
    "t5_large_32": (502e6, 4119.66),
    "t5_large_48": (737e6, 6107.75),
    "t5_512_4_32": (502e6, 1777.06),
    "t5_512_4_48": (737e6, 2473.10),
    "swin_huge_32": (701e6, 726.59),
    "swin_huge_48": (1016e6, 1016.8),
    "gpt3_15b": (15.4e9, 32889.04),
    "gpt3_39b": (39.1e9, 58645.34),
    "gpt3_65b": (64.9e9, 97557.98),
}
"""Parameters, and MB of activations of a sample in 32 bits (Galvatron-BMW, Table I)."""

OTHER = {"t5_512_4_32": 0.20, "t5_512_4_48": 0.13}
"""Two activations are not those of the shape: the table's two rows leave 385 MB besides their layers."""


@pytest.mark.parametrize("name", TABLE_I)
def test_sizes_are_those_of_galvatrons_table_1(name: str) -> None:
    parameters, mib = TABLE_I[name]
    model = read_model(name, precision="single")
    assert model.num_parameters == pytest.approx(parameters, rel=0.006)
    assert model.kept_bytes / 2**20 == pytest.approx(mib, rel=OTHER.get(name, 0.10))


PUBLISHED = {
    "gpt3_125m": 125e6,
    "gpt3_1.3b": 1.3e9,
    "gpt3_2.7b": 2.7e9,
    "gpt3_6.7b": 6.7e9,
    "gpt3_175b": 174.6e9,
    "gpt_11b": 10.5e9,
    "gpt_24b": 24.3e9,
    "gpt_47b": 46.9e9,
    "gpt_77b": 76.7e9,
    "mt5_9.5b": 9.4e9,
    "mt5_43b": 43e9,
    "mt5_88b": 87.5e9,
    "llama2_7b": 6.738e9,
    "llama2_13b": 13.016e9,
    "llama2_70b": 68.977e9,
    "llama3_8b": 8.030e9,
    "llama3_70b": 70.554e9,
    "mixtral_8x7b": 46.703e9,
    "mixtral_8x22b": 140.62e9,
    "llama31_405b": 405.85e9,
    "qwen3_0.6b": 596.0e6,
    "qwen3_1.7b": 1.7206e9,
    "qwen3_4b": 4.0225e9,
    "qwen3_8b": 8.1907e9,
    "qwen3_14b": 14.768e9,
    "qwen3_32b": 32.762e9,
    "qwen3_30b_a3b": 30.532e9,
    "qwen3_235b_a22b": 235.09e9,
    "deepseek_v2": 235.74e9,
    "deepseek_v2_lite": 15.706e9,
    "deepseek_v3": 671.03e9,
    "kimi_k2": 1026.4e9,
    "gpt_oss_20b": 20.91e9,
    "gpt_oss_120b": 116.83e9,
    "nemotron_h_8b": 8.1e9,
    "nemotron_h_56b": 56.3e9,
    "opt_350m": 331.2e6,
    "gpt_neo_2.7b": 2.651e9,
    "bloom_3b": 3.003e9,
    "bloom_7b": 7.069e9,
    "bloom_176b": 176.247e9,
    "bert_base": 109.5e6,
    "bert_large": 335.1e6,
    "t5_base": 222.9e6,
    "t5_large": 737.7e6,
    "t5_3b": 2.8516e9,
    "wide_resnet101_8": 1.5e9,
}
"""Of model cards and papers."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name: str) -> None:
    tolerance = 0.02 if name.startswith(("gpt3", "wide")) else 0.007
    assert MODELS[name].num_parameters == pytest.approx(PUBLISHED[name], rel=tolerance)


def test_a_wide_residual_network_is_torchvisions() -> None:
    """Whose factor 2 has 126.9 million parameters, and 22.8e9 multiply-adds for an image."""
    model = read_model("wide_resnet101_8", width_factor=2)
    assert model.num_parameters == pytest.approx(126_886_696 - 1000, abs=1)
    assert model.forward_flops == pytest.approx(2 * 22.75e9, rel=0.01)


def test_sizes_are_changed_by_name() -> None:
    model = read_model("llama2_7b", num_layers=2, sequence_length=128, vocab_size=100, precision="single")
    assert [count for count, _ in model.runs] == [1, 2, 1]
    assert model.runs[1][1].on(1).inputs == 128 * 4096
    assert model.precision is SINGLE
    assert read_model("swin_huge_32", layers_by_level=(1, 1)).layers[-1].num_parameters == 640 * 1000
    assert len(read_model("t5_3b", num_layers=4).layers) == 6


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("llama2_8b", {}, "model: 'llama2_8b' is not known; did you mean llama"),
        ("zzz", {}, "model: 'zzz' is not known; use one of gpt3_125m, "),
        ("gpt3_13b", {"num_layer": 2}, "num_layer: is no size of gpt3_13b; did you mean num_layers?"),
        ("gpt3_13b", {"num_layers": 0}, "num_layers: 0 is not a whole number of at least 1"),
        ("gpt3_13b", {"precision": "bf8"}, "precision: 'bf8' is not known; use one of half, bf16"),
        ("t5_3b", {"num_layers": 5}, "num_layers: 5 is not an even number of at least 2"),
        ("vit_huge_32", {"image_size": 225}, "image_size: 225 has no whole patches of 16"),
    ],
)
def test_a_wrong_name_is_told_in_one_line(name: Any, sizes: dict[str, Any], message: str) -> None:
    with told(PlacementError, message):
        read_model(name, **sizes)


RTX_TITAN = SHARED_DATA / "galvatron" / "rtx_titan_2022" / "profile_constants.json"
LLAMA = SHARED_DATA / "galvatron" / "llama2_2026" / "gpt" / "memory_profiling_bf16_llama2-7b_all.json"


@pytest.mark.skipif(not RTX_TITAN.exists(), reason="Galvatron's measured constants are not at hand")
@pytest.mark.parametrize(
    ("entry", "name", "tolerance"),
    [
        ("bert_1280_8gpus", "bert_huge_32", 0.015),
        ("bert_1024_8gpus", "bert_huge_32", 0.03),
        ("vit_1280_8gpus", "vit_huge_32", 0.06),
        ("vit_1024_8gpus", "vit_huge_32", 0.06),
    ],
)
def test_what_a_shared_layer_keeps_was_measured(entry: str, name: str, tolerance: float) -> None:
    """By tensor-parallel degree, in 32 bits; and the bytes of its weights."""
    measured = json.loads(RTX_TITAN.read_text())[entry]["mem"]
    layer = read_model(name, hidden_size=int(entry.split("_")[1])).runs[1][1]
    for degree, mib in measured["tp_activation_per_bsz_dict"].items():
        assert sum(layer.kept(SINGLE, int(degree))) / 2**20 == pytest.approx(mib, rel=tolerance)
    assert 4 * layer.num_parameters / 2**20 == pytest.approx(measured["parameter_size"], rel=0.03)


@pytest.mark.skipif(not LLAMA.exists(), reason="Galvatron's measured constants are not at hand")
def test_what_a_llamas_layer_keeps_was_measured() -> None:
    """As a multiple of its input, which is all that a recomputed one keeps."""
    measured = json.loads(LLAMA.read_text())

    def one_layer(key: str) -> float:
        found = measured[key]
        first, second = (found[f"layernum[{i}]_bsz8_seq2048_rank0_act"] for i in (1, 2))
        return float(second - first)

    layer = read_model("llama2_7b", sequence_length=2048).runs[1][1]
    ratio = sum(layer.kept(HALF, 1)) / (2 * layer.on(1).inputs)
    assert one_layer("1_1_8_sp") / one_layer("1_1_8_c_sp") == pytest.approx(ratio, rel=0.01)


GIGA_MACS = {"vgg16": 15.47, "alexnet": 0.71, "resnet50": 4.09}
"""Multiply-adds of one image of 224 by 224, as commonly published for these variants."""

VISION_PARAMETERS = {"vgg16": 138_357_544, "alexnet": 61_100_840, "resnet50": 25_557_032}


@pytest.mark.parametrize("model", VISION_MODELS)
def test_operations_and_parameters_are_the_published_ones(model: str) -> None:
    layers = VISION_MODELS[model]()
    assert sum(layer.forward_flops for layer in layers) / 2e9 == pytest.approx(GIGA_MACS[model], abs=0.005)
    assert sum(layer.num_parameters for layer in layers) == VISION_PARAMETERS[model]
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
