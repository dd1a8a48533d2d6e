"""Options of a run that a user gives: in code, to a device's process, or in the group ``runtime``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placements.forms.meaning import Meaning, option

DEVICES = ("cpu", "cuda")
"""Where a run can compute."""

VERIFY = ("none", "first", "all")
"""Which iterations of a run can be compared with the unpipelined model."""

NETWORKS = ("rendezvous", "buffered")
"""Backends of a run in one process: a send ends when its receive is posted, or at once."""

BACKENDS = {"torchrun": ("gloo", "nccl"), "fork": ("gloo",), "in_process": NETWORKS}
"""By launcher: what can move tensors; the first is usual where nothing else is known."""

DEVICE_OF = {"gloo": "cpu", "nccl": "cuda"}
"""Where a run computes whose processes are joined by a backend."""

LAUNCHERS = tuple(BACKENDS)
"""How devices are started: processes of torchrun, or forked from this process (CPU only, fractions of a
second), or threads of this process that take turns (always in the same order, on the CPU or on one GPU)."""


def _of_launch(default: Any, text: str, choices: tuple[str, ...] = ()) -> Any:
    """Declare an option of `runtime.launching.launch.launch`, which a run by hand does not have."""
    return field(default=default, metadata={"meaning": Meaning(text, choices=choices), "is_of_launch": True})


@dataclass(frozen=True)
class UserRunOptions:
    """The options of a run that a user gives."""

    iterations: int = option(1, "training iterations, those before a checkpoint included", min=1)
    timeout_s: float = option(300.0, "longest time of the start or of one iteration", "s", above=0)
    launcher: str = _of_launch(
        "torchrun", "torchrun | fork (CPU only) | in_process: threads that take turns", LAUNCHERS
    )
    device: str | None = _of_launch(
        None, "cpu | cuda; null: under torchrun GPUs if there is one for each device, else the CPU", DEVICES
    )
    blocking: bool = option(False, "true: every transfer waits for its other end")
    num_micro_batches: int | None = option(
        None,
        "micro-batches of an iteration; null: as in the scripts; the scripts' loops must allow the number",
        min=1,
    )
    checkpoint_every: int = option(0, "iterations from one checkpoint to the next; 0: none", min=0)
    keep_checkpoints: int = option(3, "number of newest checkpoints to keep; 0: all", min=0)
    checkpoint_async: bool = option(
        True,
        "true: training goes on while a checkpoint is written, except where all devices are in one process; "
        "false: it waits",
    )
    programs: Path | None = option(
        None,
        "folder of programs that iterations run: iteration_N.json for iteration N, from_N.json from it on; "
        "null: the scripts alone",
    )
    load_weights: Path | None = option(
        None, "state dict to start from, .safetensors, unless from a checkpoint"
    )
    save_weights: Path | None = option(None, "file for the state dict at the end, .safetensors")
    verify: str | None = _of_launch(
        None,
        "iterations that are compared with the unpipelined model: none | first | all; null: by size",
        VERIFY,
    )
    exact: bool | None = option(
        None, "true: sums over devices are in a fixed order; by default if something is verified"
    )
    profile_online: bool = option(
        False, "true: the first iterations measure the blocks at each clock, for the server that is followed"
    )
    trace: bool = _of_launch(
        False, "true: also a trace of the last iterations beside the plan, for ui.perfetto.dev"
    )
