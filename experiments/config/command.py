"""A Hydra command whose user errors are one line and exit code 2, never a traceback."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

CONFIG = Path(__file__).parents[1] / "conf"

USER_ERROR = 2
"""Exit code for wrong input."""

FAILED = 1
"""Exit code when the task itself fails."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell gives it."""


class Interrupted(Exception):  # noqa: N818 - an end, not an error
    """The task was interrupted from the keyboard and has saved what it had."""


class Failed(Exception):  # noqa: N818 - an end, like `Interrupted`
    """The task failed through no fault of the input; the message may have several lines."""


def command(name: str, task: str) -> Callable[[], None]:
    """Return what composes the config from the command line, runs the command's task in Hydra, and exits.

    Everything heavy is imported here, so that Ctrl-C while it loads ends in a line too.

    Args:
        name: Of the command and of its config.
        task: The module of this layer whose ``task`` it runs. A `ValueError` from there is the user's.
    """

    def main() -> None:
        try:
            _run_in_hydra(name, task)
        except KeyboardInterrupt:
            _exit(f"{name}: interrupted; what is written is whole", INTERRUPTED)

    return main


def _run_in_hydra(name: str, module: str) -> None:
    if name in ("run", "profile") and importlib.util.find_spec("torch") is None:
        _exit(f"{name}: error: torch is not installed; pip install 'schedsearch[runtime]'", FAILED)
    import hydra
    from hydra.errors import HydraException
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

    task = importlib.import_module(f"experiments.{module}").task
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise, so that the message can be made one line here

    def guarded(config: DictConfig) -> None:
        # Leaves Hydra by SystemExit, which it passes on, where it would add lines of its own to an error.
        try:
            task(config)
        except ValueError as error:
            _exit(f"{name}: error: {str(error).splitlines()[0]}", USER_ERROR)
        except OSError as error:
            _exit(f"{name}: error: {_os_error(error)}", USER_ERROR)
        except Interrupted as end:
            _exit(f"{name}: {end}", INTERRUPTED)
        except Failed as end:
            _exit(f"{name}: {end}", FAILED)

    try:
        hydra.main(version_base="1.3", config_path=str(CONFIG), config_name=name)(guarded)()
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # some of Hydra's are OSError too
        _exit(f"{name}: error: {_config_error(error, name)}", USER_ERROR)
    except OSError as error:
        _exit(f"{name}: error: {_os_error(error)}", USER_ERROR)


def _os_error(error: OSError) -> str:
    return (
        f"{error.filename or 'a file'}: {error.strerror or error}; choose another path, such as hydra.run.dir"
    )


def _exit(line: str, code: int) -> NoReturn:
    print(line, file=sys.stderr)  # noqa: T201
    sys.exit(code)


def _config_error(error: Exception, command: str) -> str:
    """Return Hydra's message about the config of a command as one line with a remedy."""
    from experiments.config.options import did_you_mean

    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    misspelt = re.match(r"Could not override '([^']+)'", lines[0])
    if misspelt:
        key = misspelt.group(1)
        names, file = list(_option_names(command)), _config_file(command).name
        if key in names:
            return f"{key}: is not an option of the placement that is chosen; choose another or leave it out"
        return f"{key}: is not an option of {CONFIG.name}/{file}; {did_you_mean(key, names)}"
    group = re.match(r"(?:In '[^']*': )?Could not find '([^']+)'", lines[0])
    if group:
        choices = itertools.takewhile(lambda line: not line.startswith("Config search path"), lines[2:])
        where, _, name = group.group(1).rpartition("/")
        return f"{where}={name}: is not there; {did_you_mean(name, choices)}"
    return " ".join(lines)


def _config_file(command: str) -> Path:
    """Return the file with the options of a command: its own, unless that only names the common one."""
    import yaml

    path = CONFIG / f"{command}.yaml"
    common = "config" in yaml.safe_load(path.read_text(encoding="utf-8")).get("defaults", [])
    return CONFIG / "config.yaml" if common else path


def _option_names(command: str) -> Iterator[str]:
    """Return the dotted name of every option of a command."""
    import yaml

    file = _config_file(command)
    yield from _dotted(yaml.safe_load(file.read_text(encoding="utf-8")), "")
    if file.stem == command:
        return
    for path in sorted((CONFIG / "placement").glob("*.yaml")):
        yield from _dotted(yaml.safe_load(path.read_text(encoding="utf-8")), "placement.")


def _dotted(data: dict[str, object], prefix: str) -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key
