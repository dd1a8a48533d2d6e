"""Schedules of several devices on one GPU: real kernels, and the bits of the same GPU's replay."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest
import torch
from small_runs import SMALL_GPT, comparison_of, in_modes, launched

from placements import Placement
from placements.shapes import k_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Measurement
from runtime.options.run import NETWORKS
from runtime.program.deadlock import check
from runtime.program.instructions import Instruction, Programs
from runtime.program.lower import lower, recomputed
from runtime.program.prefetch import prefetch_receives
from schedsearch.baselines import gpipe, one_f_one_b, zb_v

pytestmark = pytest.mark.gpu

SIZES = {"hidden_size": 16, "sequence_length": 8, "micro_batch_size": 2, "num_layers": 4, "num_heads": 4}

CASES: dict[str, tuple[str, Placement]] = {
    "V gpt": ("gpt", v_shape(3)),
    "M gpt": ("gpt", m_shape(3)),
    "X gpt": ("gpt", x_shape(2)),
    "NN mt5": ("mt5", nn_shape(4)),
    "K flava": ("flava", k_shape(2)),
    "NN synthetic": ("synthetic", nn_shape(2)),
}


def run(
    programs: Programs, directory: Path, device: str, backend: str = "rendezvous", **model: object
) -> Measurement:
    """Run two iterations in one process."""
    generate(programs, {}, {"name": "gpt", **SIZES, **model}, directory)
    count = programs.placement.num_devices
    return launched(directory, count, 2, 120, launcher="in_process", backend=backend, device=device)


@pytest.mark.parametrize(("case", "backend"), list(zip(CASES, cycle(NETWORKS), strict=False)))
def test_a_model_equals_its_replay_and_the_unpipelined_one(
    case: str, backend: str, device: str, tmp_path: Path
) -> None:
    name, placement = CASES[case]
    measurement = run(lower(gpipe(placement, 3)), tmp_path, device, backend, name=name)
    comparison = comparison_of(measurement)
    assert comparison.bitwise_equal
    assert comparison.is_equal, comparison
    here = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    assert set(measurement.device_names) == {here}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_has_the_bits_of_the_replay(precision: str, device: str, tmp_path: Path) -> None:
    programs = lower(gpipe(x_shape(2), 2))
    training = {"clip_grad_norm": 0.5, "zero": 1, "optimizer": "adamw"}
    options = training | {"dtype": "float32", "precision": precision}
    comparison = comparison_of(run(programs, tmp_path, device, **options))
    assert comparison.bitwise_equal
    assert comparison.max_gradient_error <= 0.1


@pytest.mark.parametrize(("dtype", "size"), [("float64", 16), ("float32", 128), ("bfloat16", 128)])
def test_blocks_of_one_device_have_the_bits_of_the_replay_in_every_type(
    dtype: str, size: int, device: str, tmp_path: Path
) -> None:
    """The larger one is of the sizes that a GPU has special kernels for."""
    programs = lower(one_f_one_b(v_shape(2), 4))
    measurement = run(programs, tmp_path, device, dtype=dtype, hidden_size=size, sequence_length=size // 2)
    comparison = comparison_of(measurement)
    assert comparison.bitwise_equal
    assert comparison.max_gradient_error <= {"float64": 1e-12, "float32": 1e-3, "bfloat16": 0.5}[dtype]
    first, last = (sum(losses) for losses in (measurement.losses[0], measurement.losses[-1]))
    assert first != last, "it learned nothing, so the steps are not compared"


def test_a_split_backward_equals_the_replay(device: str, tmp_path: Path) -> None:
    programs = lower(zb_v(wave_shape(2, split_backward=True), 4))
    comparison = comparison_of(run(programs, tmp_path, device))
    assert comparison.bitwise_equal
    assert comparison.is_equal, comparison


@pytest.mark.parametrize("case", ["K flava", "M gpt"])
def test_receives_posted_early_and_blocks_computed_again_change_no_bit(
    case: str, device: str, tmp_path: Path
) -> None:
    name, placement = CASES[case]
    late = lower(gpipe(placement, 4))
    early = prefetch_receives(late, 3, None, lambda producer, consumer: 1)
    assert early.instructions != late.instructions
    check(early)
    runs = [
        run(recomputed(programs, recompute), tmp_path / str(i), device, name=name, optimizer="adamw")
        for i, (programs, recompute) in enumerate([(late, []), (early, []), (late, "all"), (early, "all")])
    ]
    assert all(comparison_of(measured).bitwise_equal for measured in runs)
    assert len({measured.losses for measured in runs}) == 1
    assert sum(runs[1].peak_posted_bytes) >= sum(runs[0].peak_posted_bytes)


@pytest.mark.parametrize("case", ["K flava", "M gpt"])
def test_modes_change_no_bit(case: str, device: str, tmp_path: Path) -> None:
    """All kept, all computed again, all on the host, and each in turns."""
    name, placement = CASES[case]
    ways = [lambda *_: 0, lambda *_: 1, lambda *_: 2, lambda stage, n: (stage + n) % 3]
    runs = [
        run(lower(in_modes(gpipe(placement, 4), way)), tmp_path / str(i), device, name=name)
        for i, way in enumerate(ways)
    ]
    assert all(comparison_of(measured).bitwise_equal for measured in runs)
    assert len({measured.losses for measured in runs}) == 1
    assert sum(runs[0].peak_host_bytes) == sum(runs[1].peak_host_bytes) == 0 < sum(runs[3].peak_host_bytes)


def test_a_resumed_run_has_the_bits_of_one_that_did_not_stop(device: str, tmp_path: Path) -> None:
    generate(lower(gpipe(m_shape(2), 2)), {}, SMALL_GPT | {"optimizer": "adamw"}, tmp_path / "scripts")

    def go(iterations: int, **options: object) -> Measurement:
        options |= {"launcher": "in_process", "device": device}
        return launched(tmp_path / "scripts", 2, iterations, 120, **options)  # type: ignore[arg-type]

    whole = go(4)
    go(2, checkpoint_every=1, checkpoints=tmp_path / "kept")
    resumed = go(4, resume=tmp_path / "kept")
    assert resumed.first_iteration == 2
    assert resumed.losses == whole.losses[2:]
    assert comparison_of(resumed).bitwise_equal
    other = launched(tmp_path / "scripts", 2, 3, 120, launcher="in_process", resume=tmp_path / "kept")
    elsewhere = comparison_of(other)  # a checkpoint goes from a GPU to the CPU as well
    assert max(elsewhere.max_loss_error, elsewhere.max_gradient_error) <= 1e-12
    assert elsewhere.max_parameter_error <= 1e-9, "AdamW enlarges what the two devices round differently"


OWN_MODEL = """
import torch
from torch import nn
from torch.nn.functional import mse_loss as loss


def blocks():
    return {"F0": nn.Sequential(nn.Linear(8, 64), nn.Dropout()), "F1": nn.Linear(64, 2)}


def data(iteration, micro_batch):
    return torch.randn(32, 8), torch.randn(32, 2)
"""


def test_dropout_falls_the_same_way_when_a_block_is_computed_again(device: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_MODEL)
    runs = []
    for recompute in ([], "all"):
        folder = tmp_path / f"recompute_{len(runs)}"
        model = {"name": "module", "path": str(tmp_path / "own.py")}
        generate(recomputed(lower(gpipe(v_shape(2), 3)), recompute), {}, model, folder)
        runs.append(launched(folder, 2, 2, 120, launcher="in_process", device=device))
    assert runs[0].losses == runs[1].losses
    assert all(comparison_of(measured).bitwise_equal for measured in runs)


def test_clocks_are_asked_for_in_the_order_of_the_plan_and_none_is_set(
    device: str, refused: Path, tmp_path: Path
) -> None:
    """By events on the GPU's stream; all devices share it, so nobody sets its clock."""
    programs = lower(one_f_one_b(v_shape(2), 3))
    clocks = {
        "F0": [1410, 1395, 1380],
        "B0": [1200, 1185, 1170],
        "F1": [900, 885, 870],
        "B1": [705, 690, 675],
    }
    generate(programs, clocks, {"name": "gpt", **SIZES}, tmp_path / "scripts")
    measurement = launched(tmp_path / "scripts", 2, 2, 120, launcher="in_process", device=device)
    planned = {
        index: [clocks[run.block][run.micro_batch] for run in programs.instructions[index] if _runs(run)] * 2
        for index in range(2)
    }
    assert {index: list(asked) for index, asked in measurement.clock_requests.items()} == planned
    reason = "all devices share one GPU" if device == "cuda" else "the script runs on the CPU"
    assert measurement.clock_backend == f"clocks are recorded only: {reason}"
    assert refused.read_text() == ""


def _runs(instruction: Instruction) -> bool:
    return hasattr(instruction, "block")
