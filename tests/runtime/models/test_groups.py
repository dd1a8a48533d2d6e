"""Blocks on several devices, tensor parallel and in data-parallel groups, against the model in one piece."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from one_line_errors import raises_line
from places import ROOT
from small_runs import (
    TIED,
    chain_of,
    compared,
    comparison_of,
    launched,
    on_gpus,
    require_equal,
    summed_copies,
)

from placements import Block, Kind, Placement, PlacementError
from placements.shapes import k_shape, m_shape, nn_shape, v_shape, x_shape
from runtime.codegen.codegen import generate
from runtime.models import Blocks, Model, ModelError, ModelOptions, body_of, suitable_model, zoo_blocks
from runtime.models.model import replicated_parameters
from runtime.program.data_parallel import in_shares
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Instruction, Receive, Send
from runtime.program.lower import Route, lower, messages, recomputed
from runtime.program.tensor_flow import UnrunnablePlacementError, pair_backward
from runtime.transport.in_memory import MemoryTransport, Network
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.validate import validate

OPTIONS = ModelOptions(
    "gpt", hidden_size=8, sequence_length=5, micro_batch_size=4, num_layers=4, num_heads=4, seed=3
)
CNN = (ROOT / "examples/cnn.py").read_text()


def in_groups(placement: Placement, **groups: int) -> Placement:
    """Return the placement with data-parallel groups for the named forward blocks and their backwards."""
    pairs = pair_backward(placement)
    blocks = (
        replace(block, data_parallel=groups.get(pairs.get(block.name, block.name), 1))
        for block in placement.blocks
    )
    return replace(placement, blocks=tuple(blocks))


BOTH_TO_DATA = chain_of(((0, 1, 2, 3), 2), ((4, 5), 2))
BOTH_TO_TENSOR = chain_of(((0, 1, 2, 3), 2), ((4, 5), 1))
ONE_TO_ALL = chain_of(((0,), 1), ((0, 1, 2, 3), 4), ((3,), 1))
STEPS = chain_of(((0, 1, 2, 3), 4), ((0, 1, 2, 3), 2), ((0, 1, 2, 3), 1))
OVERLAPPING = chain_of(((0, 1), 2), ((1, 2), 2))

CASES = {
    "v_both": (on_gpus(v_shape(2), 4, 2), "gpt"),
    "v_uneven_shards": (on_gpus(v_shape(1), 6, 2), "gpt"),
    "v_split_backward": (on_gpus(v_shape(2, split_backward=True), 2, 2), "gpt"),
    "both_to_data": (BOTH_TO_DATA, "gpt"),
    "both_to_tensor": (BOTH_TO_TENSOR, "gpt"),
    "one_to_all": (ONE_TO_ALL, "synthetic"),
    "steps": (STEPS, "gpt"),
    "overlapping": (OVERLAPPING, "gpt"),
    "m_stages_in_groups": (in_groups(on_gpus(m_shape(2), 2), F0=2, F1=2), "gpt"),
    "x_data": (on_gpus(x_shape(2), 2, 2), "gpt"),
    "nn_data": (on_gpus(nn_shape(2), 2, 2), "mt5"),
    "k_branch_in_groups": (in_groups(on_gpus(k_shape(2), 2), F1=2), "flava"),
}


@pytest.mark.parametrize(("placement", "name"), CASES.values(), ids=CASES)
def test_devices_equal_the_model_in_one_piece(placement: Placement, name: str) -> None:
    require_equal(compared(check(lower(gpipe(placement, 3))), replace(OPTIONS, name=name)))


def test_replicas_stay_replicas() -> None:
    """After every step each group has the same bits, in float32 too, where sums of another order differ."""
    placement = chain_of(((0, 1, 2, 3, 4, 5), 3))
    options = replace(OPTIONS, micro_batch_size=6, dtype="float32", optimizer="adamw")
    network = Network(6)
    models = [model_on(device, network, options, placement) for device in range(6)]
    assert models[0].replicas.keys() == {((0, 1), (2, 3), (4, 5))}
    assert models[0].teams_of_replicas() == [(0, 2, 4), (1, 3, 5)]
    blocks = [Blocks(placement, model, 2) for model in models]
    weights = [list(model.parameters.values()) for model in models]

    def train(device: int, iteration: int) -> list[torch.Tensor]:
        blocks[device].begin(iteration)
        for n in range(2):
            blocks[device].run("F0", n, [])
            blocks[device].run("B0", n, [])
        gradients = [weight.grad.clone() for weight in weights[device]]
        summed_copies(models[device], network, device)
        models[device].step()
        return gradients

    for iteration in range(3):
        gradients = network.run([partial(train, device, iteration) for device in range(6)])
        for device in range(2, 6):
            assert not all(map(torch.equal, gradients[device % 2], gradients[device]))
            assert all(map(torch.equal, weights[device % 2], weights[device]))


def test_replicas_are_summed_in_one_order_on_all_shards() -> None:
    """By the teams, not by the devices, of which the second shards stand in the other order here."""
    teams, options = ((0, 5), (1, 4), (2, 3)), replace(OPTIONS, dtype="float32", num_layers=1)
    forward = [Block(f"F{i}", Kind.F, team, 1) for i, team in enumerate(teams)]
    backward = [Block(f"B{i}", Kind.B, team, 1, after=(f"F{i}",)) for i, team in enumerate(teams)]
    placement, network = Placement("three_replicas", 6, (*forward, *backward)), Network(6)
    models = [model_on(device, network, options, placement) for device in range(6)]

    def summed(device: int) -> torch.Tensor:
        team = next(i for i, team in enumerate(teams) if device in team)
        weight = models[device].trained(f"F{team}")["output.norm.weight"]
        weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(team))
        summed_copies(models[device], network, device)
        return weight.grad

    first, *others = network.run([partial(summed, device) for device in range(6)])
    assert all(torch.equal(first, other) for other in others)


def model_on(device: int, network: Network, options: ModelOptions, placement: Placement) -> Model:
    transport = MemoryTransport.of(network, placement, (), device)
    return Model(options, placement, transport.shards, groups=transport.groups)


def test_processes_with_adamw_recompute_and_checkpoints(tmp_path: Path) -> None:
    """Between processes, of which groups exchange shares, as in memory, and resumed to the same bits."""
    options = replace(OPTIONS, optimizer="adamw")
    kept = lower(one_f_one_b(in_groups(replace(v_shape(2), num_gpus=(2, 2)), F0=2), 4))
    programs = check(recomputed(kept, "all"))
    generate(programs, {}, options.to_dict(), tmp_path / "scripts")
    checkpoints = {"checkpoint_every": 1, "checkpoints": tmp_path / "all"}
    runs = [
        launched(tmp_path / "scripts", 4, 2, launcher=launcher, **checkpoints)  # type: ignore[arg-type]
        for launcher in ("fork", "in_process")
    ]
    assert runs[0].losses == runs[1].losses
    assert comparison_of(runs[0]) == comparison_of(runs[1])
    assert comparison_of(runs[0]).bitwise_equal
    again = launched(tmp_path / "scripts", 4, 3, launcher="fork", resume=tmp_path / "all")
    assert (again.first_iteration, again.iterations) == (2, 1)
    assert comparison_of(again).bitwise_equal


def test_a_schedule_of_devices_is_one_of_gpus() -> None:
    placement = replace(v_shape(2).with_memory(2), num_gpus=(2, 4))
    schedule = one_f_one_b(in_groups(placement, F0=2, F1=4), 4)
    by_gpu = validate(replace(schedule, placement=schedule.placement.by_gpu))
    assert lower(schedule) == lower(by_gpu)
    assert lower(schedule).placement.num_devices == 6


@pytest.mark.parametrize(
    ("placement", "shares", "expected"),
    [
        (chain_of(((0, 1), 2), ((2, 3), 2)), True, [(0, 2), (1, 3)]),
        (chain_of(((0, 1), 2), ((0, 1), 2)), True, []),
        (chain_of(((0, 1, 2, 3), 2), ((4, 5), 2)), True, [(0, 4), (3, 5)]),
        (chain_of(((4, 5), 2), ((0, 1, 2, 3), 2)), True, [(4, 0), (4, 1), (5, 2), (5, 3)]),
        (chain_of(((0, 1), 2), ((2, 3), 1)), False, [(0, 2), (1, 3)]),
        (chain_of(((0, 1), 2), ((1, 2), 2)), False, [(1, 2)]),
        (chain_of(((0, 1), 1), ((1, 2), 1)), True, [(1, 2)]),
    ],
)
def test_each_gpu_gets_its_share_from_its_like(
    placement: Placement, shares: bool, expected: list[tuple[int, int]]
) -> None:
    assert in_shares(placement.by_name["F0"], placement.by_name["F1"]) is shares
    assert [m for m in messages(placement) if m.consumer == "F1"] == [
        Route("F0", "F1", *ends) for ends in expected
    ]


def test_only_the_share_goes_over() -> None:
    blocks = Blocks(BOTH_TO_DATA, Model(OPTIONS, BOTH_TO_DATA, {}), 1)
    assert blocks.spec_between("F0", "F1").shape == blocks.spec_between("B1", "B0").shape == (2, 5, 8)
    blocks = Blocks(BOTH_TO_TENSOR, Model(OPTIONS, BOTH_TO_TENSOR, {}), 1)
    assert blocks.spec_between("F0", "F1").shape == blocks.spec_between("B1", "B0").shape == (4, 5, 8)


def test_swapped_shares_are_refused() -> None:
    """Two GPUs send their shares to each other's receiver."""

    def swapped(i: Instruction) -> Instruction:
        if isinstance(i, Send):
            return replace(i, target={2: 3, 3: 2}.get(i.target, i.target))
        return replace(i, source=1 - i.source) if isinstance(i, Receive) and i.source < 2 else i

    programs = lower(gpipe(on_gpus(v_shape(2), 2, 2), 3))
    instructions = tuple(tuple(map(swapped, program)) for program in programs.instructions)
    with pytest.raises(UnsafeProgramsError, match="which has another share of the samples"):
        check(replace(programs, instructions=instructions))


def own_model(text: str, directory: Path) -> ModelOptions:
    (directory / "model.py").write_text(text)
    return ModelOptions("module", path=str(directory / "model.py"))


def changed(*changes: tuple[str, str], text: str = CNN) -> str:
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


NO_DROPOUT = (", nn.Dropout(0.1)", "")
TWO_TENSORS = """
import torch
from torch import nn
from torch.nn.functional import mse_loss as loss
from runtime.models import cut

class Skips(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)
    def forward(self, values):
        hidden = self.first(values)
        left, right = hidden[:, :3], hidden.sum(1)
        return self.last(self.second(hidden).tanh()) + right[:, None] + left[:, :2]

def blocks():
    return dict(zip(["F0", "F1"], cut(Skips(), at=["second"])))

def data(iteration, micro_batch):
    return torch.randn(6, 3), torch.randn(6, 2)
"""


@pytest.mark.parametrize(
    ("text", "placement"),
    [
        (changed(NO_DROPOUT), on_gpus(v_shape(4), 2, 2)),
        (TIED, chain_of(((0, 1), 2), ((2,), 1), ((1, 2, 3, 4), 4))),
        (CNN, on_gpus(v_shape(4, inference=True), 2, 2)),
        (TWO_TENSORS, chain_of(((0, 1), 2), ((2, 3), 2))),
        (TWO_TENSORS, chain_of(((0, 1), 2), ((0,), 1), split_backward=True)),
    ],
    ids=["cnn", "tied", "cnn_inference", "shares_of_several_tensors", "fewer_groups"],
)
def test_ones_own_model_in_groups(text: str, placement: Placement, tmp_path: Path) -> None:
    require_equal(compared(check(lower(gpipe(placement, 3))), own_model(text, tmp_path)))


NEVER_USED = ("self.table = table", "self.table, self.never = table, nn.Parameter(torch.ones(3))")


def test_a_copy_that_no_block_uses_stays_as_it_is(tmp_path: Path) -> None:
    """As it does without copies: no gradient is not a gradient of zeros, by which a weight would decay."""
    model = replace(own_model(changed(NEVER_USED, text=TIED), tmp_path), optimizer="adamw", weight_decay=0.1)
    model = replace(model, learning_rate=0.01)
    placement = chain_of(((0, 1), 2), ((2,), 1), ((3, 4), 2))
    comparison = compared(check(lower(gpipe(placement, 3))), model)
    assert comparison.bitwise_equal
    assert comparison.max_parameter_error < 1e-9, comparison


SUM = (
    "from torch.nn.functional import cross_entropy as loss",
    "def loss(output, target): return nn.functional.cross_entropy(output, target, reduction='sum')",
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CNN, "module: F2 draws random numbers, and would draw others in 2 data-parallel groups; leave out"),
        (
            changed(NO_DROPOUT, ("nn.GroupNorm(2, 8)", "nn.BatchNorm2d(8, track_running_stats=False)")),
            "module: F0 returns another tensor when its samples come in 2 data-parallel groups; let no",
        ),
        (
            changed(NO_DROPOUT, SUM),
            "module: the loss of F3 is .*, but the mean over its 2 data-parallel",
        ),
        (
            changed(NO_DROPOUT, ("randn(4,", "randn(5,")),
            r"module: F0 takes or returns tensors of shapes \[\(5, 8, 8, 8\)\], which its 2 data-parallel",
        ),
        (
            changed(
                NO_DROPOUT, ("self.head(hidden.mean((2, 3)))", "self.head(hidden.view(4, 8, 64).mean(2))")
            ),
            r"module: F2 fails with tensors of shapes \[\(2, 8, 8, 8\)\]: .*; let it take any number of",
        ),
    ],
    ids=["dropout", "batch_norm", "sum", "five_samples", "fixed_size"],
)
def test_ones_own_model_that_has_no_groups_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with raises_line(ModelError, match=message):
        body_of(own_model(text, tmp_path), on_gpus(v_shape(4), 2, 2))
    body_of(own_model(text, tmp_path), v_shape(4))


def test_devices_that_stand_for_gpus_have_no_groups_themselves() -> None:
    placement = in_groups(replace(v_shape(2), num_gpus=(2, 2)), F0=2)
    with pytest.raises(PlacementError, match=r"blocks \(F0\).data_parallel: 2 groups are of GPUs, not of"):
        zoo_blocks(placement, OPTIONS)


@pytest.mark.parametrize(
    ("placement", "options", "message"),
    [
        (
            on_gpus(v_shape(2), 3, 3),
            OPTIONS,
            "model.micro_batch_size: 4 samples have no equal shares for the 3 data-parallel groups of F0",
        ),
        (on_gpus(v_shape(2), 5), OPTIONS, "num_heads: 4 cannot be cut over 5 devices; use at least 5"),
        (
            chain_of(((0,), 1), ((0, 1), 1), ((1,), 1)),
            OPTIONS,
            "gpt cannot run F1 in the middle on the devices of its neighbors and more",
        ),
    ],
    ids=["samples", "heads", "middle"],
)
def test_what_cannot_be_cut_is_refused(placement: Placement, options: ModelOptions, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        zoo_blocks(placement, options)


def test_a_backward_has_the_groups_of_its_forward() -> None:
    placement = in_groups(on_gpus(v_shape(2), 2), F0=2)
    blocks = tuple(replace(b, data_parallel=1) if b.name == "B0" else b for b in placement.blocks)
    message = "B0: its data_parallel is 1, and 2 for F0, whose gradient it computes; give both the same"
    with pytest.raises(UnrunnablePlacementError, match=message):
        lower(gpipe(replace(placement, blocks=blocks), 2))


def test_replicas_that_are_cut_otherwise_are_refused() -> None:
    """The two directions of Chimera on devices of two GPUs and of four."""
    placement = replace(x_shape(2), num_gpus=(2, 4)).by_gpu
    with pytest.raises(ModelError, match=r"blocks on devices \(0, 1\) and on \(2, 3, 4, 5\) share embedding"):
        replicated_parameters(body_of(OPTIONS, placement), placement)


def test_what_stands_beside_the_stages_is_told_by_its_devices() -> None:
    body = body_of(OPTIONS, on_gpus(m_shape(2), 2))
    assert [weight.name for weight in body.parameters("E")] == ["embedding.tokens", "embedding.positions"]
    assert body.parameters("F0")[0].name.startswith("layer0")
    body = body_of(OPTIONS, chain_of(((0, 1, 2), 1), ((3, 4), 1)))
    names = {weight.name.split(".")[0] for weight in body.parameters("F0")}
    assert names == {"embedding", "layer0", "layer1"}
    assert body.parameters("F1")[-1].name == "output.tokens"


def test_what_fits_on_several_gpus_is_chosen() -> None:
    assert suitable_model(on_gpus(nn_shape(4), 4, 2)) == "mt5"
    assert suitable_model(on_gpus(k_shape(2), 4), num_heads=4) == "synthetic"
    assert suitable_model(on_gpus(k_shape(2), 4, 2), num_heads=4) == "flava"
