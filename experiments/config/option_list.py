"""The options of each command with their defaults and meanings, as help and docs show them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from experiments.config.commands import commands, items_of
from experiments.config.declaring import Option, groups_of, kinds_of_groups, own_options
from placements.meaning import REQUIRED

CONFIG = Path(__file__).parents[1] / "conf"
"""Folder of the config that all commands begin with: it says where output goes."""

FILE = "file"
"""The choice of a group that reads a file, with the option ``path``."""

_DECIDING = {"reproduce": "experiment", "cluster": "trace"}
"""The group whose choice decides which options a command has; of the others it is ``placement``."""


def options_of(command: str, choices: Mapping[str, str | None] | None = None) -> Iterator[Option]:
    """Yield the options of a command: first its groups and its own, then those in the groups.

    Args:
        command: Its name.
        choices: The kind of a group where it is not the default one.
    """
    declared = commands()[command]
    groups: dict[str, str | None] = dict(groups_of(declared.record))
    if kinds_of(command, "experiment"):
        groups["experiment"] = None
    groups |= {group: kind for group, kind in (choices or {}).items() if group in groups}
    for group, kind in groups.items():
        kinds = kinds_of(command, group)
        if kinds != ["default"]:
            yield Option(group, kind, f"one of {', '.join(kinds)}")
    yield from own_options(declared.record)
    every = kinds_of_groups(declared.record)
    for group, kind in groups.items():
        if group == "experiment":
            yield from items_of(command).get(str(kind), ())
            continue
        found = every[group].get(str(kind), ())  # else it is a file in a --config-dir
        named = (each._replace(name=f"{group}.{each.name}") for each in found)
        yield from (option for option in named if option.name not in declared.refused)


def kinds_of(command: str, group: str) -> list[str]:
    """Return the names from which a group of a command is chosen; none where it has no such group."""
    declared = commands()[command]
    if group == "experiment":
        return sorted([*declared.presets, *items_of(command)])
    return sorted(kinds_of_groups(declared.record).get(group, ()))


def names_of(command: str) -> set[str]:
    """Return the name of every option of a command, whichever placement, trace or item is chosen."""
    group = _DECIDING.get(command, "placement")
    choices: list[dict[str, str | None]] = [{group: kind} for kind in kinds_of(command, group)]
    return {option.name for choice in choices or [{}] for option in options_of(command, choice)}


def default_of(command: str, name: str) -> object:
    """Return the value that an option of a command has where it is not given."""
    return next(option.default for option in options_of(command) if option.name == name)


def as_yaml(default: Any) -> str:
    """Return a default as it is written on the command line.

    >>> [as_yaml(default) for default in (None, True, 0.5, "gpt", "36:36", ["a", 1], {"a": None})]
    ['null', 'true', '0.5', 'gpt', "'36:36'", '[a, 1]', '{a: null}']
    """
    if default == REQUIRED:
        return REQUIRED
    text: str = yaml.safe_dump(default, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def help_text(command: str, *, _root_: Mapping[str, Mapping[str, Mapping[str, Mapping[str, str]]]]) -> str:
    """Return what ``--help`` prints of a command, as a template of Hydra's.

    Args:
        command: Its name.
        _root_: The config as composed, with the groups that were chosen.
    """
    options = [
        each._replace(default=as_yaml(each.default))
        for each in options_of(command, _root_["hydra"]["runtime"]["choices"])
    ]
    width = max(len(f"{option.name}={option.default}") for option in options if len(option.default) < 20)
    objective = commands()[command].objective
    minimized = f" Optimizing sweepers minimize {objective}." if objective else ""
    lines = [
        commands()[command].purpose,
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
