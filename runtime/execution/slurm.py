"""A task of srun as a process of a run, without a torchrun between them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping

_PORTS = range(20_000, 30_000)
"""Ports at which tasks meet: below those that systems give to connections."""


def environment_of_task(task: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return torchrun's variables for a task of srun, by Slurm's own; empty where it is none.

    Slurm numbers tasks node by node, as torchrun does. They meet on the node of the first, at a port made of
    the numbers of job and step, so that others on that node have others. What the user has set stays.

    >>> slurm = {"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1"}
    >>> slurm |= {"SLURM_NODEID": "2", "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
    >>> environment_of_task(slurm | {"MASTER_ADDR": "node7"})  # doctest: +NORMALIZE_WHITESPACE
    {'RANK': '5', 'LOCAL_RANK': '1', 'WORLD_SIZE': '6', 'LOCAL_WORLD_SIZE': '2', 'MASTER_PORT': '21271',
     'MASTER_ADDR': 'node7'}
    """
    if "SLURM_STEP_ID" not in task or "SLURM_PROCID" not in task:
        return {}
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", task["SLURM_STEP_TASKS_PER_NODE"])
    on_nodes = [number for number, times in groups for _ in range(int(times or 1))]
    port = _PORTS[(31 * int(task["SLURM_JOB_ID"]) + int(task["SLURM_STEP_ID"])) % len(_PORTS)]
    found = {
        "RANK": task["SLURM_PROCID"],
        "LOCAL_RANK": task["SLURM_LOCALID"],
        "WORLD_SIZE": task["SLURM_STEP_NUM_TASKS"],
        "LOCAL_WORLD_SIZE": on_nodes[int(task["SLURM_NODEID"])],
        "MASTER_PORT": task.get("MASTER_PORT", str(port)),
        "MASTER_ADDR": task.get("MASTER_ADDR", ""),
    }
    if not found["MASTER_ADDR"]:
        line = ["scontrol", "show", "node", task["SLURM_STEP_NODELIST"]]
        nodes = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        found["MASTER_ADDR"] = re.findall(r"NodeAddr=(\S+)", nodes)[0]
    return found
