"""Words of a command line before Hydra reads them, and Hydra's messages about wrong ones, in one line."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from experiments.config.declaring import command_of
from experiments.config.option_list import FILE, kinds_of, names_of
from experiments.config.options import OptionError, did_you_mean
from experiments.config.rooms import names

HELP = {"--help", "-h"}
"""Flags that are answered without Hydra."""

_FLAGS = (*HELP, "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m", "--info", "-i")
"""Flags of Hydra's."""

_FLAGS_WITH_VALUE = (
    *("--cfg", "-c", "--package", "-p", "--shell-completion", "-sc", "--config-path", "-cp"),
    *("--config-name", "-cn", "--config-dir", "-cd", "--experimental-rerun"),
)
"""Those with a word after them."""

FLAGS_OF_CONFIG = ("--config", "-cp", "-cn", "-cd", "--experimental-rerun")
"""Beginnings of the flags that bring a config of the user's."""

_LAUNCHERS = {"joblib": "joblib", "ray": "ray", "submitit_local": "slurm", "submitit_slurm": "slurm"}
"""Extra of this project that a launcher of Hydra's needs."""


def for_hydra(command: str, given: Sequence[str]) -> list[str]:
    """Return a command line as Hydra wants it: flags after all options, and a group's path as an option.

    ``GROUP=PATH`` becomes the choice ``file`` of the group and the option ``path``, for groups that have them
    and a value that is a file or looks like a path: with a dot or a slash, which no choice has.

    Raises:
        OptionError: A flag or an option is not known, or an option is not written NAME=VALUE.
    """
    options, flags = _apart(command, given)
    if not any(flag.startswith(FLAGS_OF_CONFIG) for flag in flags):
        _check_names(command, options)
    words = list[str]()
    for option in options:
        name, _, value = option.partition("=")
        paths = (re.search(r"[./\\]", part) or Path(part).exists() for part in value.split(","))
        is_path = FILE in kinds_of(command, name) and all(paths)
        words += [f"{name}={FILE}", f"{name}.path={value}"] if is_path else [option]
    return [*words, *flags]


def _apart(command: str, given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of a command line, and apart from them its flags with their values."""
    options, flags, words, names = list[str](), list[str](), iter(given), names_of(command, given)
    known = (*_FLAGS, *_FLAGS_WITH_VALUE)
    for word in words:
        flag, is_whole, value = word.partition("=")
        if flag in known:
            flags.append(word)
            if flag in _FLAGS_WITH_VALUE and not is_whole:
                flags += islice(words, 1)
            continue
        name, _, after = flag.lstrip("-").partition(":")
        if name in names and name != flag:
            value = value or after or next(words, "VALUE")
            raise OptionError(f"{word}: is not NAME=VALUE; write {name}={value}")
        if word.startswith("-"):
            raise OptionError(f"{word}: is not a flag of {command}; {did_you_mean(flag, known)}")
        options.append(word)
    return options, flags


def _check_names(command: str, options: Sequence[str]) -> None:
    """Reject an option of a name that is no option's, no group's, and not within one, or without a value."""
    names = names_of(command, options)
    for option in options:
        name, has_value, _ = option.partition("=")
        if not re.fullmatch(r"[\w.]+", name) or name == "hydra" or name.startswith("hydra."):
            continue  # Hydra's own syntax, or its own options
        if not any(f"{known}.".startswith(f"{name}.") or name.startswith(f"{known}.") for known in names):
            raise OptionError(unknown(command, name, options))
        if not has_value:
            raise OptionError(f"{name}: is not NAME=VALUE; write {name}=VALUE")


def unknown(command: str, key: str, given: Sequence[str]) -> str:
    """Return the message about an option that a command, with the chosen groups, does not have."""
    known, where = names_of(command, given), f"is not an option of schedsearch {command}"
    if matches := [name for name in sorted(known) if name.endswith(f".{key}")]:
        return f"{key}: {where}; did you mean {matches[0]}?"
    if key == "experiment" and (kinds := kinds_of(command, key)):
        kind = next((word.partition("=")[2] for word in given if word.startswith(f"{key}=")), "")
        return f"{key}={kind}: is not there; {did_you_mean(kind, sorted(kinds))}"
    if key in known:
        group = key.partition(".")[0]
        return f"{key}: is not an option of the {group} that is chosen; choose another or leave it out"
    if others := [o for o in names() if any(f"{name}.".startswith(f"{key}.") for name in names_of(o))]:
        return f"{key}: {where}, but of {', '.join(others)}; leave it out"
    if near := difflib.get_close_matches(key, known, n=1):
        return f"{key}: {where}; did you mean {near[0]}?"
    if command_of(command).items:
        remedy = "choose the item that has it by experiment=NAME, or leave it out"
        return f"{key}: {where} as it is called; {remedy}"
    return f"{key}: {where}; {'--hydra-help' if key.startswith('hydra') else '--help'} says more"


def config_error(error: BaseException, command: str) -> str:
    """Return Hydra's message about the config of a command as one line with a remedy."""
    lines, given = [line.strip() for line in str(error).splitlines() if line.strip()], sys.argv[1:]
    if misspelt := re.match(r"(?:In '[^']*': )?Could not override '([^']+)'", lines[0]):
        return unknown(command, misspelt[1], given)
    if type(error).__name__ == "OverrideParseException":
        wrong = getattr(error, "override", "")
        remedy = """quote a value with such characters, as in 'NAME="a (1).csv"'"""
        return f"{wrong}: is not NAME=VALUE, or has brackets or quotes that are not closed; {remedy}"
    if lines[0].startswith("Config group override must be"):
        parts = {word: kinds_of(command, word.partition("=")[0]) for word in given}
        groups = [(word, kinds) for word, kinds in parts.items() if kinds]
        wrong = [word for word, kinds in groups if not kinds.issuperset(word.split("=")[1].split(","))]
        return f"{' '.join(wrong)}: is a group of options, not a value; choose a config, or leave it out"
    if several := re.match(r"Ambiguous value for argument '(.*)'", lines[0]):
        return f"{several[1]}: has several values; write -m too to sweep over them, or [ ] around a list"
    if "does not support sweep type" in lines[0]:
        return "hydra/sweeper: basic takes values one by one; give them as in 3,4,5 or range(3,6)"
    if group := re.match(r"(?:In '[^']*': )?Could not find '([^']+)'", lines[0]):
        folder, _, kind = group[1].rpartition("/")
        if kind in _LAUNCHERS:
            return f"{folder}={kind}: is not there; pip install 'schedsearch[{_LAUNCHERS[kind]}]'"
        end = next((i for i, line in enumerate(lines) if line.startswith("Config search path")), len(lines))
        choices = sorted(kinds_of(command, folder)) or lines[2:end]
        return f"{folder}={kind}: is not there; {did_you_mean(kind, choices)}"
    return f"{' '.join(lines)}; --help says more"
