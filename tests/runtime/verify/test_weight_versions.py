"""Training without a flush equals the recursions of the dissertation bit for bit, and no other recursion.

The recursion is a loop over updates with every version of the weights of every stage kept in a list: it
computes the unpipelined model, and knows neither schedules nor what tells a run which version to read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from one_line_errors import raises_line
from small_runs import comparison_of, trained
from torch import Tensor
from weight_versions import device_orders

from placements import Placement
from placements.shapes import loop_shape, v_shape, wave_shape, x_shape
from runtime.checkpoints.loading import read_parameters
from runtime.models import WHOLE, Model, ModelError, ModelOptions, body_of, read_versions
from runtime.program.deadlock import check
from runtime.program.lower import lower, recomputed
from schedsearch.baselines import chimera, gpipe, interleaved_one_f_one_b, one_f_one_b, zb_h1
from schedsearch.schedule import Schedule

UPDATES = 12
SYNTHETIC = ModelOptions(
    "synthetic", hidden_size=4, sequence_length=3, micro_batch_size=1, learning_rate=0.05
)
GPT = ModelOptions(
    "gpt", hidden_size=8, sequence_length=5, micro_batch_size=1, num_layers=4, num_heads=2, learning_rate=0.05
)
OPTIMIZERS = {
    "weight_stashing": {"momentum": 0.9},
    "vertical_sync": {"optimizer": "adamw", "weight_decay": 0.1},
    "double_buffering": {},
}
"""An optimizer for each mode, as neither knows the other."""

Version = Callable[[int, int, int], int]
"""From p, the stage s from 1 on and the update t from 0 on, to the version of stage s that it reads."""

RECURSIONS: dict[str, Version] = {
    "weight_stashing": lambda p, s, t: t - p + s,
    "vertical_sync": lambda p, s, t: t - p + 1,
    "double_buffering": lambda p, s, t: t - 1,
}
"""Version numbers below 0 stand for version 0."""


def recursion(
    options: ModelOptions, placement: Placement, per_update: int, version: Version
) -> tuple[list[float], dict[str, Tensor]]:
    """Train the unpipelined model for `UPDATES` updates; return losses and parameters."""
    depth, body = placement.num_devices, body_of(options, placement)
    stages = [Model(options, placement, {f"F{s}": WHOLE}, body=body) for s in range(depth)]
    data = body.data(UPDATES * per_update, "cpu")
    versions = [copies(stages)]
    losses = []
    for t in range(UPDATES):
        read = [versions[max(version(depth, s + 1, t), 0)][s] for s in range(depth)]
        for n in range(t * per_update, (t + 1) * per_update):
            hidden: list[Tensor] = []
            for s, stage in enumerate(stages):
                hidden = [stage.forward(f"F{s}", hidden, data.read(f"F{s}", 0, n), read[s])]
            losses.append(float(hidden[0].detach()))
            (hidden[0] / per_update).backward()
        for s, stage in enumerate(stages):
            for name, weight in stage.trained(f"F{s}").items():
                weight.grad, read[s][name].grad = read[s][name].grad, None
            stage.step()
        versions.append(copies(stages))
    return losses, {name: weight for stage in versions[-1] for name, weight in stage.items()}


def copies(stages: list[Model]) -> list[dict[str, Tensor]]:
    return [
        {name: weight.detach().clone().requires_grad_() for name, weight in stage.trained(f"F{s}").items()}
        for s, stage in enumerate(stages)
    ]


def run(
    schedule: Schedule,
    options: ModelOptions,
    launcher: str = "in_process",
    iterations: int = 1,
    recompute: Sequence[str] = (),
) -> tuple[list[float], Mapping[str, Tensor], bool]:
    """Run a schedule's scripts; return losses, parameters, and whether both references have the same bits."""
    programs = check(recomputed(lower(schedule), recompute))
    with tempfile.TemporaryDirectory() as folder:
        kept = {"checkpoint_every": 1, "checkpoints": Path(folder)}
        result = trained(programs, options, None, iterations, launcher, **kept)
        compared = comparison_of(result)
        largest = compared.max_loss_error + compared.max_gradient_error + compared.max_parameter_error
        parameters = read_parameters(Path(folder))
        return list(result.losses[-1]), parameters, compared.bitwise_equal and largest == 0


def same(
    ours: tuple[list[float], Mapping[str, Tensor]], other: tuple[list[float], dict[str, Tensor]]
) -> bool:
    assert ours[1].keys() == other[1].keys()
    return ours[0] == other[0] and all(torch.equal(ours[1][name], value) for name, value in other[1].items())


@pytest.mark.parametrize("mode", RECURSIONS)
def test_updates_equal_the_closed_recursion_bit_for_bit_and_no_other(mode: str) -> None:
    per_update = 3 if mode == "double_buffering" else 1
    optimizer = OPTIMIZERS[mode]
    options = replace(SYNTHETIC, weight_versions=mode, micro_batches_per_update=per_update, **optimizer)  # type: ignore[arg-type]
    schedule = one_f_one_b(v_shape(3, 1, 2), UPDATES * per_update)
    losses, parameters, equal = run(schedule, options)
    assert equal
    right = RECURSIONS[mode]
    assert same((losses, parameters), recursion(options, schedule.placement, per_update, right))
    for wrong in (
        lambda p, s, t: right(p, s, t) - 1,
        lambda p, s, t: right(p, s, t) + (right(p, s, t) < t),
        lambda p, s, t: right(p, s, t) - (s == 1),
        lambda p, s, t: t,
    ):
        assert not same((losses, parameters), recursion(options, schedule.placement, per_update, wrong))


@pytest.mark.parametrize("mode", RECURSIONS)
@pytest.mark.parametrize(
    ("schedule", "recompute"),
    [
        (zb_h1(v_shape(3, split_backward=True), 12), ()),
        (interleaved_one_f_one_b(loop_shape(2), 12), "all"),
        (chimera(x_shape(2), 12), ()),
        (one_f_one_b(v_shape(3, 1, 2), 12), "all"),
    ],
    ids=lambda value: getattr(getattr(value, "placement", None), "name", str(value)),
)
def test_other_schedules_equal_both_references(
    schedule: Schedule, mode: str, recompute: Sequence[str]
) -> None:
    per_update = 6 if mode == "double_buffering" else 1
    options = replace(SYNTHETIC, weight_versions=mode, micro_batches_per_update=per_update)
    assert run(schedule, options, iterations=2, recompute=recompute)[2]


def test_what_cannot_be_is_refused_in_one_line() -> None:
    placement = v_shape(4, 1, 2)
    double = replace(SYNTHETIC, weight_versions="double_buffering", micro_batches_per_update=2)
    with raises_line(ModelError, match=r"model.weight_versions: double_buffering lets F0 .* raise micro_"):
        read_versions(double, placement, 8, device_orders(one_f_one_b(placement, 8)))
    with pytest.raises(ModelError, match=r"model.weight_versions: double_buffering lets F0 of micro-batch 8"):
        read_versions(
            replace(double, micro_batches_per_update=4), placement, 16, device_orders(gpipe(placement, 16))
        )
    with raises_line(ModelError, match=r"model.micro_batches_per_update: 3 is not a divisor of the 8 inputs"):
        read_versions(
            replace(double, micro_batches_per_update=3), placement, 8, device_orders(gpipe(placement, 8))
        )
    with raises_line(ModelError, has="F0 and F7 share embedding.tokens; use flush or the model 'synthetic'"):
        body_of(replace(GPT, num_layers=8, weight_versions="weight_stashing"), wave_shape(4))
    for name, value in [("weight_versions", "stale"), ("micro_batches_per_update", 0), ("momentum", -1)]:
        with pytest.raises(ModelError, match=f"model.{name}: "):
            replace(SYNTHETIC, **{name: value})  # type: ignore[arg-type]
