"""A run goes on where other devices compute it, with other options, and from checkpoints of before."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import trained

from placements.shapes import m_shape, v_shape, x_shape
from runtime.checkpoints.loading import read_parameters
from runtime.checkpoints.shards import ShardReader
from runtime.execution.measurement import Measurement
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import Schedule

MODEL = {
    "name": "gpt",
    "hidden_size": 4,
    "num_layers": 4,
    "num_heads": 2,
    "sequence_length": 4,
    "vocab_size": 257,
    "micro_batch_size": 2,
    "optimizer": "adamw",
    "learning_rate": 0.01,
}
"""A vocabulary that two devices cannot share evenly."""

V2, V4 = (one_f_one_b(v_shape(number), 4) for number in (2, 4))
M2 = gpipe(m_shape(2), 4)


def run(folder: Path, schedule: Schedule, iterations: int, launcher: str, **options: Any) -> Measurement:
    """Run a schedule of the model with checkpoints after every second iteration."""
    model = MODEL | options.pop("model", {})
    options = {"checkpoint_every": 2, "checkpoints": folder / "all"} | options
    return trained(lower(schedule), model, None, iterations, launcher, **options)


def test_a_run_goes_on_on_other_devices_and_back(tmp_path: Path) -> None:
    """V on 4, V on 2, the vocabulary shared by 2 devices unevenly, and back, each half in processes."""
    whole = run(tmp_path / "one", V2, 8, "in_process")
    assert whole.comparison is not None and whole.comparison.bitwise_equal
    here, resume = tmp_path / "many", {"resume": tmp_path / "many/all"}
    runs = [run(here, V4, 2, "fork"), run(here, V2, 4, "in_process", **resume)]
    exact = [loss for result in runs for loss in result.losses]
    assert exact == list(whole.losses[:4]), "each block is on one device, so that all bits are equal"
    runs = [run(here, M2, 6, "fork", **resume), run(here, V4, 8, "in_process", **resume)]
    assert [result.first_iteration for result in runs] == [4, 6]
    near = torch.tensor([loss for result in runs for loss in result.losses], dtype=torch.float64)
    assert torch.allclose(near, torch.tensor(whole.losses[4:], dtype=torch.float64), rtol=1e-12, atol=0)
    ours, theirs = (read_parameters(tmp_path / name / "all") for name in ("many", "one"))
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(value, theirs[name], rtol=1e-9) for name, value in ours.items())


def test_uneven_shards_and_copies_are_written_once_each(tmp_path: Path) -> None:
    """Blocks in data-parallel groups, cut unevenly inside, and a replica of the whole on the way back."""
    stages = replace(v_shape(2), num_gpus=(4, 2))
    groups = replace(
        stages,
        blocks=tuple(
            replace(block, data_parallel=2 if block.name in ("F0", "B0") else 1) for block in stages.blocks
        ),
    )
    run(tmp_path, one_f_one_b(groups, 4), 2, "fork")
    contents = ShardReader(tmp_path / "all/iteration_2")._metadata.state_dict_metadata
    tables = {name: entry for name, entry in contents.items() if ".tokens" in name and "step" not in name}
    assert {name for name in tables if name.startswith("parameters/")} == {
        "parameters/embedding.tokens",
        "parameters/output.tokens",
    }
    for table in tables.values():
        assert sorted(tuple(chunk.sizes) for chunk in table.chunks) == [(128, 4), (129, 4)]
        assert sorted(tuple(chunk.offsets) for chunk in table.chunks) == [(0, 0), (129, 0)]
    whole = run(tmp_path / "one", V2, 4, "in_process")
    for schedule in (gpipe(x_shape(2), 2), V2):
        resumed = run(tmp_path, schedule, 4, "fork", resume=tmp_path / "all", checkpoint_every=0)
        near = torch.tensor(resumed.losses, dtype=torch.float64)
        expected = torch.tensor(whole.losses[2:], dtype=torch.float64)
        assert torch.allclose(near.mean(1), expected.mean(1), rtol=1e-12, atol=0)


def test_other_options_are_allowed_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    run(tmp_path, V2, 2, "in_process")
    assert not caplog.messages
    other = {"learning_rate": 0.05, "weight_decay": 0.1}
    more = one_f_one_b(v_shape(4), 6)
    result = run(tmp_path, more, 3, "in_process", model=other, resume=tmp_path / "all", checkpoint_every=1)
    said = [line for line in caplog.messages if line.startswith("resume:")]
    assert said == [
        f"resume: from {tmp_path}/all/iteration_2, with another learning_rate 0.01 -> 0.05, "
        "weight_decay 0.0 -> 0.1, num_micro_batches 4 -> 6, placement (same name, other blocks)",
        "resume: not compared with the unpipelined model, as options have changed since the run began",
    ]
    assert result.comparison is None
    assert len(result.losses[0]) == 6
