"""How a process takes part in a run, and how it is told: through the environment, as torchrun does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from runtime.clocks.latency_file import read_clock_latency
from runtime.profiling.profiler import Sweep
from runtime.program.calls import ScriptError

LAUNCH_LINE = "python -m torch.distributed.run --nproc-per-node NUM_DEVICES -m runtime.launch DIRECTORY"
"""How scripts are started by hand."""

DEVICES = ("cpu", "cuda")
"""Where a run can compute."""


@dataclass(frozen=True)
class RunOptions:
    """How a script's process takes part in a run.

    Attributes:
        device: The process's device in the placement.
        num_devices: Processes of the run.
        iterations: How often the script's iteration runs.
        backend: ``gloo`` (CPU) or ``nccl`` (one GPU for each device).
        timeout_s: How long a transfer may wait for its other end.
        results: Folder for `runtime.execution.results`, or None to only report progress.
        keeps_tensors: Whether gradients and parameters are written too, for comparison.
        blocking: See `Device`.
        meeting: URL where the processes find each other.
        sweep: Profile the blocks in this way, and end when that is done; None to run all iterations.
        num_micro_batches: Of an iteration; None for the script's own number.
        checkpoint_every: Iterations from one checkpoint to the next; 0 for none.
        checkpoints: Folder for them; see `runtime.checkpoint`.
        keep_checkpoints: How many whole ones stay there; 0 for all.
        resume: Folder of checkpoints whose newest is gone on from, or None to begin anew.
        torch_device: Where the threads of a run in one process compute; one of `DEVICES`. Processes compute
            where their backend communicates.
        records: Whether each device's summary tells what it did in the last iterations; see
            `runtime.profiling.recorder`.
        trace: File in which device 0 draws that for all devices at the end, or None; see `runtime.trace`.
        clock_latency: File of what changes of clock take; None for the table of the GPU's name.
    """

    device: int
    num_devices: int
    iterations: int = 1
    backend: str = "gloo"
    timeout_s: float = 300.0
    results: Path | None = None
    keeps_tensors: bool = True
    blocking: bool = False
    meeting: str = "env://"
    sweep: Sweep | None = None
    num_micro_batches: int | None = None
    checkpoint_every: int = 0
    checkpoints: Path | None = None
    keep_checkpoints: int = 3
    resume: Path | None = None
    torch_device: str = "cpu"
    records: bool = False
    trace: Path | None = None
    clock_latency: Path | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether devices take note of what they do."""
        return self.records or self.trace is not None

    @classmethod
    def from_environment(cls) -> RunOptions:
        """Read what torchrun and `runtime.launch` have set.

        Raises:
            ScriptError: The process was not started by torchrun.
        """
        environment = os.environ
        if "RANK" not in environment:
            raise ScriptError(f"this is one of several processes; start all with: {LAUNCH_LINE}")
        num_local = int(environment.get("LOCAL_WORLD_SIZE", environment["WORLD_SIZE"]))
        given = {
            name: read(text) for name, read in _READ.items() if (text := environment.get(_variable(name)))
        }
        given.setdefault("backend", default_backend(num_local))
        return cls(int(environment["RANK"]), int(environment["WORLD_SIZE"]), **given)

    def to_environment(self) -> dict[str, str]:
        """Return what `from_environment` reads, without what torchrun sets; what is None is empty."""
        return as_environment({name: getattr(self, name) for name in _READ})

    def check(self) -> None:
        """Ensure that a run with these options makes sense, before it begins.

        Raises:
            ScriptError: One is out of its range; the message names it.
            ProfileError: The file of latencies is wrong.
        """
        for name, least in (("iterations", 1), ("keep_checkpoints", 0)):
            if (value := getattr(self, name)) < least:
                raise ScriptError(f"{name}: {value} is not at least {least}")
        if self.checkpoint_every < 0 or (self.checkpoint_every and self.checkpoints is None):
            raise ScriptError(
                f"checkpoint_every: {self.checkpoint_every} needs a folder for checkpoints; give one"
            )
        if self.trace is not None and self.trace.is_dir():
            raise ScriptError(f"trace: {self.trace} is a folder; give a file in it")
        if self.clock_latency is not None:
            read_clock_latency(self.clock_latency)


def as_environment(options: Mapping[str, object]) -> dict[str, str]:
    """Return how a process is told of some options of a run, by their names in `RunOptions`."""
    return {_variable(name): _text(value) for name, value in options.items()}


def _is_one(text: str) -> bool:
    return text == "1"


def _sweep(text: str) -> Sweep:
    return Sweep(**json.loads(text))


_READ: Mapping[str, Callable[[str], Any]] = {
    "iterations": int,
    "backend": str,
    "timeout_s": float,
    "results": Path,
    "keeps_tensors": _is_one,
    "blocking": _is_one,
    "meeting": str,
    "sweep": _sweep,
    "num_micro_batches": int,
    "checkpoint_every": int,
    "checkpoints": Path,
    "keep_checkpoints": int,
    "resume": Path,
    "records": _is_one,
    "trace": Path,
    "clock_latency": Path,
}
"""The options that a process is told of, and how each is read."""


def _variable(name: str) -> str:
    return f"SCHEDSEARCH_{name.upper()}"


def _text(value: object) -> str:
    """Return what `_READ` reads again."""
    if value is None:
        return ""
    if isinstance(value, Sweep):
        return json.dumps(asdict(value))
    return str(int(value) if isinstance(value, bool) else value)


def check_device(device: str | None, launcher: str, num_devices: int) -> None:
    """Ensure that a run can compute where it is asked to.

    Args:
        device: One of `DEVICES`, or None to leave it to the launcher.
        launcher: See `runtime.launching.launch.launch`.
        num_devices: Of the placement.

    Raises:
        ScriptError: It cannot.
    """
    if device not in (None, *DEVICES):
        raise ScriptError(f"device: {device!r} is not known; use {' or '.join(DEVICES)}")
    found = torch.cuda.device_count()
    if launcher == "fork" and found:
        raise ScriptError(
            "launcher: 'fork' cannot be used beside a GPU, for which PyTorch's backward has threads that no "
            "fork inherits; use torchrun or in_process, or hide it with CUDA_VISIBLE_DEVICES="
        )
    if device != "cuda":
        return
    if not found:
        raise ScriptError("device: 'cuda' cannot be used, PyTorch finds no GPU here; use cpu")
    if launcher == "torchrun" and found < num_devices:
        raise ScriptError(
            f"device: 'cuda' under torchrun takes a GPU for each of the {num_devices} devices, PyTorch finds "
            f"{found} here; use launcher in_process, in which all share one, or device cpu"
        )


def default_backend(num_local_devices: int) -> str:
    """Return ``nccl`` where this machine has a GPU for each of its devices, else ``gloo``."""
    return "nccl" if torch.cuda.device_count() >= num_local_devices else "gloo"
