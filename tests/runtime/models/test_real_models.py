"""GPT in both directions, mT5 and Flava on Tessel's shapes, each against the model in one piece."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import check_cut, launched
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from placements import Block, Kind, Placement
from placements.shapes import k_shape, m_shape, nn_shape, v_shape, x_shape
from runtime.codegen.codegen import generate
from runtime.execution.measurement import ReferenceComparison
from runtime.models import (
    WHOLE,
    Model,
    ModelError,
    ModelOptions,
    fits,
    suitable_model,
    zoo_blocks,
)
from runtime.models.core.attention import Attention, CrossAttention
from runtime.models.core.parameters import Parameter, description_of
from runtime.models.model import replicated_parameters
from runtime.program.instructions import Programs
from runtime.program.lower import lower
from runtime.verify.reference import ReferenceCase, plain
from schedsearch.baselines import chimera

OPTIONS = ModelOptions(
    "gpt", hidden_size=8, sequence_length=5, micro_batch_size=2, num_layers=4, num_heads=4, seed=3
)


def nn_shape_with_output(num_devices: int) -> Placement:
    """Return an NN-shape whose output layer stands on all devices, tied to both embeddings."""
    everywhere = tuple(range(num_devices))
    half = num_devices // 2
    forward = [Block("E0", Kind.F, everywhere, 1)]
    forward += [Block(f"F{d}", Kind.F, (d,), 1) for d in range(half)]
    forward += [Block("E1", Kind.F, everywhere, 1)]
    forward += [Block(f"F{d}", Kind.F, (d,), 1) for d in range(half, num_devices)]
    forward += [Block("H", Kind.F, everywhere, 1)]
    backward = [Block(f"B{block.name}", Kind.B, block.devices, 1) for block in reversed(forward)]
    chain = forward + backward
    linked = [replace(block, after=(before.name,)) for block, before in zip(chain[1:], chain, strict=False)]
    return Placement("nn_shape_with_output", num_devices, (chain[0], *linked))


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


CASES = [
    (x_shape(3), "gpt"),
    (x_shape(2, split_backward=True), "gpt"),
    (nn_shape(3), "mt5"),
    (nn_shape_with_output(4), "mt5"),
    (k_shape(3), "flava"),
    (two_joins(2), "flava"),
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
    data = model.data(1)

    def loss() -> float:
        outputs: dict[str, Tensor] = {}
        for block in case.forward_blocks:
            before = [outputs[other] for other in placement.by_name[block].after]
            outputs[block] = model.forward(block, before, data.read(block, 0, 0)).detach()
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


def drawn(layer: nn.Module) -> dict[str, Tensor]:
    """Give a layer random values; return them by the names of its parameters in the model."""
    generator = torch.Generator().manual_seed(1)
    found = {}
    for value in layer.parameters():
        description = description_of(value)
        assert description is not None
        value.data = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        found[description.name] = value.detach()
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_torchs(causal: bool) -> None:
    layer = Attention("a", replace(OPTIONS, num_heads=2), causal)
    weights = drawn(layer)
    hidden = torch.randn(3, 5, 8, dtype=torch.float64)
    normal = torch.nn.functional.layer_norm(hidden, (8,), weights["a.norm.weight"], weights["a.norm.bias"])
    joint = torch.einsum("blc,chw->bhlw", normal, weights["a.in.weight"])
    query, key, value = (joint + weights["a.in.bias"][:, None]).chunk(3, dim=-1)
    mixed = scaled_dot_product_attention(query, key, value, is_causal=causal)
    expected = hidden + torch.einsum("bhlw,hwc->blc", mixed, weights["a.out.weight"])
    found = layer(hidden)
    torch.testing.assert_close(found, expected + weights["a.out.bias"])


def test_cross_attention_is_torchs() -> None:
    layer = CrossAttention("a", replace(OPTIONS, num_heads=2))
    weights = drawn(layer)
    memory, own = torch.randn(2, 3, 5, 8, dtype=torch.float64).unbind()
    normal = torch.nn.functional.layer_norm(own, (8,), weights["a.norm.weight"], weights["a.norm.bias"])
    query = torch.einsum("blc,chw->bhlw", normal, weights["a.query.weight"])
    key, value = torch.einsum("blc,chw->bhlw", memory, weights["a.memory.weight"]).chunk(2, dim=-1)
    mixed = scaled_dot_product_attention(query, key, value)
    expected = own + torch.einsum("bhlw,hwc->blc", mixed, weights["a.out.weight"])
    torch.testing.assert_close(layer(own, memory), expected + weights["a.out.bias"])


def test_two_directions_are_one_model_on_twice_the_micro_batches() -> None:
    both = plain(ReferenceCase(OPTIONS, x_shape(2), 3, 2))
    one = plain(ReferenceCase(OPTIONS, v_shape(2), 6, 2))
    for two_ways, one_way in zip(both, one, strict=True):
        pairs = zip(one_way.losses[::2], one_way.losses[1::2], strict=True)
        torch.testing.assert_close(two_ways.losses, tuple((a + b) / 2 for a, b in pairs), rtol=1e-13, atol=0)
        for shard, gradient in one_way.gradients.items():
            torch.testing.assert_close(two_ways.gradients[shard], gradient, rtol=1e-12, atol=1e-15)


def run(
    programs: Programs, directory: Path, name: str, launcher: str = "in_process", **model: object
) -> ReferenceComparison:
    """Run the scripts of programs, and compare."""
    options = replace(OPTIONS, name=name, **model)  # type: ignore[arg-type]
    generate(programs, {}, options.to_dict(), directory)
    found = launched(directory, programs.placement.num_devices, 2, launcher=launcher).comparison
    assert found is not None
    return found


@pytest.mark.parametrize(("dtype", "launcher"), [("float32", "fork"), ("bfloat16", "in_process")])
def test_chimera_is_bitwise_equal_in_other_types(dtype: str, launcher: str, tmp_path: Path) -> None:
    found = run(lower(chimera(x_shape(4), 4)), tmp_path, "gpt", launcher, dtype=dtype)
    assert found.bitwise_equal
    assert found.max_gradient_error < {"float32": 1e-4, "bfloat16": 0.3}[dtype]


@pytest.mark.parametrize(
    ("placement", "name", "message"),
    [
        (v_shape(2), "mt5", "mt5 needs a first forward block and one in the middle on the devices of"),
        (x_shape(2), "mt5", "mt5 needs one chain, x_shape has 2; use the model 'synthetic'"),
        (k_shape(2), "mt5", "mt5 needs a chain of forward blocks, where F1 branches"),
        (
            m_shape(3),
            "flava",
            "flava needs two branches and a join, m_shape is not so; use the model 'synthetic'",
        ),
        (
            k_shape(5),
            "flava",
            "num_heads: 4 cannot be cut over 5 devices; use at least 5, or the model 'synthetic'",
        ),
        (nn_shape(10), "mt5", "num_layers: 4 is fewer than the 5 stages of the encoder in nn_shape"),
    ],
    ids=ids,
)
def test_a_placement_that_does_not_fit_is_refused(placement: Placement, name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        zoo_blocks(placement, replace(OPTIONS, name=name))


def test_what_fits_is_chosen() -> None:
    assert suitable_model(x_shape()) == "gpt"
    assert suitable_model(nn_shape_with_output(2)) == "mt5"
    assert suitable_model(two_joins(2)) == "flava"
    assert suitable_model(k_shape(8), num_heads=8) == "flava"
    assert suitable_model(k_shape(8), num_heads=4) == "synthetic"
    assert not fits(k_shape(), "mt5") and not fits(nn_shape(), "flava")


def test_a_shared_parameter_cannot_be_cut_here_and_whole_there() -> None:
    class OneTable:
        def parameters(self, block: str) -> tuple[Parameter, ...]:
            return (Parameter("table", (4, 2)),)

    message = r"blocks on devices \(0,\) and on \(0, 1\) and on \(1,\) share table; only blocks on the"
    with pytest.raises(ModelError, match=message):
        replicated_parameters(OneTable(), m_shape(2))  # type: ignore[arg-type]
    assert replicated_parameters(OneTable(), v_shape(2)) == {((0,), (1,)): ["table"]}  # type: ignore[arg-type]
