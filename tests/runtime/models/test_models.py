"""The modules behind the blocks: cutting changes only the order of sums, and mistakes are named."""

from dataclasses import replace

import pytest
import torch
from small_runs import check_cut

from placements import Block, Kind, Placement
from placements.shapes import SHAPES, k_shape, m_shape, nn_shape, v_shape
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
from runtime.models.core.attention import Attention
from runtime.models.core.layers import Embedding, Output
from runtime.transport.shards import Shards
from runtime.verify.reference import ReferenceCase
from runtime.verify.replay import ReplayError, replay
from schedsearch.baselines import gpipe

OPTIONS = ModelOptions(
    "gpt", hidden_size=8, sequence_length=4, micro_batch_size=2, num_layers=5, num_heads=2, seed=3
)
SYNTHETIC = replace(OPTIONS, name="synthetic")


def m_shape_with_output(num_devices: int = 2) -> Placement:
    """Return an M-shape whose output layer stands on all devices too."""
    everywhere = tuple(range(num_devices))
    forward = [Block("E", Kind.F, everywhere, 1)]
    forward += [Block(f"F{d}", Kind.F, (d,), 1) for d in everywhere]
    forward += [Block("H", Kind.F, everywhere, 1)]
    backward = [Block(f"B{block.name}", Kind.B, block.devices, 1) for block in reversed(forward)]
    chain = forward + backward
    linked = [replace(block, after=(before.name,)) for block, before in zip(chain[1:], chain, strict=False)]
    return Placement("m_shape_with_output", num_devices, (chain[0], *linked))


CASES = [
    (m_shape(3), "gpt"),
    (m_shape_with_output(), "gpt"),
    (v_shape(3, split_backward=True), "gpt"),
    (nn_shape(3), "synthetic"),
    (k_shape(3), "synthetic"),
]


@pytest.mark.parametrize(("placement", "name"), CASES, ids=lambda value: getattr(value, "name", value))
def test_cut_model_equals_whole_model(placement: Placement, name: str) -> None:
    check_cut(ReferenceCase(replace(OPTIONS, name=name), placement, 3, 2))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_shards_make_up_the_full_tensor(count: int) -> None:
    placement = k_shape(2)
    whole = Model(SYNTHETIC, placement, {"J": WHOLE})
    full = {shard.name: value for shard, value in whole.parameters.items()}
    for index in range(count):
        cut = Model(SYNTHETIC, placement, {"J": Shards(index, count, lambda tensor: [tensor] * count)})
        assert {shard.num_shards for shard in cut.parameters} == {1, count}
        assert {shard.shard for shard in cut.parameters} == {0, index}
        for shard, value in cut.parameters.items():
            assert torch.equal(value, shard.of(full[shard.name]))


def test_initial_weights_depend_on_name_and_seed_only() -> None:
    ours = Model(OPTIONS, v_shape(2), {"F0": WHOLE}).parameters
    others = Model(OPTIONS, v_shape(4), {"F0": WHOLE, "F1": WHOLE, "F2": WHOLE}).parameters
    assert all(torch.equal(value, others[shard]) for shard, value in ours.items())
    other_seed = Model(replace(OPTIONS, seed=4), v_shape(2), {"F0": WHOLE}).parameters
    assert not any(torch.equal(value, other_seed[shard]) for shard, value in ours.items())


def test_micro_batches_differ_and_targets_follow_inputs() -> None:
    text = Text(OPTIONS, 4)
    seen = {tuple(text.micro_batch(i, n).inputs.flatten().tolist()) for i in range(3) for n in range(4)}
    assert len(seen) == 12
    tokens = text.micro_batch(1, 2)
    assert torch.equal(tokens.inputs[:, 1:], tokens.targets[:, :-1])
    assert tokens.inputs.shape == (2, 4)


def test_layers_are_shared_evenly() -> None:
    found = zoo_blocks(v_shape(3), OPTIONS)
    modules = [list(found[f"F{i}"].modules()) for i in range(3)]
    assert [sum(isinstance(each, Attention) for each in block) for block in modules] == [2, 2, 1]
    assert isinstance(found["F0"].start, Embedding) and isinstance(found["F2"].output, Output)


def test_embedding_and_output_are_tied_on_the_same_devices() -> None:
    tables = []
    for placement, last in ((m_shape_with_output(), "H"), (m_shape(), "F3")):
        body = body_of(OPTIONS, placement)
        named = [{each.name for each in body.parameters(block)} for block in ("E", last)]
        tables.append({name for name in named[0] & named[1] if name.endswith("tokens")})
    assert tables == [{"embedding.tokens"}, set()]


def test_suitable_models() -> None:
    found = {name: suitable_model(shape()) for name, shape in SHAPES.items()}
    assert found == {
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


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (k_shape(), "gpt needs a chain of forward blocks, where F2 branches; use the model 'synthetic'"),
        (nn_shape(), "gpt cannot run E1 in the middle on the devices of its neighbors and more; use"),
        (v_shape(6), "num_layers: 5 is fewer than the 6 stages of v_shape; use at least 6"),
    ],
    ids=["k", "nn", "layers"],
)
def test_gpt_refuses_what_it_cannot_be_cut_into(placement: Placement, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        zoo_blocks(placement, OPTIONS)


GOOD = {"name": "gpt", "hidden_size": 8, "sequence_length": 4, "micro_batch_size": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 3}, "unknown field 'hidden'"),
        ({"hidden_size": 0}, "model.hidden_size: 0 is not a whole number of at least 1"),
        ({"vocab_size": 100}, "model.vocab_size: 100 is not a whole number of at least 256"),
        ({"dtype": "int8"}, "model.dtype: 'int8' is not known; use float64"),
        ({"learning_rate": float("nan")}, "model.learning_rate: nan"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_options_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ModelOptions.from_dict(GOOD | change)


def test_missing_option_is_named() -> None:
    with pytest.raises(ModelError, match="lacks the field 'hidden_size'"):
        ModelOptions.from_dict({"name": "gpt"})


def test_wrong_name_heads_and_text_are_named() -> None:
    with pytest.raises(
        ModelError, match="'bert' is not a model; use gpt or mt5 or flava or moe or synthetic or module"
    ):
        zoo_blocks(v_shape(2), replace(OPTIONS, name="bert"))
    with pytest.raises(ModelError, match="3 does not divide hidden_size 8"):
        zoo_blocks(v_shape(2), replace(OPTIONS, num_heads=3))
    with pytest.raises(ModelError, match="missing.txt cannot be read"):
        Text(replace(OPTIONS, text="missing.txt"), 1)
    with pytest.raises(ModelError, match="give at least sequence_length"):
        Text(replace(OPTIONS, sequence_length=10_000), 1)


def test_orders_that_wait_for_each_other_have_no_replay() -> None:
    orders = [[("B0", 0), ("F0", 0)], [("F1", 0), ("B1", 0)]]
    with pytest.raises(ReplayError, match=r"wait for each other at \[\('B0', 0\), \('F1', 0\)\]"):
        next(replay(ReferenceCase(OPTIONS, v_shape(2), 1, 1), orders))


def test_devices_of_a_block_in_other_orders_have_no_replay() -> None:
    placement = m_shape(2)
    orders = [list(gpipe(placement, 2).order(device)) for device in range(2)]
    orders[1][:2] = reversed(orders[1][:2])
    assert [name for name, _ in orders[1][:2]] == ["E", "E"]
    with pytest.raises(ReplayError, match="wait for each other"):
        next(replay(ReferenceCase(OPTIONS, placement, 2, 1), orders))
