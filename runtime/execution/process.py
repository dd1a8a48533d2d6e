"""The process of one device: which one it is, as torchrun or Slurm says, and its hardware."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import torch

from runtime.execution.run_options import RunOptions
from runtime.execution.slurm import environment_of_task
from runtime.options.run import BACKENDS
from runtime.program.calls import ScriptError

LAUNCH_LINE = "python -m torch.distributed.run --nproc-per-node NUM_DEVICES -m runtime.launch DIRECTORY"
"""How scripts are started by hand."""


@dataclass(frozen=True)
class Process:
    """A process of a run, or the thread in its place: its device, of how many, with the run's options."""

    device: int
    num_devices: int
    options: RunOptions = field(default_factory=RunOptions)

    @classmethod
    def of_torchrun(cls, options: RunOptions) -> Process:
        """Return this process; without a backend it has its machine's usual one.

        Raises:
            ScriptError: It was not started by torchrun or srun, which cannot use every backend.
        """
        if "RANK" not in os.environ:
            os.environ |= environment_of_task()
        if "RANK" not in os.environ:
            raise ScriptError(f"this is one of several processes; start all with: {LAUNCH_LINE}")
        num_devices = int(os.environ["WORLD_SIZE"])
        num_local = int(os.environ.get("LOCAL_WORLD_SIZE", num_devices))
        backend = options.backend or default_backend(num_local)
        check_backend(backend, "torchrun")
        return cls(int(os.environ["RANK"]), num_devices, replace(options, backend=backend))


def check_backend(backend: str, launcher: str) -> None:
    """Raise a `ScriptError` if a launcher cannot use a backend."""
    if backend not in BACKENDS[launcher]:
        allowed = " or ".join(BACKENDS[launcher])
        raise ScriptError(f"backend: {backend!r} cannot be used with launcher {launcher!r}; use {allowed}")


def check_device(device: str | None, launcher: str, num_devices: int) -> None:
    """Raise a `ScriptError` if a run cannot compute where it is asked to; None leaves it to the launcher."""
    num_gpus = torch.cuda.device_count()
    if launcher == "fork" and num_gpus:
        raise ScriptError(
            "launcher: 'fork' cannot be used beside a GPU, for which PyTorch's backward has threads that no "
            "fork inherits; use torchrun or in_process, or hide it with CUDA_VISIBLE_DEVICES="
        )
    if device != "cuda":
        return
    if not num_gpus:
        raise ScriptError("device: 'cuda' cannot be used, PyTorch finds no GPU here; use cpu")
    if launcher == "torchrun" and num_gpus < num_devices:
        raise ScriptError(
            f"device: 'cuda' under torchrun takes a GPU for each of the {num_devices} devices, PyTorch finds "
            f"{num_gpus} here; use launcher in_process, in which all share one, or device cpu"
        )


def default_backend(num_local_devices: int) -> str:
    """Return ``nccl`` where this machine has a GPU for each of its devices, else ``gloo``."""
    return "nccl" if torch.cuda.device_count() >= num_local_devices else "gloo"
