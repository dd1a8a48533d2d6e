"""Options of a run, each declared once; they reach the processes of the devices as one file.

Whoever starts a run makes a `RunOptions`. It is written as ``run.json``, and `RUN_FILE` in the environment of
a process is its path. A new option is one more field, and its use.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from placements.files import read_json, write_json
from placements.meaning import Meaning, option, without_none
from runtime.clocks.latency_file import read_clock_latency
from runtime.profiling.profiler import Sweep
from runtime.program.calls import ScriptError
from runtime.transport.communicators import AUTO, SHARINGS

RUN_FILE = "SCHEDSEARCH_RUN"
"""Environment variable of a device's process: path of the file with the options of the run."""

DEVICES = ("cpu", "cuda")
"""Where a run can compute."""

VERIFY = ("none", "first", "all")
"""Which iterations of a run can be compared with the unpipelined model."""

NETWORKS = ("rendezvous", "buffered")
"""Backends of a run in one process: a send ends when its receive is posted, or at once."""

BACKENDS = {"torchrun": ("gloo", "nccl"), "fork": ("gloo",), "in_process": NETWORKS}
"""By launcher: what can move tensors."""

LAUNCHERS = tuple(BACKENDS)
"""How devices are started: processes of torchrun, or forked from this process (CPU only, fractions of a
second), or threads of this process that take turns (always in the same order, on the CPU or on one GPU)."""


def _of_launch(default: Any, text: str, choices: tuple[str, ...] = (), **limits: float) -> Any:
    """Declare an option of `runtime.launching.launch.launch`, which a run by hand does not have."""
    meaning = Meaning(text, choices=choices, **limits)  # type: ignore[arg-type]
    return field(default=default, metadata={"meaning": meaning, "is_of_launch": True})


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, the same for all its devices.

    Attributes:
        meeting: URL where the processes find each other; by default where torchrun says.
        results: Folder for `runtime.execution.results`, or None to only report progress.
        sweep: Profile the blocks in this way, and end when that is done; None to run all iterations.
    """

    iterations: int = option(1, "training iterations, those before a checkpoint included", min=1)
    timeout_s: float = option(300.0, "longest time of the start or of one iteration", "s", above=0)
    launcher: str = _of_launch(
        "torchrun", "torchrun, fork (CPU only), or in_process: threads that take turns", LAUNCHERS
    )
    device: str | None = _of_launch(
        None, "where to compute; by default on GPUs under torchrun if each device has one", DEVICES
    )
    backend: str | None = option(
        None,
        "what moves tensors; by default nccl with a GPU for each device",
        choices=("gloo", "nccl", *NETWORKS),
    )
    nodes: int = _of_launch(1, "torchruns on this machine, each with the devices of a node", min=1)
    blocking: bool = option(False, "every transfer waits for its other end")
    num_micro_batches: int | None = option(
        None, "micro-batches of an iteration, if not those of the scripts", min=1
    )
    communicators: str = option(
        AUTO,
        "directed: one for each direction; pair: one for both directions of two devices; auto: pair where "
        "nothing is lost",
        choices=SHARINGS,
    )
    checkpoint_every: int = option(0, "iterations from one checkpoint to the next; 0: none", min=0)
    checkpoints: Path | None = option(None, "folder for checkpoints")
    keep_checkpoints: int = option(3, "number of newest checkpoints to keep; 0: all", min=0)
    checkpoint_async: bool = option(
        True, "training goes on while a checkpoint is written, except where all devices are in one process"
    )
    resume: Path | None = option(None, "folder of checkpoints; the run goes on from the newest")
    load_weights: Path | None = option(
        None, "state dict to start from, unless from a checkpoint: .safetensors, or a file of torch"
    )
    save_weights: Path | None = option(None, "file for the state dict at the end, .safetensors")
    verify: str | None = _of_launch(
        None, "iterations that are compared with the unpipelined model; by default by size", VERIFY
    )
    exact: bool | None = option(
        None, "sums over devices are in the order of the devices; by default if something is verified"
    )
    trace: bool = _of_launch(False, "the measurement has what each device did in the last iterations")
    trace_file: Path | None = option(None, "file for what the devices did in the last iterations")
    clock_latency: Path | None = option(
        None, "file of python -m runtime.clock latency; by default a table by the name of the GPU"
    )
    meeting: str = "env://"
    results: Path | None = None
    sweep: Sweep | None = None

    @property
    def is_exact(self) -> bool:
        """Whether sums over devices are made in the order of the devices."""
        return self.verify in ("first", "all") if self.exact is None else self.exact

    def verifies(self, iteration: int) -> bool:
        """Tell whether an iteration is one of those that are compared."""
        return self.verify == "all" or (self.verify == "first" and iteration == 0)

    @property
    def is_recorded(self) -> bool:
        """Whether devices take note of what they do."""
        return self.trace or self.trace_file is not None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RunOptions:
        """Return the options with these values, plain or not, by name; the others are as by default."""
        hints = get_type_hints(cls)
        return cls(**{name: _typed(hints[name], value) for name, value in data.items()})

    @classmethod
    def of_environment(cls) -> RunOptions:
        """Return the options that `write` wrote, of the run that this process belongs to."""
        path = os.environ.get(RUN_FILE)
        data: Any = read_json(path, "the run.json of a run", ScriptError) if path else {}
        return cls.of(data)

    def write(self, folder: Path) -> dict[str, str]:
        """Write the options to a folder, and return the environment in which `of_environment` reads them."""
        return {RUN_FILE: str(write_json(folder / "run.json", _plain(self)))}

    def resolved(self) -> RunOptions:
        """Return the same with absolute paths."""
        paths: dict[str, Any] = {
            name: path.resolve() for name, path in vars(self).items() if isinstance(path, Path)
        }
        return replace(self, **paths)

    def check(self) -> None:
        """Ensure that a run with these options makes sense, before it begins.

        Raises:
            ScriptError: One is out of its range; the message names it.
            ProfileError: The file of latencies is wrong.
        """
        self.check_ranges()
        if self.checkpoint_every and self.checkpoints is None:
            raise ScriptError(
                f"checkpoint_every: {self.checkpoint_every} needs a folder for checkpoints; give one"
            )
        if self.checkpoints is not None and self.checkpoints.exists() and not self.checkpoints.is_dir():
            raise ScriptError(f"checkpoints: {self.checkpoints} is not a folder; give one")
        if self.trace_file is not None and self.trace_file.is_dir():
            raise ScriptError(f"trace_file: {self.trace_file} is a folder; give a file in it")
        if self.clock_latency is not None:
            read_clock_latency(self.clock_latency)

    def check_ranges(self) -> None:
        """Ensure that every option makes sense by itself.

        Raises:
            ScriptError: One is out of its range; the message names it.
        """
        for each in _declared():
            value, meaning = getattr(self, each.name), each.metadata["meaning"]
            if value is None:
                continue
            if meaning.choices and value not in meaning.choices:
                raise ScriptError(f"{each.name}: {value!r} is not known; use {' or '.join(meaning.choices)}")
            if meaning.limits and not meaning.allows(value):
                raise ScriptError(f"{each.name}: {value:g} is not {meaning.limits} {meaning.unit}".rstrip())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a command line take the options of a run by hand; those that are not given are absent."""
    hints = get_type_hints(RunOptions)
    for each in _declared():
        if "is_of_launch" in each.metadata:
            continue
        kind, meaning = without_none(hints[each.name])[0], each.metadata["meaning"]
        default = "" if each.default in (None, False) else f" (default {each.default})"
        parser.add_argument(
            f"--{each.name.replace('_', '-')}",
            default=argparse.SUPPRESS,
            help=meaning.text + (f", in {meaning.unit}" if meaning.unit else "") + default,
            **{"action": argparse.BooleanOptionalAction} if kind is bool else {"type": kind},
        )


def as_arguments(options: Mapping[str, object]) -> list[str]:
    """Return the command line of which `add_arguments` makes these options."""
    found = []
    for name, value in options.items():
        flag = ("no-" if value is False else "") + name.replace("_", "-")
        found += [f"--{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return found


def _declared() -> list[Any]:
    return [each for each in fields(RunOptions) if "meaning" in each.metadata]


def _typed(kind: Any, value: Any) -> Any:
    """Return a value of a field's type of its plain form; one that has the type already stays."""
    kind, _ = without_none(kind)
    if value is None or isinstance(value, kind):
        return value
    return kind(**value) if isinstance(value, Mapping) else kind(value)


def _plain(options: RunOptions) -> dict[str, Any]:
    return {name: str(each) if isinstance(each, Path) else each for name, each in asdict(options).items()}
