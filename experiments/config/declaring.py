"""Commands as records: name, options and groups of options; found by name, and given to Hydra."""

from __future__ import annotations

import importlib
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple

from omegaconf import DictConfig

from experiments.config.options import read_record
from placements.forms.meaning import REQUIRED, declared_fields


class Option(NamedTuple):
    """An option with its default.

    Attributes:
        name: As on the command line, such as ``search.memory``.
        default: `REQUIRED` where it has to be given; for a group the name of the kind.
        meaning: The text that help and docs have for it.
    """

    name: str
    default: Any
    meaning: str


def own_options(record: type, **given: object) -> tuple[Option, ...]:
    """Return the options of a record that are in no group of its own, some with other defaults."""
    options = []
    for name, _, _, meaning, default in declared_fields(record):
        if meaning is not None:
            usual = REQUIRED if default is MISSING else default
            options.append(Option(name, given.pop(name, usual), meaning.with_unit))
    assert not given, f"{given} are options of {record.__name__}"
    return tuple(options)


class Group(NamedTuple):
    """A group of options of a command.

    Attributes:
        choice: The kind that it has unless another is chosen.
        headline: Headline of help above its options.
        kinds: Options of each kind; of one named ``default`` where there is no choice.
    """

    choice: str
    headline: str
    kinds: Mapping[str, tuple[Option, ...]]


@cache
def groups_of(record: type) -> dict[str, Group]:
    """Return the groups of a record by name."""
    hints = typing.get_type_hints(record)
    metadata = {declared.name: declared.metadata for declared in fields(record)}
    return {
        name: Group(data["group"], data["headline"], data["kinds"] or {"default": own_options(hints[name])})
        for name, data in metadata.items()
        if "group" in data
    }


@dataclass(frozen=True)
class Command:
    """A command that Hydra runs.

    Attributes:
        name: As on the command line.
        record: Its options and groups of options.
        task: The module whose ``task`` it runs, in `experiments`.
        read: Makes the task's options of a composed config, or rejects it.
        first: The options that matter most, at most eight words, with which help begins.
        headlines: Headlines of groups of options, by the name of the first option of each group.
        presets: Names that ``experiment`` may have; each sets many options at once.
        items: Names that ``experiment`` may have in a command without presets.
        catalogue: The module whose ``options_of_item`` returns the options of each; it loads large modules.
        objective: The figure of its ``result.json`` that sweepers minimize; empty for none.
        refused: Options that it does not take, though a group that it shares with others has them.
        needs_torch: Whether it can do nothing without torch.
        hydra: Settings of Hydra's for this command alone.
        overrides: Groups of Hydra's, and the choice in each.
    """

    name: str
    record: type
    task: str
    first: str
    read: Callable[[DictConfig, type], object] = read_record
    headlines: Mapping[str, str] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    items: tuple[str, ...] = ()
    catalogue: str = ""
    objective: str = ""
    refused: tuple[str, ...] = ()
    needs_torch: bool = False
    hydra: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)


_stored = {"experiment"}
"""Groups that Hydra has been given in this process."""


def command_of(name: str) -> Command:
    """Return a command, as the module ``options`` of its room declares it; loads no other's options."""
    command: Command = importlib.import_module(f"experiments.{name}.options").COMMAND
    return command


@cache
def options_of_item(command: str, item: str) -> tuple[Option, ...]:
    """Return the options of one of a command's items."""
    options: tuple[Option, ...] = importlib.import_module(command_of(command).catalogue).options_of_item(item)
    return options


def tell_hydra(name: str, items: Iterable[str] | None = None) -> None:
    """Give Hydra the config of a command and its groups; the option of one may be the group of another.

    Only some items may be given, as to load all takes long.
    """
    from hydra.core.config_store import ConfigStore  # which help does not wait for

    command, store = command_of(name), ConfigStore.instance()
    for group in _stored:  # of another command of this process
        store.repo.pop(group, None)
    groups = groups_of(command.record)
    for group, declared in groups.items():
        _stored.add(group)
        for kind, options in declared.kinds.items():
            store.store(kind, _values(options), group)
    chosen = [item for item in command.items if items is None or item in items]
    presets = {item: _values(options_of_item(name, item)) for item in chosen} | dict(command.presets)
    for choice, values in presets.items():
        store.store(choice, dict(values), "experiment", package="_global_")
    defaults = [
        "output",
        *({group: declared.choice} for group, declared in groups.items()),
        *({f"override hydra/{group}": kind} for group, kind in command.overrides.items()),
        "_self_",
        *([{"experiment": None}] if command.presets or command.items else []),
    ]
    hydra = {"job": {"name": command.name}} | dict(command.hydra)
    store.store(name, {"defaults": defaults, **_values(own_options(command.record)), "hydra": hydra})


def _values(options: Iterable[Option]) -> dict[str, Any]:
    """Return the defaults as Hydra takes them."""
    return {name: list(default) if isinstance(default, tuple) else default for name, default, _ in options}
