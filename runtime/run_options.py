"""How a process takes part in a run, and how it is told: through the environment, as torchrun does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import torch

from runtime.calls import ScriptError
from runtime.profiler import Sweep

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
        results: Folder for `runtime.results`, or None to only report progress.
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
            `runtime.recorder`.
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
        results, sweep = environment.get("SCHEDSEARCH_RESULTS"), environment.get("SCHEDSEARCH_SWEEP")
        return cls(
            device=int(environment["RANK"]),
            num_devices=int(environment["WORLD_SIZE"]),
            iterations=int(environment.get("SCHEDSEARCH_ITERATIONS", "1")),
            backend=environment.get("SCHEDSEARCH_BACKEND") or default_backend(num_local),
            timeout_s=float(environment.get("SCHEDSEARCH_TIMEOUT_S", "300")),
            results=Path(results) if results else None,
            keeps_tensors=environment.get("SCHEDSEARCH_KEEPS_TENSORS", "1") == "1",
            blocking=environment.get("SCHEDSEARCH_BLOCKING", "0") == "1",
            meeting=environment.get("SCHEDSEARCH_MEETING", "env://"),
            num_micro_batches=_if_given(int, "SCHEDSEARCH_NUM_MICRO_BATCHES"),
            checkpoint_every=int(environment.get("SCHEDSEARCH_CHECKPOINT_EVERY", "0")),
            checkpoints=_if_given(Path, "SCHEDSEARCH_CHECKPOINTS"),
            keep_checkpoints=int(environment.get("SCHEDSEARCH_KEEP_CHECKPOINTS", "3")),
            resume=_if_given(Path, "SCHEDSEARCH_RESUME"),
            records=environment.get("SCHEDSEARCH_RECORDS", "0") == "1",
            trace=_if_given(Path, "SCHEDSEARCH_TRACE"),
            clock_latency=_if_given(Path, "SCHEDSEARCH_CLOCK_LATENCY"),
            sweep=Sweep(**json.loads(sweep)) if sweep else None,
        )

    def to_environment(self) -> dict[str, str]:
        """Return what `from_environment` reads, without what torchrun sets."""
        found = {
            "SCHEDSEARCH_ITERATIONS": str(self.iterations),
            "SCHEDSEARCH_BACKEND": self.backend,
            "SCHEDSEARCH_TIMEOUT_S": str(self.timeout_s),
            "SCHEDSEARCH_KEEPS_TENSORS": str(int(self.keeps_tensors)),
            "SCHEDSEARCH_BLOCKING": str(int(self.blocking)),
            "SCHEDSEARCH_CHECKPOINT_EVERY": str(self.checkpoint_every),
            "SCHEDSEARCH_KEEP_CHECKPOINTS": str(self.keep_checkpoints),
            "SCHEDSEARCH_RECORDS": str(int(self.records)),
        }
        given = {
            "SCHEDSEARCH_RESULTS": self.results,
            "SCHEDSEARCH_NUM_MICRO_BATCHES": self.num_micro_batches,
            "SCHEDSEARCH_CHECKPOINTS": self.checkpoints,
            "SCHEDSEARCH_RESUME": self.resume,
            "SCHEDSEARCH_TRACE": self.trace,
            "SCHEDSEARCH_CLOCK_LATENCY": self.clock_latency,
            "SCHEDSEARCH_SWEEP": json.dumps(asdict(self.sweep)) if self.sweep else None,
        }
        return found | {name: str(value) for name, value in given.items() if value is not None}


_Value = TypeVar("_Value")


def _if_given(read: Callable[[str], _Value], name: str) -> _Value | None:
    value = os.environ.get(name)
    return read(value) if value else None


def check_device(device: str | None, launcher: str, num_devices: int) -> None:
    """Ensure that a run can compute where it is asked to.

    Args:
        device: One of `DEVICES`, or None to leave it to the launcher.
        launcher: See `runtime.launch.launch`.
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
