"""Runs on two nodes of a real Slurm: srun starts the devices, and a job that is requeued goes on."""

from __future__ import annotations

import re
import shutil
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
from runtime.execution.slurm import environment_of_task
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b

ITERATIONS = 200


@pytest.fixture(scope="module")
def slurm() -> Iterator[None]:
    with two_nodes():
        yield


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of a device on each node, beside weights of a run on this machine alone."""
    folder = tmp_path_factory.mktemp("job") / "scripts"
    generate(lower(one_f_one_b(replace(v_shape(2), nodes=(0, 1)), 3)), {}, SMALL_GPT, folder)
    for number in (4, ITERATIONS):
        options = {"launcher": "in_process", "verify": "none", "exact": True}
        launched(folder, 2, number, save_weights=folder / f"alone_{number}.safetensors", **options)
    return folder


def srun(scripts: Path, options: str) -> str:
    """Return the line of the docs that starts a run on two nodes."""
    return f"srun -N2 -n2 --kill-on-bad-exit {sys.executable} -m runtime.launch {scripts} --exact {options}"


def test_srun_starts_the_devices_of_two_nodes(slurm: None, scripts: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    line = srun(scripts, f"--iterations 4 --save-weights {weights}").split()
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert weights.read_bytes() == (scripts / "alone_4.safetensors").read_bytes()
    assert re.findall(r"^iteration (\d)", done.stdout, re.MULTILINE) == ["0", "1", "2", "3"]
    assert done.stderr == "", "no word of a barrier after a run that succeeded"


def test_a_device_that_cannot_start_ends_the_others(slurm: None, scripts: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(scripts, tmp_path / "scripts")
    (copied / "device_1.py").unlink()
    line = srun(copied, "--timeout-s 300").split()
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert f"runtime.launch: {copied}/device_1.py: there is no such file" in done.stderr


def test_nodes_may_have_different_numbers_of_tasks() -> None:
    task = {"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0", "SLURM_PROCID": "8", "SLURM_LOCALID": "0"}
    task |= {"SLURM_NODEID": "2", "SLURM_STEP_NUM_TASKS": "10", "SLURM_STEP_TASKS_PER_NODE": "4(x2),2"}
    env = environment_of_task(task | {"MASTER_ADDR": "head"})
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("8", "10", "2")
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("head", "21271")
    assert environment_of_task({"SLURM_PROCID": "0"}) == {}, "a batch script is no task of srun"


BATCH = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append --output={folder}/out
compgen -G '{folder}/checkpoints/*/manifest.json' && RESUME='--resume {folder}/checkpoints'
{line} $RESUME
"""


def test_a_requeued_job_goes_on_from_its_checkpoint(slurm: None, scripts: Path, tmp_path: Path) -> None:
    """A node is set down in the middle of the run and comes back; the weights are those without a stop."""
    weights, checkpoints = tmp_path / "weights.safetensors", tmp_path / "checkpoints"
    options = f"--iterations {ITERATIONS} --checkpoints {checkpoints} --checkpoint-every 5"
    line = srun(scripts, f"{options} --save-weights {weights}")
    (tmp_path / "batch").write_text(BATCH.format(folder=tmp_path, line=line))
    job = said("sbatch", "--parsable", f"--chdir={ROOT}", str(tmp_path / "batch")).strip()
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
