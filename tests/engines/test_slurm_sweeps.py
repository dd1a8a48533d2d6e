"""Sweeps under a real Slurm: lost points are lines, what is done is kept, the table is whole in the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from places import ROOT
from slurm_nodes import said, two_nodes

from experiments.collect import TABLE

SMALL = ["placement=v_shape", "search.num_micro_batches=4", "search.work_limit=1"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Path]:
    with two_nodes() as folder:
        yield folder


class Sweep:
    """A sweep as a user starts it; its output is kept, and it is ended with the test."""

    def __init__(self, directory: Path, *options: str) -> None:
        line = [sys.executable, "-m", "schedsearch", "search", "-m", "hydra/launcher=submitit_slurm", *SMALL]
        self.process = subprocess.Popen(
            [*line, f"hydra.sweep.dir={directory}", *options],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def end(self, code: int) -> tuple[list[str], list[str]]:
        """Wait for the end, and return the lines of output and of errors."""
        output, errors = self.process.communicate(timeout=240)
        assert self.process.returncode == code, output + errors
        return output.splitlines(), errors.splitlines()


def job(when: Callable[[str, str, str], bool], sweep: Sweep) -> str:
    """Return the id of the first job in the queue of which the function of id, state and node is true."""
    while sweep.process.poll() is None:
        for row in said("squeue", "-hr", "-o", "%i|%T|%N").splitlines():
            if when(*row.split("|")):
                return row.split("|")[0]
        time.sleep(0.1)
    raise AssertionError(sweep.process.communicate())


def table(directory: Path) -> list[tuple[int, str, float]]:
    rows = pd.read_csv(directory / TABLE)[["search.memory", "status", "makespan_ms"]].fillna(0.0)
    return list(rows.itertuples(index=False, name=None))


def test_a_sweep_of_six_points_is_whole_in_the_end(slurm: Path, tmp_path: Path) -> None:
    """One point is wrong, one is cancelled; when that is resumed, its node is set down and it moves."""
    options = "search.memory=0,3,4,5,6,7"
    sweep = Sweep(tmp_path, options)
    cancelled = job(lambda name, state, node: name.endswith("_5") and state == "PENDING", sweep)
    said("scancel", cancelled)
    output, errors = sweep.end(1)
    assert len(output) == 2, "no flood of warnings"
    array = cancelled.removesuffix("_5")
    assert output[0].endswith(f"jobs of Slurm: 6 for 6 points, array {array}; Ctrl-C cancels them")
    assert output[1].startswith(f"written: {tmp_path}/runs.csv")
    wrong, lost, end = errors
    assert f"{tmp_path}/0: rejected: {' '.join(SMALL)} search.memory=0: memory[0]: 0 is too small" in wrong
    why = f"CANCELLED or forgotten; its output is in {tmp_path}/.submitit/{cancelled}"
    assert lost.endswith(f"search.memory=7: job {cancelled} of Slurm ended before it, {why}")
    assert end.startswith("search: not done: 2 points; the same command with hydra.sweep.dir")
    done = [(3, "done", 320), (4, "done", 280), (5, "done", 280), (6, "done", 280)]
    assert table(tmp_path) == [(0, "rejected", 0), *done, (7, "interrupted", 0)]

    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("[1-4]/*")}
    sweep = Sweep(tmp_path, options)
    node = "n1"
    moved = job(lambda name, state, on: state == "RUNNING" and on == node, sweep)
    said("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    job(lambda name, state, on: name == moved and on != node, sweep)
    said("scontrol", "update", f"nodename={node}", "state=resume")
    output, errors = sweep.end(1)
    assert "jobs of Slurm: 2 for 2 points" in output[0]
    assert len(errors) == 2, "only the point that is wrong"
    assert table(tmp_path) == [(0, "rejected", 0), *done, (7, "done", 280)]
    assert before == {path: path.stat().st_mtime_ns for path in before}, "what is done is not run again"


def test_ctrl_c_cancels_the_jobs_and_the_same_command_goes_on(slurm: Path, tmp_path: Path) -> None:
    options = ["search.memory=3,4,5,6,7", "hydra.launcher.array_parallelism=2"]
    sweep = Sweep(tmp_path, *options)
    job(lambda name, state, node: state == "RUNNING", sweep)
    sweep.process.send_signal(signal.SIGINT)
    output, errors = sweep.end(130)
    assert "jobs of Slurm: 2 for 5 points" in output[0]
    (line,) = errors
    assert line.startswith("search: interrupted; its jobs of Slurm are cancelled; the same command with")
    while said("squeue", "-h"):
        time.sleep(0.1)
    Sweep(tmp_path, *options).end(0)
    assert [row[:2] for row in table(tmp_path)] == [(memory, "done") for memory in range(3, 8)]


def test_a_full_disk_is_a_line(slurm: Path, tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        Sweep(tmp_path / "sweep", "search.memory=4").end(0)
        written = (tmp_path / "sweep/runs.csv").read_bytes()
        with pytest.raises(OSError), (tmp_path / "filling").open("wb", buffering=0) as file:
            while True:
                assert file.write(bytes(4096))
        output, errors = Sweep(tmp_path / "sweep", "search.memory=4,5").end(2)
        assert (len(output), len(errors)) == (0, 1)
        assert "No space left on device; choose another path, as with" in errors[0]
        assert (tmp_path / "sweep/runs.csv").read_bytes() == written
        (tmp_path / "filling").unlink()
        output, errors = Sweep(tmp_path / "sweep", "search.memory=4,5").end(0)
        assert "jobs of Slurm: 1 for 1 points" in output[0]
        assert [row[:2] for row in table(tmp_path / "sweep")] == [(4, "done"), (5, "done")]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("hydra.launcher.partition=none", "hydra.launcher: sbatch: error: "),
        ("hydra.sweep.dir=/proc/x", "/proc/x"),
    ],
)
def test_what_slurm_refuses_is_a_line(option: str, message: str, slurm: Path, tmp_path: Path) -> None:
    output, errors = Sweep(tmp_path, "search.memory=4,5", option).end(2)
    assert (len(output), len(errors)) == (0, 1)
    assert errors[0].startswith(f"search: error: {message}"), errors
