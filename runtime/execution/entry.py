"""What a generated script imports: its `Device`, and `run`.

A script is a list of calls on a `Device`; `run` carries it out for a number of iterations, each with a
gradient step at its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from runtime.clocks.periodic_clocks import PeriodicClocks
from runtime.codegen.job import JOB_FILE, read_job
from runtime.codegen.script import Script, script_of_constants, script_of_job
from runtime.execution.device import Device, TransferError
from runtime.execution.run_options import RunOptions
from runtime.execution.train import run_device
from runtime.plans.plan_client import PlanSource
from runtime.transport.process_groups import connect
from runtime.transport.protocol import Transport

__all__ = ["Device", "PeriodicClocks", "TransferError", "main", "run"]


def run(
    iteration: Callable[[Any, int], None],
    *,
    job: str,
    script: str | Path,
    options: RunOptions | None = None,
    plans: PlanSource | None = None,
) -> None:
    """Train as one process of a run.

    Args:
        iteration: The script's calls, given a `Device` and the number of micro-batches.
        job: The hash of the ``job.json`` that it was made with.
        script: Its file, beside that.
        options: How to take part; by default from the environment.
        plans: Where device 0 looks for newer clocks than the job's between iterations; by default the
            server and job of the environment, if it names them.

    Raises:
        ScriptError: The job is another, the script was started in the wrong way, or does not run each of its
            blocks once.
        TransferError: A tensor did not arrive or could not be sent.
    """
    path = Path(script)
    read = script_of_job(iteration, read_job(path.with_name(JOB_FILE)), job, path)
    run_device(read, options or RunOptions.from_environment(), _connected, plans)


def main(
    iteration: Callable[[Any, int], None],
    *,
    options: RunOptions | None = None,
    plans: PlanSource | None = None,
    **constants: Any,
) -> None:
    """Train as one process of a run, with a script from before there was a ``job.json``.

    Args:
        iteration: The script's calls.
        options: See `run`.
        plans: See `run`.
        constants: See `runtime.codegen.script.script_of_constants`.

    Raises:
        ScriptError: See `run`.
        TransferError: See `run`.
    """
    script = script_of_constants(iteration, **constants)
    run_device(script, options or RunOptions.from_environment(), _connected, plans)


@contextmanager
def _connected(script: Script, options: RunOptions) -> Iterator[Transport]:
    """Create the process groups, and take them down if all went well: after an error others may hang."""
    if options.backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", options.device)))
    dist.init_process_group(
        options.backend,
        init_method=options.meeting,
        rank=options.device,
        world_size=options.num_devices,
        timeout=timedelta(seconds=options.timeout_s),
    )
    channels = connect(
        script.placement, script.channels, options.device, options.timeout_s, options.communicators
    )
    yield channels
    channels.barrier()
    dist.destroy_process_group()
