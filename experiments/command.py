"""A Hydra command whose user errors are one line and exit code 2, never a traceback."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hydra
import yaml
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.options import did_you_mean

CONFIG = Path(__file__).parent / "conf"

USER_ERROR = 2
"""Exit code for wrong input."""

FAILED = 1
"""Exit code when the task itself fails."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell gives it."""


class Interrupted(Exception):  # noqa: N818 - an outcome, not an error
    """The task was interrupted from the keyboard and has saved what it had."""


class Failed(Exception):  # noqa: N818 - an outcome, like `Interrupted`
    """The task failed through no fault of the input; the message may have several lines."""


def run_command(name: str, task: Callable[[DictConfig], None]) -> None:
    """Compose the config from the command line, run the task in Hydra, and exit with a code.

    Args:
        name: Of the command and of its config.
        task: What to do with the config. A `ValueError` from it is taken to be the user's.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise, so that the message can be made one line here

    def guarded(config: DictConfig) -> None:
        # Leaves Hydra by SystemExit, which it passes on, where it would add lines of its own to an error.
        try:
            task(config)
        except ValueError as error:
            _exit(f"{name}: error: {str(error).splitlines()[0]}", USER_ERROR)
        except Interrupted as outcome:
            _exit(f"{name}: {outcome}", INTERRUPTED)
        except Failed as outcome:
            _exit(f"{name}: {outcome}", FAILED)

    try:
        hydra.main(version_base="1.3", config_path=str(CONFIG), config_name=name)(guarded)()
    except (HydraException, OmegaConfBaseException) as error:
        _exit(f"{name}: error: {_config_error(error)}", USER_ERROR)
    except KeyboardInterrupt:
        _exit(f"{name}: interrupted; what is written is whole", INTERRUPTED)


def _exit(line: str, code: int) -> None:
    print(line, file=sys.stderr)  # noqa: T201
    sys.exit(code)


def _config_error(error: Exception) -> str:
    """Return Hydra's message about the config as one line with a remedy."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    misspelt = re.match(r"Could not override '([^']+)'", lines[0])
    if misspelt:
        key = misspelt.group(1)
        return f"{key}: is not an option of {CONFIG.name}/config.yaml; {did_you_mean(key, _option_names())}"
    group = re.match(r"(?:In '[^']*': )?Could not find '([^']+)'", lines[0])
    if group:
        choices = itertools.takewhile(lambda line: not line.startswith("Config search path"), lines[2:])
        return f"{group.group(1)}: is not there; choose one of {', '.join(choices)}"
    return " ".join(lines)


def _option_names() -> Iterator[str]:
    """Return the dotted name of every option of every config file."""
    yield from _dotted(yaml.safe_load((CONFIG / "config.yaml").read_text(encoding="utf-8")), "")
    for path in sorted((CONFIG / "placement").glob("*.yaml")):
        yield from _dotted(yaml.safe_load(path.read_text(encoding="utf-8")), "placement.")


def _dotted(data: dict[str, object], prefix: str) -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key
