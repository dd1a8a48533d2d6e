"""Recomputed blocks: the same bits, with only their inputs kept until the backward."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from small_runs import SYNTHETIC, blocks_of, launched, with_modes
from torch import Tensor

from placements import Placement
from placements.shapes import k_shape, m_shape, v_shape, wave_shape
from runtime.codegen.codegen import generate
from runtime.models import Blocks
from runtime.models.core.layers import FeedForward
from runtime.program.lower import RecomputeError, blocks_to_recompute, lower, recomputed
from runtime.program.tensor_flow import KEEP, MODES, RECOMPUTE
from schedsearch.baselines import gpipe


def saved_bytes(blocks: Blocks, block: str, arrived: Sequence[Tensor], mode: str) -> int:
    """Run a block and return the bytes that autograd keeps for its backward, each tensor once."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        blocks.run(block, 0, arrived, mode)
    return sum(kept.values())


@pytest.mark.parametrize(
    "placement",
    [m_shape(2), k_shape(2), wave_shape(2, split_backward=True)],
    ids=["several_devices", "branches", "split_backward"],
)
def test_recomputing_changes_no_bit(placement: Placement, tmp_path: Path) -> None:
    losses, parameters = [], []
    first = placement.blocks[0].name
    for recompute in ([], [first], "all"):
        folder = tmp_path / str(len(losses))
        generate(recomputed(lower(gpipe(placement, 3)), recompute), {}, SYNTHETIC, folder / "scripts")
        options = {"checkpoint_every": 2, "checkpoints": folder}
        found = launched(folder / "scripts", placement.num_devices, 2, launcher="in_process", **options)  # type: ignore[arg-type]
        assert found.comparison is not None
        assert found.comparison.bitwise_equal
        assert found.comparison.is_equal
        losses.append(found.losses)
        shards = sorted((folder / "iteration_2").glob("*.pt"))
        parameters.append([torch.load(path, weights_only=True)["parameters"] for path in shards])
    assert losses[0] == losses[1] == losses[2]
    for other in parameters[1:]:
        for row, expected in zip(other, parameters[0], strict=True):
            assert all(torch.equal(a[-1], b[-1]) for a, b in zip(row, expected, strict=True))


def test_only_inputs_are_kept() -> None:
    blocks, _ = blocks_of(v_shape(2))
    value = torch.randn(1, 4, 4, dtype=torch.float64)
    assert saved_bytes(blocks, "F1", [value], KEEP) > 10 * value.nbytes
    assert saved_bytes(blocks, "F1", [value], RECOMPUTE) == 0
    assert saved_bytes(blocks, "F0", [], KEEP) > saved_bytes(blocks, "F0", [], RECOMPUTE) == 0


def with_dropout(self: FeedForward, hidden: Tensor) -> Tensor:
    return torch.nn.functional.dropout(FEED_FORWARD(self, hidden), 0.5)


FEED_FORWARD = FeedForward.forward


def test_dropout_falls_the_same_way_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No layer of ours draws random numbers; for those that do, the generators' states are kept."""
    monkeypatch.setattr(FeedForward, "forward", with_dropout)
    found = []
    for mode in MODES:
        blocks, model = blocks_of(v_shape(1))
        torch.manual_seed(3)
        for block, n in (("F0", 0), ("F0", 1), ("B0", 0), ("B0", 1)):
            blocks.run(block, n, [], mode if block == "F0" else KEEP)
        gradients = [value.clone() for value in model.gradients().values()]
        found.append((gradients, [float(loss) for loss in blocks.losses.values()], torch.rand(1)))
    (first, losses, after), *others = found
    assert losses[0] != losses[1]
    for second, other_losses, other_after in others:
        assert losses == other_losses
        assert torch.equal(after, other_after), "recomputing draws nothing anew"
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("recompute", "message"),
    [
        (["F9"], "recompute: v_shape has no forward block 'F9'; use 'all' or of F0, F1"),
        (["B0"], "recompute: v_shape has no forward block 'B0'"),
        ("some", "recompute: 'some' is not 'all' or a list of names of forward blocks"),
        ([1], "recompute: v_shape has no forward block 1; use 'all' or of F0, F1"),
    ],
)
def test_wrong_blocks_are_named(recompute: Sequence[object], message: str) -> None:
    with pytest.raises(RecomputeError, match=re.escape(message)):
        blocks_to_recompute(v_shape(2), recompute)


def test_what_the_schedule_decides_is_not_decided_again() -> None:
    with pytest.raises(RecomputeError, match=r"recompute: modes\[1\] of the placement is about F1, whose"):
        blocks_to_recompute(with_modes(v_shape(2)), ["F1"])
    assert blocks_to_recompute(with_modes(v_shape(2)), []) == ()
