"""How a process takes part in a run, and how it is told: through the environment, as torchrun does."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from runtime.clocks.latency_file import read_clock_latency
from runtime.profiling.profiler import Sweep
from runtime.program.calls import ScriptError
from runtime.transport.communicators import AUTO, SHARINGS

LAUNCH_LINE = "python -m torch.distributed.run --nproc-per-node NUM_DEVICES -m runtime.launch DIRECTORY"
"""How scripts are started by hand."""

DEVICES = ("cpu", "cuda")
"""Where a run can compute."""

VERIFY = ("none", "first", "all")
"""Which iterations of a run can be compared with the unpipelined model."""


def _told(
    read: Callable[[str], Any], help: str = "", least: int | None = None, **argument: Any
) -> dict[str, Any]:
    """Return the facts of an option that a process is told of through the environment.

    Args:
        read: Reads its text.
        help: Of the command line, for what can be said there too.
        least: That it may be.
        argument: More of argparse.
    """
    return {"read": read, "least": least, "argument": argument | {"help": help}}


def _is_one(text: str) -> bool:
    return text == "1"


def _sweep(text: str) -> Sweep:
    return Sweep(**json.loads(text))


@dataclass(frozen=True)
class RunOptions:
    """How a script's process takes part in a run: the only place where options of a run are named.

    Attributes:
        device: The process's device in the placement.
        num_devices: Processes of the run.
        iterations: How often the script's iteration runs, those before a checkpoint included.
        backend: ``gloo`` (CPU) or ``nccl`` (one GPU for each device).
        timeout_s: How long a transfer may wait for its other end.
        results: Folder for `runtime.execution.results`, or None to only report progress.
        blocking: Whether every transfer waits for its other end, to test that the order alone is safe.
        meeting: URL where the processes find each other.
        sweep: Profile the blocks in this way, and end when that is done; None to run all iterations.
        num_micro_batches: Of an iteration; None for the script's own number.
        checkpoint_every: Iterations from one checkpoint to the next; 0 for none.
        checkpoints: Folder for them; see `runtime.execution.run_checkpoints`.
        keep_checkpoints: How many whole ones stay there, the newest; 0 for all.
        checkpoint_async: Whether the training goes on while a checkpoint is written; where all devices are in
            one process it never does.
        resume: Folder of checkpoints whose newest is gone on from, or None to begin anew.
        torch_device: Where the threads of a run in one process compute; one of `DEVICES`. Processes compute
            where their backend communicates.
        records: Whether each device's summary tells what it did in the last iterations; see
            `runtime.profiling.recorder`.
        trace: File in which device 0 draws that for all devices at the end, or None.
        communicators: Whether the two directions between a pair of devices share a communicator; see
            `runtime.transport.communicators.SHARINGS`.
        nodes: On how many nodes the processes are started, each by a torchrun of its own.
        clock_latency: File of `python -m runtime.clock latency`: what changes of clock take; None for the
            table of the GPU's name.
        verify: Of which iterations gradients and parameters are written, for whoever compares them with the
            unpipelined model; one of `VERIFY`. A run that goes on from a checkpoint has no first iteration.
        exact: Whether sums over devices are made in the order of the devices, and so have the same bits as
            the unpipelined model; None for yes if and only if something is verified. See `is_exact`.
        load_weights: File of a state dict to begin with, or None; a checkpoint comes before it. See
            `runtime.models.state_dict`.
        save_weights: File for the state dict after the last iteration, or None.
    """

    device: int
    num_devices: int = field(metadata={"least": 1})
    iterations: int = field(
        default=1, metadata=_told(int, "how often each script runs its iteration (default 1)", least=1)
    )
    backend: str = field(
        default="gloo",
        metadata=_told(str, "default: nccl with a GPU for each device", choices=("gloo", "nccl")),
    )
    timeout_s: float = field(default=300.0, metadata=_told(float))
    results: Path | None = field(default=None, metadata=_told(Path))
    blocking: bool = field(
        default=False,
        metadata=_told(_is_one, "let transfers wait for their other ends", action="store_true", default=None),
    )
    meeting: str = field(default="env://", metadata=_told(str))
    sweep: Sweep | None = field(default=None, metadata=_told(_sweep))
    num_micro_batches: int | None = field(
        default=None, metadata=_told(int, "of an iteration, if not the scripts' own", least=1)
    )
    checkpoint_every: int = field(
        default=0, metadata=_told(int, "iterations between two checkpoints", least=0)
    )
    checkpoints: Path | None = field(default=None, metadata=_told(Path, "folder for checkpoints"))
    keep_checkpoints: int = field(
        default=3, metadata=_told(int, "how many stay (default 3; 0: all)", least=0)
    )
    resume: Path | None = field(
        default=None, metadata=_told(Path, "folder of checkpoints whose newest to go on from")
    )
    torch_device: str = "cpu"
    records: bool = field(default=False, metadata=_told(_is_one))
    trace: Path | None = field(
        default=None, metadata=_told(Path, "file for what the devices did in the last iterations")
    )
    clock_latency: Path | None = field(
        default=None, metadata=_told(Path, "file of python -m runtime.clock latency")
    )
    checkpoint_async: bool = field(
        default=True,
        metadata=_told(_is_one, "1: training goes on while a checkpoint is written (default); 0: it waits"),
    )
    verify: str = field(default="none", metadata=_told(str))
    exact: bool | None = field(
        default=None,
        metadata=_told(_is_one, "add up in the order of the devices", action="store_true", default=None),
    )
    load_weights: Path | None = field(
        default=None, metadata=_told(Path, "file of a state dict to begin with (.safetensors, or of torch)")
    )
    save_weights: Path | None = field(
        default=None, metadata=_told(Path, "file for the state dict at the end (.safetensors)")
    )
    communicators: str = field(
        default=AUTO,
        metadata=_told(str, "one for each channel, or for both directions of a pair", choices=SHARINGS),
    )
    nodes: int = field(default=1, metadata={"least": 1})

    @property
    def is_exact(self) -> bool:
        """Whether sums over devices are made in the order of the devices."""
        return self.verify != "none" if self.exact is None else self.exact

    def verifies(self, iteration: int) -> bool:
        """Tell whether an iteration is one of those that are compared."""
        return self.verify == "all" or (self.verify == "first" and iteration == 0)

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
            each.name: each.metadata["read"](text)
            for each in _options_told()
            if (text := environment.get(_variable(each.name)))
        }
        given.setdefault("backend", default_backend(num_local))
        return cls(int(environment["RANK"]), int(environment["WORLD_SIZE"]), **given)

    def to_environment(self) -> dict[str, str]:
        """Return what `from_environment` reads, without what torchrun sets; what is None is empty."""
        return as_environment({each.name: getattr(self, each.name) for each in _options_told()})

    def check(self) -> None:
        """Ensure that a run with these options makes sense, before it begins.

        Raises:
            ScriptError: One is out of its range; the message names it.
            ProfileError: The file of latencies is wrong.
        """
        self.check_ranges()
        if self.verify not in VERIFY:
            raise ScriptError(f"verify: {self.verify!r} is not known; use {', '.join(VERIFY)}")
        if self.checkpoint_every and self.checkpoints is None:
            raise ScriptError(
                f"checkpoint_every: {self.checkpoint_every} needs a folder for checkpoints; give one"
            )
        if self.checkpoints is not None and self.checkpoints.exists() and not self.checkpoints.is_dir():
            raise ScriptError(f"checkpoints: {self.checkpoints} is not a folder; give one")
        if self.trace is not None and self.trace.is_dir():
            raise ScriptError(f"trace: {self.trace} is a folder; give a file in it")
        if self.clock_latency is not None:
            read_clock_latency(self.clock_latency)

    def check_ranges(self) -> None:
        """Ensure that every number makes sense by itself.

        Raises:
            ScriptError: One is out of its range; the message names it.
        """
        for each in fields(self):
            value, least = getattr(self, each.name), each.metadata.get("least")
            if None not in (value, least) and value < least:
                raise ScriptError(f"{each.name}: {value} is not at least {least}")
        if self.communicators not in SHARINGS:
            raise ScriptError(
                f"communicators: {self.communicators!r} is not known; use {' or '.join(SHARINGS)}"
            )
        if not self.timeout_s > 0:
            raise ScriptError(f"timeout_s: {self.timeout_s:g} is not a positive number of seconds")


def as_environment(options: Mapping[str, object]) -> dict[str, str]:
    """Return how a process is told of some options of a run, by their names in `RunOptions`."""
    return {_variable(name): _text(value) for name, value in options.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a command line take the options that can be said there; what is not said is None."""
    for each in _options_told():
        argument = each.metadata["argument"]
        if argument["help"]:
            kind = {} if "action" in argument else {"type": each.metadata["read"]}
            parser.add_argument(f"--{each.name.replace('_', '-')}", **kind | argument)


def as_arguments(options: Mapping[str, object]) -> list[str]:
    """Return what `add_arguments` reads as these options; a flag is there or not."""
    found = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        found += [flag] * (value is not False) if isinstance(value, bool) else [flag, str(value)]
    return found


def _options_told() -> list[Field[Any]]:
    return [each for each in fields(RunOptions) if "read" in each.metadata]


def _variable(name: str) -> str:
    return f"SCHEDSEARCH_{name.upper()}"


def _text(value: object) -> str:
    """Return what the option's `read` makes the value of again."""
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
