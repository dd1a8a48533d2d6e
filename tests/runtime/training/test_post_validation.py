"""Steps that are taken early and taken back: the bits of a run that waits for the norm of all gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import SMALL_GPT, comparison_of, launched

from placements import Placement
from placements.shapes import m_shape, v_shape, wave_shape, x_shape
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Measurement
from runtime.execution.results import Progress
from runtime.launching.launch import LaunchError
from runtime.loops.post_validated import first_forwards
from runtime.models import ModelOptions
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from schedsearch.baselines import HAND_MADE, gpipe, one_f_one_b
from schedsearch.schedule import Schedule

MODEL = ModelOptions.from_dict(
    SMALL_GPT | {"optimizer": "adamw", "learning_rate": 0.02, "clip_grad_norm": 0.9, "num_layers": 3}
)
"""Of its iterations some are clipped and some are not."""

NOTE = "so they were clipped, and the step was done again"


def job(schedule: Schedule, folder: Path, **changes: Any) -> Path:
    programs = check(prefetch_receives(lower(schedule), 1))
    generate(programs, {}, MODEL.to_dict() | changes, folder)
    return folder


def trained(scripts: Path, number: int, *, early: bool, **options: Any) -> tuple[Measurement, list[str]]:
    told = list[Progress]()
    options = {"launcher": "in_process", "progress": told.append} | options
    found = launched(scripts, number, 5, post_validation=early, **options)
    return found, [each.note for each in told]


@pytest.mark.parametrize(
    ("changes", "launcher"),
    [
        ({}, "fork"),
        ({"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.3}, "in_process"),
        (
            {
                "optimizer": "NAdam",
                "optimizer_options": {"weight_decay": 0.1},
                "lr_schedule": "CosineAnnealingLR",
                "lr_schedule_options": {"T_max": 9},
            },
            "in_process",
        ),
    ],
    ids=["adamw, processes", "momentum", "a class of torch with a schedule"],
)
def test_a_run_has_the_bits_of_one_that_waits(changes: dict[str, Any], launcher: str, tmp_path: Path) -> None:
    scripts = job(one_f_one_b(v_shape(3), 4), tmp_path / "scripts", **changes)
    late, _ = trained(scripts, 3, early=False)
    early, notes = trained(scripts, 3, early=True, launcher=launcher)
    assert early.losses == late.losses
    assert comparison_of(early).bitwise_equal
    assert comparison_of(early).max_gradient_error == comparison_of(early).max_parameter_error == 0
    clipped = [NOTE in note for note in notes]
    assert any(clipped) and not all(clipped), "both ways are gone"


@pytest.mark.parametrize(
    "schedule",
    [
        HAND_MADE["zb_v"](wave_shape(2, split_backward=True), 4),
        gpipe(x_shape(2), 3),
    ],
    ids=["zb_v", "x_shape"],
)
def test_other_schedules_and_shapes_train_to_the_same_bits(schedule: Schedule, tmp_path: Path) -> None:
    scripts = job(schedule, tmp_path / "scripts", num_layers=4)
    late, _ = trained(scripts, 2, early=False)
    early, notes = trained(scripts, 2, early=True)
    assert early.losses == late.losses
    assert comparison_of(early).bitwise_equal
    assert any(NOTE in note for note in notes)


def test_a_device_whose_own_norm_is_too_great_does_not_step_early(tmp_path: Path) -> None:
    scripts = job(one_f_one_b(v_shape(2), 4), tmp_path, clip_grad_norm=0.01)
    late, _ = trained(scripts, 2, early=False)
    early, notes = trained(scripts, 2, early=True)
    assert early.losses == late.losses
    assert all(NOTE in note for note in notes)


def test_without_a_limit_no_step_is_taken_back(tmp_path: Path) -> None:
    model = {name: value for name, value in MODEL.to_dict().items() if name != "clip_grad_norm"}
    generate(check(lower(one_f_one_b(v_shape(2), 4))), {}, model, tmp_path)
    early, notes = trained(tmp_path, 2, early=True, exact=False)
    late, _ = trained(tmp_path, 2, early=False, exact=False)
    assert early.losses == late.losses and not any(notes)


def test_checkpoints_hold_validated_steps(tmp_path: Path) -> None:
    scripts = job(one_f_one_b(v_shape(2), 4), tmp_path / "scripts")
    folders = {"checkpoint_every": 2, "checkpoints": tmp_path / "checkpoints", "keep_checkpoints": 0}
    whole, _ = trained(scripts, 2, early=True, verify="first", **folders)
    again, _ = trained(scripts, 2, early=False, verify="none", exact=True, resume=tmp_path / "checkpoints")
    assert again.first_iteration == 4
    assert comparison_of(whole).max_parameter_error == 0
    assert again.losses == whole.losses[4:]


def test_a_loss_that_is_not_finite_ends_the_run_with_its_iteration(tmp_path: Path) -> None:
    scripts = job(one_f_one_b(v_shape(2), 4), tmp_path, optimizer="sgd", learning_rate=1e200)
    with pytest.raises(LaunchError, match=r"iteration 1: the loss of F1, micro-batch 0, is nan"):
        trained(scripts, 2, early=True)


def test_what_cannot_be_taken_back_is_refused(tmp_path: Path) -> None:
    scripts = job(one_f_one_b(v_shape(2), 4), tmp_path, dtype="float32", precision="fp16")
    with pytest.raises(LaunchError, match="post_validation: is not for a run with precision=fp16"):
        trained(scripts, 2, early=True)


def placements() -> list[Placement]:
    return [v_shape(4), m_shape(3), x_shape(4)]


@pytest.mark.parametrize("placement", placements(), ids=lambda each: f"{each.name}_{each.num_devices}")
def test_an_iteration_begins_with_whole_forward_blocks(placement: Placement) -> None:
    programs = check(prefetch_receives(lower(gpipe(placement, 4)), 1))
    lengths = first_forwards(programs)
    first = [of[:length] for of, length in zip(programs.instructions, lengths, strict=True)]
    assert any(first)
    texts = [str(each) for part in first for each in part]
    assert sum(text.startswith("send") for text in texts) == sum(text.startswith("receive") for text in texts)
    assert not any(text.startswith("run B") for text in texts)
