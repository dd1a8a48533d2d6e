"""A run that died, gone on with from its output directory: the same scripts, and nothing searched anew."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.config.options import OptionError, read_fields
from experiments.run.options import RunCommandOptions, RuntimeOptions
from placements.forms.reading import json_file
from placements.forms.texts import write_json

SCHEMA_VERSION = 1
"""Version of the form of ``runtime.json``."""

CHANGEABLE = (
    *("iterations", "timeout_s", "launcher", "blocking"),
    *("checkpoint_every", "keep_checkpoints", "checkpoint_async"),
    *("verify", "save_weights"),
)
"""Options of the `runtime` group that may be others when a run goes on; all else is in its scripts."""

CLOCK_LATENCY = "profile.clock_latency"
"""An option of another group that scripts are run with; it may be another too."""


@dataclass(frozen=True)
class KeptOptions:
    """Options that scripts are run with, kept for when the run goes on.

    Attributes:
        runtime: The options of the group; whether it is resumed does not count.
        clock_latency: Absolute path of a file of `python -m runtime.clock latency`, or None.
    """

    runtime: RuntimeOptions
    clock_latency: Path | None = None

    @classmethod
    def of(cls, options: RunCommandOptions) -> KeptOptions:
        """Pick the options that a resumed run needs."""
        given = options.runtime
        load, save = _absolute(given.load_weights), _absolute(given.save_weights)
        runtime = replace(given, resume=None, load_weights=load, save_weights=save)
        return cls(runtime, _absolute(options.profile.clock_latency))


def save_options(kept: KeptOptions, directory: Path) -> Path:
    """Write ``runtime.json``, from which `kept_options` reads them again; return its path."""
    unknown = {"server": None, "profile_online": False}  # its job is not known to who goes on
    runtime = vars(kept.runtime) | unknown | {"clocks": kept.runtime.has_clocks}
    runtime = {name: str(value) if isinstance(value, Path) else value for name, value in runtime.items()}
    latency = kept.clock_latency and str(kept.clock_latency)
    data = {"schema_version": SCHEMA_VERSION, "runtime": runtime, "clock_latency": latency}
    return write_json(directory / "runtime.json", data)


def resumed_directory(options: RuntimeOptions) -> Path | None:
    """Return the output directory of the run to go on with; None for a new run."""
    if options.resume is None or not (Path(options.resume) / "scripts").is_dir():
        return None
    return Path(options.resume).resolve()


def kept_options(directory: Path, options: RunCommandOptions, overrides: Sequence[str]) -> KeptOptions:
    """Return the options with which a run goes on: its own, changed by the command line.

    The overrides, such as ``runtime.iterations=6``, say which of the options are given.

    Raises:
        OptionError: An option cannot be changed any more, or the directory lacks the file.
    """
    given = {override.partition("=")[0].lstrip("+~") for override in overrides}
    allowed = {f"runtime.{name}": name for name in CHANGEABLE}
    for key in sorted(given - {*allowed, CLOCK_LATENCY, "runtime.resume"}):
        others, remedy = ", ".join((*allowed, CLOCK_LATENCY)), f"runtime.resume={directory / 'checkpoints'}"
        wrong = f"{key}: cannot be changed when {directory} is resumed, only {others}"
        raise OptionError(f"{wrong}; leave it out, or give {remedy}")
    before = _read(directory / "runtime.json")
    anew = {allowed[key]: getattr(options.runtime, allowed[key]) for key in given & allowed.keys()}
    table = options.profile.clock_latency if CLOCK_LATENCY in given else before.clock_latency
    return KeptOptions(replace(before.runtime, **anew), _absolute(table))


def _read(path: Path) -> KeptOptions:
    with json_file(path, "the output directory of schedsearch run", OptionError) as kept:
        kept.version(SCHEMA_VERSION)
        table = kept.get("clock_latency")
        if table.value is not None:
            table.text("a path", f"give {CLOCK_LATENCY}=FILE")
        runtime = kept["runtime"].mapping("the options of the group runtime")
        return KeptOptions(read_fields(runtime, RuntimeOptions, "runtime"), _absolute(table.value))


def _absolute(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).resolve()


def resume_command(directory: Path) -> str:
    """Return the line that goes on with a run, for a shell.

    >>> print(resume_command(Path("/data/run 1")))
    schedsearch run 'runtime.resume="/data/run 1"'
    """
    text = str(directory)
    if not re.fullmatch(r"[\w./-]+", text, re.ASCII):
        # In quotes a backslash means itself to Hydra, unless it stands before a quote.
        text = re.sub(r'(\\*)"', r'\1\1\\"', text)
        text = '"' + re.sub(r"(\\+)$", r"\1\1", text) + '"'
    return f"schedsearch run {shlex.quote(f'runtime.resume={text}')}"
