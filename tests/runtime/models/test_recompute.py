"""Recomputed blocks: the same bits, with only their inputs kept until the backward."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import SMALL_GPT, SYNTHETIC, blocks_of, compared, edited, require_exact, with_modes
from torch import Tensor

from placements import Kind, Placement
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.models import Blocks
from runtime.models.core.layers import FeedForward
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Run
from runtime.program.lower import RecomputeError, blocks_to_recompute, lower
from runtime.program.tensor_flow import KEEP, MODES, RECOMPUTE, UnrunnablePlacementError, pair_backward
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
    """Our layers draw no random numbers; for layers that do, the generators' states are kept."""
    monkeypatch.setattr(FeedForward, "forward", with_dropout)
    outcomes = []
    for mode in MODES:
        blocks, model = blocks_of(v_shape(1))
        torch.manual_seed(3)
        for block, n in (("F0", 0), ("F0", 1), ("B0", 0), ("B0", 1)):
            blocks.run(block, n, [], mode if block == "F0" else KEEP)
        gradients = [value.clone() for value in model.gradients().values()]
        outcomes.append((gradients, [float(loss) for loss in blocks.losses.values()], torch.rand(1)))
    (first, losses, after), *others = outcomes
    assert losses[0] != losses[1]
    for second, other_losses, other_after in others:
        assert losses == other_losses
        assert torch.equal(after, other_after), "recomputing draws nothing anew"
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("recompute", "message"),
    [
        (["F9"], "recompute: v_shape has no forward block 'F9'; use 'all' or of F0, F1"),
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


def with_recomputation(num_devices: int) -> Placement:
    """Return a V-shape whose stages, the last one aside, compute their forward again in blocks R0, R1, ..."""
    whole, again = v_shape(num_devices, stage_memory=4), []
    blocks = {block.name: block for block in whole.blocks}
    for i in range(num_devices - 1):
        forward, backward = blocks[f"F{i}"], blocks[f"B{i}"]
        again.append(replace(forward, name=f"R{i}", kind=Kind.R, after=(f"F{i}",), memory=3))
        blocks[f"F{i}"] = replace(forward, memory=1)
        blocks[f"B{i}"] = replace(backward, after=(*backward.after, f"R{i}"))
    return replace(whole, blocks=(*blocks.values(), *again))


def test_a_forward_is_computed_again_in_a_block_of_its_own(tmp_path: Path) -> None:
    """The bits of the unpipelined model, and its own line of the script."""
    programs = check(lower(gpipe(with_recomputation(3), 4)))
    first = [str(instruction) for instruction in programs.instructions[0]]
    assert first.index("run R0 #0") < first.index("run B0 #0")
    assert "run F0 #0 recompute" in first
    assert "run F2 #0" in [str(instruction) for instruction in programs.instructions[2]]
    require_exact(compared(programs, SMALL_GPT | {"num_layers": 3}, "fork"))
    text = generate(programs, {}, SYNTHETIC, tmp_path)[0].read_text()
    assert 'device.recompute("R0", ' in text


def test_early_recomputation_keeps_inputs_until_then() -> None:
    placement = with_recomputation(2)
    blocks, _ = blocks_of(placement)
    blocks.run("F0", 0, [], RECOMPUTE)
    assert [held.has_graph for held in blocks.saved()] == [False]
    blocks.run("R0", 0, [])
    assert [held.has_graph for held in blocks.saved()] == [True]


def test_programs_that_keep_what_is_computed_again_are_not_safe() -> None:
    placement = with_recomputation(2)
    programs = lower(gpipe(placement, 2))
    kept = edited(programs, 0, lambda program: program.__setitem__(0, Run("F0", 0)))
    with pytest.raises(
        UnsafeProgramsError, match="F0 of micro-batch 0 in mode 'keep', but its modes are recompute"
    ):
        check(kept)
    late = replace(placement.by_name["R0"], after=())
    others = tuple(block for block in placement.blocks if block.name != "R0")
    with pytest.raises(UnrunnablePlacementError, match="R0: computes no forward block of device 0 again"):
        pair_backward(replace(placement, blocks=(*others, late)))
