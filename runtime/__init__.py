"""Schedules on real devices: lowering, proof before launch, readable scripts and their runtime.

Rooms in the order in which to read them; each imports only those above it:

    program           what each device runs, sends and receives, from a schedule, proved free of deadlock
    interpreter       programs carried out, on whatever backend
    transport         how a device reaches the others: processes, or threads of one process
    options           what a user gives of a run and of its model: no torch
    rounds            jobs of a cluster that run in rounds, on Ray: no torch
    plans             newer clocks for a run that goes on, from a server
    clocks            the clock of a GPU: asked for, set, measured, given back
    hooks             the clocks of a plan, and an order of ours, in a loop that someone else wrote
    models            the torch modules behind the blocks
    training          gradients summed over copies, clipped, and moved by
    codegen           programs as scripts with their job, and scripts read again
    checkpoints       what a run needs to go on, in files for any number of devices
    profiling         what blocks cost and what a run did
    execution         the calls of a script carried out on one device
    orders            other programs for the next iterations, the same on all devices
    loops             training loops: of scripts, and of the user's own
    virtual           GPUs in virtual time: programs and scripts
    torch_pipelining  schedules as tables of torch.distributed.pipelining, and back
    verify            saved programs proved, runs compared with the unpipelined model
    launching         all devices of a run started, watched, and measured
    server            a server that keeps the frontiers of many jobs

What scripts, users' files and documented command lines name stands beside the rooms:

    device            what a generated script imports
    clock             ``python -m runtime.clock``
    check             ``python -m runtime.check``
    torch_csv         ``python -m runtime.torch_csv``
    launch            ``-m runtime.launch`` under torchrun
    client            the requests of the server in Python

`runtime.Pipeline` is the pipeline of a job in a training loop of one's own; see `runtime.loops.pipeline`.
`runtime.LeasedIterator` is the iterator of a job of a cluster; see `runtime.rounds.iterator`.
`runtime.PlanClocks` is `schedsearch.clocks`; see `runtime.hooks.plan_clocks`.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.hooks.plan_clocks import PlanClocks
    from runtime.loops.pipeline import Pipeline
    from runtime.rounds.iterator import LeasedIterator

__all__ = ["LeasedIterator", "Pipeline", "PlanClocks"]

_MODULES = {
    "LeasedIterator": "runtime.rounds.iterator",
    "Pipeline": "runtime.loops.pipeline",
    "PlanClocks": "runtime.hooks.plan_clocks",
}

if "RANK" in os.environ:  # one of several processes
    from runtime.transport.error_lines import print_errors_in_one_line

    print_errors_in_one_line()


def __getattr__(name: str) -> Any:
    """Return a name whose module loads torch; torch is loaded at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'runtime' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
