"""Runs on two nodes of a real Slurm: srun starts the devices, and a job that is requeued goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from places import ROOT
from slurm_nodes import said, two_nodes, until
from small_runs import SMALL_GPT, launched

from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b

ITERATIONS = 200


@pytest.fixture(scope="module")
def slurm() -> Iterator[Path]:
    with two_nodes() as folder:
        yield folder


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of a device on each node, beside weights of a run on this machine alone."""
    folder = tmp_path_factory.mktemp("job") / "scripts"
    generate(lower(one_f_one_b(replace(v_shape(2), nodes=(0, 1)), 3)), {}, SMALL_GPT, folder)
    for number in (4, ITERATIONS):
        options = {"launcher": "in_process", "verify": "none", "exact": True}
        launched(folder, 2, number, save_weights=folder / f"alone_{number}.safetensors", **options)
    return folder


def srun(scripts: Path, *options: str) -> list[str]:
    """Return the line of the docs that starts a run, as a user's batch file has it."""
    return [
        "srun",
        "-K",
        "-N2",
        "-n2",
        sys.executable,
        "-m",
        "runtime.launch",
        str(scripts),
        "--exact",
        *options,
    ]


def test_srun_starts_the_devices_of_two_nodes(slurm: Path, scripts: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    line = srun(scripts, "--iterations", "4", "--save-weights", str(weights))
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert weights.read_bytes() == (scripts / "alone_4.safetensors").read_bytes()
    assert [row.partition(":")[0] for row in done.stdout.splitlines()[1:]] == [
        f"iteration {i}" for i in range(4)
    ]
    assert done.stderr == "", "no word of a barrier after a run that succeeded"


def test_a_device_that_cannot_start_ends_the_others(slurm: Path, scripts: Path, tmp_path: Path) -> None:
    line = srun(scripts, "--resume", str(tmp_path))
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert f"runtime.launch: resume: {tmp_path} holds no whole checkpoint" in done.stderr


BATCH = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append --output={folder}/out
compgen -G '{folder}/checkpoints/*/manifest.json' && RESUME='--resume {folder}/checkpoints'
{line} $RESUME
"""


def test_a_requeued_job_goes_on_from_its_checkpoint(slurm: Path, scripts: Path, tmp_path: Path) -> None:
    """A node is set down in the middle of the run and comes back; the weights are those without a stop."""
    weights, checkpoints = tmp_path / "weights.safetensors", tmp_path / "checkpoints"
    options = ["--iterations", str(ITERATIONS), "--save-weights", str(weights), "--checkpoint-every", "5"]
    line = " ".join(srun(scripts, *options, "--checkpoints", str(checkpoints)))
    (tmp_path / "batch").write_text(BATCH.format(folder=tmp_path, line=line))
    job = subprocess.run(
        ["sbatch", "--parsable", tmp_path / "batch"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    until(lambda: len(list(checkpoints.glob("*/manifest.json"))) > 1)
    said("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    until(lambda: said("squeue", "-h", "-j", job, "-o", "%T") == "PENDING\n")
    assert not weights.exists()
    said("scontrol", "update", "nodename=n1", "state=resume")
    until(lambda: not said("squeue", "-h", "-j", job))
    output = (tmp_path / "out").read_text()
    assert weights.read_bytes() == (scripts / f"alone_{ITERATIONS}.safetensors").read_bytes(), output
    numbers = [int(number) for number in re.findall(r"^iteration (\d+):", output, re.MULTILINE)]
    assert (numbers[0], numbers[-1]) == (0, ITERATIONS - 1)
    assert numbers.count(0) == 1, "it does not begin anew"
