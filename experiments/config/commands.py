"""All commands, and their configs for Hydra. Their options are declared where they are used."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from typing import Any

from experiments.config.declaring import Command, Option, groups_of, own_options

_stored = {"experiment"}
"""Groups that Hydra has been given in this process."""


def command_of(name: str) -> Command:
    """Return a command, as the module ``options`` of its room declares it; loads no other's options."""
    found: Command = importlib.import_module(f"experiments.{name}.options").COMMAND
    return found


@cache
def options_of_item(command: str, item: str) -> tuple[Option, ...]:
    """Return the options of one of a command's items."""
    found: tuple[Option, ...] = importlib.import_module(command_of(command).catalogue).options_of_item(item)
    return found


def tell_hydra(name: str, items: Iterable[str] | None = None) -> None:
    """Give Hydra the config of a command and its groups; the option of one may be the group of another.

    Only some items may be given, as to load all takes long.
    """
    from hydra.core.config_store import ConfigStore  # which help does not wait for

    command, store = command_of(name), ConfigStore.instance()
    for group in _stored:  # of another command of this process
        store.repo.pop(group, None)
    groups = groups_of(command.record)
    for group, own in groups.items():
        _stored.add(group)
        for kind, options in own.kinds.items():
            store.store(kind, _values(options), group)
    chosen = [item for item in command.items if items is None or item in items]
    presets = {item: _values(options_of_item(name, item)) for item in chosen} | dict(command.presets)
    for choice, values in presets.items():
        store.store(choice, dict(values), "experiment", package="_global_")
    defaults = [
        "output",
        *({group: own.choice} for group, own in groups.items()),
        *({f"override hydra/{group}": kind} for group, kind in command.overrides.items()),
        "_self_",
        *([{"experiment": None}] if command.presets or command.items else []),
    ]
    hydra = {"job": {"name": command.name}} | dict(command.hydra)
    store.store(name, {"defaults": defaults, **_values(own_options(command.record)), "hydra": hydra})


def _values(options: Iterable[Option]) -> dict[str, Any]:
    """Return the defaults as Hydra takes them."""
    return {
        each.name: list(each.default) if isinstance(each.default, tuple) else each.default for each in options
    }
