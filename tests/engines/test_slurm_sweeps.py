"""Sweeps under a real Slurm: lost points are lines, results are kept, the table is complete in the end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from places import ROOT
from slurm_nodes import said, two_nodes, until

SMALL = ["placement=v_shape", "search.num_micro_batches=4", "search.work_limit=1"]


@pytest.fixture(scope="module", autouse=True)
def _slurm() -> Iterator[None]:
    with two_nodes():
        yield


class Sweep:
    """A sweep as a user starts it."""

    def __init__(self, directory: Path, *options: str) -> None:
        line = [sys.executable, "-m", "schedsearch", "search", "-m", "hydra/launcher=submitit_slurm", *SMALL]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([*line, f"hydra.sweep.dir={directory}", *options], cwd=ROOT, **pipes)

    def job(self, wanted: Callable[[str, str, str], bool]) -> str:
        """Wait for a job in the queue, wanted by its id, state and node, and return its id."""
        ids: list[str] = []

        def is_there() -> bool:
            rows = [row.split("|") for row in said("squeue", "-hr", "-o", "%i|%T|%N").splitlines()]
            ids[:] = [name for name, state, node in rows if wanted(name, state, node)]
            return bool(ids) or self.process.poll() is not None

        until(is_there)
        assert ids, self.process.communicate()
        return ids[0]

    def end(self, code: int) -> tuple[list[str], list[str]]:
        """Wait for the end, and return the lines of output and of errors."""
        output, errors = self.process.communicate(timeout=240)
        assert self.process.returncode == code, output + errors
        return output.splitlines(), errors.splitlines()


def table(directory: Path) -> list[tuple[int, str]]:
    rows = pd.read_csv(directory / "runs.csv")[["search.memory", "status"]]
    return list(rows.itertuples(index=False, name=None))


def test_a_sweep_of_six_points_is_whole_in_the_end(tmp_path: Path) -> None:
    """One point is wrong, one is cancelled; when that is resumed, its node is set down and it moves."""
    sweep = Sweep(tmp_path, "search.memory=0,3,4,5,6,7")
    cancelled = sweep.job(lambda name, state, node: name.endswith("_5") and state == "PENDING")
    said("scancel", cancelled)
    output, (wrong, lost, end) = sweep.end(1)
    array = cancelled.removesuffix("_5")
    assert output[0].endswith(f"jobs of Slurm: 6 for 6 points, array {array}; Ctrl-C cancels them")
    assert output[1].startswith(f"written: {tmp_path}/runs.csv")
    assert len(output) == 2, "no flood of warnings"
    assert f"{tmp_path}/0: rejected: {' '.join(SMALL)} search.memory=0: memory[0]: 0 is too small" in wrong
    assert lost.endswith("search.memory=7: its job of Slurm was cancelled before it began")
    assert end.startswith("search: not done: 2 points; the same command with hydra.sweep.dir")
    done = [(memory, "done") for memory in range(3, 7)]
    assert table(tmp_path) == [(0, "rejected"), *done, (7, "interrupted")]

    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("[1-4]/*")}
    sweep = Sweep(tmp_path, "search.memory=0,3,4,5,6,7")
    moved = sweep.job(lambda name, state, node: state == "RUNNING" and node == "n1")
    said("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    sweep.job(lambda name, state, node: name == moved and node != "n1")
    said("scontrol", "update", "nodename=n1", "state=resume")
    output, errors = sweep.end(1)
    assert "jobs of Slurm: 2 for 2 points" in output[0]
    assert errors[0] == wrong, "the only one"
    assert table(tmp_path) == [(0, "rejected"), *done, (7, "done")]
    assert before == {path: path.stat().st_mtime_ns for path in before}, "what is done is not run again"


def test_ctrl_c_cancels_the_jobs_and_the_same_command_goes_on(tmp_path: Path) -> None:
    options = ["search.memory=3,4,5,6,7", "hydra.launcher.array_parallelism=2"]
    sweep = Sweep(tmp_path, *options)
    sweep.job(lambda name, state, node: state == "RUNNING")
    sweep.process.send_signal(signal.SIGINT)
    output, (line,) = sweep.end(130)
    assert "jobs of Slurm: 2 for 5 points" in output[0]
    assert line.startswith("search: interrupted; its jobs of Slurm are cancelled; the same command with")
    until(lambda: not said("squeue", "-h"))
    Sweep(tmp_path, *options).end(0)
    assert table(tmp_path) == [(memory, "done") for memory in range(3, 8)]


def test_a_full_disk_is_a_line(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("no right to mount a small file system")
    sweep = tmp_path / "sweep"
    try:
        Sweep(sweep, "search.memory=4").end(0)
        written = (sweep / "runs.csv").read_bytes()
        with pytest.raises(OSError), (tmp_path / "filling").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        output, errors = Sweep(sweep, "search.memory=4,5").end(2)
        assert (output, len(errors)) == ([], 1)
        assert "No space left on device; choose another path, as with" in errors[0]
        assert (sweep / "runs.csv").read_bytes() == written
        (tmp_path / "filling").unlink()
        output, errors = Sweep(sweep, "search.memory=4,5").end(0)
        assert "jobs of Slurm: 1 for 1 points" in output[0]
        assert table(sweep) == [(4, "done"), (5, "done")]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_what_slurm_refuses_is_a_line(tmp_path: Path) -> None:
    output, (line,) = Sweep(tmp_path, "search.memory=4,5", "hydra.launcher.partition=none").end(2)
    assert line.startswith("search: error: hydra.launcher: sbatch: error: "), line
    assert output == []
