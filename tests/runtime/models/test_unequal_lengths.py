"""Micro-batches with different sequence lengths: losses and gradients equal the unpipelined model's."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from moe_layers import moe_schedule, moe_stages
from small_runs import SMALL_GPT, compared, require_exact, trained

from placements import Block, Kind, Placement
from placements.forms.texts import write_json
from placements.shapes import k_shape, m_shape, nn_shape, v_shape, x_shape
from runtime.codegen.codegen import generate
from runtime.models import ModelError, ModelOptions, body_of
from runtime.models.blocks import Blocks
from runtime.models.model import Model
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.lower import check_batch, lower
from runtime.program.program_file import programs_to_dict, read_programs
from runtime.program.tensor_flow import UnrunnablePlacementError
from runtime.program.tensor_spec import TensorSpec
from schedsearch import MicroBatchRow, search, unequal_batch
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import Schedule
from schedsearch.unequal.starts import executed, hand_made_orders

LENGTHS = [3, 6, 1, 5]
GPT = ModelOptions.from_dict(SMALL_GPT | {"sequence_lengths": LENGTHS, "learning_rate": 0.5})


def of_lengths(placement: Placement, lengths: list[int], order: list[int]) -> Schedule:
    """Return 1F1B with micro-batches whose blocks take as many times their time as there are tokens."""
    rows = [
        MicroBatchRow(n, block.name, float(block.time * length))
        for n, length in enumerate(lengths)
        for block in placement.blocks
    ]
    batch = unequal_batch(placement, rows)
    schedule = executed(batch, dict(hand_made_orders(batch))["one_f_one_b"], order)
    assert schedule is not None
    return schedule


def test_a_batch_in_any_order_has_the_bits_of_the_unpipelined_model() -> None:
    programs = lower(of_lengths(v_shape(2), LENGTHS, [1, 3, 0, 2]), is_batch=True)
    options = replace(GPT, optimizer="adamw", clip_grad_norm=0.5)
    require_exact(compared(check(programs), options))


@pytest.mark.parametrize(
    ("placement", "name"),
    [
        (x_shape(2), "gpt"),
        (m_shape(2), "gpt"),
        (k_shape(2), "synthetic"),
        (nn_shape(2), "mt5"),
        (k_shape(2), "flava"),
        (moe_stages([(0, 1)]), "moe"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_other_shapes_train_as_the_unpipelined_model(placement: Placement, name: str) -> None:
    layers = sum(block.name.startswith("attention_F") for block in placement.blocks) or 2
    options = replace(GPT, name=name, num_layers=layers, num_experts=4, experts_per_token=2)
    schedule = (moe_schedule if name == "moe" else gpipe)(placement, len(LENGTHS))
    comparison = compared(check(lower(schedule)), options)
    assert comparison.bitwise_equal
    assert comparison.max_gradient_error < 1e-12


def test_lengths_go_on_through_the_iterations() -> None:
    options = replace(GPT, sequence_lengths=[*LENGTHS, 2, 2, 6, 4])
    body = body_of(options, v_shape(2))
    data = body.data(4, "cpu")
    shapes = [data.read("F0", iteration, n).inputs[0].shape for iteration in range(3) for n in range(4)]
    assert shapes == [(2, length) for length in [*LENGTHS, 2, 2, 6, 4, *LENGTHS]]
    assert compared(check(lower(one_f_one_b(v_shape(2), 4))), options).max_gradient_error == 0


def test_each_token_of_the_batch_counts_the_same() -> None:
    losses = trained(check(lower(gpipe(v_shape(2), 4))), GPT).losses[0]
    body = body_of(GPT, v_shape(2))
    data = body.data(4, "cpu")
    weights = {p.name: body.initial(p) for name in ("F0", "F1") for p in body.parameters(name)}
    means = []
    for n in range(4):
        hidden = body.forward("F0", (), data.read("F0", 0, n), weights)
        means.append(float(body.forward("F1", (hidden,), data.read("F1", 0, n), weights)))
    tokens = [length * GPT.micro_batch_size for length in LENGTHS]
    wanted = sum(mean * count for mean, count in zip(means, tokens, strict=True)) / sum(tokens)
    assert math.isclose(sum(losses) / 4, wanted, rel_tol=1e-12)


def test_both_ends_of_a_message_know_that_its_tokens_differ(tmp_path: Path) -> None:
    placement = v_shape(2)
    blocks = Blocks(placement, Model(GPT, placement, {}), 4)
    spec = blocks.spec_between("F0", "F1")
    assert str(spec) == "float64 (2, tokens, 8)"
    assert spec.with_tokens(5) == TensorSpec("float64", (2, 5, 8))
    programs = lower(of_lengths(placement, LENGTHS, [1, 3, 0, 2]), is_batch=True)
    programs = check(programs.with_specs(blocks.spec_between))
    path = tmp_path / "programs.json"
    write_json(path, programs_to_dict(programs))
    assert read_programs(path) == programs
    assert [programs.block("F0", n).time for n in range(4)] == LENGTHS
    fixed = {edge: spec.with_tokens(6) for edge, spec in programs.specs[1].items()}
    with pytest.raises(UnsafeProgramsError, match=r"as float64 \(2, tokens, 8\), which receives it as"):
        check(replace(programs, specs=(programs.specs[0], fixed)))


def test_scripts_of_a_batch_name_each_block_in_a_line(tmp_path: Path) -> None:
    programs = check(lower(of_lengths(v_shape(2), LENGTHS, [1, 3, 0, 2]), is_batch=True))
    text = generate(programs, {}, GPT.to_dict(), tmp_path)[0].read_text()
    forward = [line.strip() for line in text.splitlines() if "device.forward" in line]
    assert forward == [f'device.forward("F0", {n})' for n in (1, 3, 0, 2)]
    assert "exactly 4 micro-batches (which differ)" in text


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sequence_lengths": [3, 7]}, "sequence_lengths: 7 is more than sequence_length, 6; use less"),
        ({"sequence_lengths": [0]}, r"sequence_lengths\[0\]: 0 is not"),
        ({"sequence_lengths": []}, "sequence_lengths: is empty; give a length for each"),
        ({"name": "given"}, "given reads samples of its own"),
    ],
)
def test_wrong_lengths_are_refused(change: dict[str, object], error: str) -> None:
    with pytest.raises(ModelError, match=error):
        ModelOptions.from_dict(GPT.to_dict() | change)


def test_lengths_are_for_each_micro_batch() -> None:
    body = body_of(GPT, v_shape(2))
    with pytest.raises(ModelError, match="has 4 lengths for 3 micro-batches"):
        body.data(3, "cpu")


ENCODED = Placement(
    "encoded",
    2,
    (
        Block("F0", Kind.F, (0,), 2, memory=1),
        Block("F1", Kind.F, (1,), 1, memory=1),
        Block("J", Kind.F, (1,), 1, memory=1, after=("F0", "F1")),
        Block("JB", Kind.B, (1,), 2, memory=-1, after=("J",)),
        Block("B1", Kind.B, (1,), 2, memory=-1, after=("JB",)),
        Block("B0", Kind.B, (0,), 4, memory=-1, after=("JB",)),
    ),
)
"""An encoder, such as of images, beside the first stage."""


BRANCHES = Placement(
    "branches",
    3,
    (
        Block("I0", Kind.F, (0,), 2, memory=1),
        Block("I1", Kind.F, (1,), 2, memory=1, after=("I0",)),
        Block("T", Kind.F, (2,), 1, memory=1),
        Block("J", Kind.F, (2,), 1, memory=1, after=("I1", "T")),
        Block("C", Kind.F, (1,), 1, memory=1, after=("J",)),
        Block("CB", Kind.B, (1,), 2, memory=-1, after=("C",)),
        Block("JB", Kind.B, (2,), 2, memory=-1, after=("CB",)),
        Block("TB", Kind.B, (2,), 2, memory=-1, after=("JB",)),
        Block("IB1", Kind.B, (1,), 4, memory=-1, after=("JB",)),
        Block("IB0", Kind.B, (0,), 4, memory=-1, after=("IB1",)),
    ),
)
"""An image encoder of two stages beside a text encoder, and a cross-encoder of two stages."""

IMAGE, TEXT = ("I0", "I1", "IB1", "IB0"), ("T", "TB")


def without(*blocks: str, placement: Placement = ENCODED) -> Schedule:
    """Return a schedule of three micro-batches, of which the second leaves out some blocks."""
    rows = [
        *(MicroBatchRow(1, name, 0.0) for name in blocks),
        MicroBatchRow(2, placement.blocks[0].name, 5.0),
    ]
    batch = unequal_batch(placement, rows)
    schedule = search(batch, work_limit=0.2).schedule
    assert schedule is not None
    return schedule


def test_an_encoder_is_left_out_of_micro_batches_without_its_input() -> None:
    programs = check(lower(without("F0", "B0"), is_batch=True))
    assert programs.left_out == {("F0", 1), ("B0", 1)}
    assert not any("#1" in str(instruction) for instruction in programs.instructions[0])
    options = replace(
        GPT, name="synthetic", sequence_lengths=[3, 6, 2], optimizer="adamw", clip_grad_norm=0.1
    )
    require_exact(compared(programs, options, "fork"))


@pytest.mark.parametrize(("branch", "lengths"), [(IMAGE, None), (TEXT, [3, 6, 2])])
def test_flava_leaves_out_a_branch(branch: tuple[str, ...], lengths: list[int] | None) -> None:
    programs = lower(without(*branch, placement=BRANCHES), is_batch=True)
    options = replace(GPT, name="flava", sequence_lengths=lengths, optimizer="adamw", clip_grad_norm=0.1)
    blocks = Blocks(BRANCHES, Model(options, programs.placement, {}), 3, left_out=programs.left_out)
    spec = blocks.spec_between("J", "C")
    tokens = lengths or [6, 6, 6]
    shapes = [blocks.spec_of("J", "C", n, spec).shape for n in range(3)]
    assert shapes == [(2, tokens[n] * (1 if n == 1 else 2), 8) for n in range(3)]
    assert blocks.max_bytes("J", "C") == 2 * 12 * 8 * 8
    require_exact(compared(check(programs.with_specs(blocks.spec_between)), options))


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        (("F0",), "F0 does not run as micro-batch 1, where its time is 0, but F0 and B0 go together"),
        (("J", "JB"), "J does not run as micro-batch 1, where its time is 0, but F0 then is of no use"),
        (("F0", "B0", "F1", "B1"), "F0 does not run as micro-batch 1, .* but J then has no input"),
        (("F0", "B0", "F1", "B1", "J", "JB"), "J does not run .* but it computes the loss"),
    ],
)
def test_what_cannot_be_left_out_is_refused(blocks: tuple[str, ...], error: str) -> None:
    free = replace(ENCODED, blocks=tuple(replace(block, memory=0) for block in ENCODED.blocks))
    rows = [*(MicroBatchRow(1, name, 0.0) for name in blocks), MicroBatchRow(0, "F0", 3.0)]
    batch = unequal_batch(free, rows)
    with pytest.raises(UnrunnablePlacementError, match=error):
        check_batch(batch.placement)


def test_a_gpt_leaves_out_no_block() -> None:
    with pytest.raises(ModelError, match="gpt needs all blocks in each micro-batch, and F0 is left out"):
        Blocks(ENCODED, Model(replace(GPT, name="gpt"), v_shape(2), {}), 3, left_out={("F0", 1)})
