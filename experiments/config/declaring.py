"""Commands as records: name, options and groups of options."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple

from omegaconf import DictConfig

from experiments.config.options import read_record
from placements.forms.meaning import REQUIRED


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
    own = [each for each in fields(record) if "meaning" in each.metadata]
    assert set(given) <= {each.name for each in own}, f"{given} are options of {record.__name__}"
    return tuple(
        Option(each.name, given.get(each.name, _default(each)), each.metadata["meaning"].with_unit)
        for each in own
    )


def _default(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return option.default_factory()
    return REQUIRED if option.default is MISSING else option.default


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
    hints, said = typing.get_type_hints(record), {each.name: each.metadata for each in fields(record)}
    return {
        name: Group(own["group"], own["headline"], own["kinds"] or {"default": own_options(hints[name])})
        for name, own in said.items()
        if "group" in own
    }


@dataclass(frozen=True)
class Command:
    """A command that Hydra runs.

    Attributes:
        name: As on the command line.
        record: Its options and groups of options.
        task: The module whose ``task`` it runs, in `experiments`.
        read: Makes what the task takes of a composed config, or rejects it.
        first: The options that matter most, at most eight words, with which help begins.
        headlines: Headlines of groups of options, by the name of the first option of each group.
        presets: Names that ``experiment`` may have; each sets many options at once.
        items: Names that ``experiment`` may have in a command without presets.
        catalogue: The module whose ``options_of_item`` says the options of each; what it loads is large.
        objective: The figure of its ``result.json`` that sweepers minimize; empty for none.
        refused: Options that it does not take, though a group that it shares with others has them.
        needs_torch: Whether it can do nothing without torch.
        hydra: Settings of Hydra's beside those of all commands.
        overrides: Groups of Hydra's, and what is chosen there.
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
