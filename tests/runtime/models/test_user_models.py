"""A user's own model runs like ours: bit for bit its replay, and wrong files are refused in one line."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from one_line_errors import raises_line
from places import CNN
from small_runs import NETWORK, TIED, compared, require_equal, require_exact, trained
from torch import nn

from placements import Block, Kind, Placement
from placements.shapes import m_shape, v_shape, x_shape
from runtime.models import WHOLE, Model, ModelError, ModelOptions, body_of, traced
from runtime.program.lower import lower, recomputed
from runtime.verify.reference import ReferenceCase, plain
from schedsearch.baselines import gpipe, one_f_one_b

HEAD = """
import torch
from torch import nn
from torch.nn.functional import mse_loss as loss
"""

MLP = (
    HEAD
    + """
class OwnNorm(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first = first
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("variance", torch.ones(6))
    def forward(self, values):
        return nn.functional.batch_norm(self.first(values), self.mean, self.variance, training=True)

def build(block):
    first = nn.Linear(3, 6) if block in FIRST else nn.Linear(6, 6)
    return nn.Sequential(first, nn.Dropout(0.2), nn.Tanh())

FIRST = ("F0",)

def data(iteration, micro_batch):
    values = torch.full((2, 3), 0.1 * iteration + micro_batch) + torch.randn(2, 3)
    return values, values.sum(1, keepdim=True).expand(2, 6)
"""
)

NOTHING_TO_TRAIN = MLP.replace(
    "    return nn.Sequential(first, ",
    "    return nn.Sequential(first if block in FIRST else nn.Identity(), ",
)
"""Of the blocks only the first has parameters."""

READS_LATER = (
    HEAD
    + """
class Scaled(nn.Linear):
    input_names = ("scale",)
    def forward(self, hidden, scale):
        return super().forward(hidden) * scale

def blocks():
    return {"F0": nn.Linear(3, 3), "F1": Scaled(3, 3), "F2": nn.Linear(3, 3)}

def data(iteration, micro_batch):
    return {"F0": torch.randn(4, 3), "F1": torch.randn(4, 1)}, torch.randn(4, 3)
"""
)
"""A block with another before it reads inputs too."""

TWO_WAYS = (
    HEAD
    + """
def blocks():
    stages = [nn.Linear(3, 3), nn.Sequential(nn.Tanh(), nn.Linear(3, 3))]
    return {"F0": stages[0], "F1": stages[1], "G1": stages[0], "G0": stages[1]}

def data(iteration, micro_batch):
    values = torch.randn(4, 3)
    return values, values.flip(1)
"""
)

BRANCHES = (
    HEAD
    + """
def blocks():
    return {"F0": nn.Linear(3, 4), "F1": nn.Linear(5, 2), "J": nn.Bilinear(4, 2, 3)}

def data(iteration, micro_batch):
    return {"F0": torch.randn(2, 3), "F1": torch.randn(2, 5)}, torch.randn(2, 3)
"""
)


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., ModelOptions]:
    """Return a function that writes a file and returns the options of its model."""

    def make(text: str, **more: object) -> ModelOptions:
        path = tmp_path / "model.py"
        path.write_text(text)
        return ModelOptions("module", path=str(path), **more)  # type: ignore[arg-type]

    return make


def join_on_one_device() -> Placement:
    """Return two branches on two devices, and their join on a third."""
    blocks = (
        Block("F0", Kind.F, (0,), 1),
        Block("F1", Kind.F, (1,), 1),
        Block("J", Kind.F, (2,), 1, 0, ("F0", "F1")),
        Block("JB", Kind.B, (2,), 1, 0, ("J",)),
        Block("B0", Kind.B, (0,), 1, 0, ("JB",)),
        Block("B1", Kind.B, (1,), 1, 0, ("JB",)),
    )
    return Placement("join", 3, blocks)


@pytest.mark.parametrize(
    ("dtype", "launcher", "again"),
    [("float64", "in_process", "all"), ("float32", "fork", ()), ("bfloat16", "in_process", ())],
)
def test_the_example_is_bitwise_equal_in_every_type(
    dtype: str, launcher: str, again: str | Sequence[str]
) -> None:
    """In the order of the micro-batches there is one order of sums: then it is also the plain model's.

    Its dropout falls the same way again where blocks are computed again.
    """
    options = ModelOptions("module", path=str(CNN), dtype=dtype)
    require_exact(compared(recomputed(lower(one_f_one_b(v_shape(), 5)), again), options, launcher))


OWN = {
    "dropout": (MLP, v_shape(3)),
    "split_backward": (MLP, v_shape(2, split_backward=True)),
    "tied": (TIED, v_shape(3)),
    "two_ways": (TWO_WAYS, x_shape(2)),
    "reads_later": (READS_LATER, v_shape(3)),
    "branches": (BRANCHES, join_on_one_device()),
    "inference": (MLP, v_shape(2, inference=True)),
    "nothing_to_train_split": (NOTHING_TO_TRAIN, v_shape(3, split_backward=True)),
}


@pytest.mark.parametrize(("text", "placement"), OWN.values(), ids=OWN)
def test_devices_equal_the_model_in_one_piece(
    text: str, placement: Placement, options: Callable[..., ModelOptions]
) -> None:
    require_equal(compared(lower(gpipe(placement, 3)), options(text)))


def test_random_numbers_depend_on_the_block_and_its_micro_batch(options: Callable[..., ModelOptions]) -> None:
    body = body_of(options(MLP), v_shape(2))
    data = body.data(2, "cpu")
    seeds = {data.read(block, i, n).seed for block in ("F0", "F1") for i in (0, 1) for n in (0, 1)}
    assert len(seeds) == 8
    again = body_of(options(MLP), v_shape(2)).data(2, "cpu").read("F0", 1, 1)
    assert again.seed in seeds and torch.equal(again.inputs[0], data.read("F0", 1, 1).inputs[0])
    other = body_of(options(MLP, seed=1), v_shape(2)).data(2, "cpu").read("F0", 1, 1)
    assert not torch.equal(again.inputs[0], other.inputs[0])


def changed(before: str, after: str, text: str = MLP) -> str:
    assert before in text
    return text.replace(before, after)


@pytest.mark.parametrize(
    ("text", "placement", "message"),
    [
        (MLP, m_shape(2), "module: E stands on devices 0, 1, but a user's module runs on one; put it on one"),
        (changed("return nn", "return 3 #"), v_shape(2), "makes no torch module for block F0, but int"),
        (changed('("F0",)', "()"), v_shape(2), r"F0 fails with tensors of shapes \[\(2, 3\)\]: RuntimeError"),
        (changed("def data", "def date"), v_shape(2), r"must define data\(iteration, micro_batch\), and"),
        (changed("return values, ", "return "), v_shape(2), r"returned a Tensor; return the pair"),
        (
            changed("mse_loss as loss", "mse_loss"),
            v_shape(2),
            r"F1 fails .* takes 2 positional arguments .* or define loss\(output, targets\)$",
        ),
        (
            changed("mse_loss as loss", "mse_loss\n\ndef loss(output, target): return output\n"),
            v_shape(2),
            "it must return one scalar loss",
        ),
        (changed("return nn", "raise SystemExit(0) #"), v_shape(2), "model.py fails with SystemExit: 0"),
        (
            changed("return values, ", 'return {"F0": values, "F1": values}, '),
            v_shape(2),
            "has inputs for F1, which no block reads; give those of F0 alone, and let blocks hand on",
        ),
        (MLP + "\n\ndef blocks(): return {}", v_shape(2), r"either build\(block\) or blocks\(\)"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    text: str, placement: Placement, message: str, options: Callable[..., ModelOptions]
) -> None:
    with raises_line(ModelError, match=message):
        body_of(options(text), placement)


HANDS_OVER_TOKENS = (
    HEAD
    + """
from runtime.models import cut
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.last = nn.Embedding(5, 4), nn.Linear(4, 5)
    def forward(self, tokens):
        return self.last(self.embed(tokens)) + {later}

def blocks():
    return dict(zip(["F0", "F1"], cut(Model(), at=["last"])))

def data(iteration, micro_batch):
    return torch.arange(3), torch.arange(3)

loss = nn.functional.cross_entropy
"""
)


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (
            "later = tokens.unsqueeze(1).to_sparse()",
            "F0's output 1 of 2 is torch.sparse_coo of .*; only dense tensors can be handed over",
        ),
        (
            "later = tokens.size(0)",
            "F0's output 1 of 2 is of type int; only tensors can be handed over: cut elsewhere",
        ),
    ],
)
def test_what_cannot_be_handed_over_is_named(
    before: str, message: str, options: Callable[..., ModelOptions]
) -> None:
    text = changed(
        "        return self.last", f"        {before}\n        return self.last", HANDS_OVER_TOKENS
    )
    with pytest.raises(ModelError, match=message):
        body_of(options(text.replace("{later}", "later")), v_shape(2))


def test_shapes_that_change_are_refused(options: Callable[..., ModelOptions]) -> None:
    text = changed("(2, 3)", "(2 + micro_batch, 3)").replace("expand(2, 6)", "expand(2 + micro_batch, 6)")
    text = text.replace("torch.randn(2 + micro_batch, 3)", "0")
    with pytest.raises(ModelError, match=r"F0 returned (\w+) \(3, 6\), and \1 \(2, 6\) was expected"):
        list(plain(ReferenceCase(options(text), v_shape(2), 2, 1)))


def test_tokens_and_masks_travel_beside_hidden_values(options: Callable[..., ModelOptions]) -> None:
    later = "tokens.unsqueeze(1) * (tokens > 1).unsqueeze(1) * (tokens.half() / 3).unsqueeze(1)"
    text = HANDS_OVER_TOKENS.replace("{later}", later)
    for dtype in ("float64", "float32", "bfloat16"):
        require_exact(compared(lower(one_f_one_b(v_shape(2), 3)), options(text, dtype=dtype)))


COUNTED = (
    HEAD
    + """
import os
from pathlib import Path

FOLDER = Path(__file__).parent

def build(block):
    with open(FOLDER / f"built_{os.getpid()}", "a") as file:
        file.write(block + " ")
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1))

def data(iteration, micro_batch):
    return torch.randn(4, 3), torch.randn(4, 3)
"""
)


def test_a_process_builds_its_own_blocks_alone(options: Callable[..., ModelOptions], tmp_path: Path) -> None:
    """Shapes are found when the scripts are generated, and not by a process of the run."""
    programs = lower(one_f_one_b(v_shape(3), 4))
    assert trained(programs, options(COUNTED), launcher="fork", verify="none").comparison is None
    built = {path.name: path.read_text().split() for path in tmp_path.glob("built_*")}
    assert built.pop(f"built_{os.getpid()}") == ["F0", "F1", "F2"]
    assert sorted(built.values()) == [["F0"], ["F1"], ["F2"]]


def test_any_cut_gives_the_same_weights_and_losses(options: Callable[..., ModelOptions]) -> None:
    weights, losses = [], []
    for at in (["layers.1"], ["layers.0", "layers.3", "head"]):
        model = options(NETWORK + f"\nAT = {at}\n")
        placement = v_shape(len(at) + 1)
        known = traced(model, placement)
        assert known.handed_over is not None
        by_name: dict[str, torch.Tensor] = {}
        for block in (f"F{i}" for i in range(len(at) + 1)):  # each as the only one of a process
            part = Model(known, placement, {block: WHOLE})
            shards, modules = part.parameters, nn.ModuleDict(dict(part.body.modules))
            held = [value for value in modules.parameters() if value.untyped_storage().nbytes()]
            assert len(held) == len(shards), "of other blocks' weights nothing is kept"
            by_name |= {shard.name.partition(".")[2]: weight for shard, weight in shards.items()}
        weights.append(by_name)
        losses.append(trained(lower(one_f_one_b(placement, 4)), model).losses)
    first, other = weights
    assert len(first) == 4 + 2 * 4  # with the table, which two blocks share
    assert other.keys() == first.keys()
    assert all(torch.equal(other[name], first[name]) for name in first)
    assert losses[0] == losses[1]


def test_the_options_of_a_module_are_its_own() -> None:
    options = ModelOptions.from_dict({"name": "module", "path": "a.py"})
    assert options.to_dict() == {
        "name": "module",
        "dtype": "float64",
        "seed": 0,
        "learning_rate": 0.1,
        "path": "a.py",
        "optimizer": "sgd",
        "weight_decay": 0.0,
    }
    with pytest.raises(ModelError, match="model.path: a module needs the path of its Python file"):
        ModelOptions.from_dict({"name": "module"})
    with pytest.raises(ModelError, match="model.path: gpt reads no file; use the model 'module'"):
        ModelOptions("gpt", path="a.py")
    with pytest.raises(ModelError, match="none.py is not a file"):
        body_of(ModelOptions("module", path="none.py"), v_shape(2))


def test_the_readme_shows_the_example() -> None:
    assert f"```python\n{CNN.read_text()}```" in (CNN.parents[1] / "docs/concepts/own_model.md").read_text()
