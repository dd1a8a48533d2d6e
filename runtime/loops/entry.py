"""What a generated script imports: its `Device`, and `run`.

A script is a list of calls on a `Device`; `run` carries it out for a number of iterations, each with a
gradient step at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.codegen.job import JOB_FILE, read_job
from runtime.codegen.script import script_of_job
from runtime.execution.device import Device
from runtime.execution.device_context import connected
from runtime.execution.process import Process
from runtime.execution.run_options import RunOptions
from runtime.loops.train import run_device
from runtime.plans.plan_client import PlanSource
from runtime.transport.protocol import TransferError

__all__ = ["Device", "TransferError", "run"]


def run(
    iteration: Callable[[Any, int], None],
    *,
    job: str,
    script: str | Path,
    process: Process | None = None,
    plans: PlanSource | None = None,
) -> None:
    """Train as one process of a run.

    Args:
        iteration: The script's calls, given a `Device` and the number of micro-batches.
        job: The hash of the ``job.json`` that it was made with.
        script: Its file, beside that.
        process: Number of the device, and the options of the run; by default as the environment says.
        plans: Where device 0 looks for newer clocks between iterations, if the script has none; by default
            the server and job of the environment, if it names them.

    Raises:
        ScriptError: The job is another, the script was started in the wrong way, or does not run each of its
            blocks once.
        TransferError: A tensor did not arrive or could not be sent.
    """
    path = Path(script)
    read = script_of_job(iteration, read_job(path.with_name(JOB_FILE)), job, path)
    own = process or Process.of_torchrun(RunOptions.of_environment())
    run_device(read, own, connected, plans)
