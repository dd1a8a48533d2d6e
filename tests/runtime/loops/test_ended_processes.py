"""A process of a loop that ends before the others: these name it and the cause, each in one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from joined import JoinedError, join, meeting_in
from places import ROOT
from small_runs import SMALL_GPT
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import runtime
from placements import Placement
from placements.shapes import m_shape, v_shape
from runtime.checkpoints.shards import ShardWriter
from runtime.codegen.codegen import generate
from runtime.models import Model, cut
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import gpipe

NUM_DEVICES = 4
BATCH = torch.randn(8, 6), torch.arange(8) % 3


def job(placement: Placement, folder: Path, model: dict[str, object]) -> Path:
    generate(check(lower(gpipe(placement, 4))), {}, model, folder)
    return folder


def errors(count: int, be: Callable[[int], object], tmp_path: Path) -> dict[int, str]:
    """Return the errors of the processes that failed, by rank."""
    with pytest.raises(JoinedError) as error:
        join(count, be, tmp_path)
    lines: dict[int, str] = error.value.args[0]
    return lines


def loop(tmp_path: Path, end: Callable[[runtime.Pipeline, int], object]) -> dict[int, str]:
    """Return the errors of a loop of four processes that ends in some way after its first step."""
    folder = job(v_shape(NUM_DEVICES), tmp_path / "job", {"name": "given"})

    def be(rank: int) -> None:
        modules = cut(nn.Sequential(*(nn.Linear(6, 6) for _ in range(4))), at=["1", "2", "3"])
        with runtime.Pipeline(modules, folder, loss=cross_entropy) as pipeline:
            pipeline.step(BATCH)
            end(pipeline, rank)

    return errors(NUM_DEVICES, be, tmp_path)


def killed(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_in_a_block(pipeline: runtime.Pipeline, rank: int) -> None:
    if rank == 2:
        torch.nn.modules.module.register_module_forward_pre_hook(killed)
    pipeline.step(BATCH)


def killed_between_steps(pipeline: runtime.Pipeline, rank: int) -> None:
    if rank == 2:
        killed()
    pipeline.clip_grad_norm_(1.0)


@pytest.mark.parametrize("end", [killed_in_a_block, killed_between_steps])
def test_a_process_that_is_killed_is_named_by_all(
    end: Callable[[runtime.Pipeline, int], object], tmp_path: Path
) -> None:
    """Those too that wait for a neighbour of it, which ends after it."""
    lines = loop(tmp_path, end)
    for rank in (0, 1, 3):
        line = (
            rf"TransferError: device {rank}: .*: device 2 \(process \d+\) is gone without a word: killed by "
        )
        assert re.match(line, lines[rank])
        assert "\n" not in lines[rank]


def test_a_checkpoint_names_the_process_that_is_gone(tmp_path: Path) -> None:
    def saves(pipeline: runtime.Pipeline, rank: int) -> None:
        if rank == 2:
            ShardWriter.prepare_local_plan = killed  # type: ignore[assignment]
        pipeline.save(tmp_path / "checkpoints", is_async=False)

    lines = loop(tmp_path, saves)
    for rank in (0, 1, 3):
        line = rf".*iteration_1: device {rank} could not write it \(device 2 \(process \d+\) is gone"
        assert re.match(f"CheckpointError: {line}", lines[rank])


def test_a_shard_that_fails_is_named_by_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last block of the job's own model are cut over all devices."""
    folder = job(m_shape(2), tmp_path / "job", SMALL_GPT)
    forward = Model.forward

    def fails(self: Model, block: str, *rest: Any) -> Tensor:
        if int(os.environ["RANK"]) == 1 and len(self._placement.by_name[block].devices) > 1:
            raise RuntimeError("lost its\nway")
        return forward(self, block, *rest)

    def be(rank: int) -> None:
        with runtime.Pipeline(None, folder) as pipeline:
            pipeline.step()
            monkeypatch.setattr(Model, "forward", fails)
            pipeline.step()

    lines = errors(2, be, tmp_path)
    assert lines[1] == "RuntimeError: lost its\nway"
    assert re.match("TransferError: device 0: .*: device 1: RuntimeError: lost its way$", lines[0])


INTERRUPTED = """
import os, signal, sys, time
import torch
from torch import nn
from torch.nn.functional import cross_entropy
import runtime
from runtime.checkpoints.shards import ShardWriter
from runtime.models import cut

if os.environ["RANK"] == "1":
    ShardWriter.write_data = lambda *_: time.sleep(1000)
modules = cut(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), at=["1"])
with runtime.Pipeline(modules, sys.argv[1], loss=cross_entropy) as pipeline:
    pipeline.step((torch.randn(8, 6), torch.arange(8) % 3))
    pipeline.save(sys.argv[2])
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1000)
"""


def test_ctrl_c_ends_a_loop_whose_checkpoint_does_not_come_to_its_end(tmp_path: Path) -> None:
    """One process hangs in its file, the other waits for it."""
    folder = job(v_shape(2), tmp_path / "job", {"name": "given"})
    command = [sys.executable, "-c", INTERRUPTED, str(folder), str(tmp_path / "checkpoints")]
    common = meeting_in(tmp_path, 2)
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode in (1, -signal.SIGINT, 128 + signal.SIGINT)
            assert errors.endswith("KeyboardInterrupt\n")
    finally:
        for process in processes:
            process.kill()
            process.wait()
