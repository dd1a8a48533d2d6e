"""How many layers each block has: as given, of the same model as ever, and mistakes named."""

from dataclasses import replace

import pytest
import torch
from one_line_errors import raises_line
from small_runs import compared, require_equal

from placements import Block, Kind, Placement
from placements.shapes import k_shape, nn_shape, v_shape, x_shape
from runtime.models import ModelError, ModelOptions, body_of, zoo_blocks
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.verify.reference import ReferenceCase, plain
from schedsearch.baselines import gpipe

OPTIONS = ModelOptions("gpt", hidden_size=8, sequence_length=5, micro_batch_size=2, num_heads=2, seed=3)
TWO_IN_A_STAGE = Placement(
    "two_in_a_stage",
    4,
    (
        Block("F0", Kind.F, (0, 1), 1, data_parallel=2),
        Block("F1", Kind.F, (0, 1), 1, after=("F0",)),
        Block("F2", Kind.F, (2, 3), 1, after=("F1",)),
        Block("B2", Kind.B, (2, 3), 1, after=("F2",)),
        Block("B1", Kind.B, (0, 1), 1, after=("B2",)),
        Block("B0", Kind.B, (0, 1), 1, after=("B1",), data_parallel=2),
    ),
)
"""A chain whose first devices run one block in two groups, and one cut over both."""

CASES = {
    "v": (v_shape(3), "gpt", {"F0": 3, "F1": 1, "F2": 2}),
    "two_in_a_stage": (TWO_IN_A_STAGE, "gpt", {"F0": 1, "F1": 3, "F2": 2}),
    "x": (x_shape(2), "gpt", {"F0": 3, "F1": 1, "G1": 2, "G0": 2}),
    "nn": (nn_shape(4), "mt5", {"F0": 1, "F1": 2, "F2": 3, "F3": 1}),
    "k": (k_shape(2), "flava", {"F0": 2, "F1": 1, "J": 3}),
}


def of(name: str, counts: dict[str, int]) -> ModelOptions:
    return replace(OPTIONS, name=name, num_layers=None, layers_per_block=counts)


def layer_names(placement: Placement, options: ModelOptions) -> dict[str, list[str]]:
    """Return the names of the transformer layers of each block, in order, by their perceptrons."""
    layers = {}
    body = body_of(options, placement)
    for block in body.names:
        names = [parameter.name for parameter in body.parameters(block)]
        inside = [name.partition(".feed_forward.")[0] for name in names if ".feed_forward." in name]
        layers[block] = list(dict.fromkeys(inside))
    return layers


@pytest.mark.parametrize(("placement", "name", "counts"), CASES.values(), ids=CASES)
def test_devices_equal_the_model_in_one_piece(
    placement: Placement, name: str, counts: dict[str, int]
) -> None:
    options = of(name, counts)
    num_layers = {block: len(names) for block, names in layer_names(placement, options).items()}
    assert {block: count for block, count in num_layers.items() if count} == counts
    require_equal(compared(check(lower(gpipe(placement, 2))), options))


def test_the_whole_model_does_not_depend_on_where_its_layers_are() -> None:
    """Uneven stages train the same parameters to the same bits; with another sum it is another model."""
    even = plain(ReferenceCase(replace(OPTIONS, num_layers=4), v_shape(2), 2, 2))
    uneven = plain(ReferenceCase(of("gpt", {"F0": 3, "F1": 1}), v_shape(2), 2, 2))
    other = plain(ReferenceCase(of("gpt", {"F0": 3, "F1": 2}), v_shape(2), 2, 2))
    for ours, theirs, others in zip(uneven, even, other, strict=True):
        assert ours.losses == theirs.losses != others.losses
        assert ours.gradients.keys() == theirs.gradients.keys() < others.gradients.keys()
        assert all(torch.equal(ours.gradients[key], theirs.gradients[key]) for key in ours.gradients)


def test_options_are_read_back() -> None:
    options = of("gpt", {"F0": 2, "F1": 1})
    data = options.to_dict()
    assert data["layers_per_block"] == {"F0": 2, "F1": 1} and "num_layers" not in data
    assert ModelOptions.from_dict(data) == options
    assert "layers_per_block" not in OPTIONS.to_dict()
    assert OPTIONS.num_layers == 1


@pytest.mark.parametrize(
    ("placement", "name", "counts", "message"),
    [
        (v_shape(2), "gpt", {"F0": 1, "F9": 1}, "'F9' is not there in v_shape; give F0, F1"),
        (v_shape(2), "gpt", {"F0": 1, "B1": 1}, "'B1' holds no layers in v_shape; give F0, F1"),
        (v_shape(3), "gpt", {"F1": 1}, "lacks F0, F2; give each of F0, F1, F2 its number of layers"),
        (
            x_shape(2),
            "gpt",
            {"F0": 1, "F1": 1, "G1": 2, "G0": 1},
            "the chain from G1 has 3 layers, that from F0 2, of which it is a replica; give both as many",
        ),
    ],
    ids=str,
)
def test_counts_of_other_blocks_are_refused(
    placement: Placement, name: str, counts: dict[str, int], message: str
) -> None:
    with raises_line(ModelError, "model.layers_per_block: ", has=message):
        zoo_blocks(placement, of(name, counts))


@pytest.mark.parametrize(
    ("case", "num_layers", "message"),
    [
        ("v", 5, "gives v_shape 6 layers, where num_layers makes it 5; change one, or leave num_layers out"),
        ("nn", 4, "gives the encoder in nn_shape 3 layers, where num_layers makes it 4; change one"),
    ],
)
def test_another_sum_is_refused(case: str, num_layers: int, message: str) -> None:
    placement, name, counts = CASES[case]
    with pytest.raises(ModelError, match=f"^model.layers_per_block: {message}"):
        zoo_blocks(placement, replace(of(name, counts), num_layers=num_layers))


@pytest.mark.parametrize(
    ("name", "counts", "message"),
    [
        ("gpt", [2, 1], r": \[2, 1\] is not a mapping"),
        ("gpt", {"F0": 0}, ".F0: 0 is not a whole number of 1 or more"),
        ("synthetic", {"F0": 1}, ": synthetic has no transformer layers to share"),
    ],
)
def test_wrong_counts_are_named(name: str, counts: object, message: str) -> None:
    with pytest.raises(ModelError, match=f"^model.layers_per_block{message}"):
        replace(OPTIONS, name=name, layers_per_block=counts)  # type: ignore[arg-type]
