"""Models by name: published parameters and activations, changed sizes, and one-line errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_line_errors import raises_line
from places import SHARED_DATA

from experiments.reproduce.model_sizes import published_sizes
from placements import PlacementError
from placements.models.layers import HALF, SINGLE
from placements.models.training_figures import model_flops
from placements.models.zoo import MODELS, model_files, read_model

OTHER = {"t5_512_4_32": 0.20, "t5_512_4_48": 0.13}
"""Two activations are not those of the shape: the table's two rows leave 385 MB besides their layers."""


TABLE_I = published_sizes("Galvatron-BMW")


@pytest.mark.parametrize("name", TABLE_I)
def test_sizes_are_those_of_galvatrons_table_1(name: str) -> None:
    """Parameters, and MB of activations of a sample in 32 bits."""
    _, _, parameters, mib = TABLE_I[name]
    model = read_model(name, precision="single")
    assert model.num_parameters == pytest.approx(1e6 * parameters, rel=0.006)
    assert model.kept_bytes / 2**20 == pytest.approx(mib, rel=OTHER.get(name, 0.10))


FILES = [Path(model_files.__file__).with_name(f"{name}.yaml") for name in ("language", "images")]
PUBLISHED = {
    name: sizes["parameters"]
    for path in FILES
    for family in yaml.safe_load(path.read_text())
    for name, sizes in family["models"].items()
    if "parameters" in sizes
}
"""Of model cards and papers."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name: str) -> None:
    tolerance = 0.02 if name.startswith(("gpt3", "wide")) else 0.007
    assert MODELS[name].num_parameters == pytest.approx(PUBLISHED[name], rel=tolerance)


OWN = """
- source: made up
  shape: convolutional
  models:
    images: {layers: [{name: stem, kind: convolution, channels: 8}, {name: fc, kind: averaged, channels: 10}]}
- source: made up
  shape: decoder
  sizes: {hidden_size: 64, num_heads: 4, vocab_size: 100, sequence_length: 32}
  details: {norm_epsilon: 1.0e-5}
  models:
    small: {num_layers: 2}
    wrong: {num_layers: 0}
"""


def test_a_model_of_your_own_is_one_entry_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(OWN)
    assert read_model(f"{path}:images").num_parameters == (3 * 9 + 1) * 8 + (8 + 1) * 10
    small = read_model(f"{path}:small", num_layers=3)
    assert ([count for count, _ in small.runs], small.details.norm_epsilon) == ([1, 3, 1], 1e-5)
    with raises_line(PlacementError, f"{path}: model: 'smal' is not known; did you mean small?"):
        read_model(f"{path}:smal")
    with raises_line(PlacementError, f"{path}: model: '' is not known; use one of images, small, wrong"):
        read_model(str(path))
    with raises_line(PlacementError, f"{path}: num_layers: 0 is not a whole number of at least 1"):
        read_model(f"{path}:wrong")
    path.write_text(OWN.replace("kind: averaged", "kind: mean"))
    with raises_line(PlacementError, f"{path}: layers[1].kind: 'mean' is not"):
        read_model(f"{path}:images")


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
        ("gpt3_13b", {"num_layer": 2}, "num_layer: is no size of gpt3_13b; did you mean num_layers?"),
        ("gpt3_13b", {"num_layers": 0}, "num_layers: 0 is not a whole number of at least 1"),
        ("gpt3_13b", {"precision": "bf8"}, "precision: 'bf8' is not known; use one of half, bf16"),
        ("t5_3b", {"num_layers": 5}, "num_layers: 5 is not an even number of at least 2"),
        ("vit_huge_32", {"image_size": 225}, "image_size: 225 has no whole patches of 16"),
    ],
)
def test_a_wrong_name_is_told_in_one_line(name: Any, sizes: dict[str, Any], message: str) -> None:
    with raises_line(PlacementError, message):
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
        figures = measured[key]
        first, second = (figures[f"layernum[{i}]_bsz8_seq2048_rank0_act"] for i in (1, 2))
        return float(second - first)

    layer = read_model("llama2_7b", sequence_length=2048).runs[1][1]
    ratio = sum(layer.kept(HALF, 1)) / (2 * layer.on(1).inputs)
    assert one_layer("1_1_8_sp") / one_layer("1_1_8_c_sp") == pytest.approx(ratio, rel=0.01)


GIGA_MACS = {"vgg16": 15.47, "alexnet": 0.71, "resnet50": 4.09}
"""Multiply-adds of one image of 224 by 224, as commonly published for these variants."""


@pytest.mark.parametrize("model", GIGA_MACS)
def test_operations_are_the_published_ones(model: str) -> None:
    assert model_flops(MODELS[model]) / 6e9 == pytest.approx(GIGA_MACS[model], abs=0.005)
    assert len({layer.name for layer in MODELS[model].layers}) == len(MODELS[model].layers)


def test_outputs_are_what_the_next_layer_reads() -> None:
    vgg, alex, res = ([layer.output_elements() for layer in MODELS[name].layers] for name in GIGA_MACS)
    assert (len(vgg), vgg[:2], vgg[12]) == (16, [64 * 224**2, 64 * 112**2], 512 * 7**2)
    assert (len(alex), alex[:5]) == (8, [46656, 32448, 64896, 43264, 9216])
    sizes = [64 * 56**2, 256 * 56**2, 512 * 28**2, 1024 * 14**2, 2048 * 7**2, 2048 * 7**2]
    assert (len(res), [res[i] for i in (0, 1, 4, 8, 14, 16)]) == (18, sizes)
    assert [MODELS["resnet50"].layers[i].num_parameters for i in (1, 2)] == [75_008, 70_400]
