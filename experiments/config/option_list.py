"""The options of each command with their defaults and meanings, as help and docs show them."""

from __future__ import annotations

import itertools
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.config.declaring import Option, command_of, groups_of, options_of_item, own_options
from experiments.config.rooms import PURPOSES
from placements.forms.meaning import REQUIRED

CONFIG = Path(__file__).parents[1] / "conf"
"""Folder of the config that all commands begin with: it says where output goes."""

FILE = "file"
"""The choice of a group that reads a file, with the option ``path``."""


def command_options(command: str, choices: Mapping[str, str | None] | None = None) -> Iterator[Option]:
    """Yield the options of a command: first its groups and its own, then those in the groups.

    A group has its default kind unless another is chosen.
    """
    return itertools.chain.from_iterable(_by_group(command, choices or {}).values())


def _by_group(command: str, choices: Mapping[str, str | None]) -> dict[str, list[Option]]:
    """Return the options of a command by their group; its groups and its own have an empty name."""
    declared, groups = command_of(command), groups_of(command_of(command).record)
    kinds = {group: kinds_of(command, group) for group in (*groups, "experiment")}
    chosen = {group: choices.get(group, groups[group].choice if group in groups else None) for group in kinds}
    by_group = {
        "": [
            Option(group, chosen[group], f"one of {', '.join(sorted(of))}{', or its path' * (FILE in of)}")
            for group, of in kinds.items()
            if of - {"default"}
        ]
    }
    by_group[""] += own_options(declared.record)
    for name, group in groups.items():
        options = group.kinds.get(str(chosen[name]), ())  # else it is a file in a --config-dir
        named = (option._replace(name=f"{name}.{option.name}") for option in options)
        by_group[name] = [option for option in named if option.name not in declared.refused]
    item = chosen["experiment"]
    by_group["experiment"] = [*options_of_item(command, item)] if item in declared.items else []
    return by_group


def kinds_of(command: str, group: str) -> set[str]:
    """Return the names from which a group of a command is chosen; none where it has no group of that name."""
    declared = command_of(command)
    if group == "experiment":
        return {*declared.presets, *declared.items}
    groups = groups_of(declared.record)
    return {*groups[group].kinds} if group in groups else set()


def chosen_items(command: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return the items of a command that options as of a command line choose, in a sweep several."""
    words = [option.partition("=")[2].split(",") for option in given if option.startswith("experiment=")]
    return tuple(item for item in command_of(command).items if any(item in chosen for chosen in words))


def names_of(command: str, given: Sequence[str] = ()) -> set[str]:
    """Return the names of a command's options for all kinds of its groups, and of chosen items."""
    declared, items = command_of(command), chosen_items(command, given)
    names = {option.name for option in _by_group(command, {})[""]}
    for name, group in groups_of(declared.record).items():
        names |= {f"{name}.{option.name}" for options in group.kinds.values() for option in options}
    names |= {option.name for item in items for option in options_of_item(command, item)}
    return names - {*declared.refused}


def as_yaml(default: Any) -> str:
    """Return a default as it is written on the command line.

    >>> [as_yaml(default) for default in (None, True, 0.5, "gpt", "36:36", ["a", 1], {"a": None})]
    ['null', 'true', '0.5', 'gpt', "'36:36'", '[a, 1]', '{a: null}']
    """
    if default == REQUIRED:
        return REQUIRED
    text: str = yaml.safe_dump(default, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def help_text(command: str, given: Sequence[str] = ()) -> str:
    """Return the text of ``--help``: the options that matter first, then all others by their groups."""
    declared = command_of(command)
    choices = {group: kind for group, _, kind in (word.partition("=") for word in given)}
    groups = _by_group(command, choices)
    every = {option.name: option for options in groups.values() for option in options}
    first = [every[name] for name in declared.first.split() if name in every]
    sections = {"First": first} if len(first) < len(every) else {"": first}
    for group, options in groups.items():
        declared_group = groups_of(declared.record).get(group)
        headline = declared_group.headline if declared_group else "Others"
        for option in options:
            headline = declared.headlines.get(option.name, headline)
            if option not in first:
                sections.setdefault(headline, []).append(option)
    shown = {option.name: f"{option.name}={as_yaml(option.default)}" for option in every.values()}
    width = max((len(text) for name, text in shown.items() if len(text) < len(name) + 21), default=0)
    objective = f" Optimizing sweepers minimize {declared.objective}." if declared.objective else ""
    lines = [
        PURPOSES[command],
        "",
        f"schedsearch {command} [NAME=VALUE ...] [hydra.run.dir=DIRECTORY]",
        f"schedsearch {command} -m [NAME=VALUE,VALUE ...] [hydra.sweep.dir=DIRECTORY]",
    ]
    for headline, options in sections.items():
        lines += ["", *([f"{headline}:"] if headline else [])]
        lines += (_in_columns(f"  {shown[option.name]:<{width}}  ", option.meaning) for option in options)
    return "\n".join(lines) + (
        f"\n\n-m runs all combinations; points done in hydra.sweep.dir are not run again.{objective}\n"
        "Launchers, sweepers and more: --hydra-help. One table of all runs: schedsearch collect."
    )


def _in_columns(option: str, meaning: str) -> str:
    """Return an option with its meaning beside it, continued below where the terminal is narrow."""
    columns = shutil.get_terminal_size((1000, 24)).columns
    indent = " " * min(len(option), columns * 3 // 5)
    return textwrap.fill(option + meaning, columns, subsequent_indent=indent, break_on_hyphens=False).rstrip()
