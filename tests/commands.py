"""Commands run as a user runs them, and their lines of error."""

import importlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

import hydra
import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import flag_override

from experiments.config.declaring import command_of, tell_hydra
from experiments.config.option_list import CONFIG


def one_line_error(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a user's mistake gets."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def run_here(name: str, overrides: Sequence[str], directory: Path) -> None:
    """Run the task of a command, here and not in a process of its own; the directory is for its output."""
    tell_hydra(name)
    with hydra.initialize_config_dir(str(CONFIG), version_base="1.3"):
        config = hydra.compose(name, list(overrides), return_hydra_config=True)
    with flag_override(config, ["readonly", "struct"], False):
        config.hydra.runtime.output_dir = str(directory)
        HydraConfig.instance().set_config(config)
        del config["hydra"]
    options = command_of(name).read(config, command_of(name).record)
    importlib.import_module(command_of(name).task).task(options)


def refusal(name: str, overrides: Sequence[str], directory: Path) -> str:
    """The line with which the task of a command refuses options.

    Every command makes `one_line_error` of it. Nothing may be left in the directory for its output.
    """
    with pytest.raises(ValueError) as error:
        run_here(name, overrides, directory)
    assert not list(directory.glob("*"))
    assert "\n" not in str(error.value)
    return str(error.value)
