"""The options of each command with their defaults and meanings, from the comments of its config files."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

CONFIG = Path(__file__).parents[1] / "conf"
"""The configs: a file per command, a folder per group of options."""

PRESETS = CONFIG / "presets"
"""What ``experiment`` chooses from in the commands that search: many options in a file."""

OWN_GROUPS = CONFIG / "groups"
"""The groups that only one command has, in a folder of its name: others may have options of these names."""

COMMANDS = (
    *("search", "compare", "plan", "frontier", "run", "profile", "check", "cluster", "prices", "predict"),
    *("cluster_study", "bubble_by_memory", "bubble_by_in_flight", "time_by_transfer", "reproduce"),
)
"""The commands that Hydra runs, those that most people want first."""

REPRODUCE = "reproduce"
"""The command of which ``experiment`` chooses an item to reproduce, with the item's own options."""

OBJECTIVES = {"search": "makespan_ms", "frontier": "energy_j", "run": "energy_j"}
"""Which figure of its ``result.json`` a command returns, for sweepers that optimize."""

REFUSED = {"compare": ("search.begin_with", "search.export")}
"""Options that a command does not take, though a group that it shares with others has them."""

FILE = "file"
"""The choice of a group that reads a file, with the option ``path``."""

_DECIDING = {REPRODUCE: "experiment", "cluster": "trace"}
"""The group whose choice decides which options a command has; of the others it is ``placement``."""

_OPTION = re.compile(r"(\w+): *(.*?)(?: +# (.*))?")


class Option(NamedTuple):
    """One line of a config.

    Attributes:
        name: As on the command line, such as ``search.memory``.
        default: As YAML; for a group the name of its file.
        meaning: What it does.
    """

    name: str
    default: str
    meaning: str


def purpose_of(command: str) -> str:
    """Return what a command does in a sentence."""
    return _lines(CONFIG / f"{command}.yaml")[0].removeprefix("# ")


def options_of(command: str, choices: Mapping[str, str | None] | None = None) -> Iterator[Option]:
    """Yield the options of a command: first its groups and its own, then those in the groups.

    Args:
        command: One of `COMMANDS`.
        choices: The file of a group where it is not the default one.
    """
    files = list(_files(CONFIG / f"{command}.yaml"))
    groups = {group: choice for path in files for group, choice in _groups(path)}
    groups |= {group: choice for group, choice in (choices or {}).items() if group in groups}
    for group in groups:
        kinds = kinds_of(command, group)
        if kinds != ["default"]:
            yield Option(group, str(groups[group]).replace("None", "null"), f"one of {', '.join(kinds)}")
    for path in files:
        yield from _options_in(path, "")
    for group, choice in groups.items():
        path = folder_of(command, group) / f"{choice}.yaml"
        if path.exists() and (group != "experiment" or command == REPRODUCE):  # it may be in a --config-dir
            found = _options_in(path, "" if group == "experiment" else f"{group}.")
            yield from (option for option in found if option.name not in REFUSED.get(command, ()))


def kinds_of(command: str, group: str) -> list[str]:
    """Return the names of the files from which a group of a command is chosen."""
    return sorted(path.stem for path in folder_of(command, group).glob("*.yaml"))


def folder_of(command: str, group: str) -> Path:
    """Return the folder of the files from which a group of a command is chosen."""
    own = OWN_GROUPS / command / group
    if own.is_dir():
        return own
    return (PRESETS if group == "experiment" and command != REPRODUCE else CONFIG) / group


def names_of(command: str) -> set[str]:
    """Return the name of every option of a command, whichever placement, trace or item is chosen."""
    group = _DECIDING.get(command, "placement")
    kinds = kinds_of(command, group)
    return {option.name for kind in kinds for option in options_of(command, {group: kind})}


def default_of(command: str, name: str) -> object:
    """Return the value that an option of a command has where it is not given."""
    return next(yaml.safe_load(option.default) for option in options_of(command) if option.name == name)


def help_text(command: str, *, _root_: Mapping[str, Mapping[str, Mapping[str, Mapping[str, str]]]]) -> str:
    """Return what ``--help`` prints of a command, as a template of Hydra's.

    Args:
        command: One of `COMMANDS`.
        _root_: The config as composed, with the groups that were chosen.
    """
    options = list(options_of(command, _root_["hydra"]["runtime"]["choices"]))
    width = max(len(f"{option.name}={option.default}") for option in options if len(option.default) < 20)
    minimized = f" Optimizing sweepers minimize {OBJECTIVES[command]}." if command in OBJECTIVES else ""
    lines = [
        purpose_of(command),
        "",
        f"schedsearch {command} [NAME=VALUE ...] [hydra.run.dir=DIRECTORY]",
        f"schedsearch {command} -m [NAME=VALUE,VALUE ...] [hydra.sweep.dir=DIRECTORY]",
        "",
        *(_in_columns(f"  {f'{name}={default}':<{width}}  ", meaning) for name, default, meaning in options),
        "",
        f"-m runs all combinations; what is done in hydra.sweep.dir is not run again.{minimized}",
        "Launchers, sweepers and more: --hydra-help. One table of all runs: schedsearch collect.",
    ]
    return "\n".join(lines).replace("$", "$$")


def _in_columns(option: str, meaning: str) -> str:
    """Return an option with its meaning beside it, continued below where the terminal is narrow."""
    columns = max(shutil.get_terminal_size((1000, 24)).columns, len(option) + 30)
    return textwrap.fill(
        option + meaning, columns, subsequent_indent=" " * len(option), break_on_hyphens=False
    ).rstrip()


def _files(path: Path) -> Iterator[Path]:
    """Yield a config and those that it begins with."""
    for entry in _defaults(path):
        if isinstance(entry, str) and entry != "_self_":
            yield from _files(CONFIG / f"{entry}.yaml")
    yield path


def _groups(path: Path) -> Iterator[tuple[str, str | None]]:
    for entry in _defaults(path):
        if isinstance(entry, dict):
            yield from ((key, choice) for key, choice in entry.items() if not key.startswith("override "))


@cache
def _defaults(path: Path) -> list[str | dict[str, str | None]]:
    found: list[str | dict[str, str | None]] = yaml.safe_load("\n".join(_lines(path))).get("defaults", [])
    return found


def _options_in(path: Path, prefix: str) -> Iterator[Option]:
    for line in _lines(path):
        if (found := _OPTION.fullmatch(line)) and found.group(1) not in ("defaults", "hydra"):
            name, default, meaning = found.groups()
            yield Option(prefix + name, default, meaning or "")


@cache
def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").splitlines())
