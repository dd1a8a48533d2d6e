"""Our models on Tessel's shapes, each against the model in one piece; and mistakes are named."""

from dataclasses import replace

import pytest
import torch
from small_runs import chain_of, check_cut
from torch import Tensor

from placements import Block, Kind, Placement
from placements.shapes import SHAPES, k_shape, m_shape, nn_shape, v_shape, x_shape
from runtime.models import (
    WHOLE,
    Model,
    ModelError,
    ModelOptions,
    Text,
    body_of,
    fits,
    suitable_model,
    zoo_blocks,
)
from runtime.verify.reference import ReferenceCase, plain
from runtime.verify.replay import ReplayError, replay
from schedsearch.baselines import gpipe

OPTIONS = ModelOptions(
    "gpt", hidden_size=8, sequence_length=5, micro_batch_size=2, num_layers=4, num_heads=4, seed=3
)


def two_joins(num_devices: int) -> Placement:
    """Return a K-shape whose cross-encoder is two blocks on all devices."""
    shape = k_shape(num_devices)
    everywhere = tuple(range(num_devices))
    blocks = [replace(block, memory=0) for block in shape.blocks if block.name != "JB"]
    back = [
        Block("K", Kind.F, everywhere, 1, 0, ("J",)),
        Block("KB", Kind.B, everywhere, 1, 0, ("K",)),
        Block("JB", Kind.B, everywhere, 1, 0, ("KB",)),
    ]
    return Placement("two_joins", num_devices, tuple(blocks + back))


ALL = (0, 1, 2, 3)
NN_WITH_OUTPUT = chain_of((ALL, 1), ((0,), 1), ((1,), 1), (ALL, 1), ((2,), 1), ((3,), 1), (ALL, 1))
"""An NN-shape whose output layer stands on all devices, tied to both embeddings."""

M_WITH_OUTPUT = chain_of(((0, 1), 1), ((0,), 1), ((1,), 1), ((0, 1), 1))
"""An M-shape whose output layer stands on all devices too."""

CASES = [
    (x_shape(3), "gpt"),
    (x_shape(2, split_backward=True), "gpt"),
    (nn_shape(3), "mt5"),
    (NN_WITH_OUTPUT, "mt5"),
    (k_shape(3), "flava"),
    (two_joins(2), "flava"),
    (M_WITH_OUTPUT, "gpt"),
    (v_shape(3, split_backward=True), "gpt"),
    (k_shape(3), "synthetic"),
]


def ids(value: object) -> str:
    return f"{value.name}_{value.num_devices}" if isinstance(value, Placement) else str(value)


@pytest.mark.parametrize(("placement", "name"), CASES, ids=ids)
def test_cut_model_equals_the_model_in_one_piece(placement: Placement, name: str) -> None:
    check_cut(ReferenceCase(replace(OPTIONS, name=name), placement, 3, 2))


@pytest.mark.parametrize(("placement", "name"), [(nn_shape(2), "mt5"), (k_shape(2), "flava")], ids=ids)
def test_gradient_is_the_slope_of_the_loss(placement: Placement, name: str) -> None:
    options = replace(OPTIONS, name=name, num_layers=1)
    case = ReferenceCase(options, placement, 1, 1)
    model = Model(options, placement, dict.fromkeys(case.forward_blocks, WHOLE))
    data = model.body.data(1, "cpu")

    def loss() -> float:
        outputs: dict[str, Tensor] = {}
        for block in case.forward_blocks:
            before = [outputs[other] for other in placement.by_name[block].after]
            sample, weights = data.read(block, 0, 0), model.weights(block)
            outputs[block] = model.forward(block, before, sample, weights).detach()
        return float(outputs[case.forward_blocks[-1]])

    (step,) = plain(case)
    for shard, weight in model.parameters.items():
        direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=weight.dtype)
        losses = []
        for far in (1e-5, -2e-5):
            with torch.no_grad():
                weight.add_(direction, alpha=far)
            losses.append(loss())
        with torch.no_grad():
            weight.add_(direction, alpha=1e-5)
        slope = float((step.gradients[shard] * direction).sum())
        assert abs((losses[0] - losses[1]) / 2e-5 - slope) < 1e-7, shard.name


def test_two_directions_are_one_model_on_twice_the_micro_batches() -> None:
    both = plain(ReferenceCase(OPTIONS, x_shape(2), 3, 2))
    one = plain(ReferenceCase(OPTIONS, v_shape(2), 6, 2))
    for two_ways, one_way in zip(both, one, strict=True):
        pairs = zip(one_way.losses[::2], one_way.losses[1::2], strict=True)
        torch.testing.assert_close(two_ways.losses, tuple((a + b) / 2 for a, b in pairs), rtol=1e-13, atol=0)
        for shard, gradient in one_way.gradients.items():
            torch.testing.assert_close(two_ways.gradients[shard], gradient, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("placement", "name", "message"),
    [
        (v_shape(2), "mt5", "mt5 needs a first forward block and one in the middle on the devices of"),
        (k_shape(2), "mt5", "mt5 needs a chain of forward blocks, where F1 branches"),
        (
            m_shape(3),
            "flava",
            "flava needs two branches and a join, m_shape is not so; use the model 'synthetic'",
        ),
        (nn_shape(10), "mt5", "num_layers: 4 is fewer than the 5 stages of the encoder in nn_shape"),
        (k_shape(), "gpt", "gpt needs a chain of forward blocks, where F2 branches; use the model"),
        (nn_shape(), "gpt", "gpt cannot run E1 in the middle on the devices of its neighbors and more; use"),
        (v_shape(6), "gpt", "num_layers: 4 is fewer than the 6 stages of v_shape; use at least 6"),
    ],
    ids=ids,
)
def test_a_placement_that_does_not_fit_is_refused(placement: Placement, name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        zoo_blocks(placement, replace(OPTIONS, name=name))


def test_what_fits_is_chosen() -> None:
    assert suitable_model(NN_WITH_OUTPUT) == "mt5"
    assert suitable_model(two_joins(2)) == "flava"
    assert suitable_model(k_shape(8), num_heads=8) == "flava"
    assert suitable_model(k_shape(8), num_heads=4) == "synthetic"
    assert not fits(k_shape(), "mt5") and not fits(nn_shape(), "flava")
    chosen = {name: suitable_model(shape()) for name, shape in SHAPES.items()}
    assert chosen == {
        "v_shape": "gpt",
        "x_shape": "gpt",
        "m_shape": "gpt",
        "nn_shape": "mt5",
        "k_shape": "flava",
        "wave_shape": "gpt",
        "loop_shape": "gpt",
    }
    assert not fits(v_shape(), "bert")
    assert fits(v_shape(), "synthetic")


GPT = ModelOptions(
    "gpt", hidden_size=8, sequence_length=4, micro_batch_size=2, num_layers=5, num_heads=2, seed=3
)


def test_micro_batches_differ_and_targets_follow_inputs() -> None:
    text = Text(GPT, 4)
    seen = {tuple(text.micro_batch(i, n).inputs.flatten().tolist()) for i in range(3) for n in range(4)}
    assert len(seen) == 12
    tokens = text.micro_batch(1, 2)
    assert torch.equal(tokens.inputs[:, 1:], tokens.targets[:, :-1])
    assert tokens.inputs.shape == (2, 4)


def test_embedding_and_output_are_tied_on_the_same_devices() -> None:
    tables = []
    for placement, first, last in ((M_WITH_OUTPUT, "F0", "F3"), (m_shape(), "E", "F3")):
        body = body_of(GPT, placement)
        named = [{weight.name for weight in body.parameters(block)} for block in (first, last)]
        tables.append({name for name in named[0] & named[1] if name.endswith("tokens")})
    assert tables == [{"embedding.tokens"}, set()]


GOOD = {"name": "gpt", "hidden_size": 8, "sequence_length": 4, "micro_batch_size": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 3}, "unknown field 'hidden'"),
        ({"hidden_size": None}, "lacks the field 'hidden_size'"),
        ({"hidden_size": 0}, "model.hidden_size: 0 is not a whole number of 1 or more"),
        ({"dtype": "int8"}, "model.dtype: 'int8' is not known; use one of float64"),
        ({"learning_rate": float("nan")}, "model.learning_rate: nan"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_options_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ModelOptions.from_dict({name: value for name, value in (GOOD | change).items() if value is not None})


def test_wrong_name_heads_and_text_are_named() -> None:
    with pytest.raises(
        ModelError, match="'bert' is not a model; use gpt or mt5 or flava or moe or synthetic or module"
    ):
        zoo_blocks(v_shape(2), replace(GPT, name="bert"))
    with pytest.raises(ModelError, match="3 does not divide hidden_size 8"):
        zoo_blocks(v_shape(2), replace(GPT, num_heads=3))
    with pytest.raises(ModelError, match="missing.txt cannot be read"):
        Text(replace(GPT, text="missing.txt"), 1)
    with pytest.raises(ModelError, match="give at least sequence_length"):
        Text(replace(GPT, sequence_length=10_000), 1)


def test_devices_of_a_block_in_other_orders_have_no_replay() -> None:
    placement = m_shape(2)
    orders = [list(gpipe(placement, 2).order(device)) for device in range(2)]
    orders[1][:2] = reversed(orders[1][:2])
    assert [name for name, _ in orders[1][:2]] == ["E", "E"]
    with pytest.raises(ReplayError, match="wait for each other"):
        next(replay(ReferenceCase(GPT, placement, 2, 1), {0: orders}))
