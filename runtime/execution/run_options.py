"""Options of a run as the code reads them; they reach the processes of the devices as one file.

Whoever starts a run makes a `RunOptions`. It is written as ``run.json``, and `RUN_FILE` in the environment of
a process is its path. What a user gives is declared in `runtime.options.run`: a new option is one more field
there, and its use.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from placements.forms.meaning import option, without_none
from placements.forms.texts import read_json, write_json
from runtime.clocks.latency import read_clock_latency
from runtime.options.run import UserRunOptions
from runtime.profiling.profiler import Sweep
from runtime.program.calls import ScriptError

RUN_FILE = "SCHEDSEARCH_RUN"
"""Environment variable of a device's process: path of the file with the options of the run."""


@dataclass(frozen=True)
class RunOptions(UserRunOptions):
    """The options of a run, the same for all its devices.

    Attributes:
        meeting: URL where the processes find each other; by default where torchrun says.
        results: Folder for `runtime.execution.results`, or None to only report progress.
        sweep: Profile the blocks in this way, and end when that is done; None to run all iterations.
    """

    backend: str | None = option(None, "backend of communication; by default nccl with a GPU for each device")
    checkpoints: Path | None = option(None, "folder for checkpoints")
    resume: Path | None = option(None, "folder of checkpoints; the run goes on from the newest")
    trace_file: Path | None = option(None, "file for the trace of the last iterations")
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
        """Tell whether an iteration is compared."""
        return self.verify == "all" or (self.verify == "first" and iteration == 0)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RunOptions:
        """Return the options with these values, plain or not, by name, and by default for the others."""
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
        """Ensure that every field makes sense by itself."""
        for field in _declared():
            value, meaning = getattr(self, field.name), field.metadata["meaning"]
            if value is None:
                continue
            if meaning.choices and value not in meaning.choices:
                raise ScriptError(f"{field.name}: {value!r} is not known; use {' or '.join(meaning.choices)}")
            if meaning.limits and not meaning.allows(value):
                raise ScriptError(f"{field.name}: {value:g} is not {meaning.limits} {meaning.unit}".rstrip())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a command line take the options of a run by hand; options that are not given are absent."""
    hints = get_type_hints(RunOptions)
    for field in _declared():
        if "is_of_launch" in field.metadata:
            continue
        kind, meaning = without_none(hints[field.name])[0], field.metadata["meaning"]
        default = "" if field.default in (None, False) else f" (default {field.default})"
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            default=argparse.SUPPRESS,
            help=meaning.with_unit + default,
            **{"action": argparse.BooleanOptionalAction} if kind is bool else {"type": kind},
        )


def _declared() -> list[Any]:
    return [field for field in fields(RunOptions) if "meaning" in field.metadata]


def _typed(kind: Any, value: Any) -> Any:
    """Return a value of a field's type of its plain form; one that has the type already stays."""
    kind, _ = without_none(kind)
    if value is None or isinstance(value, kind):
        return value
    return kind(**value) if isinstance(value, Mapping) else kind(value)


def _plain(options: RunOptions) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}
