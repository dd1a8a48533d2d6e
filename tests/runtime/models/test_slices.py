"""A GPT whose sequences are cut into slices, beside the model of whole sequences."""

from dataclasses import replace

import pytest
import torch
from one_line_errors import raises_line
from small_runs import SMALL_GPT, check_cut, compared, in_modes

from placements.shapes import loop_shape, nn_shape, v_shape, wave_shape, x_shape
from placements.slices.slices import sliced
from runtime.loops.evaluation import forward_programs
from runtime.models import WHOLE, Model, ModelError, ModelOptions, body_of
from runtime.models.blocks import Blocks
from runtime.program.deadlock import check
from runtime.program.instructions import Run
from runtime.program.lower import lower
from runtime.verify.reference import ReferenceCase
from schedsearch.baselines import gpipe, seq_one_f_one_b

GPT = ModelOptions.from_dict(SMALL_GPT | {"sequence_length": 7, "num_layers": 4})


@pytest.mark.parametrize(
    "whole",
    [
        v_shape(1),
        v_shape(2),
        v_shape(2, split_backward=True),
        loop_shape(2, 2),
        wave_shape(2, 2, split_backward=True),
        x_shape(2),
    ],
    ids=lambda whole: f"{whole.name} {len(whole.blocks)}",
)
def test_gradients_of_slices_are_those_of_whole_sequences(whole):
    """Up to rounding: a product over a slice adds up other numbers of rows than one over the whole."""
    check_cut(ReferenceCase(GPT, sliced(whole, 3), 2, 2))


def test_slices_may_have_any_lengths():
    check_cut(ReferenceCase(replace(GPT, slice_lengths=[4, 2, 1]), sliced(v_shape(2), 3), 2, 1))


@pytest.mark.parametrize(
    ("make", "placement"),
    [(seq_one_f_one_b, v_shape(2)), (gpipe, v_shape(2, split_backward=True)), (gpipe, loop_shape(2, 2))],
)
def test_schedules_by_hand_run_and_train_alike(make, placement):
    programs = lower(make(sliced(placement, 3), 3))
    check(programs)
    result = compared(programs, GPT)
    assert result.bitwise_equal
    assert result.max_gradient_error < 1e-12 and result.max_loss_error < 1e-12


def test_processes_run_slices():
    programs = lower(seq_one_f_one_b(sliced(v_shape(2), 2), 2))
    result = compared(programs, GPT, launcher="fork")
    assert result.bitwise_equal and result.max_gradient_error < 1e-12


def test_slices_can_be_computed_again_and_kept_on_the_host():
    schedule = in_modes(seq_one_f_one_b(sliced(v_shape(2), 2), 2), lambda decision, n: (decision + n) % 3)
    result = compared(lower(schedule), GPT)
    assert result.max_gradient_error < 1e-12


def test_devices_that_share_a_stage_cut_its_heads():
    whole = v_shape(1)
    blocks = tuple(replace(block, devices=(0, 1)) for block in whole.blocks)
    check_cut(ReferenceCase(GPT, sliced(replace(whole, num_devices=2, blocks=blocks), 3), 2, 1))


def test_nothing_is_left_after_the_backward_and_after_an_evaluation():
    for inference in (False, True):
        cut = sliced(v_shape(1, inference=inference), 3)
        body = body_of(GPT, cut)
        names = [f"F0s{i}" for i in range(3)]
        model = Model(GPT, cut, dict.fromkeys(names, WHOLE), body=body)
        blocks = Blocks(cut, model, 1)
        blocks.begin(0)
        for block in cut.topological_order:
            blocks.run(block.name, 0, [])
        assert not body.modules["F0s0"]._past


def test_keys_and_values_of_earlier_slices_are_not_kept_once_more_by_each_later_one(monkeypatch):
    kept = []

    def recording(pack, unpack):
        return torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(pack(t)) or kept[-1], unpack)

    monkeypatch.setattr("runtime.models.core.slices.saved_tensors_hooks", recording)
    cut = sliced(v_shape(1), 4)
    options = ModelOptions.from_dict(SMALL_GPT | {"sequence_length": 400, "num_layers": 1})
    blocks = Blocks(cut, Model(options, cut, {f"F0s{i}": WHOLE for i in range(4)}), 1)
    blocks.begin(0)
    for i in range(4):
        blocks.run(f"F0s{i}", 0, [])
    copies = [saved for saved in kept if isinstance(saved, torch.Tensor) and saved.dim() == 4]
    assert copies and max(copy.shape[2] for copy in copies) == 100
    assert sum(isinstance(saved, list) for saved in kept) == 2 * 4


@pytest.mark.parametrize(
    ("options", "placement", "message"),
    [
        ({"name": "mt5"}, sliced(nn_shape(2), 2), "model 'mt5' cannot run slices of a sequence"),
        ({"slice_lengths": [3, 3]}, sliced(v_shape(2), 2), "slice_lengths: .3, 3. are not 2 slices"),
        ({"slice_lengths": [7]}, v_shape(2), "slice_lengths: v_shape has whole sequences; leave it out"),
        ({}, sliced(v_shape(2), 8), "sequence_length: .* are not 8 slices of one token or more"),
    ],
)
def test_what_cannot_be_cut_is_refused_in_one_line(options, placement, message):
    with raises_line(ModelError, match=message):
        body_of(
            ModelOptions.from_dict(SMALL_GPT | {"sequence_length": 7, "num_layers": 4} | options), placement
        )


def test_a_slice_without_an_order_is_refused():
    cut = sliced(v_shape(2), 2)
    blocks = tuple(
        replace(block, after=tuple(name for name in block.after if name != "F1s0"))
        if block.name == "F1s1"
        else block
        for block in cut.blocks
    )
    with pytest.raises(ModelError, match="gpt needs F1s1 on the devices of F1s0 and after it"):
        body_of(GPT, replace(cut, blocks=blocks))


def test_an_evaluation_runs_slices_in_their_order():
    """Forward blocks alone, also where the placement names a later slice first."""
    cut = sliced(v_shape(2), 3)
    turned = replace(cut, blocks=cut.blocks[::-1])
    programs = forward_programs(turned, 2)
    for device in range(2):
        order = [run.block for run in programs.instructions[device] if isinstance(run, Run)]
        assert order[:3] == [f"F{device}s{i}" for i in range(3)]
    body_of(GPT, programs.placement)
