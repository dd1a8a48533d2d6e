"""A run that died, gone on with from its output directory: the same scripts, and nothing searched anew."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from experiments.options import OptionError, RuntimeOptions, read_fields
from schedsearch.files import read_json, write_json

SCHEMA_VERSION = 1
"""Version of the form of ``runtime.json``."""

CHANGEABLE = ("iterations", "timeout_s", "launcher", "blocking", "checkpoint_every", "keep_checkpoints")
"""Options of a run that may be others when it goes on; all else is in its scripts."""


def save_options(options: RuntimeOptions, directory: Path) -> Path:
    """Write ``runtime.json``, from which `options_of` reads them again; return its path."""
    return write_json(
        directory / "runtime.json",
        {"schema_version": SCHEMA_VERSION, "runtime": asdict(replace(options, resume=None))},
    )


def resumed_directory(options: RuntimeOptions) -> Path | None:
    """Return the output directory of the run to go on with; None if that is not what is asked for."""
    if options.resume is None or not (Path(options.resume) / "scripts").is_dir():
        return None
    return Path(options.resume).resolve()


def options_of(directory: Path, options: RuntimeOptions, overrides: Sequence[str]) -> RuntimeOptions:
    """Return the options with which a run goes on: its own, and those that the command line gives anew.

    Args:
        directory: The output of the run.
        options: With which the command was started.
        overrides: Of the command line, such as ``runtime.iterations=6``.

    Raises:
        OptionError: An option cannot be changed any more, or the directory lacks the file.
    """
    given = [override.partition("=")[0].lstrip("+~") for override in overrides]
    allowed = {f"runtime.{name}": name for name in CHANGEABLE}
    for key in given:
        if key not in allowed and key != "runtime.resume":
            raise OptionError(
                f"{key}: cannot be changed when {directory} is resumed, only {', '.join(allowed)}; leave it "
                f"out, or give runtime.resume={directory / 'checkpoints'}"
            )
    data = read_json(directory / "runtime.json", "the output directory of experiments.run", OptionError)
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        raise OptionError(f"{directory / 'runtime.json'}: is of another version; run its job anew")
    before = read_fields(data.get("runtime"), RuntimeOptions, "runtime")
    return replace(
        before, **{allowed[key]: getattr(options, allowed[key]) for key in given if key in allowed}
    )


def resume_command(directory: Path) -> str:
    """Return the line that goes on with a run, for a shell.

    >>> print(resume_command(Path("/data/run 1")))
    python -m experiments.run 'runtime.resume="/data/run 1"'
    """
    text = str(directory)
    if not re.fullmatch(r"[\w./-]+", text, re.ASCII):
        # In quotes a backslash means itself to Hydra, unless it stands before a quote.
        text = re.sub(r'(\\*)"', r'\1\1\\"', text)
        text = '"' + re.sub(r"(\\+)$", r"\1\1", text) + '"'
    return f"python -m experiments.run {shlex.quote(f'runtime.resume={text}')}"
