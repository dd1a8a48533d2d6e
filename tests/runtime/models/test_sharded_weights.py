"""ZeRO-3: parameters, gradients and states in parts, with the losses and gradients of the unsharded run."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_runs import chain_of, comparison_of, launched, on_gpus

from placements import Placement
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Measurement
from runtime.models import WHOLE, Model, ModelError, ModelOptions
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.lower import keeping_weights, lower, recomputed
from runtime.transport.in_memory import MemoryTransport, Network
from schedsearch.baselines import gpipe

OPTIONS = ModelOptions(
    "gpt", hidden_size=8, sequence_length=5, micro_batch_size=6, num_layers=4, num_heads=4, seed=3, zero=3
)


TWO = on_gpus(v_shape(2), 2, 2)
CASES = {
    "three_groups": on_gpus(v_shape(1), 3, 3),
    "split_backward": on_gpus(v_shape(2, split_backward=True), 2, 2),
    "to_tensor": chain_of(((0, 1, 2, 3), 2), ((4, 5), 1)),
    "some_groups": chain_of(((0, 1), 2), ((2,), 1)),
}


def run(
    placement: Placement, directory: Path, launcher: str = "in_process", again: str = "", **model: object
) -> Measurement:
    """Run two iterations of three micro-batches."""
    programs = check(recomputed(lower(gpipe(placement, 3)), again or ()))
    generate(programs, {}, replace(OPTIONS, **model).to_dict(), directory)  # type: ignore[arg-type]
    return launched(directory, placement.num_devices, 2, launcher=launcher)


@pytest.mark.parametrize("placement", CASES.values(), ids=CASES)
def test_devices_equal_the_model_in_one_piece(placement: Placement, tmp_path: Path) -> None:
    found = comparison_of(run(placement, tmp_path))
    assert found.is_equal, found
    assert found.bitwise_equal


@pytest.mark.parametrize("uses", [0, 2])
def test_weights_that_stay_change_the_memory_and_no_bit(uses: int, tmp_path: Path) -> None:
    """A layer at a time is there, or all of the block's; the scripts say so, and are proved."""
    once = run(TWO, tmp_path / "once")
    programs = keeping_weights(lower(gpipe(TWO, 3)), ("F0", "F1"), uses)
    assert any("keeping weights" in str(each) for each in programs.instructions[0])
    generate(check(programs), {}, OPTIONS.to_dict(), tmp_path / "kept")
    assert "keep_weights=True" in (tmp_path / "kept" / "device_0.py").read_text()
    kept = launched(tmp_path / "kept", 4, 2, launcher="in_process")
    assert comparison_of(kept) == comparison_of(once)
    model = Model(replace(OPTIONS, zero=0), v_shape(2), {"F0": WHOLE})
    sizes = [weight.nbytes for weight in model.whole_weights()]
    assert kept.peak_gathered_bytes[0] == sum(sizes)
    assert once.peak_gathered_bytes[0] == sizes[0] + sizes[1] < sum(sizes), "the embedding's two tables"


@pytest.mark.parametrize(
    "how",
    [
        {"again": "all"},
        {"optimizer": "adamw", "learning_rate": 0.01, "clip_grad_norm": 0.1},
        {"launcher": "fork", "num_layers": 2},
        {"dtype": "float32", "precision": "bf16"},
        {"sharded_blocks": ["F1"]},
    ],
    ids=lambda how: next(iter(how)),
)
def test_it_goes_with_other_options(how: dict[str, object], tmp_path: Path) -> None:
    found = comparison_of(run(TWO, tmp_path, **how))  # type: ignore[arg-type]
    assert found.bitwise_equal
    assert found.is_equal or "precision" in how


def test_a_device_holds_its_part_alone() -> None:
    """Also of what cannot be cut evenly; what modules compute with has no memory between uses."""
    network = Network(3)
    placement = on_gpus(v_shape(1), 3, 3)
    models = []
    for device in range(3):
        transport = MemoryTransport.of(network, placement, (), device)
        models.append(Model(OPTIONS, placement, transport.shards, groups=transport.groups))
    whole = Model(replace(OPTIONS, zero=0), v_shape(1), {"F0": WHOLE}).parameters
    whole_of = {shard.name: weight for shard, weight in whole.items()}
    for model in models:
        assert {shard.name for shard in model.parameters} == whole_of.keys()
        for shard, part in model.parameters.items():
            assert shard.num_shares == 3
            assert torch.equal(part, shard.of(whole_of[shard.name]))
            assert part.numel() <= -(-whole_of[shard.name].numel() // 2)
    for model in models:
        assert not any(weight.untyped_storage().nbytes() for weight in model.whole_weights())
        assert model.optimizer.holds(next(iter(model.parameters.values())))


def test_checkpoints_and_weights_hold_the_whole(tmp_path: Path) -> None:
    """A run that stopped goes on to the same bits, sharded or not."""
    placement = chain_of(((0, 1, 2, 3), 2), ((4,), 1))
    programs = check(lower(gpipe(placement, 2)))
    adamw = replace(OPTIONS, optimizer="adamw", learning_rate=0.01)
    found = {}
    for name, zero, options in (
        ("straight", 3, {"iterations": 3}),
        ("first", 3, {"iterations": 2, "checkpoint_every": 2}),
        ("again", 3, {"iterations": 3, "resume": tmp_path / "first_checkpoints"}),
        ("plain", 0, {"iterations": 3, "resume": tmp_path / "first_checkpoints"}),
    ):
        generate(programs, {}, replace(adamw, zero=zero).to_dict(), tmp_path / name)
        weights = tmp_path / f"{name}.safetensors"
        folder = tmp_path / f"{name}_checkpoints"
        launched(
            tmp_path / name, 5, launcher="in_process", verify="none", save_weights=weights, exact=True,
            checkpoints=folder, **options,
        )  # fmt: skip
        found[name] = load_file(weights)
    for name, weight in found["straight"].items():
        assert torch.equal(found["again"][name], weight)
        assert torch.allclose(found["plain"][name], weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("placement", "options", "message"),
    [
        (v_shape(2), {}, "model.zero: 3 needs blocks in data-parallel groups; use 0, or 1 for copies"),
        (
            TWO,
            {"sharded_blocks": ["F2"]},
            "model.sharded_blocks: 'F2' is no forward block in .*; name some of F0",
        ),
        (TWO, {"zero": 1, "sharded_blocks": ["F0"]}, "model.sharded_blocks: are those of zero=3"),
        (TWO, {"compile": "eager"}, "model.zero: 3 cannot be run with compiled blocks; use 1, or 0"),
    ],
)
def test_what_cannot_be_sharded_is_refused(
    placement: Placement, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        Model(replace(OPTIONS, **options), placement, {})  # type: ignore[arg-type]


def test_wrong_keeping_is_refused() -> None:
    programs = lower(gpipe(v_shape(2), 2))
    with pytest.raises(
        UnsafeProgramsError, match="device 0 keeps the weights of F0 .*, which no groups gather"
    ):
        check(keeping_weights(programs, ("F0",), 0))
    programs = lower(gpipe(TWO, 2))
    kept = tuple(
        tuple(replace(each, keep_weights=True) if str(each) == "run B0 #1" else each for each in program)
        for program in programs.instructions
    )
    with pytest.raises(UnsafeProgramsError, match="device 0 keeps the weights of B0 .*, after which"):
        check(replace(programs, instructions=kept))
