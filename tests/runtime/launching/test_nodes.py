"""A run on two nodes, which are two torchruns on this machine; and faults in one line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from places import ROOT
from small_runs import SMALL_GPT, launched
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from placements import Placement
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.execution.results import Position, Standing, write_failure
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import LaunchError, follow, stuck
from runtime.launching.processes import killed_devices
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from schedsearch.baselines import one_f_one_b

UNEVEN = replace(v_shape(3), nodes=(0, 0, 1))


def generated(placement: Placement, folder: Path) -> Path:
    """Write the scripts of 1F1B of three micro-batches, with early receives, and return their folder."""
    programs = prefetch_receives(lower(one_f_one_b(placement, 3)), 1)
    generate(programs, {}, SMALL_GPT | {"num_layers": placement.num_devices}, folder)
    return folder


def test_two_nodes_train_as_one(tmp_path: Path) -> None:
    """Node 0 has two devices and node 1 the third; each has a torchrun, by the lines of the scripts."""
    scripts = generated(UNEVEN, tmp_path / "scripts")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    weights = tmp_path / "weights.safetensors"
    agents = []
    for node, number in enumerate(UNEVEN.gpus_of_nodes):
        line = ["--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", str(number)]
        line += ["--master-addr", "127.0.0.1", "--master-port", port, "-m", "runtime.launch", str(scripts)]
        line += ["--exact", "--save-weights", str(weights)]
        command = [sys.executable, "-m", "torch.distributed.run", "--log-dir", str(tmp_path), *line]
        agents.append(subprocess.Popen(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}))
    assert [agent.wait(300) for agent in agents] == [0, 0]
    alone = tmp_path / "alone.safetensors"
    launched(scripts, 3, launcher="in_process", verify="none", exact=True, save_weights=alone)
    assert weights.read_bytes() == alone.read_bytes()


def test_what_torchrun_ended_itself_is_not_the_cause() -> None:
    exit_codes = {0: -signal.SIGTERM, 3: -signal.SIGSEGV, 4: -signal.SIGKILL, 5: 1}
    failures = {device: ProcessFailure(0, 1, code, "") for device, code in exit_codes.items()}
    failures[4].timestamp += 31  # torchrun waited for it in vain
    table = f"something before\n{ChildFailedError('runtime.launch', failures)}\n"
    assert killed_devices(table) == {3: "SIGSEGV"}


@pytest.mark.parametrize(
    ("standings", "device"),
    [
        ([("waits", 2), ("waits", 0), ("runs F2",)], 2),
        ([("done",), ("done",), ("waits", 1)], 1),
        ([("waits", 1), ("waits", 0)], 0),
        ([("done",), ("connecting",)], 1),
        ([("done",), ("done",)], 0),
    ],
)
def test_the_device_at_the_end_of_what_is_waited_for_is_named(
    standings: list[tuple[str, int]], device: int
) -> None:
    assert stuck([Standing(*standing) for standing in standings]) == device


class Late:
    """Processes of which one failed long ago, and none ends."""

    def poll(self) -> int | None:
        return None

    def killed(self) -> Mapping[str, str]:
        return {}

    def last_lines(self) -> list[str]:
        return []

    def stop(self) -> None:
        return None


def test_a_hang_is_one_line_with_the_device(tmp_path: Path) -> None:
    options = RunOptions(timeout_s=0.01, results=tmp_path)
    Position(tmp_path, 0).move("iteration 0, call 3 of 9, runs F1, waits for its input", 1)
    Position(tmp_path, 1).move("iteration 0, call 2 of 9, runs F0 of micro-batch 0")
    with pytest.raises(LaunchError) as caught:
        follow(Late(), 2, options)
    first = str(caught.value).splitlines()[0]
    stands = "device 1 stands at iteration 0, call 2 of 9, runs F0 of micro-batch 0"
    assert first == f"no progress for 0.01 s, {stands}"
    write_failure(tmp_path, 0, "OSError: disk full", cause=1)
    with pytest.raises(LaunchError, match=r"^device 1 failed: OSError: disk full\n"):
        follow(Late(), 2, options)
