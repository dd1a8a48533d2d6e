"""A task of srun as a process of a run, with no torchrun between them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping


def environment_of_task(task: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that torchrun would set for a task of srun; empty where this is none.

    Slurm numbers tasks node by node, as torchrun does. They meet on the node of the first task, at a port
    made of the numbers of job and step, unless MASTER_ADDR and MASTER_PORT say where.
    """
    if "SLURM_STEP_ID" not in task:
        return {}
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", task["SLURM_STEP_TASKS_PER_NODE"])  # such as 4(x2),3
    num_tasks = [number for number, times in groups for _ in range(int(times or 1))]
    if not (address := task.get("MASTER_ADDR")):
        line = ["scontrol", "show", "node", task["SLURM_STEP_NODELIST"]]
        nodes = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        address = re.findall(r"NodeAddr=(\S+)", nodes)[0]
    port = 20_000 + (31 * int(task["SLURM_JOB_ID"]) + int(task["SLURM_STEP_ID"])) % 10_000
    return {
        "RANK": task["SLURM_PROCID"],
        "LOCAL_RANK": task["SLURM_LOCALID"],
        "WORLD_SIZE": task["SLURM_STEP_NUM_TASKS"],
        "LOCAL_WORLD_SIZE": num_tasks[int(task["SLURM_NODEID"])],
        "MASTER_ADDR": address,
        "MASTER_PORT": task.get("MASTER_PORT", str(port)),
    }
