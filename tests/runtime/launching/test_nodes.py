"""Runs on several nodes, which are several torchruns on this machine; and faults in one line."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import SMALL_GPT, change, comparison_of, launched
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from placements import Placement
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.execution.results import Position, Standing, write_failure
from runtime.execution.run_options import RunOptions
from runtime.launching.following import LaunchError, follow, stuck
from runtime.launching.lines import devices_of_nodes
from runtime.launching.processes import killed_devices
from runtime.program.calls import ScriptError
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from schedsearch.baselines import one_f_one_b

UNEVEN = replace(v_shape(3), nodes=(0, 0, 1))


def generated(placement: Placement, folder: Path) -> Path:
    """Write the scripts of 1F1B of three micro-batches, with early receives, and return their folder."""
    programs = prefetch_receives(lower(one_f_one_b(placement, 3)), 1)
    generate(programs, {}, SMALL_GPT | {"num_layers": placement.num_devices}, folder)
    return folder


def insert(script: Path, line: str) -> None:
    """Let a script's second iteration begin with a line."""
    end_of_docstring = '\n    """\n'
    once = f"    hasattr(device, 'count') or COUNT.append(0)\n    if len(COUNT) > 1:\n        {line}\n"
    change(script, end_of_docstring, end_of_docstring + once)
    change(script, "\nfrom runtime", "\nCOUNT = []\nfrom runtime")


def test_two_nodes_train_as_one(tmp_path: Path) -> None:
    """Node 0 has two devices and node 1 the third; the results are those of one process."""
    scripts = generated(UNEVEN, tmp_path / "scripts")
    found = launched(scripts, 3, 2, nodes=2, device="cpu")
    assert comparison_of(found).bitwise_equal
    alone = launched(scripts, 3, 2, launcher="in_process")
    assert alone.losses == found.losses


def test_a_lost_node_is_named(tmp_path: Path) -> None:
    """Also by the nodes that only miss it; and the checkpoints that there are stay."""
    scripts = generated(replace(v_shape(2), nodes=(0, 1)), tmp_path / "scripts")
    line = "import os, time; os.kill(os.getppid(), 9); time.sleep(60)"
    insert(scripts / "device_1.py", line)
    kept = tmp_path / "kept"
    often: dict[str, Any] = {"checkpoint_every": 1, "checkpoints": kept, "checkpoint_async": False}
    with pytest.raises(LaunchError, match=r"^node 1 \(device 1\) was ended by SIGKILL\ndevice 0: "):
        launched(scripts, 2, 3, nodes=2, device="cpu", **often)
    assert [path.name for path in kept.iterdir()] == ["iteration_1"]
    for script in scripts.glob("*.py"):
        script.write_text(script.read_text().replace(line, "pass"))
    found = launched(scripts, 2, 2, launcher="in_process", resume=kept)
    assert (found.first_iteration, comparison_of(found).bitwise_equal) == (1, True)


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
    assert stuck([Standing(*each) for each in standings]) == device


class Late:
    """Processes of which one failed long ago, and none ends."""

    def poll(self) -> int | None:
        return None

    def killed(self) -> Mapping[str, str]:
        return {}

    def name_of(self, device: int) -> str:
        return f"device {device} (node 7)"

    def last_lines(self) -> list[str]:
        return []

    def stop(self) -> None:
        return None


def test_a_hang_is_one_line_with_the_device_and_its_node(tmp_path: Path) -> None:
    options = RunOptions(timeout_s=0.01, results=tmp_path)
    Position(tmp_path, 0).move("iteration 0, call 3 of 9, runs F1, waits for its input", 1)
    Position(tmp_path, 1).move("iteration 0, call 2 of 9, runs F0 of micro-batch 0")
    with pytest.raises(LaunchError) as caught:
        follow(Late(), 2, options)
    first = str(caught.value).splitlines()[0]
    stands = "device 1 (node 7) stands at iteration 0, call 2 of 9, runs F0 of micro-batch 0"
    assert first == f"no progress for 0.01 s, {stands}"
    write_failure(tmp_path, 0, "OSError: disk full", cause=1)
    with pytest.raises(LaunchError, match=r"^device 1 \(node 7\) failed: OSError: disk full\n"):
        follow(Late(), 2, options)


def test_nodes_share_the_devices() -> None:
    assert devices_of_nodes(v_shape(6), 3) == (2, 2, 2)
    assert devices_of_nodes(UNEVEN) == devices_of_nodes(UNEVEN, 2) == (2, 1)
    assert devices_of_nodes(UNEVEN, 1) == (3,)
    with pytest.raises(ScriptError, match="nodes: 4 do not divide the 6 devices; use a divisor, or give"):
        devices_of_nodes(v_shape(6), 4)
    with pytest.raises(ScriptError, match="nodes: 3 are not the 2 that the placement has .*; use 2"):
        devices_of_nodes(UNEVEN, 3)


def test_only_torchrun_has_nodes(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="nodes: 2 need launcher 'torchrun', 'fork' has one; use it"):
        launched(tmp_path, 2, launcher="fork", nodes=2)
